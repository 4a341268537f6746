// train_tokenizer: the trainers of text/, and the file that comes of them.
#include "base/check.h"
#include "format/tokenizer_json_writer.h"
#include "text/train_tokenizer.h"

namespace regard {
namespace {

TokenizerSpec train(std::span<const std::string> texts, const TokenizerTraining& training) {
  switch (training.kind) {
    case TokenizerKind::kCharacters: return train_characters(texts, training);
    case TokenizerKind::kBytes: return train_bytes(training);
    case TokenizerKind::kBytePairs: break;
  }
  return train_byte_pairs(texts, training);
}

}  // namespace

TrainedTokenizer train_tokenizer(std::span<const std::string> texts, const TokenizerTraining& training) {
  const bool characters = training.kind == TokenizerKind::kCharacters;
  require(training.vocab_size == 0 || training.kind == TokenizerKind::kBytePairs,
          "[train_tokenizer] vocab_size is {}; only byte pairs have one to choose", training.vocab_size);
  require(training.min_count >= 0, "[train_tokenizer] min_count is {}; expected 0 or more", training.min_count);
  require(training.min_count <= 1 || training.kind != TokenizerKind::kBytes, "[train_tokenizer] bytes are all kept; min_count does not apply");
  require(characters || training.unknown == UnknownCharacters::kRefuse,
          "[train_tokenizer] only a character tokenizer has unknown characters; bytes spell everything");
  require(!characters || training.min_count <= 1 || training.unknown == UnknownCharacters::kToken,
          "[train_tokenizer] min_count {} leaves out characters of the texts; let unknown characters become a token", training.min_count);
  TokenizerSpec spec = train(texts, training);
  std::string json = write_tokenizer_json(spec).value_or_throw();
  return {build_tokenizer(std::move(spec)).value_or_throw(), std::move(json)};
}

}  // namespace regard
