// The GGUF reader on files built by tests/support/gguf_builder.h, and on files made by other programs where they are at hand.
#include "format/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/gguf_builder.h"

namespace regard {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::counting_bytes;
using testing_support::ByteWriter;
using testing_support::GgufBuilder;
using testing_support::small_gguf;

Result<GgufFile> read(const std::vector<uint8_t>& bytes, const GgufLimits& limits = {}) { return read_gguf(MemorySource(bytes), "x.gguf", limits); }
std::string why(const std::vector<uint8_t>& bytes, const GgufLimits& limits = {}) {
  auto file = read(bytes, limits);
  return file ? "accepted" : file.failure().message;
}
std::string why(const GgufBuilder& b) { return why(b.build()); }
Code code(const GgufBuilder& b) { return read(b.build()).failure().code; }

TEST(Gguf, ReadsEveryKindOfValue) {
  for (const uint32_t version : {2u, 3u}) {
    GgufBuilder b = small_gguf();
    b.version = version;
    const auto bytes = b.build();
    auto file = read(bytes);
    ASSERT_TRUE(file) << file.failure().message;
    const GgufMetadata& m = file->metadata;
    EXPECT_EQ(file->version, version);
    EXPECT_EQ(m.size(), 16u);
    EXPECT_EQ(m.keys()[2], "llama.block_count");
    EXPECT_EQ(*m.string("general.architecture"), "llama");
    EXPECT_EQ(*m.integer("llama.block_count", 1, 4096), 2);
    EXPECT_EQ(*m.number("llama.rope.freq_base", 1, 1e12), 10000.0);
    EXPECT_EQ(*m.optional_bool("tokenizer.ggml.add_bos_token"), true);
    EXPECT_EQ(*m.integer("x.u64", 0, 1ll << 50), 1ll << 40);
    EXPECT_EQ(*m.integer("x.i64", -9, 9), -5);
    EXPECT_EQ(*m.integer("x.u8", 0, 255), 200);
    EXPECT_EQ(*m.integer("x.i8", -128, 127), -3);
    EXPECT_EQ(*m.integer("x.u16", 0, 65535), 60000);
    EXPECT_EQ(*m.integer("x.i16", -32768, 0), -30000);
    EXPECT_EQ(*m.number("x.f64", 0, 1), 0.25);
    const StringList& tokens = **m.optional_strings("tokenizer.ggml.tokens");
    ASSERT_EQ(tokens.size(), 4u);
    EXPECT_FALSE(tokens.empty());
    EXPECT_EQ(tokens[0], "a");
    EXPECT_EQ(tokens[1], "");
    EXPECT_EQ(tokens[2], "bc");
    EXPECT_EQ(tokens[3], std::string_view("\0\xFF", 2));
    EXPECT_THAT(**m.optional_numbers("tokenizer.ggml.scores"), ElementsAre(0.5, -1.0, 2.0, 0.0));
    EXPECT_THAT(**m.optional_integers("tokenizer.ggml.token_type", 1, 6), ElementsAre(1, 1, 3, 6));
    EXPECT_THAT(**m.optional_per_layer("tokenizer.ggml.token_type", 4, 1, 6), ElementsAre(1, 1, 3, 6));
    EXPECT_THAT(**m.optional_per_layer("llama.block_count", 3, 1, 6), ElementsAre(2, 2, 2));
    EXPECT_EQ(m.find("x.flags")->count, 2u);

    ASSERT_EQ(file->tensors.size(), 4u);
    const TensorInfo& q = file->tensors[2];
    EXPECT_EQ(q.name, "blk.0.attn_q.weight");
    EXPECT_THAT(q.shape, ElementsAre(2, 3, 4));
    EXPECT_EQ(q.type, DType::kF16);
    EXPECT_EQ(q.bytes, 48u);
    EXPECT_EQ(q.values(), 24);
    const size_t data = (b.head_bytes() + 31) / 32 * 32;
    EXPECT_EQ(file->data_begin, data);
    EXPECT_EQ(q.offset, data + 160 + 32);  // 136 bytes of Q8_0 and 20 of F32, each padded to 32
    EXPECT_EQ(bytes[q.offset], 1);
    EXPECT_EQ(bytes[q.offset + 1], 38);
  }
}

TEST(Gguf, GettersNameTheKeyTheyRefuse) {
  auto file = read(small_gguf().array<float>("x.nan", 6, {1.0f, NAN}).scalar<uint64_t>("x.huge", 10, ~0ull).f32("x.inf", INFINITY).build());
  ASSERT_TRUE(file);
  const GgufMetadata& m = file->metadata;
  EXPECT_EQ(m.integer("llama.block_count", 5, 9).failure().message, "[gguf] x.gguf: key \"llama.block_count\": expected an integer from 5 to 9, found 2");
  EXPECT_THAT(m.integer("absent", 0, 1).failure().message, HasSubstr("key \"absent\": missing"));
  EXPECT_THAT(m.integer("general.architecture", 0, 1).failure().message, HasSubstr("expected an integer, found string"));
  EXPECT_THAT(m.integer("tokenizer.ggml.token_type", 0, 9).failure().message, HasSubstr("found array of 4 i32"));
  EXPECT_THAT(m.integer("x.huge", 0, std::numeric_limits<int64_t>::max()).failure().message, HasSubstr("expected an integer"));
  EXPECT_THAT(m.number("llama.block_count", 0, 9).failure().message, HasSubstr("expected f32 or f64, found u32"));
  EXPECT_THAT(m.number("x.inf", 0, 1e300).failure().message, HasSubstr("found inf"));
  EXPECT_THAT(m.optional_bool("x.u8").failure().message, HasSubstr("expected bool, found u8"));
  EXPECT_THAT(m.string("x.u8").failure().message, HasSubstr("expected a string, found u8"));
  EXPECT_THAT(m.optional_strings("x.flags").failure().message, HasSubstr("expected an array of strings, found array of 2 bool"));
  EXPECT_THAT(m.optional_integers("x.flags", 0, 1).failure().message, HasSubstr("expected an array of integers"));
  EXPECT_THAT(m.optional_integers("tokenizer.ggml.token_type", 1, 5).failure().message, HasSubstr("element 3: expected an integer from 1 to 5, found 6"));
  EXPECT_THAT(m.optional_integers("x.u8", 0, 255).failure().message, HasSubstr("expected an array of integers, found u8"));
  EXPECT_THAT(m.optional_numbers("x.nan").failure().message, HasSubstr("element 1 is nan"));
  EXPECT_THAT(m.optional_numbers("x.u8").failure().message, HasSubstr("expected an array of f32 or f64"));
  EXPECT_THAT(m.optional_per_layer("tokenizer.ggml.token_type", 3, 0, 9).failure().message, HasSubstr("4 values for 3 layers"));
  EXPECT_EQ(*m.optional_integer("absent", 0, 1), std::nullopt);
  EXPECT_EQ(*m.optional_number("absent", 0, 1), std::nullopt);
  EXPECT_EQ(*m.optional_string("absent"), std::nullopt);
  EXPECT_EQ(*m.optional_bool("absent"), std::nullopt);
  EXPECT_EQ(*m.optional_strings("absent"), nullptr);
  EXPECT_EQ(*m.optional_integers("absent", 0, 1), std::nullopt);
  EXPECT_EQ(*m.optional_numbers("absent"), std::nullopt);
  EXPECT_EQ(*m.optional_per_layer("absent", 3, 0, 1), std::nullopt);
}

TEST(Gguf, F01F02F20F25WrongBeginnings) {
  EXPECT_THAT(why(std::vector<uint8_t>{}), HasSubstr("0 bytes, too short"));
  EXPECT_THAT(why({'G', 'G', 'U'}), HasSubstr("too short"));
  EXPECT_THAT(why({'G', 'G', 'U', 'F', 3, 0}), HasSubstr("version"));
  EXPECT_THAT(why({'P', 'K', 3, 4, 0, 0, 0, 0}), HasSubstr("found the bytes 504b0304"));
  const auto with_version = [](uint32_t version) {
    GgufBuilder b = small_gguf();
    b.version = version;
    return b;
  };
  EXPECT_THAT(why(with_version(0x03000000)), HasSubstr("big-endian file (version 3)"));
  EXPECT_THAT(why(with_version(1)), HasSubstr("version 1"));
  EXPECT_THAT(why(with_version(4)), HasSubstr("version 4"));
  EXPECT_THAT(why(with_version(0)), HasSubstr("version 0"));
  EXPECT_EQ(code(with_version(4)), Code::kUnsupported);
}

TEST(Gguf, F03EveryTruncationIsRefused) {
  const auto whole = small_gguf().build(/*pad_last=*/false);
  ASSERT_EQ(why(whole), "accepted");
  for (size_t n = 0; n < whole.size(); ++n)
    ASSERT_NE(why(std::vector<uint8_t>(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n))), "accepted") << n;
}

