// The safetensors reader on files built by tests/support/safetensors_builder.h. Test names carry the ids of the list of bad
// weight files that every reader is held against.
#include "format/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "support/safetensors_builder.h"

namespace regard {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::safetensors_bytes;
using testing_support::SafetensorsBuilder;
using testing_support::small_safetensors;

Result<SafetensorsFile> read(const std::vector<uint8_t>& bytes, const SafetensorsLimits& limits = {}) {
  return read_safetensors(MemorySource(bytes), "x.safetensors", limits);
}
std::string why(const std::vector<uint8_t>& bytes, const SafetensorsLimits& limits = {}) {
  auto file = read(bytes, limits);
  return file ? "accepted" : file.failure().message;
}
/// The refusal of a file with this header before a buffer of `buffer` zero bytes.
std::string why(std::string_view header, size_t buffer = 0) { return why(safetensors_bytes(header, std::vector<uint8_t>(buffer))); }
/// The refusal of a file with one F32 tensor of these properties.
std::string why_tensor(const std::string& shape, const std::string& offsets, size_t buffer, const std::string& dtype = "F32") {
  return why("{\"t\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}}", buffer);
}

TEST(Safetensors, ReadsShapesTypesAndPlaces) {
  const auto bytes = small_safetensors().build();
  auto file = read(bytes);
  ASSERT_TRUE(file) << file.failure().message;
  EXPECT_THAT(file->metadata, ElementsAre(std::pair<std::string, std::string>("format", "pt")));
  ASSERT_EQ(file->tensors.size(), 5u);
  EXPECT_EQ(file->data_begin, 8 + small_safetensors().header().size());
  const TensorInfo& embed = file->tensors[0];
  EXPECT_EQ(embed.name, "model.embed_tokens.weight");
  EXPECT_THAT(embed.shape, ElementsAre(3, 4));
  EXPECT_EQ(embed.type, DType::kF32);
  EXPECT_EQ(embed.offset, file->data_begin);
  EXPECT_EQ(embed.bytes, 48u);
  EXPECT_EQ(bytes[embed.offset], 1);
  std::map<std::string, const TensorInfo*> by_name;
  for (const TensorInfo& t : file->tensors) by_name[t.name] = &t;
  EXPECT_EQ(by_name["model.norm.weight"]->type, DType::kBF16);
  EXPECT_EQ(by_name["model.norm.weight"]->offset, file->data_begin + 48);
  EXPECT_THAT(by_name["scalar"]->shape, ElementsAre());
  EXPECT_EQ(by_name["scalar"]->values(), 1);
  EXPECT_EQ(by_name["scalar"]->offset, file->data_begin + 56);
  EXPECT_EQ(by_name["empty"]->bytes, 0u);
  EXPECT_THAT(by_name["empty"]->shape, ElementsAre(0, 7));
  EXPECT_EQ(by_name["bits"]->offset, file->data_begin + 64);
  EXPECT_EQ(why("{}"), "accepted");
}

TEST(Safetensors, EveryElementTypeHasItsSize) {
  const std::tuple<const char*, DType, size_t> types[] = {
      {"F64", DType::kF64, 8}, {"F32", DType::kF32, 4}, {"F16", DType::kF16, 2}, {"BF16", DType::kBF16, 2}, {"I64", DType::kI64, 8}, {"I32", DType::kI32, 4},
      {"I16", DType::kI16, 2}, {"I8", DType::kI8, 1}, {"U8", DType::kU8, 1}, {"U16", DType::kU16, 2}, {"U32", DType::kU32, 4}, {"U64", DType::kU64, 8}, {"BOOL", DType::kBool, 1}};
  for (const auto& [name, type, size] : types) {
    auto file = read(SafetensorsBuilder().tensor("t", name, "[2,3]", std::vector<uint8_t>(6 * size)).build());
    ASSERT_TRUE(file) << name;
    EXPECT_EQ(file->tensors[0].type, type);
    EXPECT_THAT(why_tensor("[2,3]", "[0," + std::to_string(6 * size + 1) + "]", 6 * size + 1, name), HasSubstr("takes " + std::to_string(6 * size)));
  }
}

TEST(Safetensors, F01F02TooShort) {
  for (size_t n = 0; n < 8; ++n) EXPECT_THAT(why(std::vector<uint8_t>(n)), HasSubstr("too short"));
}

TEST(Safetensors, F03EveryTruncationIsRefused) {
  const auto whole = small_safetensors().build();
  ASSERT_EQ(why(whole), "accepted");
  for (size_t n = 0; n < whole.size(); ++n)
    ASSERT_NE(why(std::vector<uint8_t>(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n))), "accepted") << n;
}

