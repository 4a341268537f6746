// What the readers of tokenizer.json and of GGUF metadata refuse, and the ends they find.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "format/gguf_tokenizer.h"
#include "format/tokenizer_json.h"
#include "regard/error.h"
#include "regard/tokenizer.h"

namespace regard {
namespace {

using testing::HasSubstr;

constexpr const char* kModel = R"("model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"<s>":3},"merges":["a b"]})";

Result<TokenizerSpec> json(const std::string& sections) { return tokenizer_json_spec("{" + std::string(kModel) + sections + "}", "t.json"); }

void expect_refusal(const Result<TokenizerSpec>& spec, Code code, const std::string& part) {
  ASSERT_FALSE(spec) << part;
  EXPECT_EQ(spec.failure().code, code) << spec.failure().message;
  EXPECT_THAT(spec.failure().message, HasSubstr(part));
}

TEST(TokenizerJson, UnknownComponentsAreNamed) {
  const auto unsupported = [&](const std::string& section, const std::string& part) { expect_refusal(json(section), Code::kUnsupported, part); };
  unsupported(R"(,"normalizer":{"type":"BertNormalizer"})", "normalizer 'BertNormalizer'");
  unsupported(R"(,"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"BertNormalizer"}]})", "$.normalizer.normalizers[1]");
  unsupported(R"(,"pre_tokenizer":{"type":"Whitespace"})", "pre-tokenizer 'Whitespace'");
  unsupported(R"(,"post_processor":{"type":"RobertaProcessing"})", "post-processor 'RobertaProcessing'");
  unsupported(R"(,"decoder":{"type":"WordPiece"})", "decoder 'WordPiece'");
  unsupported(R"(,"decoder":{"type":"Replace","pattern":{"Regex":"a"},"content":""})", "Replace with a Regex");
  expect_refusal(tokenizer_json_spec(R"({"model":{"type":"WordPiece","vocab":{}}})", "t"), Code::kUnsupported, "'WordPiece'");
  expect_refusal(tokenizer_json_spec(R"({"model":{"type":"BPE","dropout":0.1,"vocab":{"a":0},"merges":[]}})", "t"), Code::kUnsupported, "dropout");
}

TEST(TokenizerJson, MalformedSectionsAreRefusedWithTheirPlace) {
  const auto corrupt_with = [&](const std::string& section, const std::string& part) { expect_refusal(json(section), Code::kCorruptData, part); };
  corrupt_with(R"(,"pre_tokenizer":{"type":"Split","pattern":{"Regex":"a"},"behavior":"Sideways"})", "'Sideways'");
  corrupt_with(R"(,"pre_tokenizer":{"type":"Metaspace","replacement":"_","prepend_scheme":"sometimes"})", "'sometimes'");
  corrupt_with(R"(,"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Precompiled"}]})", "$.normalizer.normalizers[1]");
  corrupt_with(R"(,"added_tokens":[{"id":-1,"content":"x"}])", "$.added_tokens[0].id");
  corrupt_with(R"(,"added_tokens":[{"id":4}])", "content");
  corrupt_with(R"(,"post_processor":{"type":"TemplateProcessing","single":[],"special_tokens":{}})", "0 times");
  corrupt_with(R"(,"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<x>"}},{"Sequence":{"id":"A"}}],"special_tokens":{}})", "special_tokens");
  for (const char* merges : {R"(["a"])", R"(["a b c"])", R"([["a"]])", R"([["a","b","c"]])", R"([7])", R"({})"}) {
    EXPECT_FALSE(tokenizer_json_spec(std::string(R"({"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":)") + merges + "}}", "t")) << merges;
  }
  for (const char* vocab : {R"({"a":0,"b":0})", R"({"a":-1})", R"({"a":1.5})", R"({"a":1000000})", R"({"a":0,"a":1})", R"([])"}) {
    EXPECT_FALSE(tokenizer_json_spec(std::string(R"({"model":{"type":"BPE","merges":[],"vocab":)") + vocab + "}}", "t")) << vocab;
  }
}

