#include "text/unigram.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/utf8.h"

namespace regard {
namespace {

constexpr double kUnknownPenalty = 10;
constexpr size_t kMaxUnigramPiece = 1024, kMaxUnigramBytes = size_t{16} << 20;  // the tree has a node for each byte at most

}  // namespace

PieceTree::PieceTree(std::vector<Entry> pieces) {
  std::sort(pieces.begin(), pieces.end(), [](const Entry& a, const Entry& b) { return a.piece < b.piece; });
  struct Range {
    size_t begin, end, depth;  // pieces below a node, which have their first `depth` bytes in common
  };
  std::vector<Range> ranges{{0, pieces.size(), 0}};
  for (size_t node = 0; node < nodes_.size(); ++node) {
    auto [begin, end, depth] = ranges[node];
    if (begin < end && pieces[begin].piece.size() == depth) nodes_[node].id = pieces[begin++].id;
    nodes_[node].first = static_cast<uint32_t>(nodes_.size());
    while (begin < end) {
      const char byte = pieces[begin].piece[depth];
      size_t last = begin;
      while (last < end && pieces[last].piece[depth] == byte) ++last;
      nodes_.push_back({0, 0, static_cast<uint8_t>(byte), kNoToken});
      ranges.push_back({begin, last, depth + 1});
      ++nodes_[node].count;
      begin = last;
    }
  }
}

uint32_t PieceTree::child(uint32_t node, uint8_t byte) const noexcept {
  const auto begin = nodes_.begin() + nodes_[node].first, end = begin + nodes_[node].count;
  const auto found = std::lower_bound(begin, end, byte, [](const Node& n, uint8_t b) { return n.byte < b; });
  return found != end && found->byte == byte ? static_cast<uint32_t>(found - nodes_.begin()) : 0;
}

Result<UnigramModel> UnigramModel::make(const UnigramSpec& spec, const Vocabulary& vocabulary, const std::vector<bool>& special, std::string_view origin) {
  if (spec.scores.empty() || spec.scores.size() > static_cast<size_t>(vocabulary.size()))
    return corrupt("[build_tokenizer] {}: {} scores for {} tokens", origin, spec.scores.size(), vocabulary.size());
  if (spec.unk_id && (*spec.unk_id < 0 || static_cast<size_t>(*spec.unk_id) >= spec.scores.size()))
    return corrupt("[build_tokenizer] {}: the unknown token has id {}, expected 0 to {}", origin, *spec.unk_id, spec.scores.size() - 1);
  UnigramModel model;
  model.scores_ = spec.scores;
  model.special_ = special;
  model.unk_ = spec.unk_id.value_or(kNoToken);
  model.byte_fallback_ = spec.byte_fallback;
  model.unknown_score_ = *std::min_element(spec.scores.begin(), spec.scores.end()) - kUnknownPenalty;
  for (uint32_t byte = 0; byte < 256; ++byte) model.bytes_[byte] = vocabulary.find(fmt::format("<0x{:02X}>", byte));
  std::vector<PieceTree::Entry> pieces;
  size_t bytes = 0;
  for (size_t id = 0; id < spec.scores.size(); ++id) {
    const std::string& piece = vocabulary.piece(static_cast<int32_t>(id));
    if (piece.size() > kMaxUnigramPiece || (bytes += piece.size()) > kMaxUnigramBytes)
      return failure(Code::kResourceExhausted, "[build_tokenizer] {}: the pieces of a Unigram model are over the limit of {} bytes each and {} in all", origin, kMaxUnigramPiece,
                     kMaxUnigramBytes);
    if (!piece.empty() && !special[id]) pieces.push_back({piece, static_cast<int32_t>(id)});
  }
  model.tree_ = PieceTree(std::move(pieces));
  return model;
}

void UnigramModel::encode(std::string_view piece, const Vocabulary& vocabulary, Merger&, std::vector<int32_t>& out) const {
  constexpr uint32_t kNowhere = ~uint32_t{0};
  // The best way to each place: its score, its last token and where that begins.
  struct Step {
    double score = 0;
    int32_t id = kNoToken;
    uint32_t begin = kNowhere;
  };
  std::vector<Step> best(piece.size() + 1);
  for (size_t at = 0; at < piece.size();) {
    const double score = best[at].score;
    const auto offer = [&](size_t end, int32_t id, double more) {
      // Of equally good ways the one whose last token begins first stays, as in the reference.
      if (best[end].begin == kNowhere || score + more > best[end].score) best[end] = {score + more, id, static_cast<uint32_t>(at)};
    };
    const Utf8Char c = next_char(piece.substr(at));
    const size_t width = c.valid() ? c.size : 1;  // a broken run is taken byte by byte
    bool covered = false;
    tree_.for_prefixes(piece.substr(at), [&](size_t size, int32_t id) {
      offer(at + size, id, scores_[static_cast<size_t>(id)]);
      covered = covered || size == width;
    });
    if (!covered) offer(at + width, unk_, unknown_score_);
    at += width;
  }
  std::vector<uint32_t> ends;
  for (auto end = static_cast<uint32_t>(piece.size()); end > 0; end = best[end].begin) ends.push_back(end);
  std::reverse(ends.begin(), ends.end());
  for (size_t i = 0; i < ends.size();) {
    const Step& step = best[ends[i]];
    const uint32_t begin = step.begin;
    if (step.id != unk_) {
      out.push_back(step.id);
      ++i;
      continue;
    }
    while (i + 1 < ends.size() && best[ends[i + 1]].id == unk_) ++i;
    write_unknown(piece.substr(begin, ends[i++] - begin), vocabulary, out);
  }
}

void UnigramModel::write_unknown(std::string_view text, const Vocabulary& vocabulary, std::vector<int32_t>& out) const {
  // Characters that are unknown one by one may be a piece together, where scores rise with the number of pieces; so the reference has it.
  if (const int32_t id = vocabulary.find(text); id != kNoToken && static_cast<size_t>(id) < scores_.size() && !special_[static_cast<size_t>(id)]) {
    out.push_back(id);
  } else if (byte_fallback_ && std::all_of(text.begin(), text.end(), [&](char b) { return bytes_[static_cast<uint8_t>(b)] != kNoToken; })) {
    for (const char byte : text) out.push_back(bytes_[static_cast<uint8_t>(byte)]);
  } else if (unk_ != kNoToken) {
    out.push_back(unk_);
  }
}

}  // namespace regard
