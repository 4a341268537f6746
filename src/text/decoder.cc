#include "text/decoder.h"

#include "text/byte_level.h"
#include "text/models.h"
#include "text/utf8.h"

namespace regard {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) text.replace(at, from.size(), to);
}

/// How many bytes `max` copies of `what` take at the start of `text`.
size_t leading(std::string_view text, std::string_view what, size_t max) {
  size_t bytes = 0;
  for (size_t i = 0; i < max && text.substr(bytes).starts_with(what); ++i) bytes += what.size();
  return bytes;
}
size_t trailing(std::string_view text, std::string_view what, size_t max) {
  size_t bytes = 0;
  for (size_t i = 0; i < max && text.substr(0, text.size() - bytes).ends_with(what); ++i) bytes += what.size();
  return bytes;
}

/// A token of the byte-level alphabet as bytes; one with any other character stays as it is.
void map_to_bytes(std::string& text) {
  std::string bytes;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = next_char(std::string_view(text).substr(at));
    const auto byte = c.valid() ? byte_of_character(c.code_point) : std::nullopt;
    if (!byte) return;
    bytes.push_back(static_cast<char>(*byte));
    at += c.size;
  }
  text = std::move(bytes);
}

void apply(const DecoderStep& step, bool first, std::string& text) {
  if (std::holds_alternative<ByteLevelDecode>(step)) {
    map_to_bytes(text);
  } else if (const auto* replace = std::get_if<ReplaceDecode>(&step)) {
    replace_all(text, replace->pattern, replace->content);
  } else if (const auto* strip = std::get_if<StripDecode>(&step)) {
    text.erase(0, leading(text, strip->content, strip->start));
    text.erase(text.size() - trailing(text, strip->content, strip->stop));
  } else if (const auto* metaspace = std::get_if<MetaspaceDecode>(&step)) {
    // In the first token the replacement stands for nothing: it was put there by the encoder.
    const bool drop = first && metaspace->scheme != MetaspaceStep::Scheme::kNever;
    replace_all(text, metaspace->replacement, drop ? "" : " ");
  }
}

}  // namespace

Result<TokenDecoder> TokenDecoder::make(const std::vector<DecoderStep>& steps, std::string joiner, std::string_view origin) {
  TokenDecoder decoder;
  decoder.joiner_ = std::move(joiner);
  bool fused = false;
  for (const DecoderStep& step : steps) {
    if (const auto* replace = std::get_if<ReplaceDecode>(&step); replace != nullptr && replace->pattern.empty())
      return corrupt("[build_tokenizer] {}: decoder Replace has an empty pattern", origin);
    if (const auto* strip = std::get_if<StripDecode>(&step); strip != nullptr && strip->content.empty())
      return corrupt("[build_tokenizer] {}: decoder Strip has no character", origin);
    if (std::holds_alternative<FuseDecode>(step)) {
      fused = true;
    } else if (!fused && std::holds_alternative<ByteFallbackDecode>(step) && !decoder.byte_fallback_) {
      decoder.byte_fallback_ = true;
    } else if (!fused) {
      (decoder.byte_fallback_ ? decoder.after_ : decoder.before_).push_back(step);
    } else if (const auto* strip = std::get_if<StripDecode>(&step); strip != nullptr && !decoder.ends_) {
      decoder.ends_ = *strip;
    } else {
      return failure(Code::kUnsupported, "[build_tokenizer] {}: only one Strip may follow Fuse in the decoder", origin);
    }
  }
  return decoder;
}

void TokenDecoder::append(std::string_view piece, State& state, std::string& out) const {
  std::string text(piece);
  for (const DecoderStep& step : before_) apply(step, state.first, text);
  if (byte_fallback_) {
    if (const auto byte = byte_of_piece(text)) {
      state.bytes.push_back(static_cast<char>(*byte));
      return;
    }
    finish(state, out);
  }
  write(std::move(text), state, out);
}

void TokenDecoder::finish(State& state, std::string& out) const {
  if (state.bytes.empty()) return;
  std::string text;
  if (state.invalid == InvalidUtf8::kKeep || valid_prefix(state.bytes) == state.bytes.size()) {
    text = state.bytes;
  } else {
    for (size_t i = 0; i < state.bytes.size(); ++i) text += kReplacement;
  }
  state.bytes.clear();
  write(std::move(text), state, out);
}

void TokenDecoder::write(std::string text, State& state, std::string& out) const {
  for (const DecoderStep& step : after_) apply(step, state.first, text);
  if (!state.first) text.insert(0, joiner_);
  state.first = false;
  if (ends_ && !state.start_done) {
    const size_t bytes = leading(text, ends_->content, ends_->start - state.stripped);
    state.stripped += bytes / ends_->content.size();
    text.erase(0, bytes);
    state.start_done = !text.empty() || state.stripped == ends_->start;
  }
  out += text;
}

size_t TokenDecoder::strippable_end(std::string_view text) const {
  return ends_ ? trailing(text, ends_->content, ends_->stop) : 0;
}

}  // namespace regard