/// How many fields of two files differ: the version, the alignment, a value, a key, a property of a tensor.
int differences(const GgufFile& a, const GgufFile& b) {
  int n = (a.version != b.version) + (a.alignment != b.alignment) + (a.data_begin != b.data_begin);
  if (a.metadata.size() != b.metadata.size() || a.tensors.size() != b.tensors.size()) return 1000;
  for (size_t i = 0; i < a.metadata.size(); ++i) {
    n += a.metadata.keys()[i] != b.metadata.keys()[i];
    const GgufValue &v = *a.metadata.find(a.metadata.keys()[i]), &w = *b.metadata.find(b.metadata.keys()[i]);
    n += !(v == w);
  }
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    const TensorInfo &t = a.tensors[i], &u = b.tensors[i];
    n += (t.name != u.name) + (t.shape != u.shape) + (t.type != u.type) + (t.offset != u.offset);
  }
  return n;
}

TEST(Gguf, F04EveryFlippedBitOfTheHeadIsRefusedOrChangesOneField) {
  const GgufBuilder b = small_gguf();
  const auto whole = b.build();
  const GgufFile original = *read(whole);
  size_t refused = 0, changed = 0;
  const size_t bits = (b.head_bytes() + 31) / 32 * 32 * 8;
  for (size_t bit = 0; bit < bits; ++bit) {
    auto flipped = whole;
    flipped[bit / 8] = static_cast<uint8_t>(flipped[bit / 8] ^ (1u << bit % 8));
    auto file = read(flipped);
    if (!file) {
      ++refused;
      continue;
    }
    ++changed;
    ASSERT_EQ(differences(original, *file), 1) << "bit " << bit;
  }
  EXPECT_EQ(refused + changed, bits);
  EXPECT_GT(refused, bits / 4);
  EXPECT_GT(changed, 100u);  // letters of names, numbers of the metadata: nothing in the file contradicts those
}

