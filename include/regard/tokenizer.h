// Text to token ids and back. Start at Tokenizer; StreamDecoder turns ids into printable text while they are generated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regard/export.h"

namespace regard {

/// Whether text such as "<|im_end|>" becomes the special token of that name or stays text. Text from a user must stay text.
enum class SpecialTokens { kAsText, kParse };

/// Whether the tokens that the model file wants around a text (begin, end, a template) are added.
enum class AddSpecial { kNone, kAsModel };

struct EncodeOptions {
  SpecialTokens special = SpecialTokens::kAsText;
  AddSpecial add = AddSpecial::kNone;
};

/// What decoding does with special tokens: leaves them out, or writes their text.
enum class SpecialText { kSkip, kShow };

/// What decoding does with bytes that are not UTF-8: U+FFFD in their place (as the reference implementation: per ill-formed sequence,
/// or per byte of a group of byte tokens), or the bytes as they are.
enum class InvalidUtf8 { kReplace, kKeep };

struct DecodeOptions {
  SpecialText special = SpecialText::kSkip;
  InvalidUtf8 invalid = InvalidUtf8::kReplace;
};

/// A stretch of a prompt and where it comes from. Only template text may produce special tokens.
struct PromptSegment {
  enum class Source { kTemplate, kContent };
  std::string text;
  Source source = Source::kContent;
};

/// A tokenizer as its model file defines it: byte-level BPE, SentencePiece-like merging by score, BPE with byte fallback, Unigram, or whole
/// pieces such as characters.
///
/// Bytes that are not UTF-8 are taken one by one: each becomes its byte token, so that decoding with InvalidUtf8::kKeep
/// gives back every input exactly, wherever the vocabulary has a token for each of the 256 bytes. A character that the
/// vocabulary cannot spell becomes its unknown token; a vocabulary that has none leaves it out, as the reference
/// implementations do, but one of whole pieces refuses it.
///
/// Immutable. Copies share one vocabulary. All functions may be called from several threads at once.
/// Cost of encoding: O(n log n) in the length of the text.
class REGARD_API Tokenizer {
 public:
  /// Reads a `tokenizer.json` (with the `tokenizer_config.json` beside it, when there is one) or the metadata of a GGUF file.
  /// Errors: kNotFound, kIo, kCorruptData; kUnsupported names the component that is not implemented.
  static Tokenizer from_file(const std::filesystem::path& path);

  /// The ids of `text`. Errors: kResourceExhausted when the text is over 1 GiB or a pattern of the file exceeds its limits;
  /// kInvalidArgument names a piece that a vocabulary of whole pieces lacks, when it has no unknown token.
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;

  /// The ids of the concatenated segments. A special token is recognised only where all of its text is template text; nothing
  /// else depends on where one segment ends and the next begins.
  std::vector<int32_t> encode(std::span<const PromptSegment> segments, AddSpecial add = AddSpecial::kNone) const;

  /// The text of `ids`. Errors: kInvalidArgument names an id outside [0, vocab_size()).
  std::string decode(std::span<const int32_t> ids, const DecodeOptions& options = {}) const;

  /// One more than the largest id.
  int32_t vocab_size() const noexcept;
  /// The piece as the file spells it, for example "\u0120the" or "<0x0A>"; empty for an id that the file leaves unused.
  const std::string& token_text(int32_t id) const;
  /// The bytes that the piece stands for inside a text.
  std::string token_bytes(int32_t id) const;
  /// True for tokens that steer the model (begin, end of turn, ...): never produced from text unless parsing is asked for.
  bool is_special(int32_t id) const;
  /// The id whose piece is spelt exactly so.
  std::optional<int32_t> find(std::string_view piece) const;

  std::optional<int32_t> bos() const noexcept;
  std::optional<int32_t> eos() const noexcept;
  /// End of turn, where the file names one or has one of the well-known spellings as a special token.
  std::optional<int32_t> eot() const noexcept;
  std::optional<int32_t> unk() const noexcept;
  std::optional<int32_t> pad() const noexcept;
  /// What AddSpecial::kAsModel adds.
  bool adds_bos() const noexcept;
  bool adds_eos() const noexcept;

  struct Impl;
  explicit Tokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  const Impl& impl() const noexcept { return *impl_; }

 private:
  std::shared_ptr<const Impl> impl_;
};

/// Decodes ids as they come. What has been returned is final: the pieces concatenated are what Tokenizer::decode gives for
/// all ids, cut at the first stop string. Held back are an incomplete UTF-8 character, a group of byte tokens up to its last one, the
/// beginning of a stop string, and trailing characters that the decoder of the file would strip at the end.
/// Not thread-safe: one decoder per stream.
class REGARD_API StreamDecoder {
 public:
  /// Errors: kInvalidArgument for an empty stop string.
  explicit StreamDecoder(Tokenizer tokenizer, const DecodeOptions& options = {}, std::vector<std::string> stop_strings = {});
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;

  /// The text that became final with `id`; nothing more after a stop string was met.
  std::string push(int32_t id);
  /// What is still held back, when no more ids come. Call it once, at the end.
  std::string flush();
  /// The index of the stop string that was met: the one whose last byte comes first in the text, the longest of several.
  std::optional<size_t> stopped_by() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace regard
