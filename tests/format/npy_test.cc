// NumPy files. The headers spelt out below are those that numpy.save wrote for the same arrays.
#include "format/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "regard/error.h"
#include "support/files.h"
#include "support/temp_dir.h"

namespace regard {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::as_bytes;
using testing_support::TempDir;
using testing_support::test_data;

/// A file of version 1 (or 2) with this dictionary, padded as NumPy pads it, and this data.
template <class T>
std::string file(std::string dictionary, const std::vector<T>& data, int version = 1) {
  const size_t before = version == 1 ? 10 : 12;
  while ((before + dictionary.size() + 1) % 64 != 0) dictionary += ' ';
  dictionary += '\n';
  std::string bytes = "\x93NUMPY";
  bytes += {static_cast<char>(version), '\0', static_cast<char>(dictionary.size() & 0xFF), static_cast<char>(dictionary.size() >> 8)};
  if (version != 1) bytes += {'\0', '\0'};
  bytes += dictionary;
  for (const T v : data) bytes.append(reinterpret_cast<const char*>(&v), sizeof v);
  return bytes;
}
Result<NpyArray> read(const std::string& bytes) {
  const auto copy = as_bytes(bytes);
  return read_npy(MemorySource(copy), "x.npy");
}
std::string why(const std::string& bytes) {
  const auto array = read(bytes);
  return array ? "accepted" : array.failure().message;
}
template <class T>
std::string why(const std::string& dictionary, const std::vector<T>& data) {
  return why(file(dictionary, data));
}
std::string why_header(const std::string& dictionary) { return why(dictionary, std::vector<float>{1, 2, 3}); }

TEST(Npy, ReadsEveryType) {
  const auto check = [](const std::string& descr, auto values, DType type) {
    const auto array = read(file("{'descr': '" + descr + "', 'fortran_order': False, 'shape': (3,), }", values));
    ASSERT_TRUE(array) << array.failure().message;
    EXPECT_EQ(array->type, type);
    EXPECT_THAT(array->shape, ElementsAre(3));
    EXPECT_EQ(array->size(), 3);
    if (std::is_floating_point_v<typename decltype(values)::value_type>) {
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(array->to_f64()[i], static_cast<double>(values[i]));
        EXPECT_EQ(array->to_f32()[i], static_cast<float>(values[i]));
      }
      EXPECT_THROW(array->to_i64(), Error);
    } else {
      for (size_t i = 0; i < 3; ++i) EXPECT_EQ(array->to_i64()[i], static_cast<int64_t>(values[i]));
      EXPECT_THROW(array->to_f32(), Error);
      EXPECT_THROW(array->to_f64(), Error);
    }
  };
  check("<f4", std::vector<float>{0.1f, -2, 1e30f}, DType::kF32);
  check("<f8", std::vector<double>{0.1, -2, 1e30}, DType::kF64);
  check("|u1", std::vector<uint8_t>{0, 1, 255}, DType::kU8);
  check("|i1", std::vector<int8_t>{0, -128, 127}, DType::kI8);
  check("<i2", std::vector<int16_t>{0, -32768, 32767}, DType::kI16);
  check("<u2", std::vector<uint16_t>{0, 1, 65535}, DType::kU16);
  check("<i4", std::vector<int32_t>{0, -2147483647, 7}, DType::kI32);
  check("<u4", std::vector<uint32_t>{0, 1, 4294967295u}, DType::kU32);
  check("<i8", std::vector<int64_t>{0, std::numeric_limits<int64_t>::min(), 7}, DType::kI64);
  check("<u8", std::vector<uint64_t>{0, 1, 1ull << 62}, DType::kU64);
  check("|b1", std::vector<uint8_t>{0, 1, 1}, DType::kBool);
}