TEST(Gguf, CountsAreHeldAgainstTheBytesThatRemain) {
  // 24 bytes that announce 2^30 strings, and relatives: refused before any memory is taken for them.
  for (const uint64_t count : {uint64_t{1} << 30, uint64_t{1} << 62, ~uint64_t{0}}) {
    ByteWriter w;
    w.number<uint32_t>(0x46554747).number<uint32_t>(3).number<uint64_t>(count).number<uint64_t>(0);
    EXPECT_THAT(why(w.bytes), HasSubstr("tensors are announced, but only 0 bytes remain"));
    ByteWriter k;
    k.number<uint32_t>(0x46554747).number<uint32_t>(3).number<uint64_t>(0).number<uint64_t>(count);
    EXPECT_THAT(why(k.bytes), HasSubstr("keys are announced"));
    for (const uint32_t element : {0u, 6u, 8u, 12u}) {
      ByteWriter p;
      p.string("k").number<uint32_t>(9).number(element).number(count).raw("0123456789012345678901234567890123456789");
      EXPECT_THAT(why(GgufBuilder().pair(p.bytes)), HasSubstr("key \"k\": offset")) << count << " " << element;
    }
    ByteWriter s;
    s.string("k").number<uint32_t>(8).number(count).raw("abc");
    EXPECT_THAT(why(GgufBuilder().pair(s.bytes)), HasSubstr("a text of"));
    ByteWriter n;
    n.number(count).raw("abcdefghijkl");
    EXPECT_THAT(why(GgufBuilder().pair(n.bytes)), HasSubstr("key 1 of 1: offset 24: a text of"));
    ByteWriter e;  // the second string of an array
    e.string("k").number<uint32_t>(9).number<uint32_t>(8).number<uint64_t>(2).string("a").number(count).raw("abc");
    EXPECT_THAT(why(GgufBuilder().pair(e.bytes)), HasSubstr("element 1 at offset"));
  }
  GgufBuilder fewer = small_gguf();
  fewer.tensor_count_error = -1;
  EXPECT_NE(why(fewer), "accepted");
  GgufBuilder more = small_gguf();
  more.tensor_count_error = 1;
  EXPECT_NE(why(more), "accepted");
  more = small_gguf();
  more.key_count_error = -1;
  EXPECT_NE(why(more), "accepted");
}

