// The Unigram model: of all ways to cut a text into pieces the one whose scores sum to the most. Start at UnigramModel::encode.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/merge.h"
#include "text/tokenizer_spec.h"
#include "text/vocabulary.h"

namespace regard {

/// The pieces as a tree of bytes, so that all pieces a text begins with are found in one walk.
class PieceTree {
 public:
  struct Entry {
    std::string_view piece;
    int32_t id;
  };
  /// Pieces are different and not empty.
  explicit PieceTree(std::vector<Entry> pieces = {});

  /// Calls found(size, id) for each piece that `text` begins with, shortest first.
  template <class Found>
  void for_prefixes(std::string_view text, Found&& found) const {
    uint32_t node = 0;
    for (size_t size = 0; size < text.size();) {
      node = child(node, static_cast<uint8_t>(text[size++]));
      if (node == 0) return;
      if (nodes_[node].id != kNoToken) found(size, nodes_[node].id);
    }
  }

 private:
  struct Node {
    uint32_t first = 0;  // children stand together, by their bytes; the root is nobody's
    uint16_t count = 0;
    uint8_t byte = 0;
    int32_t id = kNoToken;
  };
  uint32_t child(uint32_t node, uint8_t byte) const noexcept;

  std::vector<Node> nodes_{Node{}};
};

/// Unigram with the rules of Hugging Face's `Unigram`: a character that no piece covers costs the lowest score less ten, and unknown
/// characters that stand together become one token, or with byte fall-back their bytes.
/// Source: Kudo, 2018, "Subword regularization", section 3.2. Cost: O(n) in the text times the longest piece.
class UnigramModel {
 public:
  /// `special`: for each id whether it is special; such a token is never made from text.
  static Result<UnigramModel> make(const UnigramSpec& spec, const Vocabulary& vocabulary, const std::vector<bool>& special, std::string_view origin);
  void encode(std::string_view piece, const Vocabulary& vocabulary, Merger& merger, std::vector<int32_t>& out) const;

 private:
  void write_unknown(std::string_view text, const Vocabulary& vocabulary, std::vector<int32_t>& out) const;

  std::vector<double> scores_;
  std::vector<bool> special_;
  PieceTree tree_;
  std::array<int32_t, 256> bytes_{};  ///< <0xNN>, or kNoToken
  double unknown_score_ = 0;
  int32_t unk_ = kNoToken;
  bool byte_fallback_ = false;
};

}  // namespace regard
