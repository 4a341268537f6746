// From ids back to bytes: the decoder steps of the file, arranged so that one token after the other can be decoded. Start at
// TokenDecoder::append.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer_spec.h"

namespace regard {

/// The decoder of a tokenizer, immutable. A step works on one token (replace, byte, strip), or, behind Fuse, on the ends of the text.
class TokenDecoder {
 public:
  TokenDecoder() = default;
  /// Failure kUnsupported names a step that cannot be carried out token by token (a Replace behind Fuse).
  static Result<TokenDecoder> make(const std::vector<DecoderStep>& steps, std::string joiner, std::string_view origin);

  /// What has been decoded so far of one text.
  struct State {
    InvalidUtf8 invalid = InvalidUtf8::kKeep;
    bool first = true;        ///< no token has been written yet
    size_t stripped = 0;      ///< characters taken off the start of the text
    bool start_done = false;  ///< the first character that stays has been seen
    std::string bytes{};      ///< of byte tokens that stand together, not yet written
  };

  /// Appends the bytes of the token spelt `piece`. Byte tokens ("<0xE2>") wait for the last of their group: a group that is not
  /// UTF-8 as a whole becomes one U+FFFD per byte with InvalidUtf8::kReplace.
  void append(std::string_view piece, State& state, std::string& out) const;
  /// Appends what waits, at the end of the text.
  void finish(State& state, std::string& out) const;

  /// How many bytes at the end of `text` would be taken off if the text ended here (Strip with `stop` behind Fuse).
  size_t strippable_end(std::string_view text) const;

 private:
  void write(std::string text, State& state, std::string& out) const;

  std::vector<DecoderStep> before_;  // per token, up to ByteFallback, which works on groups
  bool byte_fallback_ = false;
  std::vector<DecoderStep> after_;   // per token or group
  std::string joiner_;
  std::optional<StripDecode> ends_;
};

}  // namespace regard