TEST(TokenizerJson, WholePieces) {
  const auto read = [](const std::string& model) { return tokenizer_json_spec(R"({"model":{"type":"WordLevel")" + model + "}}", "t.json"); };
  expect_refusal(read(R"(,"vocab":{"a":0})"), Code::kCorruptData, "unk_token");
  expect_refusal(read(R"(,"unk_token":"u")"), Code::kCorruptData, "vocab");
  expect_refusal(read(R"(,"unk_token":7,"vocab":{"a":0})"), Code::kCorruptData, "$.model.unk_token");
  expect_refusal(read(R"(,"unk_token":"u","vocab":{"a":0,"b":0})"), Code::kCorruptData, "another token");
  const auto build = [&](const std::string& model) { return build_tokenizer(read(model).value_or_throw()).value_or_throw(); };
  EXPECT_EQ(build(R"(,"unk_token":"u","vocab":{"ab":0,"u":1})").encode("ab"), (std::vector<int32_t>{0}));
  const Tokenizer with_unknown = build(R"(,"unk_token":"u","vocab":{"ab":0,"u":1})");
  EXPECT_EQ(with_unknown.encode("b"), (std::vector<int32_t>{1}));
  EXPECT_EQ(with_unknown.unk(), 1);
  const Tokenizer without = build(R"(,"unk_token":"u","vocab":{"ab":0})");
  EXPECT_EQ(without.unk(), std::nullopt);
  EXPECT_THROW(without.encode("b"), Error);
}

TEST(TokenizerJson, TemplatesAndConfigurationsNameTheEnds) {
  auto spec = json(R"(,"added_tokens":[{"id":4,"content":"</s>","special":true}],"post_processor":{"type":"Sequence","processors":[{"type":"ByteLevel"},
      {"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],
       "special_tokens":{"<s>":{"id":"<s>","ids":[3],"tokens":["<s>"]}}}]})");
  ASSERT_TRUE(spec) << spec.failure().message;
  EXPECT_EQ(spec->prefix, (std::vector<int32_t>{3}));
  EXPECT_EQ(spec->bos, 3);
  ASSERT_TRUE(apply_tokenizer_config(R"({"eos_token":{"content":"</s>"},"bos_token":"<s>","pad_token":null,"unk_token":"none",
      "model_max_length":1000000000000000019884624838656})", "c", *spec));
  EXPECT_EQ(spec->eos, 4);
  EXPECT_EQ(spec->bos, 3);
  EXPECT_EQ(spec->pad, std::nullopt);
  EXPECT_EQ(spec->unk, std::nullopt);
  EXPECT_FALSE(apply_tokenizer_config(R"({"eos_token":7})", "c", *spec));
  const Tokenizer tokenizer = build_tokenizer(*std::move(spec)).value_or_throw();
  EXPECT_EQ(tokenizer.encode("ab", {.add = AddSpecial::kAsModel}), (std::vector<int32_t>{3, 2}));
  EXPECT_TRUE(tokenizer.is_special(4));
}

TEST(TokenizerJson, EveryTruncationIsRefused) {
  std::ifstream file(std::string(REGARD_TEST_DATA) + "/golden/tokenizer/llama2.json", std::ios::binary);
  std::stringstream stream;
  stream << file.rdbuf();
  const std::string text = stream.str();
  ASSERT_TRUE(tokenizer_json_spec(text, "whole"));
  const size_t end = text.find_last_not_of(" \n\r\t") + 1;
  for (size_t size = 0; size < end; size += size + 300 < end ? 101 : 1) {
    EXPECT_FALSE(tokenizer_json_spec(std::string_view(text).substr(0, size), "cut")) << size;
  }
}

TEST(TokenizerFile, MissingAndForeignFiles) {
  const auto code_of = [](const std::filesystem::path& path) {
    try {
      Tokenizer::from_file(path);
      return Code::kInternal;
    } catch (const Error& error) {
      return error.code();
    }
  };
  EXPECT_EQ(code_of("/nowhere/tokenizer.json"), Code::kNotFound);
  EXPECT_EQ(code_of(std::string(REGARD_TEST_DATA) + "/golden/hf/llama/model.safetensors"), Code::kCorruptData);
}

/// Metadata with the keys that a test names.
class Metadata {
 public:
  Metadata& text(const char* key, const char* value) {
    GgufValue v;
    v.type = GgufType::kString;
    v.element = GgufType::kString;
    v.string = value;
    return put(key, std::move(v));
  }
  Metadata& strings(const char* key, const std::vector<std::string>& values) {
    GgufValue v;
    v.type = GgufType::kArray;
    v.element = GgufType::kString;
    v.count = values.size();
    for (const std::string& s : values) v.strings.append(s);
    return put(key, std::move(v));
  }
  template <class T>
  Metadata& numbers(const char* key, GgufType element, const std::vector<T>& values) {
    GgufValue v;
    v.type = GgufType::kArray;
    v.element = element;
    v.count = values.size();
    v.raw.resize(values.size() * sizeof(T));
    std::memcpy(v.raw.data(), values.data(), v.raw.size());
    return put(key, std::move(v));
  }
  template <class T>
  Metadata& number(const char* key, GgufType type, T value) {
    GgufValue v;
    v.type = type;
    v.element = type;
    v.raw.resize(sizeof(T));
    std::memcpy(v.raw.data(), &value, sizeof(T));
    return put(key, std::move(v));
  }
  Result<TokenizerSpec> spec() const { return gguf_tokenizer_spec(metadata_, "t.gguf"); }