TEST(Safetensors, F04EveryFlippedBitIsRefusedOrChangesOneField) {
  const auto whole = small_safetensors().build();
  const SafetensorsFile original = *read(whole);
  size_t refused = 0, changed = 0;
  const size_t bits = original.data_begin * 8;
  for (size_t bit = 0; bit < bits; ++bit) {
    auto flipped = whole;
    flipped[bit / 8] = static_cast<uint8_t>(flipped[bit / 8] ^ (1u << bit % 8));
    auto file = read(flipped);
    if (!file) {
      ++refused;
      continue;
    }
    ++changed;
    ASSERT_EQ(file->tensors.size(), original.tensors.size()) << bit;
    ASSERT_EQ(file->data_begin, original.data_begin) << bit;
    int differences = file->metadata != original.metadata;
    for (const TensorInfo& was : original.tensors) {
      // Tensors are found by their place: a changed name is one of the differences, and may move an empty tensor.
      int closest = 100;
      for (const TensorInfo& is : file->tensors) {
        if (is.offset == was.offset && is.bytes == was.bytes)
          closest = std::min(closest, (is.name != was.name) + (is.shape != was.shape) + (is.type != was.type));
      }
      differences += closest;
    }
    ASSERT_LE(differences, 1) << "bit " << bit;
  }
  EXPECT_EQ(refused + changed, bits);
  EXPECT_GT(refused, bits / 3);
  EXPECT_GT(changed, 50u);
}

TEST(Safetensors, F05HeaderLengths) {
  const auto header = small_safetensors().header();
  const std::vector<uint8_t> buffer(67);
  const auto size = static_cast<int64_t>(8 + header.size() + buffer.size());
  for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{1} << 31, int64_t{1} << 32, INT64_MAX, size, size - 7})
    EXPECT_THAT(why(safetensors_bytes(header, buffer, n)), HasSubstr("a header of " + std::to_string(n) + " bytes")) << n;
  auto file = safetensors_bytes(header, buffer);
  for (size_t i = 0; i < 8; ++i) file[i] = 0xFF;
  EXPECT_THAT(why(file), HasSubstr("18446744073709551615"));
  file.assign(8, 0);
  file[7] = 0x80;
  EXPECT_THAT(why(file), HasSubstr("9223372036854775808"));
}

