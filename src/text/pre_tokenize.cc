// The pre-tokenizer steps. Each takes the pieces of the step before and cuts, extends or rewrites them; a step that changes the text
// writes a new one, so every step costs time linear in the text.
#include <algorithm>

#include "base/check.h"
#include "text/builtin_pre.h"
#include "text/byte_level.h"
#include "text/pieces.h"
#include "text/utf8.h"

namespace regard {
namespace {

void check_size(std::string_view text) {
  if (text.size() > kMaxPipelineBytes)
    fail(Code::kResourceExhausted, "[Tokenizer::encode] a text that the steps of the tokenizer make {} bytes long is over the limit of {}",
         text.size(), kMaxPipelineBytes);
}

/// The pieces of a text before any step: its well-formed stretches, and the broken runs between them.
std::vector<Piece> initial_pieces(std::string_view text) {
  std::vector<Piece> pieces;
  size_t at = 0;
  while (at < text.size()) {
    if (const size_t valid = valid_prefix(text.substr(at)); valid > 0) {
      pieces.push_back({at, valid, false});
      at += valid;
    }
    const size_t begin = at;
    while (at < text.size()) {
      const Utf8Char c = next_char(text.substr(at));
      if (c.valid()) break;
      at += c.size;
    }
    if (at > begin) pieces.push_back({begin, at - begin, true});
  }
  return pieces;
}

/// Turns the stretches of one piece, matched and not, into pieces as a SplitBehavior says.
class StretchJoiner {
 public:
  StretchJoiner(SplitBehavior behavior, size_t offset, std::vector<Piece>& out)
      : behavior_(behavior), offset_(offset), first_(out.size()), out_(out) {}

  void add(size_t begin, size_t end, bool match) {
    if (behavior_ == SplitBehavior::kRemoved && match) return;
    const bool join = out_.size() > first_ && joins(match);
    previous_match_ = match;
    if (join) {
      const Piece& last = out_.back();
      out_.back() = Piece(last.begin, last.size + (end - begin), false);
    } else {
      out_.emplace_back(offset_ + begin, end - begin, false);
    }
  }

 private:
  /// Whether a stretch belongs to the piece of the one before it.
  bool joins(bool match) const {
    switch (behavior_) {
      case SplitBehavior::kContiguous: return previous_match_ == match;
      case SplitBehavior::kMergedWithPrevious: return match && !previous_match_;
      // A match joins what follows unless that is a match too; seen from the follower: it takes the single match before it.
      case SplitBehavior::kMergedWithNext: return !match && previous_match_;
      case SplitBehavior::kRemoved:
      case SplitBehavior::kIsolated: break;
    }
    return false;
  }

