// The models: ids of one piece. Start at encode_piece.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "text/merge.h"
#include "text/tokenizer_spec.h"
#include "text/unigram.h"
#include "text/vocabulary.h"

namespace regard {

/// BPE by the rank of merges, with the rules of Hugging Face's `BPE`.
class BpeModel {
 public:
  /// `special`: for each id whether it is special; such a token is never made from text.
  static Result<BpeModel> make(const BpeSpec& spec, const Vocabulary& vocabulary, const std::vector<bool>& special,
                               std::string_view origin);
  /// Appends the ids of `piece`.
  void encode(std::string_view piece, const Vocabulary& vocabulary, Merger& merger, std::vector<int32_t>& out) const;
  int32_t byte_token(uint8_t byte) const noexcept { return bytes_[byte]; }

 private:
  MergeTable merges_;
  std::array<int32_t, 256> bytes_{};  ///< <0xNN>, or kNoToken
  std::vector<bool> special_;
  int32_t unk_ = kNoToken;
  bool fuse_unk_ = false, byte_fallback_ = false, ignore_merges_ = false;
  std::string prefix_, suffix_;
};

/// Merging by score, as llama.cpp does for the model "llama".
class SpmModel {
 public:
  static Result<SpmModel> make(const SpmSpec& spec, const Vocabulary& vocabulary, const std::vector<TokenKind>& kinds,
                               std::optional<int32_t> unk, std::string_view origin);
  void encode(std::string_view piece, const Vocabulary& vocabulary, Merger& merger, std::vector<int32_t>& out) const;
  int32_t byte_token(uint8_t byte) const noexcept { return bytes_[byte]; }

 private:
  std::vector<uint32_t> ranks_;       ///< by id: 0 for the highest score; kNever for tokens that text never becomes
  std::array<int32_t, 256> bytes_{};  ///< the token of each byte, or the unknown token
};

/// Whole pieces, with the rules of Hugging Face's `WordLevel`.
class WordLevelModel {
 public:
  static WordLevelModel make(const WordLevelSpec& spec, const Vocabulary& vocabulary, const std::vector<bool>& special);
  /// Appends the id of `piece`. Errors: kInvalidArgument names a piece that is no token when there is no unknown token.
  void encode(std::string_view piece, const Vocabulary& vocabulary, Merger& merger, std::vector<int32_t>& out) const;

 private:
  std::vector<bool> special_;
  int32_t unk_ = kNoToken;
};

using Model = std::variant<BpeModel, SpmModel, WordLevelModel, UnigramModel>;

/// The byte that a piece spelt "<0xNN>" stands for; upper and lower case digits.
std::optional<uint8_t> byte_of_piece(std::string_view piece) noexcept;

}  // namespace regard