TEST(Safetensors, F06F07HeadersThatAreNoObject) {
  EXPECT_THAT(why("        "), HasSubstr("no JSON object followed by spaces"));
  for (const char* header : {"[]", "42", "null", " {}", "{}{", "{} x", "{}\n", "\t{}", "\"{}\""}) EXPECT_NE(why(header), "accepted") << header;
  EXPECT_THAT(why("{}{}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(why("{\"a\"}"), HasSubstr("not valid JSON"));
  EXPECT_EQ(why("{}      "), "accepted");
}

TEST(Safetensors, F08NotUtf8) {
  const auto named = [](const std::string& name) { return why(SafetensorsBuilder().tensor(name, "U8", "[1]", {1}).build()); };
  EXPECT_THAT(named("a\xFF"), HasSubstr("not valid JSON"));
  EXPECT_THAT(named("a\xED\xA0\x80"), HasSubstr("not valid JSON"));
  EXPECT_THAT(named("a\\u0000"), HasSubstr("without control characters"));
  EXPECT_NE(why("\xEF\xBB\xBF{}"), "accepted");
  EXPECT_NE(why(std::string("{\0}\0", 4)), "accepted");
  EXPECT_EQ(named("\xE6\xA8\xA1"), "accepted");
}

TEST(Safetensors, F09Depth) {
  EXPECT_NE(why(std::string(100000, '[')), "accepted");
  EXPECT_THAT(why("{\"a\":" + std::string(100000, '[') + std::string(100000, ']') + "}"), HasSubstr("nested deeper"));
}

TEST(Safetensors, F10Duplicates) {
  EXPECT_THAT(why(small_safetensors().tensor("scalar", "U8", "[1]", {1}).build()), HasSubstr("\"scalar\" stands there twice"));
  EXPECT_THAT(why(R"({"t":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1), HasSubstr("\"dtype\" stands there twice"));
  EXPECT_THAT(why(R"({"__metadata__":{"a":"1","a":"1"}})"), HasSubstr("twice"));
  EXPECT_THAT(why(R"({"__metadata__":{},"__metadata__":{}})"), HasSubstr("twice"));
}

TEST(Safetensors, F11Metadata) {
  for (const char* value : {"1", "null", "[]", "{}", "true"})
    EXPECT_THAT(why("{\"__metadata__\":{\"a\":" + std::string(value) + "}}"), HasSubstr("$.__metadata__.a: expected a string")) << value;
  EXPECT_THAT(why(R"({"__metadata__":[]})"), HasSubstr("expected an object"));
  std::string many = "{\"__metadata__\":{\"x\":\"\"";
  for (int i = 0; i < 1000000; ++i) many += ",\"" + std::to_string(i) + "\":\"\"";
  EXPECT_NE(why(many + "}}"), "accepted");
}

TEST(Safetensors, F12Shapes) {
  for (const char* extent : {"-1", "1.0", "1.5", "1e3", "1e30", "\"3\"", "[1]", "null", "true", "9223372036854775808", "18446744073709551616"})
    EXPECT_NE(why_tensor("[" + std::string(extent) + "]", "[0,4]", 4), "accepted") << extent;
  EXPECT_THAT(why_tensor("[-1]", "[0,4]", 4), HasSubstr("$.t.shape[0]: expected an integer from 0"));
  EXPECT_THAT(why_tensor("[4294967296,4294967296]", "[0,0]", 0), HasSubstr("does not fit in 63 bits"));
  EXPECT_THAT(why_tensor("[2305843009213693952]", "[0,4]", 4), HasSubstr("does not fit in 63 bits"));                     // x 4 wraps
  EXPECT_THAT(why_tensor("[4611686018427387905]", "[0,4]", 4), HasSubstr("does not fit in 63 bits"));                     // x 4 wraps to 4
  EXPECT_THAT(why_tensor("[1,1,1,1,1,1,1,1,1]", "[0,4]", 4), HasSubstr("9 dimensions, the limit is 8"));
  EXPECT_EQ(why_tensor("[1,1,1,1,1,1,1,1]", "[0,4]", 4), "accepted");
  std::string hundred = "[1";
  for (int i = 1; i < 100; ++i) hundred += ",1";
  EXPECT_THAT(why_tensor(hundred + "]", "[0,4]", 4), HasSubstr("100 dimensions"));
  EXPECT_EQ(why_tensor("[]", "[0,4]", 4), "accepted");
  EXPECT_EQ(why_tensor("[0]", "[0,0]", 0), "accepted");
  EXPECT_EQ(why_tensor("[9223372036854775807,0]", "[0,0]", 0), "accepted");
  EXPECT_THAT(why_tensor("{}", "[0,4]", 4), HasSubstr("expected an array"));
}

TEST(Safetensors, F13Types) {
  for (const char* dtype : {"f32", "F33", "", "FLOAT", "Q4_0", "F32 "}) {
    EXPECT_THAT(why_tensor("[1]", "[0,4]", 4, dtype), HasSubstr("is not supported")) << dtype;
  }
  const auto f8 = read(safetensors_bytes(R"({"t":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]}})", std::vector<uint8_t>(4)));
  EXPECT_EQ(f8.failure().code, Code::kUnsupported);
  EXPECT_EQ(f8.failure().message, "[json] x.safetensors (header): $.t.dtype: the element type \"F8_E4M3\" is not supported");
  EXPECT_THAT(why(R"({"t":{"dtype":7,"shape":[1],"data_offsets":[0,4]}})", 4), HasSubstr("expected a string"));
}

TEST(Safetensors, F14Offsets) {
  EXPECT_THAT(why_tensor("[1]", "[4,0]", 4), HasSubstr("the end lies before the begin"));
  EXPECT_THAT(why_tensor("[1]", "[-4,0]", 4), HasSubstr("from 0 to 4, found -4"));
  EXPECT_THAT(why_tensor("[1]", "[0,5]", 4), HasSubstr("from 0 to 4, found 5"));
  EXPECT_THAT(why_tensor("[1]", "[0,18446744073709551615]", 4), HasSubstr("from 0 to 4, found 18446744073709551615"));
  EXPECT_THAT(why_tensor("[1]", "[0]", 4), HasSubstr("expected [begin, end]"));
  EXPECT_THAT(why_tensor("[1]", "[0,4,4]", 4), HasSubstr("expected [begin, end]"));
  EXPECT_THAT(why_tensor("[1]", "[0,4.0]", 4), HasSubstr("expected a non-negative integer"));
  EXPECT_THAT(why_tensor("[1]", "\"04\"", 4), HasSubstr("expected an array"));
  EXPECT_THAT(why_tensor("[1]", "[4,8]", 8), HasSubstr("begins at 4 of the buffer, a hole"));
  EXPECT_THAT(why_tensor("[1]", "[0,4]", 5), HasSubstr("the tensors take 4 bytes, the buffer has 5"));
  const std::string a = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":)";
  EXPECT_EQ(why(a + "[4,8]}}", 8), "accepted");
  EXPECT_THAT(why(a + "[0,4]}}", 4), HasSubstr("an overlap"));
  EXPECT_THAT(why(a + "[3,7]}}", 7), HasSubstr("an overlap"));
  EXPECT_THAT(why(a + "[5,9]}}", 9), HasSubstr("a hole"));
  EXPECT_THAT(why("{}", 1), HasSubstr("the tensors take 0 bytes, the buffer has 1"));
}

TEST(Safetensors, F15RangeIsNotShapeTimesSize) {
  EXPECT_THAT(why_tensor("[2,3]", "[0,20]", 20), HasSubstr("20 bytes, but [2, 3] x F32 takes 24"));
  EXPECT_THAT(why_tensor("[0]", "[0,4]", 4), HasSubstr("takes 0"));
}

TEST(Safetensors, F16MisalignedStartIsFine) {
  auto file = read(SafetensorsBuilder().tensor("a", "U8", "[1]", {9}).tensor("b", "F32", "[1]", {1, 2, 3, 4}).build());
  ASSERT_TRUE(file);
  EXPECT_EQ(file->tensors[1].offset, file->data_begin + 1);
}

TEST(Safetensors, F17CountsAndNames) {
  const auto named = [](const std::string& name) { return why(SafetensorsBuilder().tensor(name, "U8", "[1]", {1}).build()); };
  EXPECT_EQ(named(std::string(1024, 'n')), "accepted");
  EXPECT_NE(named(std::string(1025, 'n')), "accepted");
  EXPECT_NE(named(std::string(1 << 20, 'n')), "accepted");
  EXPECT_NE(named(""), "accepted");
  EXPECT_NE(named("a\\nb"), "accepted");
  EXPECT_THAT(named("a\\u001b[31m"), testing::AllOf(HasSubstr("a\\x1b[31m"), testing::Not(HasSubstr("\x1b"))));
  EXPECT_EQ(named("../../x"), "accepted");  // the name of a tensor never becomes a path
  SafetensorsLimits limits;
  limits.max_tensors = 5;
  EXPECT_EQ(why(small_safetensors().build(), limits), "accepted");
  limits.max_tensors = 4;
  EXPECT_THAT(why(small_safetensors().build(), limits), HasSubstr("more than 4 tensors"));
  limits = {};
  limits.max_header_bytes = small_safetensors().header().size();
  EXPECT_EQ(why(small_safetensors().build(), limits), "accepted");
  --limits.max_header_bytes;
  EXPECT_THAT(why(small_safetensors().build(), limits), HasSubstr("the limit is"));
  const auto empty_tensors = [](int n) {
    std::string header = "{";
    for (int i = 0; i < n; ++i) header += (i == 0 ? "\"" : ",\"") + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
    return why(header + "}");
  };
  EXPECT_EQ(empty_tensors(65536), "accepted");
  EXPECT_THAT(empty_tensors(65537), HasSubstr("more than 65536 tensors"));
}

TEST(Safetensors, FieldsAreExactlyTheKnownOnes) {
  EXPECT_THAT(why(R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"strides":[1]}})", 1), HasSubstr("$.t.strides: a tensor has"));
  for (const char* entry : {R"({"shape":[1],"data_offsets":[0,1]})", R"({"dtype":"U8","data_offsets":[0,1]})", R"({"dtype":"U8","shape":[1]})"})
    EXPECT_THAT(why("{\"t\":" + std::string(entry) + "}", 1), HasSubstr("is missing")) << entry;
  EXPECT_THAT(why(R"({"t":[]})"), HasSubstr("expected an object"));
}

