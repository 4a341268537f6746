// Token ids against other implementations: llama.cpp for GGUF files, PyPI tokenizers for tokenizer.json. The goldens are made by the
// scripts in tools/golden.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "format/json_reader.h"
#include "regard/tokenizer.h"

namespace regard {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = fs::path(REGARD_TEST_DATA) / "golden";

std::vector<std::string> lines_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::vector<int32_t> ids_of(const JsonValue& value) {
  std::vector<int32_t> ids;
  const JsonArray array = value.as_array().value_or_throw();
  for (const JsonValue id : array) ids.push_back(static_cast<int32_t>(id.as_integer().value_or_throw()));
  return ids;
}

/// Compares every line {"text", "special", "ids"} and reports the first few differences.
size_t compare_with_llama_cpp(const Tokenizer& tokenizer, const fs::path& cases) {
  size_t compared = 0, wrong = 0;
  for (const std::string& line : lines_of(cases)) {
    const JsonDocument document = JsonDocument::parse(line, "case").value_or_throw();
    const JsonObject object = document.root().as_object().value_or_throw();
    const std::string text(object.get("text").value_or_throw().as_string().value_or_throw());
    const bool special = object.get("special").value_or_throw().as_bool().value_or_throw();
    const std::vector<int32_t> expected = ids_of(object.get("ids").value_or_throw());
    const auto ids = tokenizer.encode(text, {.special = special ? SpecialTokens::kParse : SpecialTokens::kAsText});
    ++compared;
    if (ids != expected && ++wrong <= 10) {
      EXPECT_EQ(ids, expected) << line;
    }
  }
  EXPECT_EQ(wrong, 0u) << "of " << compared;
  return compared;
}

void compare_real_model(const std::string& file, const std::string& cases) {
  const char* models = std::getenv("REGARD_MODELS");
  if (models == nullptr) GTEST_SKIP() << "REGARD_MODELS names no directory with " << file;
  if (!fs::exists(fs::path(models) / file)) GTEST_SKIP() << "there is no " << file << " in " << models;
  const Tokenizer tokenizer = Tokenizer::from_file(fs::path(models) / file);
  EXPECT_GE(compare_with_llama_cpp(tokenizer, kGolden / "tokens" / cases), 2000u);
}

TEST(TokenizerGolden, SmolLM2EqualsLlamaCpp) { compare_real_model("smollm2-135m-instruct-q4_1.gguf", "smollm2.jsonl"); }
TEST(TokenizerGolden, Gemma3EqualsLlamaCpp) { compare_real_model("gemma3-270m-q4_k_m.gguf", "gemma3.jsonl"); }

TEST(TokenizerGolden, SmallGgufVocabulariesEqualLlamaCpp) {
  size_t files = 0, cases = 0;
  for (const auto& entry : fs::directory_iterator(kGolden / "gguf")) {
    const std::string name = entry.path().filename().string();
    constexpr std::string_view suffix = ".tokens.jsonl";
    if (!name.ends_with(suffix)) continue;
    const std::string model = name.substr(0, name.size() - suffix.size()) + ".gguf";
    SCOPED_TRACE(model);
    cases += compare_with_llama_cpp(Tokenizer::from_file(kGolden / "gguf" / model), entry.path());
    ++files;
  }
  EXPECT_GE(files, 6u);
  EXPECT_GE(cases, 500u);
}

std::string stream_of(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, const DecodeOptions& options) {
  StreamDecoder stream(tokenizer, options);
  std::string text;
  for (const int32_t id : ids) text += stream.push(id);
  return text + stream.flush();
}

/// One line of tests/golden/tokenizer; what it leaves out is the same as what stands before it (tools/golden/hf_tokenizers.py).
void compare_with_reference(const Tokenizer& tokenizer, const std::string& line) {
  const JsonDocument document = JsonDocument::parse(line, "case").value_or_throw();
  const JsonObject object = document.root().as_object().value_or_throw();
  const auto text_at = [&](std::string_view key, const std::string& otherwise) {
    const auto value = object.find(key);
    return value ? std::string(value->as_string().value_or_throw()) : otherwise;
  };
  const auto ids_at = [&](std::string_view key, const std::vector<int32_t>& otherwise) {
    const auto value = object.find(key);
    return value ? ids_of(*value) : otherwise;
  };
  const DecodeOptions show{.special = SpecialText::kShow}, skip{.special = SpecialText::kSkip};
  if (object.find("decode")) {
    const std::vector<int32_t> ids = ids_at("decode", {});
    ASSERT_EQ(tokenizer.decode(ids, show), text_at("decoded", "")) << line;
    ASSERT_EQ(stream_of(tokenizer, ids, show), text_at("decoded", "")) << line;
    return;
  }
  const std::string text = text_at("text", "");
  const std::vector<int32_t> ids = ids_at("ids", {});
  const std::vector<int32_t> with_special = ids_at("with_special", ids);
  ASSERT_EQ(tokenizer.encode(text, {.special = SpecialTokens::kParse}), ids) << line;
  ASSERT_EQ(tokenizer.encode(text, {.special = SpecialTokens::kParse, .add = AddSpecial::kAsModel}), with_special) << line;
  ASSERT_EQ(tokenizer.encode(text), ids_at("plain", ids)) << line;
  const std::string decoded = text_at("decoded", text);
  ASSERT_EQ(tokenizer.decode(ids, show), decoded) << line;
  ASSERT_EQ(stream_of(tokenizer, ids, show), decoded) << line;
  ASSERT_EQ(tokenizer.decode(with_special, skip), text_at("skipped", decoded)) << line;
  ASSERT_EQ(stream_of(tokenizer, with_special, skip), text_at("skipped", decoded)) << line;
}

void compare_directory(const fs::path& directory, size_t files_at_least, size_t cases_at_least) {
  size_t files = 0, cases = 0;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    constexpr std::string_view suffix = ".cases.jsonl";
    if (!name.ends_with(suffix)) continue;
    SCOPED_TRACE(name);
    const Tokenizer tokenizer = Tokenizer::from_file(directory / (name.substr(0, name.size() - suffix.size()) + ".json"));
    for (const std::string& line : lines_of(entry.path())) {
      compare_with_reference(tokenizer, line);
      if (testing::Test::HasFatalFailure()) break;
      ++cases;
    }
    ++files;
  }
  EXPECT_GE(files, files_at_least);
  EXPECT_GE(cases, cases_at_least);
}

TEST(TokenizerGolden, TokenizerJsonEqualsTheReferenceImplementation) { compare_directory(kGolden / "tokenizer", 12, 1500); }
TEST(TokenizerGolden, UnigramEqualsTheReferenceImplementation) { compare_directory(kGolden / "unigram", 5, 700); }
TEST(TokenizerGolden, TokenizersTrainedHereGiveTheIdsOfTheReference) { compare_directory(kGolden / "trained", 4, 300); }

}  // namespace
}  // namespace regard
