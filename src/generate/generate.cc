// The loop: feed, choose, stop or go on. Start at run(); a Text is one of the texts that are generated together.
#include "regard/generate.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/check.h"
#include "generate/logprobs.h"
#include "generate/options.h"
#include "regard/tokenizer.h"

namespace regard {
namespace {

// One text under way.
struct Text {
  int64_t index = 0;
  uint64_t choice = 0;
  Sequence* sequence = nullptr;
  std::span<const int32_t> prompt;
  std::vector<int32_t> history;  // everything the model has seen of this text, and what was chosen since
  int64_t prompt_size = 0;
  std::optional<StreamDecoder> decoder;  // absent for a model without a tokenizer
  int32_t next = 0;                      // chosen, not yet fed
  bool done = false;
  Generation result;
};

class Run {
 public:
  Run(const Model& model, const GenerateOptions& options, const OnToken& on_token)
      : model_(model), options_(options), on_token_(on_token), sampling_(model, options), stops_(ending_ids(model, options)) {}

  // `text` has its sequence and what is fed to it first.
  void start(Text& text) const {
    text.history = text.sequence->tokens();
    text.history.insert(text.history.end(), text.prompt.begin(), text.prompt.end());
    text.prompt_size = static_cast<int64_t>(text.history.size());
    text.result.prompt_tokens = static_cast<int64_t>(text.prompt.size());
    if (model_.info().has_tokenizer)
      text.decoder.emplace(model_.tokenizer(), DecodeOptions{}, options_.stop_strings);
    else
      require(options_.stop_strings.empty(), "[generate] stop strings need a tokenizer, and this model file has none");
  }

  void run(std::span<Text> texts) {
    std::vector<Text*> active;
    for (Text& text : texts)
      if (!text.done) active.push_back(&text);
    bool prefill = true;
    while (!active.empty()) {
      const auto begin = std::chrono::steady_clock::now();
      if (!feed(active, prefill)) {
        for (Text* text : active) finish(*text, FinishReason::kCancelled);
        return;
      }
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      for (size_t i = 0; i < active.size(); ++i) {
        (prefill ? active[i]->result.prefill_seconds : active[i]->result.decode_seconds) += seconds;
        choose(*active[i], std::span<const float>(logits_).subspan(i * vocab(), vocab()));
      }
      active.erase(std::remove_if(active.begin(), active.end(), [](const Text* text) { return text->done; }), active.end());
      prefill = false;
    }
  }

 private:
  size_t vocab() const { return static_cast<size_t>(model_.info().vocab_size); }

  // False when a stop was requested; the sequences are then as they were.
  bool feed(const std::vector<Text*>& active, bool prefill) {
    std::vector<Feed> feeds;
    for (Text* text : active)
      feeds.push_back({text->sequence, prefill ? text->prompt : std::span<const int32_t>(&text->next, 1), Feed::Rows::kLast});
    return feed_texts(model_, feeds, options_, logits_);
  }