TEST(Npy, HalvesWidenExactly) {
  const auto array = read(file("{'descr': '<f2', 'fortran_order': False, 'shape': (4,), }", std::vector<uint16_t>{0x3C00, 0xC000, 0x0001, 0x7C00}));
  ASSERT_TRUE(array);
  EXPECT_THAT(array->to_f32(), ElementsAre(1.0f, -2.0f, 0x1p-24f, INFINITY));
  EXPECT_THAT(array->to_f64(), ElementsAre(1.0, -2.0, 0x1p-24, INFINITY));
}

TEST(Npy, FortranOrderComesBackInCOrder) {
  // numpy.asfortranarray(numpy.arange(24).reshape(2, 3, 4)): element [i, j, k] = 12 i + 4 j + k lies at i + 2 j + 6 k.
  std::vector<int16_t> stored(24);
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 3; ++j)
      for (int k = 0; k < 4; ++k) stored[static_cast<size_t>(i + 2 * j + 6 * k)] = static_cast<int16_t>(12 * i + 4 * j + k);
  const auto array = read(file("{'descr': '<i2', 'fortran_order': True, 'shape': (2, 3, 4), }", stored));
  ASSERT_TRUE(array);
  const auto values = array->to_i64();
  for (int64_t i = 0; i < 24; ++i) EXPECT_EQ(values[static_cast<size_t>(i)], i);
  const auto line = read(file("{'descr': '<i2', 'fortran_order': True, 'shape': (3,), }", std::vector<int16_t>{4, 5, 6}));
  EXPECT_THAT(line->to_i64(), ElementsAre(4, 5, 6));
  const auto none = read(file("{'descr': '<i2', 'fortran_order': True, 'shape': (0, 3), }", std::vector<int16_t>{}));
  ASSERT_TRUE(none);
  EXPECT_EQ(none->size(), 0);
}

TEST(Npy, ScalarsEmptyArraysVersionTwoAndSpacing) {
  EXPECT_THAT(read(file("{'descr': '<f8', 'fortran_order': False, 'shape': (), }", std::vector<double>{2.5}))->to_f64(), ElementsAre(2.5));
  EXPECT_THAT(read(file("{'descr': '<f8', 'fortran_order': False, 'shape': (0, 7), }", std::vector<double>{}))->shape, ElementsAre(0, 7));
  EXPECT_THAT(read(file("{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }", std::vector<double>{2.5}, 2))->to_f64(), ElementsAre(2.5));
  EXPECT_THAT(read(file("{\"shape\":(2,1),\"fortran_order\":False,\"descr\":\"<i4\"}", std::vector<int32_t>{7, 8}))->shape, ElementsAre(2, 1));
}

TEST(Npy, ReadsWhatNumPyWrote) {
  const auto ids = read(test_data("golden/hf/llama/ids.npy"));
  ASSERT_TRUE(ids) << ids.failure().message;
  EXPECT_EQ(ids->type, DType::kI64);
  ASSERT_EQ(ids->shape.size(), 1u);
  const auto logits = read(test_data("golden/hf/llama/logits.npy"));
  ASSERT_TRUE(logits);
  EXPECT_EQ(logits->type, DType::kF64);
  EXPECT_THAT(logits->shape, ElementsAre(ids->shape[0], 96));
  for (const double v : logits->to_f64()) ASSERT_TRUE(std::isfinite(v));
}

TEST(Npy, HeadersAreNumPysOwn) {
  const std::string head = std::string("\x93NUMPY\x01\0v\0", 10);
  EXPECT_EQ(npy_header(DType::kF32, std::vector<int64_t>{2, 3}), head + "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }" + std::string(58, ' ') + "\n");
  EXPECT_EQ(npy_header(DType::kF64, {}), head + "{'descr': '<f8', 'fortran_order': False, 'shape': (), }" + std::string(62, ' ') + "\n");
  EXPECT_EQ(npy_header(DType::kBool, std::vector<int64_t>{2}), head + "{'descr': '|b1', 'fortran_order': False, 'shape': (2,), }" + std::string(60, ' ') + "\n");
  EXPECT_THROW(npy_header(DType::kBF16, {}), Error);
}