TEST(Gguf, LimitsHoldExactly) {
  GgufLimits limits;
  limits.max_tensors = 4;
  limits.max_keys = 16;
  limits.max_array_items = 4;
  limits.max_string_bytes = 5;
  limits.max_key_bytes = 28;
  const auto bytes = small_gguf().build();
  EXPECT_EQ(why(bytes, limits), "accepted");
  EXPECT_THAT(why(bytes, [&] { auto l = limits; l.max_tensors = 3; return l; }()), HasSubstr("4 tensors, the limit is 3"));
  EXPECT_THAT(why(bytes, [&] { auto l = limits; l.max_keys = 15; return l; }()), HasSubstr("16 keys, the limit is 15"));
  EXPECT_THAT(why(bytes, [&] { auto l = limits; l.max_array_items = 3; return l; }()), HasSubstr("an array of 4 elements, the limit is 3"));
  EXPECT_THAT(why(bytes, [&] { auto l = limits; l.max_string_bytes = 4; return l; }()), HasSubstr("4 are allowed"));
  EXPECT_THAT(why(bytes, [&] { auto l = limits; l.max_key_bytes = 27; return l; }()), HasSubstr("27 are allowed"));
  EXPECT_EQ(read(bytes, [&] { auto l = limits; l.max_keys = 15; return l; }()).failure().code, Code::kResourceExhausted);
  GgufBuilder b;
  EXPECT_EQ(why(b.tensor(std::string(63, 'n'), {1}, 0, counting_bytes(4))), "accepted");
  EXPECT_THAT(why(b.tensor(std::string(64, 'm'), {1}, 0, counting_bytes(4))), HasSubstr("64 bytes"));
}

