// Any bytes, given to every kind of tokenizer: encoding ends, gives ids of the vocabulary and no special ones, and decoding gives the
// bytes back where the pipeline keeps them; streaming gives what decoding at once gives.
#include "fuzz/fuzz.h"

#include <string>
#include <vector>

#include "regard/tokenizer.h"
#include "text/small_tokenizers.h"

namespace {

using regard::fuzz::demand;

struct Pipeline {
  regard::Tokenizer tokenizer;
  bool spaces_are_marks;  // U+2581 and the space are the same to it
};

const std::vector<Pipeline>& pipelines() {
  static const std::vector<Pipeline> all{{regard::small::build(regard::small::byte_level("gpt-2")), false},
                                         {regard::small::build(regard::small::byte_level("llama-bpe")), false},
                                         {regard::small::build(regard::small::scored()), true},
                                         {regard::small::build(regard::small::byte_fallback()), true}};
  return all;
}

std::string with_spaces(std::string text) {
  for (size_t at = 0; (at = text.find("\xE2\x96\x81", at)) != std::string::npos;) text.replace(at, 3, " ");
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace regard;
  if (size == 0 || size > 4096) return 0;
  const Pipeline& pipeline = pipelines()[data[0] % pipelines().size()];
  const Tokenizer& tokenizer = pipeline.tokenizer;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);

  const std::vector<int32_t> ids = tokenizer.encode(text);
  for (const int32_t id : ids) demand(id >= 0 && id < tokenizer.vocab_size() && !tokenizer.is_special(id));
  demand(tokenizer.decode(ids, {.invalid = InvalidUtf8::kKeep}) == (pipeline.spaces_are_marks ? with_spaces(text) : text));

  const size_t cut = data[0] % size;
  const std::vector<PromptSegment> segments{{text.substr(0, cut), PromptSegment::Source::kContent},
                                            {text.substr(std::min(cut, text.size())), PromptSegment::Source::kTemplate}};
  const std::vector<int32_t> mixed = tokenizer.encode(segments);
  const DecodeOptions show{.special = SpecialText::kShow};
  StreamDecoder stream(tokenizer, show);
  std::string streamed;
  for (const int32_t id : mixed) streamed += stream.push(id);
  streamed += stream.flush();
  demand(streamed == tokenizer.decode(mixed, show));
  return 0;
}

std::vector<std::string> regard::fuzz::seeds() {
  std::vector<std::string> seeds{"", "\x01hello the world 123\n\n", "\x02  aaaa\xFF\xE2\x96 \xE2\x96\x81</s>", "\x03" "e\xCC\x81<|end|>"};
  for (uint64_t seed = 0; seed < 8; ++seed) seeds.push_back(static_cast<char>(seed) + regard::small::random_text(seed, regard::small::Broken::kYes));
  return seeds;
}