TEST(Npy, SavesAndLoads) {
  const TempDir dir;
  const std::string path = dir.path("a.npy");
  save_npy(path, std::vector<int64_t>{2, 2}, std::vector<float>{1, 2, 3, -0.0f});
  EXPECT_THAT(load_npy(path).to_f32(), ElementsAre(1.0f, 2.0f, 3.0f, 0.0f));
  EXPECT_TRUE(std::signbit(load_npy(path).to_f32()[3]));
  EXPECT_THAT(load_npy(path).shape, ElementsAre(2, 2));
  save_npy(path, {}, std::vector<double>{0.25});
  EXPECT_THAT(load_npy(path).to_f64(), ElementsAre(0.25));
  save_npy(path, std::vector<int64_t>{1, 2}, std::vector<int64_t>{5, -6});
  EXPECT_THAT(load_npy(path).to_i64(), ElementsAre(5, -6));
  save_npy(path, std::vector<int64_t>{2}, std::vector<int32_t>{5, -6});
  EXPECT_EQ(load_npy(path).type, DType::kI32);
  save_npy_bool(path, std::vector<int64_t>{3}, std::vector<uint8_t>{0, 1, 7});
  EXPECT_EQ(load_npy(path).type, DType::kBool);
  EXPECT_THAT(load_npy(path).to_bool(), ElementsAre(0, 1, 1));
  EXPECT_THROW(save_npy(path, std::vector<int64_t>{3}, std::vector<float>{1}), Error);
  EXPECT_THROW(save_npy(path, std::vector<int64_t>{-1}, std::vector<float>{}), Error);
  EXPECT_THROW(save_npy(dir.path("no/such/place.npy"), {}, std::vector<float>{1}), Error);
  EXPECT_THAT(load_npy(path).to_bool(), ElementsAre(0, 1, 1));  // the failed ones changed nothing
  EXPECT_THROW(load_npy(dir.path("absent.npy")), Error);
  EXPECT_THROW(load_npy(dir.path()), Error);
}

TEST(Npy, TruthValues) {
  EXPECT_THAT(read(file("{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }", std::vector<uint8_t>{1, 0}))->to_bool(), ElementsAre(1, 0));
  EXPECT_THROW(read(file("{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }", std::vector<uint8_t>{1, 2}))->to_bool(), Error);
  EXPECT_THROW(read(file("{'descr': '<i4', 'fortran_order': False, 'shape': (1,), }", std::vector<int32_t>{1}))->to_bool(), Error);
  EXPECT_THROW(read(file("{'descr': '<u8', 'fortran_order': False, 'shape': (1,), }", std::vector<uint64_t>{1ull << 63}))->to_i64(), Error);
  EXPECT_THAT(why("{'descr': '|b1', 'fortran_order': False, 'shape': (2,), }", std::vector<uint8_t>{1, 2}), HasSubstr("element 1 is a bool that is 2"));
}

TEST(Npy, WrongBeginnings) {
  EXPECT_THAT(why(""), HasSubstr("does not begin as a NumPy array does"));
  EXPECT_THAT(why("\x93NUMP"), HasSubstr("does not begin"));
  EXPECT_THAT(why("0.5 0.25 and more text"), HasSubstr("does not begin"));
  EXPECT_THAT(why(std::string("PK\x03\x04\0\0\0\0", 8)), HasSubstr(".npz"));
  EXPECT_THAT(why(std::string("\x93NUMPY\x03\0v\0\0\0", 12)), HasSubstr("format version 3.0"));
  EXPECT_THAT(why(std::string("\x93NUMPY\x01\x01v\0\0\0", 12)), HasSubstr("format version 1.1"));
  EXPECT_THAT(why(std::string("\x93NUMPY\x02\0\xFF\xFF\xFF\xFF", 12)), HasSubstr("a text of 4294967295 bytes"));
  EXPECT_THAT(why(std::string("\x93NUMPY\x01", 7)), HasSubstr("ends"));
}

