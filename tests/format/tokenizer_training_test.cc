// Writing tokenizer.json: what is written reads back as the same tokenizer, and what is trained here is what the golden files say,
// whose ids PyPI `tokenizers` gave.
#include "regard/tokenizer_training.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "../support/files.h"
#include "format/tokenizer_json.h"
#include "format/tokenizer_json_writer.h"
#include "regard/error.h"

namespace regard {
namespace {

namespace fs = std::filesystem;
using testing_support::test_data;

TEST(WriteTokenizerJson, EveryPipelineReadsBackAsItself) {
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(REGARD_TEST_DATA) / "golden" / "tokenizer")) {
    if (entry.path().extension() != ".json") continue;
    const std::string name = entry.path().filename().string();
    SCOPED_TRACE(name);
    const TokenizerSpec spec = tokenizer_json_spec(test_data("golden/tokenizer/" + name), name).value_or_throw();
    const std::string written = write_tokenizer_json(spec).value_or_throw();
    const TokenizerSpec again = tokenizer_json_spec(written, name).value_or_throw();
    EXPECT_EQ(write_tokenizer_json(again).value_or_throw(), written);
    // What the file says must survive, not only what the writer makes of it.
    EXPECT_EQ(again.pieces, spec.pieces);
    EXPECT_EQ(again.added.size(), spec.added.size());
    EXPECT_EQ(again.normalizer.size(), spec.normalizer.size());
    EXPECT_EQ(again.pre_tokenizer.size(), spec.pre_tokenizer.size());
    EXPECT_EQ(again.decoder.size(), spec.decoder.size());
    EXPECT_EQ(again.prefix, spec.prefix);
    EXPECT_EQ(again.suffix, spec.suffix);
    const Tokenizer first = build_tokenizer(spec).value_or_throw(), second = build_tokenizer(again).value_or_throw();
    const std::string text = " The  river's 12 caf\xC3\xA9, na\xC3\xAFve_x-1;;\n\n\xE5\xA5\xBD<s>a_b zqzqzq <mask> [x] \xF0\x9F\x98\x80";
    for (const AddSpecial add : {AddSpecial::kNone, AddSpecial::kAsModel}) {
      const auto ids = first.encode(text, {.special = SpecialTokens::kParse, .add = add});
      EXPECT_EQ(second.encode(text, {.special = SpecialTokens::kParse, .add = add}), ids);
      EXPECT_EQ(second.decode(ids, {.special = SpecialText::kShow}), first.decode(ids, {.special = SpecialText::kShow}));
    }
    ++files;
  }
  EXPECT_GE(files, 12u);
}

TEST(WriteTokenizerJson, ScoresHaveNoPlace) {
  TokenizerSpec spec;
  spec.pieces = {"a"};
  spec.model = SpmSpec{{0.0f}};
  EXPECT_EQ(write_tokenizer_json(spec).failure().code, Code::kUnsupported);
}

// The four files of tools/golden/trained_tokenizers.py, made here again.
TrainedTokenizer golden_tokenizer(const std::string& name) {
  const std::string prose = test_data("golden/text/shakespeare.txt"), poems = test_data("golden/text/tang.txt");
  TokenizerTraining training;
  if (name == "characters") return train_tokenizer(std::vector{prose, poems}, training);
  training.special = {"<|endoftext|>", "<pad>"};
  if (name == "characters_unk") {
    training.min_count = 2;
    training.unknown = UnknownCharacters::kToken;
    return train_tokenizer(std::vector{poems}, training);
  }
  if (name == "bytes") {
    training.kind = TokenizerKind::kBytes;
    return train_tokenizer({}, training);
  }
  training.kind = TokenizerKind::kBytePairs;
  training.vocab_size = 700;
  return train_tokenizer(std::vector{prose, poems}, training);
}

TEST(TrainTokenizer, GivesTheFilesThatTheReferenceWasAskedAbout) {
  for (const std::string name : {"characters", "characters_unk", "bytes", "bpe"}) {
    const TrainedTokenizer trained = golden_tokenizer(name);
    EXPECT_TRUE(trained.json == test_data("golden/trained/" + name + ".json")) << name;
    const Tokenizer read = build_tokenizer(tokenizer_json_spec(trained.json, name).value_or_throw()).value_or_throw();
    EXPECT_EQ(read.vocab_size(), trained.tokenizer.vocab_size());
    const std::string text = test_data("golden/text/tang.txt");
    EXPECT_EQ(read.encode(text), trained.tokenizer.encode(text)) << name;
  }
}

TEST(TrainTokenizer, RefusesOptionsThatDoNotFit) {
  const std::vector<std::string> texts{"some text"};
  const auto refused = [&](TokenizerKind kind, int64_t vocab_size, int64_t min_count, UnknownCharacters unknown) {
    TokenizerTraining training;
    training.kind = kind, training.vocab_size = vocab_size, training.min_count = min_count, training.unknown = unknown;
    EXPECT_THROW(train_tokenizer(texts, training), Error);
  };
  using enum TokenizerKind;
  refused(kCharacters, 100, 0, UnknownCharacters::kRefuse);
  refused(kCharacters, 0, 2, UnknownCharacters::kRefuse);
  refused(kCharacters, 0, -1, UnknownCharacters::kRefuse);
  refused(kBytes, 256, 0, UnknownCharacters::kRefuse);
  refused(kBytes, 0, 2, UnknownCharacters::kRefuse);
  refused(kBytes, 0, 0, UnknownCharacters::kToken);
  refused(kBytePairs, 0, 0, UnknownCharacters::kRefuse);
  refused(kBytePairs, 300, 0, UnknownCharacters::kToken);
  refused(kBytePairs, 1'000'001, 0, UnknownCharacters::kRefuse);
}

}  // namespace
}  // namespace regard