 private:
  Metadata& put(const char* key, GgufValue value) {
    EXPECT_TRUE(metadata_.insert(std::string("tokenizer.ggml.") + key, std::move(value)));
    return *this;
  }
  GgufMetadata metadata_{"t.gguf"};
};

Metadata byte_level() { return Metadata().text("model", "gpt2").strings("tokens", {"a", "b", "ab", "<s>"}).numbers<int32_t>("token_type", GgufType::kI32, {1, 1, 1, 3}); }
Metadata scored() {
  return Metadata().text("model", "llama").strings("tokens", {"<unk>", "<s>", "a", "aa"}).numbers<int32_t>("token_type", GgufType::kI32, {2, 3, 1, 1});
}

TEST(GgufTokenizer, RefusesWhatItDoesNotKnow) {
  expect_refusal(Metadata().spec(), Code::kNotFound, "has no tokenizer");
  expect_refusal(Metadata().text("model", "bert").spec(), Code::kUnsupported, "'bert'; known are gpt2, llama");
  expect_refusal(byte_level().text("pre", "default").strings("merges", {}).spec(), Code::kUnsupported, "'default'; known are gpt-2, smollm, llama-bpe, qwen2");
  EXPECT_FALSE(byte_level().strings("merges", {"a b"}).spec()) << "no pre-tokenizer is named";
}

TEST(GgufTokenizer, RefusesMalformedLists) {
  for (const char* merge : {"ab", " b", "a ", "a b c", ""}) {
    expect_refusal(byte_level().text("pre", "gpt-2").strings("merges", {"a b", merge}).spec(), Code::kCorruptData, "merge 1");
  }
  expect_refusal(byte_level().text("pre", "gpt-2").spec(), Code::kCorruptData, "tokenizer.ggml.merges");
  expect_refusal(scored().spec(), Code::kCorruptData, "tokenizer.ggml.scores");
  expect_refusal(scored().numbers<float>("scores", GgufType::kF32, {0, 0}).spec(), Code::kCorruptData, "2 entries for 4 tokens");
  expect_refusal(scored().numbers<float>("scores", GgufType::kF32, {0, 0, 0, 0}).number<uint32_t>("eos_token_id", GgufType::kU32, 4).spec(), Code::kCorruptData, "eos_token_id");
  expect_refusal(Metadata().text("model", "gpt2").text("pre", "gpt-2").strings("tokens", {"a"}).numbers<int32_t>("token_type", GgufType::kI32, {1, 1}).spec(), Code::kCorruptData, "token_type");
  EXPECT_FALSE(Metadata().text("model", "gpt2").text("pre", "gpt-2").strings("tokens", {"a"}).numbers<int32_t>("token_type", GgufType::kI32, {9}).spec());
  expect_refusal(byte_level().text("pre", "gpt-2").strings("merges", {"a b"}).number<uint8_t>("add_bos_token", GgufType::kBool, 1).spec(), Code::kCorruptData, "no begin token");
}

TEST(GgufTokenizer, DefaultsOfTheTwoModels) {
  const auto gpt2 = byte_level().text("pre", "gpt-2").strings("merges", {"a b"}).number<uint32_t>("bos_token_id", GgufType::kU32, 3).spec();
  ASSERT_TRUE(gpt2) << gpt2.failure().message;
  EXPECT_EQ(gpt2->bos, 3);
  EXPECT_TRUE(gpt2->prefix.empty());
  const auto llama = scored().numbers<float>("scores", GgufType::kF32, {0, 0, 0, 1}).spec();
  ASSERT_TRUE(llama) << llama.failure().message;
  EXPECT_EQ(llama->bos, 1);  // by its name
  EXPECT_EQ(llama->prefix, (std::vector<int32_t>{1}));
  const Tokenizer tokenizer = build_tokenizer(*llama).value_or_throw();
  EXPECT_EQ(tokenizer.encode("aa"), (std::vector<int32_t>{0, 0, 0, 3}));  // the space in front is unknown here: three bytes
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{1, 3}), "aa");
}

}  // namespace
}  // namespace regard
