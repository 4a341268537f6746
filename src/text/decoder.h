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
    bool first = true;
    size_t stripped = 0;      ///< characters taken off the start of the text
    bool start_done = false;  ///< the first character that stays has been seen
  };

  /// Appends the bytes of the token spelt `piece` (a control or ordinary one alike).
  void append(std::string_view piece, State& state, std::string& out) const;

  /// How many bytes at the end of `text` would be taken off if the text ended here (Strip with `stop` behind Fuse).
  size_t strippable_end(std::string_view text) const;

 private:
  std::vector<DecoderStep> per_token_;
  std::string joiner_;
  std::optional<StripDecode> ends_;
};

}  // namespace regard