  SplitBehavior behavior_;
  size_t offset_, first_;
  std::vector<Piece>& out_;
  bool previous_match_ = false;
};

void split_piece(std::string_view text, const CompiledSplit& split, StretchJoiner joiner, RegexScratch& scratch) {
  size_t at = 0, from = 0;
  Regex::Match match;
  while (from <= text.size() && split.regex.search(text, from, match, scratch)) {
    if (match.begin > at) joiner.add(at, match.begin, split.invert);
    at = match.end;
    if (match.end > match.begin) {
      joiner.add(match.begin, match.end, !split.invert);
      from = match.end;
    } else {
      // An empty match separates what stands on its two sides and is itself no piece.
      if (match.begin == text.size()) break;
      from = match.begin + next_char(text.substr(match.begin)).size;
    }
  }
  if (at < text.size()) joiner.add(at, text.size(), split.invert);
}

void apply(const CompiledSplit& split, TextPieces& state, RegexScratch& scratch) {
  std::vector<Piece> next;
  next.reserve(state.pieces.size());
  for (const Piece& piece : state.pieces) {
    if (piece.broken) {
      next.push_back(piece);
    } else {
      split_piece(state.view(piece), split, StretchJoiner(split.behavior, piece.begin, next), scratch);
    }
  }
  state.pieces = std::move(next);
}

/// Writes a new text piece by piece: write(piece, out) appends what `piece` becomes.
template <class Write>
void rewrite(TextPieces& state, Write&& write) {
  std::string out;
  out.reserve(state.text.size() + state.text.size() / 4);
  for (Piece& piece : state.pieces) {
    const size_t begin = out.size();
    write(piece, out);
    piece = Piece(begin, out.size() - begin, piece.broken);
  }
  check_size(out);
  state.text = std::move(out);
}

void apply_prefix_space(TextPieces& state) {
  rewrite(state, [&](const Piece& piece, std::string& out) {
    const std::string_view text = state.view(piece);
    if (!piece.broken && !text.starts_with(' ')) out += ' ';
    out += text;
  });
}

void apply_byte_map(TextPieces& state) {
  rewrite(state, [&](Piece& piece, std::string& out) {
    for (const char c : state.view(piece)) append_utf8(out, kByteCharacters[static_cast<uint8_t>(c)]);
    piece.broken = 0;  // whatever the bytes were, their characters are text
  });
}

void apply(const MetaspaceStep& step, TextPieces& state, InputStart start) {
  const Piece* first = state.pieces.data();
  rewrite(state, [&](const Piece& piece, std::string& out) {
    const std::string_view text = state.view(piece);
    if (piece.broken) {
      out += text;
      return;
    }
    const bool wanted = step.scheme == MetaspaceStep::Scheme::kAlways ||
                        (step.scheme == MetaspaceStep::Scheme::kFirst && &piece == first && start == InputStart::kYes);
    if (wanted && !text.starts_with(' ') && !text.starts_with(step.replacement)) out += step.replacement;
    for (const char c : text) {
      if (c == ' ') {
        out += step.replacement;
      } else {
        out += c;
      }
    }
  });
  if (!step.split) return;
  std::vector<Piece> next;
  for (const Piece& piece : state.pieces) {
    if (piece.broken) {
      next.push_back(piece);
      continue;
    }
    // A piece begins at every replacement character, and where the text begins.
    const std::string_view text = state.view(piece);
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find(step.replacement, at + 1), text.size());
      next.push_back({piece.begin + at, end - at, false});
      at = end;
    }
  }
  state.pieces = std::move(next);
}

}  // namespace

Result<std::vector<CompiledPreTokenizer>> compile_pre_tokenizer(const std::vector<PreTokenizerStep>& steps) {
  std::vector<CompiledPreTokenizer> compiled;
  for (const PreTokenizerStep& step : steps) {
    if (const auto* bytes = std::get_if<ByteLevelStep>(&step)) {
      if (bytes->add_prefix_space) compiled.emplace_back(PrefixSpaceStep{});
      if (bytes->use_regex) {
        REGARD_TRY(Regex regex, Regex::compile(kGpt2Pattern));
        compiled.emplace_back(CompiledSplit{std::move(regex), SplitBehavior::kIsolated, false});
      }
      compiled.emplace_back(ByteMapStep{});
    } else if (const auto* split = std::get_if<SplitStep>(&step)) {
      if (split->pattern.text.empty()) return corrupt("[build_tokenizer] pre-tokenizer Split has an empty pattern");
      REGARD_TRY(Regex regex, split->pattern.kind == TextPattern::Kind::kLiteral ? Regex::literal(split->pattern.text)
                                                                                : Regex::compile(split->pattern.text));
      compiled.emplace_back(CompiledSplit{std::move(regex), split->behavior, split->invert});
    } else {
      const auto& metaspace = std::get<MetaspaceStep>(step);
      if (metaspace.replacement.empty() || next_char(metaspace.replacement).size != metaspace.replacement.size() ||
          !next_char(metaspace.replacement).valid())
        return corrupt("[build_tokenizer] the replacement of Metaspace must be one character, not '{}'", metaspace.replacement);
      compiled.emplace_back(metaspace);
    }
  }
  return compiled;
}

TextPieces run_pre_tokenizer(const std::vector<CompiledPreTokenizer>& steps, std::string text, InputStart start,
                             RegexScratch& scratch) {
  check_size(text);
  TextPieces state{std::move(text), {}};
  state.pieces = initial_pieces(state.text);
  for (const CompiledPreTokenizer& step : steps) {
    if (const auto* split = std::get_if<CompiledSplit>(&step)) {
      apply(*split, state, scratch);
    } else if (const auto* metaspace = std::get_if<MetaspaceStep>(&step)) {
      apply(*metaspace, state, start);
    } else if (std::holds_alternative<PrefixSpaceStep>(step)) {
      apply_prefix_space(state);
    } else {
      apply_byte_map(state);
    }
  }
  return state;
}

}  // namespace regard
