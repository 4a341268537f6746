// Files of every kind as token ids: what they hold, where documents begin, what is refused.
#include "train/token_data.h"

#include <gtest/gtest.h>

#include <numeric>
#include <tuple>

#include "../support/temp_dir.h"
#include "regard/error.h"
#include "regard/npy.h"
#include "regard/tokenizer_training.h"

namespace regard::train_data {
namespace {

using testing_support::TempDir;
using Config = TrainConfig::Data;

Tokenizer tokenizer() { return Tokenizer::from_file(std::string(REGARD_TEST_DATA) + "/golden/gguf/llama_q4_1.gguf"); }

std::vector<int32_t> all_of(const TokenData& data) {
  std::vector<int32_t> ids(static_cast<size_t>(data.size()));
  data.copy(0, ids);
  return ids;
}

std::pair<Code, std::string> refusal(const std::vector<std::string>& files, const Config& config, const Tokenizer* tokenizer, int64_t vocab = 0) {
  try {
    load_tokens(files, config, tokenizer, vocab);
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {Code::kInternal, "not refused"};
}

template <class T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

TEST(TokenData, ReadsFilesOfIdsOneAfterTheOther) {
  const TempDir directory;
  const std::vector<uint16_t> first = {1, 2, 65535};
  const std::vector<int32_t> second = {100000, 4, 5, 6};
  directory.write("a.bin", raw(first));
  const int64_t shape[] = {4};
  save_npy(directory.path("b.npy"), shape, second);
  directory.write("empty.bin", std::string());
  const TokenData data = load_tokens({directory.path("a.bin"), directory.path("empty.bin"), directory.path("b.npy")}, {}, nullptr, 0);
  EXPECT_EQ(all_of(data), (std::vector<int32_t>{1, 2, 65535, 100000, 4, 5, 6}));
  EXPECT_EQ(smallest_vocabulary(data), 100001);
  // Every stretch, and every stretch of a part.
  const std::vector<int32_t> ids = all_of(data);
  for (int64_t begin = 0; begin <= data.size(); ++begin) {
    for (int64_t end = begin; end <= data.size(); ++end) {
      std::vector<int32_t> some(static_cast<size_t>(end - begin));
      data.copy(begin, some);
      EXPECT_TRUE(std::equal(some.begin(), some.end(), ids.begin() + begin));
      EXPECT_EQ(all_of(data.part(begin, end)), some);
    }
  }
  EXPECT_EQ(data.document(2).end, 3);
  EXPECT_EQ(data.document(3).begin, 3);
  EXPECT_EQ(data.part(1, 5).document(0).begin, -1);
  Config int32;
  int32.token_type = Config::TokenType::kInt32;
  directory.write("c.bin", raw(second));
  EXPECT_EQ(all_of(load_tokens({directory.path("c.bin")}, int32, nullptr, 0)), second);
}

TEST(TokenData, EncodesTextsWholeOrByLine) {
  const TempDir directory;
  const Tokenizer words = tokenizer();
  const std::string text = "the sea\n\nthe hill\r\nthe sky";
  directory.write("t.txt", text);
  const TokenData whole = load_tokens({directory.path("t.txt")}, {}, &words, 0);
  EXPECT_EQ(all_of(whole), words.encode(text));
  EXPECT_FALSE(whole.has_documents());

  Config lines;
  lines.unit = Config::Unit::kLine;
  lines.prefix = "> ";
  const TokenData data = load_tokens({directory.path("t.txt")}, lines, &words, 0);
  std::vector<int32_t> want;
  std::vector<int64_t> begins;
  for (const char* line : {"the sea", "the hill", "the sky"}) {
    begins.push_back(static_cast<int64_t>(want.size()));
    for (const std::string& part : {std::string("> "), std::string(line), std::string("\n")}) {
      const auto ids = words.encode(part);
      want.insert(want.end(), ids.begin(), ids.end());
    }
  }
  EXPECT_EQ(all_of(data), want);
  EXPECT_TRUE(data.has_documents());
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(data.document(begins[static_cast<size_t>(i)]).begin, begins[static_cast<size_t>(i)]);
  EXPECT_EQ(data.cut(0.34), begins[1]);
  EXPECT_EQ(data.cut(0.3), begins[2]);
  EXPECT_EQ(data.cut(0), data.size());

  directory.write("t.jsonl", std::string("{\"text\": \"the sea\", \"n\": 1}\n{\"text\": \"the hill\"}\n\n{\"text\": \"the sky\"}"));
  EXPECT_EQ(all_of(load_tokens({directory.path("t.jsonl")}, lines, &words, 0)), want);
}

TEST(TokenData, CutsTextAtTheShare) {
  EXPECT_EQ(TokenData(std::vector<int32_t>(1115394), {}).cut(0.1), 1003854);  // the usual split of the Shakespeare text
}

TEST(TokenData, HashesWhatIsThereAndNotHowItLies) {
  const TempDir directory;
  const std::vector<uint16_t> narrow = {1, 2, 3, 4};
  const std::vector<int32_t> wide = {1, 2, 3, 4};
  directory.write("a.bin", raw(narrow));
  EXPECT_EQ(load_tokens({directory.path("a.bin")}, {}, nullptr, 0).hash(), TokenData(wide, {0}).hash());
  EXPECT_NE(TokenData(wide, {0}).hash(), TokenData(wide, {0, 2}).hash());
  EXPECT_NE(TokenData(wide, {0}).hash(), TokenData({1, 2, 4, 3}, {0}).hash());
  EXPECT_NE(TokenData(wide, {0}).hash(), TokenData({1, 2, 3}, {0}).hash());
}

TEST(TokenData, RefusesWhatCannotBeTrainedOn) {
  const TempDir directory;
  const Tokenizer words = tokenizer();
  directory.write("t.txt", std::string("text"));
  directory.write("odd.bin", std::string("abc"));
  directory.write("empty.txt", std::string());
  directory.write("bad.jsonl", std::string("{\"text\": \"x\"}\n{\"other\": 1}\n"));
  directory.write("ids.bin", raw(std::vector<uint16_t>{1, 2, 30}));
  const double values[] = {1, 2};
  const int64_t shape[] = {2}, square[] = {2, 1};
  save_npy(directory.path("f.npy"), shape, values);
  const int32_t ids[] = {1, 2};
  save_npy(directory.path("square.npy"), square, ids);
  Config text;

  const auto expect = [&](const std::pair<Code, std::string>& got, Code code, const std::string& part) {
    EXPECT_EQ(got.first, code) << got.second;
    EXPECT_NE(got.second.find(part), std::string::npos) << got.second;
  };
  expect(refusal({directory.path("t.txt")}, text, nullptr), Code::kInvalidArgument, "set data.tokenizer");
  expect(refusal({directory.path("no.txt")}, text, &words), Code::kNotFound, "no.txt");
  expect(refusal({directory.path("odd.bin")}, text, nullptr), Code::kCorruptData, "3 bytes");
  expect(refusal({directory.path("empty.txt")}, text, &words), Code::kInvalidArgument, "no token");
  expect(refusal({directory.path("bad.jsonl")}, text, &words), Code::kCorruptData, "bad.jsonl:2");
  expect(refusal({directory.path("ids.bin")}, text, nullptr, 30), Code::kInvalidArgument, "token 2 of");
  expect(refusal({directory.path("f.npy")}, text, nullptr), Code::kInvalidArgument, "expected uint16 or int32");
  expect(refusal({directory.path("square.npy")}, text, nullptr), Code::kInvalidArgument, "2 axes");
  StopToken stop;
  stop.request_stop();
  EXPECT_THROW(load_tokens({directory.path("ids.bin")}, text, nullptr, 0, &stop), Error);
}

TEST(TokenData, NamesWhatATokenizerOfCharactersDoesNotHave) {
  const TempDir directory;
  const std::string seen[] = {"abc"};
  const Tokenizer tokenizer = train_tokenizer(seen, {}).tokenizer;
  directory.write("broken.txt", std::string("abcab\xff" "c"));
  directory.write("lines.txt", std::string("abc\nab\xff\n"));
  directory.write("other.txt", std::string("abcd"));
  Config config;
  config.tokenizer = "chars.json";
  auto [code, message] = refusal({directory.path("broken.txt")}, config, &tokenizer);
  EXPECT_EQ(code, Code::kCorruptData);
  EXPECT_NE(message.find("broken.txt' is not UTF-8 at byte 5"), std::string::npos) << message;
  std::tie(code, message) = refusal({directory.path("other.txt")}, config, &tokenizer);
  EXPECT_EQ(code, Code::kInvalidArgument);
  EXPECT_NE(message.find("other.txt"), std::string::npos) << message;
  config.unit = Config::Unit::kLine;
  std::tie(code, message) = refusal({directory.path("lines.txt")}, config, &tokenizer);
  EXPECT_EQ(code, Code::kInvalidArgument);  // the line end behind each line
  for (const char* part : {"data.suffix", "chars.json", "lines.txt"}) EXPECT_NE(message.find(part), std::string::npos) << message;
  config.suffix.clear();
  std::tie(code, message) = refusal({directory.path("lines.txt")}, config, &tokenizer);
  EXPECT_EQ(code, Code::kCorruptData);
  EXPECT_NE(message.find("at byte 6"), std::string::npos) << message;
}

}  // namespace
}  // namespace regard::train_data
