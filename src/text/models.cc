#include "text/models.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "text/utf8.h"

namespace regard {
namespace {

constexpr uint32_t kNever = ~uint32_t{0};

std::string byte_piece(uint32_t byte) { return fmt::format("<0x{:02X}>", byte); }

std::optional<uint8_t> hex_digit(char c) noexcept {
  if (c >= '0' && c <= '9') return static_cast<uint8_t>(c - '0');
  if (c >= 'A' && c <= 'F') return static_cast<uint8_t>(c - 'A' + 10);
  if (c >= 'a' && c <= 'f') return static_cast<uint8_t>(c - 'a' + 10);
  return std::nullopt;
}

/// "'x' (U+0078)", or the bytes where they are no text.
std::string described(std::string_view piece) {
  if (valid_prefix(piece) != piece.size()) return fmt::format("the byte 0x{:02X}, which is no UTF-8", static_cast<uint8_t>(piece.front()));
  const Utf8Char c = next_char(piece);
  return c.size == piece.size() ? fmt::format("'{}' (U+{:04X})", piece, static_cast<uint32_t>(c.code_point)) : fmt::format("'{}'", piece);
}

}  // namespace

std::optional<uint8_t> byte_of_piece(std::string_view piece) noexcept {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece.back() != '>') return std::nullopt;
  const auto high = hex_digit(piece[3]), low = hex_digit(piece[4]);
  if (!high || !low) return std::nullopt;
  return static_cast<uint8_t>(*high << 4 | *low);
}

Result<BpeModel> BpeModel::make(const BpeSpec& spec, const Vocabulary& vocabulary, const std::vector<bool>& special,
                                std::string_view origin) {
  if (spec.merges.size() > kMaxMerges)
    return failure(Code::kResourceExhausted, "[build_tokenizer] {}: {} merges are over the limit of {}", origin, spec.merges.size(),
                   kMaxMerges);
  BpeModel model;
  model.merges_ = MergeTable(spec.merges.size());
  model.special_ = special;
  model.fuse_unk_ = spec.fuse_unk;
  model.byte_fallback_ = spec.byte_fallback;
  model.ignore_merges_ = spec.ignore_merges;
  model.prefix_ = spec.continuing_subword_prefix;
  model.suffix_ = spec.end_of_word_suffix;
  for (uint32_t byte = 0; byte < 256; ++byte) model.bytes_[byte] = vocabulary.find(byte_piece(byte));
  if (spec.unk_token) {
    model.unk_ = vocabulary.find(*spec.unk_token);
    if (model.unk_ == kNoToken)
      return corrupt("[build_tokenizer] {}: the unknown token '{}' is not in the vocabulary", origin, *spec.unk_token);
  }
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const auto& [left, right] = spec.merges[rank];
    const int32_t left_id = vocabulary.find(left), right_id = vocabulary.find(right);
    std::string_view tail = right;
    if (tail.starts_with(model.prefix_)) tail.remove_prefix(model.prefix_.size());
    const int32_t merged = vocabulary.find(left + std::string(tail));
    if (left_id == kNoToken || right_id == kNoToken || merged == kNoToken)
      return corrupt("[build_tokenizer] {}: merge {} ('{}' '{}') needs a token that is not in the vocabulary", origin, rank, left, right);
    if (special[static_cast<size_t>(merged)]) continue;  // text never becomes a special token
    if (!model.merges_.insert(left_id, right_id, {static_cast<uint32_t>(rank), merged}))
      return corrupt("[build_tokenizer] {}: merge {} ('{}' '{}') is there twice", origin, rank, left, right);
  }
  return model;
}

void BpeModel::encode(std::string_view piece, const Vocabulary& vocabulary, Merger& merger, std::vector<int32_t>& out) const {
  if (ignore_merges_) {
    const int32_t whole = vocabulary.find(piece);
    if (whole != kNoToken && !special_[static_cast<size_t>(whole)]) {
      out.push_back(whole);
      return;
    }
  }
  merger.clear(piece.size());
  // An unknown character waits here until a known one follows, and with fuse_unk stands for all that follow it. That byte tokens do
  // not let it out is the reference's behaviour.
  bool unknown_waits = false;
  const auto flush_unknown = [&] {
    if (unknown_waits) merger.add(unk_);
    unknown_waits = false;
  };
  std::string decorated;  // the character with prefix and suffix, where the file has them
  for (size_t at = 0; at < piece.size();) {
    const Utf8Char c = next_char(piece.substr(at));
    const size_t size = c.valid() ? c.size : 1;  // a broken run is taken byte by byte
    std::string_view text = piece.substr(at, size);
    if (!prefix_.empty() || !suffix_.empty()) {
      decorated = at > 0 ? prefix_ : std::string();
      decorated += text;
      if (at + size == piece.size()) decorated += suffix_;
      text = decorated;
    }
    const int32_t id = vocabulary.find(text);
    const auto has_byte = [&](char b) { return bytes_[static_cast<uint8_t>(b)] != kNoToken; };
    if (id != kNoToken && !special_[static_cast<size_t>(id)]) {
      flush_unknown();
      merger.add(id);
    } else if (byte_fallback_ && std::all_of(text.begin(), text.end(), has_byte)) {
      for (const char byte : text) merger.add(bytes_[static_cast<uint8_t>(byte)]);
    } else if (unk_ != kNoToken) {
      if (!fuse_unk_) flush_unknown();
      unknown_waits = true;
    }
    at += size;
  }
  flush_unknown();
  merger.run([&](int32_t left, int32_t right, int32_t) {
    const MergeTable::Merge* merge = merges_.find(merger.id(left), merger.id(right));
    return merge != nullptr ? *merge : MergeTable::Merge{};
  });
  merger.for_each([&](int32_t id, int32_t, int32_t) { out.push_back(id); });
}