TEST(Safetensors, F26OtherContainersAreNamed) {
  const auto begins = [](const std::string& head) {
    std::vector<uint8_t> bytes(head.begin(), head.end());
    bytes.resize(200, 0x41);
    return why(bytes);
  };
  EXPECT_THAT(begins(std::string("PK\x03\x04\x14\0\0\0\x08\0", 10)), HasSubstr("a zip archive, as PyTorch writes it"));
  EXPECT_THAT(begins("\x80\x02}q\x01(X\x0a"), HasSubstr("a Python pickle"));
  EXPECT_THAT(begins(std::string("\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00}", 12)), HasSubstr("a Python pickle"));
  EXPECT_THAT(begins(std::string("\x80\x04\0\0\0\0\0\0{", 9)), HasSubstr("a header of 1152 bytes"));  // a file of ours, cut off
  EXPECT_THAT(begins(std::string("GGUF\x03\0\0\0\x01", 9)), HasSubstr("a GGUF file"));
  EXPECT_THAT(begins("\x89HDF\r\n\x1a\n"), HasSubstr("an HDF5 file"));
  EXPECT_THAT(begins("\x93NUMPY\x01"), HasSubstr("a NumPy array"));
  EXPECT_THAT(begins("\x1f\x8b\x08xxxxx"), HasSubstr("gzip"));
  EXPECT_THAT(begins("version https://git-lfs"), HasSubstr("Git LFS pointer"));
  EXPECT_THAT(begins("{\"a\": 1}"), HasSubstr("a JSON text"));
}

