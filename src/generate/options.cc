#include "generate/options.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace regard {
namespace {

constexpr size_t kMaxStopStrings = 64, kMaxStopStringBytes = 1024;
constexpr int64_t kMaxTopLogprobs = 1000;

void ban(std::span<const int32_t> ids, SamplingOptions& sampling) {
  for (int32_t id : ids) sampling.logit_bias.emplace_back(id, -std::numeric_limits<float>::infinity());
}

}  // namespace

void check_sampling(const SamplingOptions& o) {
  const auto finite = [](float x) { return std::isfinite(x); };
  require(finite(o.temperature) && o.temperature >= 0, "[generate] temperature is {}; expected a finite number, 0 or more", o.temperature);
  require(finite(o.repetition_penalty) && o.repetition_penalty > 0, "[generate] repetition_penalty is {}; expected a finite number above 0", o.repetition_penalty);
  require(finite(o.frequency_penalty) && finite(o.presence_penalty), "[generate] frequency_penalty is {} and presence_penalty {}; expected finite numbers",
          o.frequency_penalty, o.presence_penalty);
  require(o.no_repeat_ngram >= 0, "[generate] no_repeat_ngram is {}; expected 0 (off) or more", o.no_repeat_ngram);
  require(o.top_k >= 0, "[generate] top_k is {}; expected 0 (all) or more", o.top_k);
  require(o.top_p > 0 && o.top_p <= 1, "[generate] top_p is {}; expected a number above 0, at most 1", o.top_p);
  require(o.min_p >= 0 && o.min_p <= 1, "[generate] min_p is {}; expected a number from 0 to 1", o.min_p);
  require(o.typical_p > 0 && o.typical_p <= 1, "[generate] typical_p is {}; expected a number above 0, at most 1", o.typical_p);
  for (const auto& [id, bias] : o.logit_bias)
    require(!std::isnan(bias) && bias != std::numeric_limits<float>::infinity(), "[generate] logit_bias of id {} is {}; expected a finite number or -infinity", id, bias);
}

void check_generate(const GenerateOptions& o) {
  check_sampling(o.sampling);
  require(o.max_tokens >= 0, "[generate] max_tokens is {}; expected 0 or more", o.max_tokens);
  require(o.min_tokens >= 0, "[generate] min_tokens is {}; expected 0 or more", o.min_tokens);
  require(o.prefill_chunk >= 1, "[generate] prefill_chunk is {}; expected 1 or more", o.prefill_chunk);
  require(o.top_logprobs >= -1 && o.top_logprobs <= kMaxTopLogprobs, "[generate] top_logprobs is {}; expected -1 (none) to {}", o.top_logprobs, kMaxTopLogprobs);
  require(o.stop_strings.size() <= kMaxStopStrings, "[generate] {} stop strings; at most {} are allowed", o.stop_strings.size(), kMaxStopStrings);
  for (const std::string& s : o.stop_strings)
    require(!s.empty() && s.size() <= kMaxStopStringBytes, "[generate] a stop string of {} bytes; expected 1 to {}", s.size(), kMaxStopStringBytes);
}

std::string larger_context_advice(const Model& model) {
  const int64_t most = model.info().max_context;
  if (most == 0) return ", or load the model with a larger context (--context)";
  if (model.context() < most) return fmt::format(", or load the model with a larger context (--context, up to {})", most);
  return fmt::format("; this model has learned positions for {} tokens and no more", most);
}

void check_prompt(const Model& model, int64_t index, int64_t known, std::span<const int32_t> prompt) {
  const auto fed = static_cast<int64_t>(prompt.size());
  require(fed > 0, "[generate] prompt {} is empty; give at least one token (a model with a start token accepts that one)", index + 1);
  for (int32_t id : prompt)
    require(id >= 0 && id < model.info().vocab_size, "[generate] prompt {} holds id {}; the vocabulary has {}", index + 1, id, model.info().vocab_size);
  require(known + fed <= model.context(), "[generate] prompt {} makes a text of {} tokens, the context has room for {}; shorten it{}", index + 1, known + fed, model.context(),
          larger_context_advice(model));
}

std::optional<TextBegin> begin_text(const Model& model, int64_t index, std::span<const int32_t> prompt, const GenerateOptions& options) {
  check_prompt(model, index, 0, prompt);
  if (model.info().architecture != "encoder_decoder") {
    require(options.start_ids.empty(), "[generate] start_ids are what the texts of an encoder-decoder begin with; this model is a {}", model.info().architecture);
    return TextBegin{Sequence(model), {prompt.begin(), prompt.end()}};
  }
  std::vector<int32_t> first = options.start_ids;
  if (first.empty()) {
    require(model.decoder_start().has_value(), "[generate] the model file does not say what a text begins with; give start_ids");
    first = {*model.decoder_start()};
  }
  for (int32_t id : first)
    require(id >= 0 && id < model.info().vocab_size, "[generate] start_ids hold {}; the vocabulary has {}", id, model.info().vocab_size);
  require(static_cast<int64_t>(first.size()) <= model.context(), "[generate] {} start_ids; the context has room for {}", first.size(), model.context());
  try {
    return TextBegin{Sequence(model, prompt, options.stop), std::move(first)};
  } catch (const Error& error) {
    if (error.code() != Code::kCancelled) throw;
    return {};
  }
}

bool feed_texts(const Model& model, std::span<const Feed> feeds, const GenerateOptions& options, std::vector<float>& logits) {
  logits.resize(feeds.size() * static_cast<size_t>(model.info().vocab_size));
  try {
    model.forward(feeds, {Output::kLogits, options.prefill_chunk, options.stop}, logits.data());
  } catch (const Error& error) {
    if (error.code() != Code::kCancelled) throw;
    return false;
  }
  return true;
}

std::vector<int32_t> ending_ids(const Model& model, const GenerateOptions& options) {
  std::vector<int32_t> ids = options.stop_ids;
  if (options.end_of_text == GenerateOptions::EndOfText::kStop) ids.insert(ids.end(), model.eos_ids().begin(), model.eos_ids().end());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

EffectiveSampling::EffectiveSampling(const Model& model, const GenerateOptions& options) : always(options.sampling), min_tokens(options.min_tokens) {
  if (options.end_of_text == GenerateOptions::EndOfText::kIgnore) ban(model.eos_ids(), always);
  before_min_tokens = always;
  std::vector<int32_t> ending = ending_ids(model, options);
  // A stop id outside the vocabulary never comes; as a bias it would be an error.
  std::erase_if(ending, [&](int32_t id) { return id < 0 || id >= model.info().vocab_size; });
  if (min_tokens > 0) ban(ending, before_min_tokens);
}

}  // namespace regard