  void choose(Text& text, std::span<const float> logits) {
    if (options_.max_tokens == 0 || text.prompt_size >= model_.context()) return finish(text, FinishReason::kLength);
    std::optional<std::span<const int32_t>> allowed;
    if (options_.allowed) allowed = options_.allowed({text.index, text.history, text.prompt_size});
    if (allowed && allowed->empty()) return finish(text, FinishReason::kStop);
    const int32_t id = allowed ? choose_among(text, *allowed, logits) : choose_from(text, logits);
    if (std::find(stops_.begin(), stops_.end(), id) != stops_.end()) return finish(text, FinishReason::kStop);
    TokenEvent event{text.index, id, {}, 0, {}};
    if (options_.top_logprobs >= 0) {
      const double log_sum = log_sum_exp(logits);
      event.logprob = static_cast<float>(static_cast<double>(logits[static_cast<size_t>(id)]) - log_sum);
      event.top = top_logprobs(logits, log_sum, options_.top_logprobs);
      text.result.logprobs.push_back(event.logprob);
      text.result.top.push_back(event.top);
    }
    text.history.push_back(id);
    text.result.ids.push_back(id);
    text.next = id;
    // An embedding may have more rows than the tokenizer has tokens; such an id has no text.
    if (text.decoder && id < model_.tokenizer().vocab_size()) event.text = text.decoder->push(id);
    const bool stopped = text.decoder && text.decoder->stopped_by().has_value();
    // The last piece is reported together with what the decoder still holds back, so that pieces add up to the text.
    const bool full = static_cast<int64_t>(text.result.ids.size()) >= options_.max_tokens || static_cast<int64_t>(text.history.size()) >= model_.context();
    if (full && !stopped && text.decoder) event.text += text.decoder->flush();
    text.result.text += event.text;
    const bool go_on = !on_token_ || on_token_(event);
    if (stopped) return finish(text, FinishReason::kStop);
    if (full) return finish(text, FinishReason::kLength);
    if (!go_on || (options_.stop != nullptr && options_.stop->stop_requested())) return finish(text, FinishReason::kCancelled);
  }

  int32_t choose_from(const Text& text, std::span<const float> logits) const {
    const int64_t token_index = static_cast<int64_t>(text.history.size()) - text.prompt_size;
    return sample(logits, text.history, text.prompt_size, sampling_.at(token_index), text.choice, token_index);
  }

  int32_t choose_among(const Text& text, std::span<const int32_t> allowed, std::span<const float> logits) {
    for (int32_t id : allowed)
      require(id >= 0 && static_cast<size_t>(id) < logits.size(), "[generate] the allowed ids hold {}; the vocabulary has {}", id, logits.size());
    if (allowed.size() == 1) return allowed.front();
    masked_.assign(logits.size(), -std::numeric_limits<float>::infinity());
    for (int32_t id : allowed) masked_[static_cast<size_t>(id)] = logits[static_cast<size_t>(id)];
    return choose_from(text, masked_);
  }

  void finish(Text& text, FinishReason reason) const {
    if (text.decoder) text.result.text += text.decoder->flush();
    text.result.finish = reason;
    text.done = true;
  }

  const Model& model_;
  const GenerateOptions& options_;
  const OnToken& on_token_;
  EffectiveSampling sampling_;
  std::vector<int32_t> stops_;
  std::vector<float> logits_, masked_;
};

}  // namespace

std::vector<Generation> generate(const Model& model, std::span<const std::vector<int32_t>> prompts, const GenerateOptions& options, const OnToken& on_token) {
  check_generate(options);
  Run run(model, options, on_token);
  std::vector<std::optional<TextBegin>> begins;
  std::vector<Text> texts(prompts.size());
  begins.reserve(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    Text& text = texts[i];
    text.index = static_cast<int64_t>(i);
    if (options.streams == GenerateOptions::Streams::kByIndex) text.choice = i;
    const auto begin = std::chrono::steady_clock::now();
    begins.push_back(begin_text(model, text.index, prompts[i], options));
    if (begins.back()) {
      text.sequence = &begins.back()->sequence;
      text.prompt = begins.back()->first;
      run.start(text);
    } else {
      text.result.finish = FinishReason::kCancelled;
      text.done = true;
    }
    text.result.prompt_tokens = static_cast<int64_t>(prompts[i].size());
    text.result.prefill_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  run.run(texts);
  std::vector<Generation> results;
  for (Text& text : texts) results.push_back(std::move(text.result));
  return results;
}

Generation generate(const Model& model, Sequence& sequence, std::span<const int32_t> tokens, const GenerateOptions& options, const OnToken& on_token,
                    uint64_t choice) {
  check_generate(options);
  Run run(model, options, on_token);
  Text text;
  text.choice = choice;
  text.sequence = &sequence;
  text.prompt = tokens;
  check_prompt(model, 0, sequence.size(), tokens);
  run.start(text);
  run.run({&text, 1});
  return std::move(text.result);
}

}  // namespace regard