Result<SpmModel> SpmModel::make(const SpmSpec& spec, const Vocabulary& vocabulary, const std::vector<TokenKind>& kinds,
                                std::optional<int32_t> unk, std::string_view origin) {
  const auto size = static_cast<size_t>(vocabulary.size());
  if (spec.scores.size() != size)
    return corrupt("[build_tokenizer] {}: {} scores for {} tokens", origin, spec.scores.size(), size);
  for (size_t id = 0; id < size; ++id) {
    if (std::isnan(spec.scores[id])) return corrupt("[build_tokenizer] {}: the score of token {} is NaN", origin, id);
  }
  SpmModel model;
  // Scores become ranks, equal ones the same: higher score, lower rank.
  std::vector<int32_t> order(size);
  std::iota(order.begin(), order.end(), 0);
  const auto score = [&](int32_t id) { return spec.scores[static_cast<size_t>(id)]; };
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return score(a) > score(b); });
  model.ranks_.assign(size, kNever);
  uint32_t rank = 0;
  for (size_t i = 0; i < size; ++i) {
    if (i > 0 && score(order[i]) != score(order[i - 1])) ++rank;
    const TokenKind kind = kinds[static_cast<size_t>(order[i])];
    // Control, unknown and byte tokens are written by name only: a text that spells "<bos>" or "<0x0A>" stays that text.
    const bool from_text = kind == TokenKind::kNormal || kind == TokenKind::kUserDefined || kind == TokenKind::kUnused;
    if (from_text) model.ranks_[static_cast<size_t>(order[i])] = rank;
  }
  for (uint32_t byte = 0; byte < 256; ++byte) {
    int32_t id = vocabulary.find(byte_piece(byte));
    const char raw = static_cast<char>(static_cast<uint8_t>(byte));
    if (id == kNoToken) id = vocabulary.find(std::string_view(&raw, 1));
    if (id == kNoToken) id = unk.value_or(kNoToken);
    if (id == kNoToken)
      return corrupt("[build_tokenizer] {}: no token {} and no unknown token to stand for it", origin, byte_piece(byte));
    model.bytes_[byte] = id;
  }
  return model;
}

void SpmModel::encode(std::string_view piece, const Vocabulary& vocabulary, Merger& merger, std::vector<int32_t>& out) const {
  const auto find = [&](std::string_view text) {
    const int32_t id = vocabulary.find(text);
    return id != kNoToken && ranks_[static_cast<size_t>(id)] != kNever ? id : kNoToken;
  };
  merger.clear(piece.size());
  std::vector<uint32_t> begins;  // of the initial symbols in the piece
  begins.reserve(piece.size() + 1);
  for (size_t at = 0; at < piece.size();) {
    const Utf8Char c = next_char(piece.substr(at));
    const size_t size = c.valid() ? c.size : 1;
    merger.add(find(piece.substr(at, size)));
    begins.push_back(static_cast<uint32_t>(at));
    at += size;
  }
  begins.push_back(static_cast<uint32_t>(piece.size()));
  const auto text_of = [&](int32_t begin, int32_t end) {
    const uint32_t from = begins[static_cast<size_t>(begin)];
    return piece.substr(from, begins[static_cast<size_t>(end)] - from);
  };
  merger.run([&](int32_t left, int32_t, int32_t end) -> MergeTable::Merge {
    const int32_t id = find(text_of(left, end));
    return {id == kNoToken ? kNever : ranks_[static_cast<size_t>(id)], id};
  });
  merger.for_each([&](int32_t id, int32_t begin, int32_t end) {
    if (id != kNoToken) {
      out.push_back(id);
    } else {
      for (const char c : text_of(begin, end)) out.push_back(bytes_[static_cast<uint8_t>(c)]);
    }
  });
}

WordLevelModel WordLevelModel::make(const WordLevelSpec& spec, const Vocabulary& vocabulary, const std::vector<bool>& special) {
  WordLevelModel model;
  model.special_ = special;
  model.unk_ = vocabulary.find(spec.unk_token);  // a file may name one that it does not have
  return model;
}

void WordLevelModel::encode(std::string_view piece, const Vocabulary& vocabulary, Merger&, std::vector<int32_t>& out) const {
  int32_t id = vocabulary.find(piece);
  if (id == kNoToken || special_[static_cast<size_t>(id)]) id = unk_;
  require(id != kNoToken, "[Tokenizer::encode] the vocabulary has no token for {} and none for unknown text; leave it out, or use a "
          "tokenizer that was made with an unknown token", described(piece));
  out.push_back(id);
}

}  // namespace regard
