// What a model file says about its tokenizer, as plain structs: the readers in format/ fill them, build_tokenizer checks them
// and makes a Tokenizer. The steps are those of Hugging Face's tokenizer.json; a GGUF file is told in the same words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "regard/tokenizer.h"

namespace regard {

inline constexpr size_t kMaxVocabulary = 1'000'000;
inline constexpr size_t kMaxMerges = 4'000'000;
inline constexpr size_t kMaxPieceBytes = 1 << 16;
inline constexpr size_t kMaxAddedTokenBytes = 1024;
inline constexpr size_t kMaxSteps = 64;

/// What is looked for: a literal, or a regular expression as Oniguruma reads it.
struct TextPattern {
  enum class Kind { kLiteral, kRegex } kind = Kind::kLiteral;
  std::string text{};
};

// ---- normalizer: rewrites the text before it is split ----
struct NfcStep {};
struct ReplaceStep {
  TextPattern pattern{};
  std::string content{};
};
/// Puts `text` before a text that is not empty.
struct PrependStep {
  std::string text{};
};
/// SentencePiece's table of replacements (charsmap.h), as bytes.
struct PrecompiledStep {
  std::string charsmap{};
};
/// Takes white space off the ends.
struct StripStep {
  bool left = true, right = true;
};
using NormalizerStep = std::variant<NfcStep, ReplaceStep, PrependStep, PrecompiledStep, StripStep>;

// ---- pre-tokenizer: cuts the text into the pieces inside which the model merges ----
/// Every byte becomes its character of the byte-level alphabet, after an optional split by the pattern of GPT-2.
struct ByteLevelStep {
  bool add_prefix_space = true;
  bool use_regex = true;
};
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
struct SplitStep {
  TextPattern pattern{};
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  ///< what the pattern does not match counts as the match
};
/// Spaces become `replacement`, one is put in front as the scheme says, and pieces begin at each when `split` is set.
struct MetaspaceStep {
  enum class Scheme { kFirst, kNever, kAlways };
  std::string replacement = "\xE2\x96\x81";
  Scheme scheme = Scheme::kAlways;
  bool split = true;
};
using PreTokenizerStep = std::variant<ByteLevelStep, SplitStep, MetaspaceStep>;

// ---- models; WordPiece will be a further alternative of ModelSpec ----
/// Byte-pair encoding by the rank of merges; the initial symbols are characters.
struct BpeSpec {
  std::vector<std::pair<std::string, std::string>> merges{};  ///< rank = index
  std::optional<std::string> unk_token{};
  bool fuse_unk = false;
  bool byte_fallback = false;
  bool ignore_merges = false;
  std::string continuing_subword_prefix{};
  std::string end_of_word_suffix{};
};
/// Merging by the score of the merged piece, as SentencePiece's BPE and llama.cpp do; bytes are the fall-back.
struct SpmSpec {
  std::vector<float> scores{};  ///< one per piece
};
/// A piece is a token or is not; nothing is merged.
struct WordLevelSpec {
  std::string unk_token{};  ///< stands for pieces that are no token, where it is one
};
/// The pieces whose scores sum to the most, see unigram.h.
struct UnigramSpec {
  std::vector<double> scores{};  ///< of the first ids, which the model knows; added tokens may follow
  std::optional<int32_t> unk_id{};
  bool byte_fallback = false;
};
using ModelSpec = std::variant<BpeSpec, SpmSpec, WordLevelSpec, UnigramSpec>;

// ---- decoder ----
struct ByteLevelDecode {};
struct ReplaceDecode {
  std::string pattern{};  ///< literal, not empty
  std::string content{};
};
struct ByteFallbackDecode {};
struct FuseDecode {};
struct StripDecode {
  std::string content{};  ///< one character
  size_t start = 0, stop = 0;
};
struct MetaspaceDecode {
  std::string replacement = "\xE2\x96\x81";
  MetaspaceStep::Scheme scheme = MetaspaceStep::Scheme::kAlways;
};
using DecoderStep = std::variant<ByteLevelDecode, ReplaceDecode, ByteFallbackDecode, FuseDecode, StripDecode, MetaspaceDecode>;

/// The kinds of GGUF, with its numbers.
enum class TokenKind : uint8_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

/// A token that is looked for in the text before anything else happens.
struct AddedTokenSpec {
  std::string content{};
  int32_t id = -1;
  bool special = false;
  bool lstrip = false;       ///< swallows white space on its left
  bool rstrip = false;       ///< and on its right
  bool single_word = false;  ///< only where no word character touches it
  bool normalized = false;   ///< is looked for in the normalized text
};

/// Which of overlapping added tokens wins: the first in the text and of these the longest (Hugging Face), or the longest of the
/// whole text, and of equally long ones the first (llama.cpp).
enum class AddedTokenOrder { kLeftmostLongest, kLongestFirst };

struct TokenizerSpec {
  std::string origin = "tokenizer";   ///< named in messages, for example the file
  std::vector<std::string> pieces{};    ///< index = id; an empty one is unused
  std::vector<TokenKind> kinds{};       ///< empty: all normal
  ModelSpec model{};
  std::vector<AddedTokenSpec> added{};
  AddedTokenOrder added_order = AddedTokenOrder::kLeftmostLongest;
  std::vector<NormalizerStep> normalizer{};
  std::vector<PreTokenizerStep> pre_tokenizer{};
  std::vector<DecoderStep> decoder{};   ///< empty: pieces are joined by `joiner`
  std::string joiner{};
  std::vector<int32_t> prefix{}, suffix{};  ///< what AddSpecial::kAsModel puts around a text
  std::optional<int32_t> bos{}, eos{}, eot{}, unk{}, pad{};
};

/// Leaves out the special tokens whose ids are not below `vocab_size`, and says how many. A family has one tokenizer.json for models that
/// read pictures, too, whose special tokens for these a model of texts has no rows for.
inline size_t drop_special_behind(TokenizerSpec& spec, int64_t vocab_size) {
  return std::erase_if(spec.added, [&](const AddedTokenSpec& token) { return token.special && token.id >= vocab_size; });
}

/// Checks the whole of `spec` and makes a tokenizer of it. Failures name the origin and what is wrong.
Result<Tokenizer> build_tokenizer(TokenizerSpec spec);

/// The pre-tokenizer and the merging rule that a GGUF file of model "gpt2" means by `tokenizer.ggml.pre`.
struct BuiltinPre {
  std::vector<PreTokenizerStep> steps{};
  bool ignore_merges = false;
  bool add_bos = false;  ///< when the file does not say
};
/// Failure kUnsupported names `pre` and the known ones: there is no default, because a wrong splitter is silently wrong.
Result<BuiltinPre> builtin_pre_tokenizer(std::string_view pre);

}  // namespace regard
