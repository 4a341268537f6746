// Decoding while ids arrive. Three things are held back in turn: what the decoder might strip at the end, an incomplete character,
// and the beginning of a stop string.
#include "base/check.h"
#include "text/tokenizer_impl.h"
#include "text/utf8.h"

namespace regard {

struct StreamDecoder::State {
  Tokenizer tokenizer;
  DecodeOptions options;
  std::vector<std::string> stops;

  TokenDecoder::State decoder;
  std::string bytes;  // decoded, not yet text
  std::string text;   // text, not yet returned
  size_t searched = 0;  // bytes of `text` behind which no stop string has its end
  std::optional<size_t> stopped;

  /// Moves what is final from `bytes` to `text`.
  void settle(TextEnd end) {
    size_t size = bytes.size();
    const size_t strippable = tokenizer.impl().decoder.strippable_end(bytes);
    size -= strippable;
    const std::string_view ready = std::string_view(bytes).substr(0, size);
    size_t used = 0;
    if (options.invalid == InvalidUtf8::kReplace) {
      // Whether stripped characters may follow a cut one: they would make it broken, so it is then final.
      used = append_replacing(text, ready, strippable > 0 ? TextEnd::kFinal : end);
    } else {
      while (used < size) {
        used += valid_prefix(ready.substr(used));
        if (used == size) break;
        const Utf8Char c = next_char(ready.substr(used));
        if (c.state == Utf8Char::State::kCut && end == TextEnd::kMore && strippable == 0) break;
        used += c.size;
      }
      text.append(bytes, 0, used);
    }
    bytes.erase(0, used);
    if (end == TextEnd::kFinal) bytes.clear();
  }

  /// Cuts `text` at the stop string that ends first, if one ends in it.
  void search_stops() {
    for (; searched < text.size(); ++searched) {
      const std::string_view so_far = std::string_view(text).substr(0, searched + 1);
      size_t longest = 0;
      for (size_t i = 0; i < stops.size(); ++i) {
        if (stops[i].size() > longest && so_far.ends_with(stops[i])) longest = stops[i].size(), stopped = i;
      }
      if (stopped) {
        text.resize(so_far.size() - longest);
        return;
      }
    }
  }

  /// How many bytes at the end of `text` may be the beginning of a stop string, or belong to the character there.
  size_t held_back() const {
    size_t held = 0;
    for (const std::string& stop : stops) {
      for (size_t n = std::min(stop.size() - 1, text.size()); n > held; --n) {
        if (text.ends_with(std::string_view(stop).substr(0, n))) held = n;
      }
    }
    return held;
  }

  std::string take(size_t size) {
    std::string out = text.substr(0, size);
    text.erase(0, size);
    searched = text.size();
    return out;
  }
};

StreamDecoder::StreamDecoder(Tokenizer tokenizer, const DecodeOptions& options, std::vector<std::string> stop_strings)
    : state_(std::make_unique<State>(State{std::move(tokenizer), options, std::move(stop_strings), {}, {}, {}, 0, std::nullopt})) {
  state_->decoder.invalid = options.invalid;
  for (const std::string& stop : state_->stops) require(!stop.empty(), "[StreamDecoder] a stop string is empty");
}
StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;

std::string StreamDecoder::push(int32_t id) {
  State& s = *state_;
  const Tokenizer::Impl& impl = s.tokenizer.impl();
  impl.check_id(id, "StreamDecoder::push");
  if (s.stopped) return {};
  if (s.options.special == SpecialText::kSkip && impl.special[static_cast<size_t>(id)]) return {};
  if (impl.vocabulary.piece(id).empty()) return {};
  impl.decoder.append(impl.decoded_piece(id), s.decoder, s.bytes);
  s.settle(TextEnd::kMore);
  s.search_stops();
  return s.take(s.stopped ? s.text.size() : s.text.size() - s.held_back());
}

std::string StreamDecoder::flush() {
  State& s = *state_;
  if (s.stopped) return {};
  s.tokenizer.impl().decoder.finish(s.decoder, s.bytes);
  s.settle(TextEnd::kFinal);
  s.search_stops();
  return s.take(s.text.size());
}

std::optional<size_t> StreamDecoder::stopped_by() const noexcept { return state_->stopped; }

}  // namespace regard
