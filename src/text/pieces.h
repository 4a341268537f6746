// The normalizer and the pre-tokenizer: a text becomes the pieces inside which the model merges. Start at run_pre_tokenizer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/charsmap.h"
#include "text/regex.h"
#include "text/tokenizer_spec.h"

namespace regard {

inline constexpr size_t kMaxPipelineBytes = 0x7FFFFFFF;  ///< of a text and of what the steps make of it

/// A stretch of TextPieces::text. Broken bytes (a maximal run that is not UTF-8) are pieces of their own, which no pattern sees.
/// Kept small: a text of one-character pieces has as many as bytes.
struct Piece {
  uint32_t begin = 0;
  uint32_t size : 31 = 0;
  uint32_t broken : 1 = 0;

  Piece() = default;
  Piece(size_t from, size_t bytes, bool is_broken)
      : begin(static_cast<uint32_t>(from)), size(static_cast<uint32_t>(bytes) & 0x7FFFFFFFu), broken(is_broken ? 1u : 0u) {}
};

/// A text and the pieces that cover it or parts of it, in order.
struct TextPieces {
  std::string text;
  std::vector<Piece> pieces;
  std::string_view view(const Piece& piece) const { return std::string_view(text).substr(piece.begin, piece.size); }
};

/// NormalizerStep with its pattern compiled.
struct CompiledReplace {
  std::string literal;        ///< when not empty, looked for as it is
  std::optional<Regex> regex;
  std::string content;
};
using CompiledNormalizer = std::variant<NfcStep, CompiledReplace, PrependStep, Charsmap, StripStep>;

/// PreTokenizerStep with its pattern compiled; ByteLevelStep{use_regex} has become a split and a mapping.
struct CompiledSplit {
  Regex regex;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;
};
struct PrefixSpaceStep {};
struct ByteMapStep {};
using CompiledPreTokenizer = std::variant<PrefixSpaceStep, CompiledSplit, ByteMapStep, MetaspaceStep>;

Result<std::vector<CompiledNormalizer>> compile_normalizer(const std::vector<NormalizerStep>& steps);
Result<std::vector<CompiledPreTokenizer>> compile_pre_tokenizer(const std::vector<PreTokenizerStep>& steps);

/// `text` after the steps. Broken bytes stay where they are.
std::string run_normalizer(const std::vector<CompiledNormalizer>& steps, std::string_view text, RegexScratch& scratch);

/// Whether a piece begins where the whole input begins (Metaspace's scheme "first" asks).
enum class InputStart { kYes, kNo };

/// The pieces of `text` after the steps; empty pieces are left out.
TextPieces run_pre_tokenizer(const std::vector<CompiledPreTokenizer>& steps, std::string text, InputStart start,
                             RegexScratch& scratch);

/// Unicode NFC of well-formed UTF-8. Cost: O(n log n), also for long runs of combining marks.
std::string to_nfc(std::string_view text);

}  // namespace regard
