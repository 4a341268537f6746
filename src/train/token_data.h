// The text of a run as token ids, one after the other, with the places where documents begin. Texts are tokenised once and
// kept; files of ids are mapped and never copied. Start at load_tokens().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "regard/stop_token.h"
#include "regard/tokenizer.h"
#include "regard/train.h"

namespace regard::train_data {

/// Immutable; copies share the memory.
class TokenData {
 public:
  /// Ids in memory. `document_starts` is empty (one document), or rising places that begin with 0.
  TokenData(std::vector<int32_t> ids, std::vector<int64_t> document_starts);

  int64_t size() const noexcept { return end_ - begin_; }
  /// Copies the ids from `first` on. The range lies inside.
  void copy(int64_t first, std::span<int32_t> out) const;

  bool has_documents() const noexcept;
  /// The document that token `at` belongs to, counted from the beginning of all data, and where that document begins.
  struct Document {
    int64_t number = 0;
    int64_t begin = 0;  ///< negative when it begins before this part
    int64_t end = 0;
  };
  Document document(int64_t at) const;

  /// A stretch of this data.
  TokenData part(int64_t first, int64_t end) const;
  /// Where to cut so that `share` of the tokens, or of the documents where there are documents, lie behind: never inside one.
  int64_t cut(double share) const;

  /// A number of all ids and document starts.
  uint64_t hash() const;

  struct Store;

 private:
  friend TokenData load_tokens(const std::vector<std::string>& files, const TrainConfig::Data& config, const Tokenizer* tokenizer,
                               int64_t vocab_size, const StopToken* stop);
  explicit TokenData(std::shared_ptr<const Store> store);

  std::shared_ptr<const Store> store_;
  int64_t begin_ = 0, end_ = 0;  // of this part
};

/// Reads `files`, one after the other, as `config` says. Text needs a tokenizer. `vocab_size` is what ids must lie below; 0
/// asks for the tokenizer's. Errors: kInvalidArgument (no tokenizer, an id outside the vocabulary with its place, nothing in the
/// files), kCorruptData (a JSON line without the field, a token file of odd size), kNotFound, kIo, kCancelled.
TokenData load_tokens(const std::vector<std::string>& files, const TrainConfig::Data& config, const Tokenizer* tokenizer, int64_t vocab_size,
                      const StopToken* stop = nullptr);

/// One more than the largest id.
int64_t smallest_vocabulary(const TokenData& data);

}  // namespace regard::train_data