TEST(SafetensorsIndex, NamesTheFileOfEachTensor) {
  const auto index = read_safetensors_index(R"({"metadata":{"total_size":12},"weight_map":{"b":"model-2.safetensors","a":"model-1.safetensors","c":"model-2.safetensors"}})", "i");
  ASSERT_TRUE(index) << index.failure().message;
  EXPECT_THAT(index->files, ElementsAre("model-1.safetensors", "model-2.safetensors"));
  EXPECT_THAT(index->tensors, ElementsAre(std::pair<std::string, size_t>("b", 1), std::pair<std::string, size_t>("a", 0), std::pair<std::string, size_t>("c", 1)));
}

TEST(SafetensorsIndex, StaysInItsFolder) {
  const auto with_file = [](const std::string& file) {
    const auto index = read_safetensors_index("{\"weight_map\":{\"a\":\"" + file + "\"}}", "index.json");
    return index ? "accepted" : index.failure().message;
  };
  EXPECT_EQ(with_file("a.safetensors"), "accepted");
  for (const char* file : {"", ".", "..", "../a", "/etc/passwd", "x/y", "x\\\\y", "a\\u0000b", "a\\nb"})
    EXPECT_THAT(with_file(file), HasSubstr("no file name inside the folder")) << file;
  const auto why_index = [](const std::string& text) {
    const auto index = read_safetensors_index(text, "index.json");
    return index ? "accepted" : index.failure().message;
  };
  EXPECT_THAT(why_index("{}"), HasSubstr("\"weight_map\" is missing"));
  EXPECT_THAT(why_index("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(why_index("{\"weight_map\":[]}"), HasSubstr("expected an object"));
  EXPECT_THAT(why_index("{\"weight_map\":{}}"), HasSubstr("empty"));
  EXPECT_THAT(why_index("{\"weight_map\":{\"a\":1}}"), HasSubstr("expected a string"));
  EXPECT_THAT(why_index("{\"weight_map\":{\"\":\"a\"}}"), HasSubstr("is no name"));
  EXPECT_THAT(why_index("{\"weight_map\":{\"a\":\"f\",\"a\":\"g\"}}"), HasSubstr("twice"));
  SafetensorsLimits limits;
  limits.max_tensors = 1;
  EXPECT_FALSE(read_safetensors_index(R"({"weight_map":{"a":"f","b":"f"}})", "i", limits));
}

}  // namespace
}  // namespace regard