TEST(Gguf, MetadataThatTheFormatForbids) {
  EXPECT_THAT(why(small_gguf().u32("x.u8", 1)), HasSubstr("key \"x.u8\" stands there twice"));
  EXPECT_THAT(why(GgufBuilder().u32("", 1)), HasSubstr("is no name"));
  EXPECT_THAT(why(GgufBuilder().u32("a\nb", 1)), HasSubstr("\"a\\x0ab\" is no name"));
  EXPECT_THAT(why(GgufBuilder().u32("a\xFF", 1)), HasSubstr("is no name"));
  EXPECT_THAT(why(GgufBuilder().u32("a\xC2\x9B", 1)), HasSubstr("is no name"));
  EXPECT_THAT(why(GgufBuilder().boolean("b", 2)), HasSubstr("key \"b\": offset 37: a bool that is 2"));
  EXPECT_THAT(why(GgufBuilder().array<uint8_t>("b", 7, {0, 1, 255})), HasSubstr("a bool that is 255"));
  EXPECT_THAT(why(GgufBuilder().scalar<uint32_t>("t", 13, 0)), HasSubstr("unknown type 13"));
  EXPECT_THAT(why(GgufBuilder().array<uint8_t>("t", 9, {0, 1, 2, 3, 4, 5, 6, 7})), HasSubstr("an array of arrays"));
  EXPECT_THAT(why(GgufBuilder().array<uint8_t>("t", 77, {0})), HasSubstr("unknown type 77"));
  for (const uint32_t alignment : {0u, 3u, 48u, 8192u, 1u << 31})
    EXPECT_THAT(why(GgufBuilder().u32("general.alignment", alignment)), HasSubstr("is not a power of two from 1 to 4096")) << alignment;
  EXPECT_THAT(why(GgufBuilder().scalar<uint64_t>("general.alignment", 10, 32)), HasSubstr("expected u32, found u64"));
  for (const uint32_t alignment : {1u, 2u, 64u, 4096u}) {
    GgufBuilder b;
    b.alignment = alignment;
    b.u32("general.alignment", alignment).tensor("t", {3}, 0, counting_bytes(12)).tensor("u", {3}, 0, counting_bytes(12));
    EXPECT_EQ(why(b), "accepted") << alignment;
  }
}

TEST(Gguf, TensorsThatTheFormatForbids) {
  const auto one = [](const std::vector<uint64_t>& dims, uint32_t type, size_t bytes, int64_t offset_error = 0) {
    return why(GgufBuilder().tensor("t", dims, type, counting_bytes(bytes), offset_error));
  };
  EXPECT_EQ(one({5}, 0, 20), "accepted");
  EXPECT_EQ(one({}, 0, 4), "accepted");
  EXPECT_THAT(one({1, 1, 1, 1, 1}, 0, 4), HasSubstr("5 dimensions"));
  EXPECT_THAT(one({5, 0}, 0, 20), HasSubstr("dimension 1 is 0"));
  EXPECT_THAT(one({1ull << 63}, 0, 20), HasSubstr("dimension 0 is 9223372036854775808"));
  EXPECT_THAT(one({1ull << 32, 1ull << 31}, 0, 20), HasSubstr("does not fit in 63 bits"));
  EXPECT_THAT(one({1ull << 62}, 0, 20), HasSubstr("larger than any file"));
  EXPECT_THAT(one({1ull << 31, 1ull << 31}, 0, 20), HasSubstr("larger than any file"));
  EXPECT_THAT(one({1ull << 60}, 24, 20), HasSubstr("but the file ends at"));
  EXPECT_THAT(one({6}, 0, 20, 0), "accepted");  // 24 bytes, and the padding of the file holds them: nothing tells it from a file of 6
  EXPECT_THAT(one({9}, 0, 20), HasSubstr("but the file ends at"));
  EXPECT_THAT(one({5}, 0, 20, 32), HasSubstr("offset 32 where 0 is expected"));
  EXPECT_THAT(one({5}, 0, 20, 1), HasSubstr("offset 1 where 0 is expected"));
  EXPECT_THAT(one({5}, 0, 20, -1), HasSubstr("offset 18446744073709551615 where 0 is expected"));
  EXPECT_THAT(one({5}, 0, 64), HasSubstr("44 bytes behind the last tensor"));
  EXPECT_THAT(why(small_gguf().tensor("blk.0.attn_q.weight", {1}, 0, counting_bytes(4))), HasSubstr("stands there twice"));
  EXPECT_THAT(why(GgufBuilder().tensor("", {1}, 0, counting_bytes(4))), HasSubstr("is no name"));
  EXPECT_THAT(why(GgufBuilder().tensor("a\x1b[31m", {1}, 0, counting_bytes(4))), HasSubstr("\"a\\x1b[31m\" is no name"));
  GgufBuilder b = small_gguf();
  b.head_padding = 7;
  EXPECT_THAT(why(b), HasSubstr("is not zero"));
}