TEST(Npy, HeadersThatAreWrong) {
  EXPECT_EQ(why_header("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }"), "accepted");
  EXPECT_EQ(why_header("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), }"), "accepted");
  for (const char* shape : {"(2,)", "(4,)", "()", "(3, 2)", "(0,)"})
    EXPECT_THAT(why_header("{'descr': '<f4', 'fortran_order': False, 'shape': " + std::string(shape) + ", }"), HasSubstr("do not take the 12 bytes")) << shape;
  EXPECT_THAT(why_header("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387905,), }"), HasSubstr("do not take"));  // x 4 wraps
  EXPECT_THAT(why_header("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }"), HasSubstr("do not take"));
  EXPECT_THAT(why_header("{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,), }"), HasSubstr("does not fit in 63 bits"));
  for (const char* shape : {"(3)", "3", "[3]", "(-3,)", "(3.0,)", "(,)", "(3,,)", "(3, 1", "(0x3,)", "('3',)", ""})
    EXPECT_THAT(why_header("{'descr': '<f4', 'fortran_order': False, 'shape': " + std::string(shape) + ", }"), HasSubstr("header, column")) << shape;
  std::string deep = "(1";
  for (int i = 0; i < 33; ++i) deep += ", 1";
  EXPECT_THAT(why_header("{'descr': '<f4', 'fortran_order': False, 'shape': " + deep + "), }"), HasSubstr("more than 32 dimensions"));
  for (const char* text : {"", "{", "{}", "{'descr': '<f4'}", "{'descr': '<f4', 'fortran_order': False}", "{'descr' '<f4'}", "{'descr': '<f4}", "{descr: '<f4'}",
                           "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'x': 1}",
                           "{'descr': '<f4', 'fortran_order': 0, 'shape': (3,), }", "{'descr': '<f4', 'fortran_order': false, 'shape': (3,), }",
                           "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), } x", "{'descr': '<f4', 'fortran_order': False 'shape': (3,)}"})
    EXPECT_THAT(why_header(text), HasSubstr("[npy] x.npy: header, column")) << text;
}

TEST(Npy, TypesThatAreNotRead) {
  const auto of = [](const std::string& descr) { return why_header("{'descr': " + descr + ", 'fortran_order': False, 'shape': (3,), }"); };
  EXPECT_THAT(of("'>f4'"), HasSubstr("big-endian elements"));
  EXPECT_THAT(of("'|O'"), HasSubstr("Python objects, which could run code"));
  EXPECT_THAT(of("[('a', '<f4')]"), HasSubstr("an array of structures"));
  for (const char* descr : {"'<c8'", "'<U5'", "'|S4'", "'<M8[ns]'", "'|V2'", "'f4'", "'='", "''", "'<f16'", "'<f4 '"}) EXPECT_THAT(of(descr), HasSubstr("elements of type")) << descr;
}

TEST(Npy, EveryTruncationAndExtensionIsRefused) {
  const std::string whole = file("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", std::vector<float>{1, 2, 3});
  for (size_t n = 0; n < whole.size(); ++n) ASSERT_NE(why(whole.substr(0, n)), "accepted") << n;
  EXPECT_NE(why(whole + "x"), "accepted");
}

TEST(Npy, EveryFlippedBitOfTheHeadIsRefusedOrChangesOneField) {
  const std::string whole = file("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }", std::vector<float>(12, 1.0f));
  const NpyArray original = *read(whole);
  size_t refused = 0, changed = 0;
  for (size_t bit = 0; bit < (whole.size() - 48) * 8; ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    const auto array = read(flipped);
    (array ? changed : refused) += 1;
    if (!array) continue;
    EXPECT_LE((array->shape != original.shape) + (array->type != original.type) + (array->bytes != original.bytes), 1) << bit;
  }
  EXPECT_GT(refused, 800u);
  EXPECT_LT(changed, 30u);  // <f4 to <i4 or <u4, a space to a tab or line end
}

}  // namespace
}  // namespace regard