TEST(Gguf, TypesThatAreNotSupportedAreNamed) {
  const auto one = [](uint32_t type) { return GgufBuilder().tensor("blk.3.ffn_up.weight", {256}, type, counting_bytes(1024)); };
  for (const auto& [type, name] : std::vector<std::pair<uint32_t, std::string>>{
           {9, "Q8_1"}, {10, "Q2_K"}, {11, "Q3_K"}, {15, "Q8_K"}, {16, "IQ2_XXS"}, {20, "IQ4_NL"}, {23, "IQ4_XS"}, {29, "IQ1_M"}, {34, "TQ1_0"}, {39, "MXFP4"}}) {
    EXPECT_THAT(why(one(type)), HasSubstr("tensor \"blk.3.ffn_up.weight\" is stored as " + name + ",")) << type;
    EXPECT_EQ(code(one(type)), Code::kUnsupported);
  }
  for (const uint32_t type : {4u, 5u, 31u, 33u, 36u, 38u, 40u, ~0u}) EXPECT_THAT(why(one(type)), HasSubstr("does not exist")) << type;
}

// Bytes and values per block as the format's description gives them; DTypeInfo must say the same.
TEST(Gguf, ExtentsFollowTheBlockSizes) {
  struct Row {
    uint32_t number;
    DType type;
    uint64_t bytes, values;
  };
  const Row rows[] = {{0, DType::kF32, 4, 1}, {1, DType::kF16, 2, 1}, {30, DType::kBF16, 2, 1}, {2, DType::kQ4_0, 18, 32}, {3, DType::kQ4_1, 20, 32},
                      {6, DType::kQ5_0, 22, 32}, {7, DType::kQ5_1, 24, 32}, {8, DType::kQ8_0, 34, 32}, {12, DType::kQ4_K, 144, 256},
                      {13, DType::kQ5_K, 176, 256}, {14, DType::kQ6_K, 210, 256}, {24, DType::kI8, 1, 1}, {25, DType::kI16, 2, 1}, {26, DType::kI32, 4, 1},
                      {27, DType::kI64, 8, 1}, {28, DType::kF64, 8, 1}};
  for (const Row& row : rows) {
    const uint64_t bytes = 2 * 3 * row.bytes;
    auto file = read(GgufBuilder().tensor("t", {2 * row.values, 3}, row.number, counting_bytes(bytes)).build());
    ASSERT_TRUE(file) << row.number;
    EXPECT_EQ(file->tensors[0].type, row.type);
    EXPECT_EQ(file->tensors[0].bytes, bytes);
    EXPECT_EQ(static_cast<uint64_t>(info(row.type).bytes), row.bytes);
    EXPECT_EQ(static_cast<uint64_t>(info(row.type).values), row.values);
    if (row.values > 1) {
      EXPECT_THAT(why(GgufBuilder().tensor("t", {row.values + row.values / 2, 2}, row.number, counting_bytes(bytes))), HasSubstr("cannot be cut into"));
    }
  }
}

TEST(Gguf, MetadataAloneNeedsNoPadding) {
  EXPECT_EQ(why(GgufBuilder().u32("a", 1)), "accepted");
  auto bytes = GgufBuilder().u32("a", 1).build();
  bytes.resize(GgufBuilder().u32("a", 1).head_bytes());
  EXPECT_EQ(why(bytes), "accepted");
  bytes = GgufBuilder().u32("a", 1).build();
  bytes.push_back(0);
  EXPECT_THAT(why(bytes), HasSubstr("no tensors, but"));
  bytes = small_gguf().build();
  bytes.resize(bytes.size() + 1);
  EXPECT_THAT(why(bytes), HasSubstr("belong to nothing"));
}

}  // namespace
}  // namespace regard
