// The search: feed all live texts, look at their best continuations, keep what ended and what goes on. Start at run().
#include "regard/beam_search.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "attention/kv_store.h"
#include "base/check.h"
#include "generate/logprobs.h"
#include "generate/options.h"
#include "generate/sampler.h"
#include "regard/tokenizer.h"

namespace regard {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr int64_t kMaxBeams = 1024;
// n^24 of a text of n < 2^31 tokens is below 2^744, and the sum of so many numbers in f32 below 2^159: every score is finite, and not 0 unless the sum is.
constexpr double kMaxLengthPenalty = 24;
constexpr int32_t kNothing = -1;  // the continuation of a text whose allowed set is empty

void check(const GenerateOptions& o, const BeamOptions& b) {
  check_generate(o);
  require(b.beams >= 1 && b.beams <= kMaxBeams, "[beam_search] beams is {}; expected 1 to {}", b.beams, kMaxBeams);
  require(b.num_results >= 1 && b.num_results <= b.beams, "[beam_search] num_results is {}; expected 1 to {}, the number of beams", b.num_results, b.beams);
  require(std::abs(b.length_penalty) <= kMaxLengthPenalty, "[beam_search] length_penalty is {}; expected -{} to {}", b.length_penalty, kMaxLengthPenalty, kMaxLengthPenalty);
  require(o.sampling.temperature == 0, "[beam_search] temperature is {}; nothing is drawn, so expected 0", o.sampling.temperature);
  require(o.top_logprobs == -1, "[beam_search] top_logprobs is {}; a search has none, so expected -1", o.top_logprobs);
}

// A text that goes on; its sequence stands at the same place in Search::sequences.
struct Live {
  std::vector<int32_t> history;
  double sum = 0;
};

struct Continuation {
  double sum;
  size_t beam;
  int32_t id;
};

bool better(const Continuation& a, const Continuation& b) {
  if (a.sum != b.sum) return a.sum > b.sum;
  return a.beam != b.beam ? a.beam < b.beam : a.id < b.id;
}

// The search for one prompt.
struct Search {
  int64_t index = 0;
  std::vector<int32_t> first;  // what every text begins with
  int64_t most = 0;  // generated tokens of a text
  std::vector<Sequence> sequences;
  std::vector<Live> live;
  std::vector<BeamText> ended;  // the best `beams` so far, best first
  bool done = false;
  BeamResult result;
};

class Run {
 public:
  Run(const Model& model, const GenerateOptions& options, const BeamOptions& beam_options)
      : model_(model),
        options_(options),
        beam_options_(beam_options),
        beams_(static_cast<size_t>(beam_options.beams)),
        sampling_(model, options),
        stops_(ending_ids(model, options)) {
    if (!model.info().has_tokenizer) require(options.stop_strings.empty(), "[generate] stop strings need a tokenizer, and this model file has none");
  }

  void start(Search& search, std::span<const int32_t> prompt) const {
    const auto begin = std::chrono::steady_clock::now();
    search.result.prompt_tokens = static_cast<int64_t>(prompt.size());
    if (std::optional<TextBegin> text = begin_text(model_, search.index, prompt, options_)) {
      search.first = std::move(text->first);
      search.sequences.push_back(std::move(text->sequence));
    }
    search.live.push_back({search.first, 0});
    if (search.sequences.empty()) give_up(search, FinishReason::kCancelled);
    search.most = std::min(options_.max_tokens, model_.context() - static_cast<int64_t>(search.first.size()));
    search.result.prefill_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  void run(std::span<Search> searches) {
    bool prefill = true;
    for (;;) {
      std::vector<Search*> active;
      for (Search& search : searches)
        if (!search.done) active.push_back(&search);
      if (active.empty()) return;
      const auto begin = std::chrono::steady_clock::now();
      if (!feed(active, prefill)) {
        for (Search* search : active) give_up(*search, FinishReason::kCancelled);
        return;
      }
      size_t row = 0;
      for (Search* search : active) {
        const size_t rows = search->live.size();
        step(*search, std::span<const float>(logits_).subspan(row * vocab(), rows * vocab()));
        row += rows;
      }
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      for (Search* search : active) (prefill ? search->result.prefill_seconds : search->result.decode_seconds) += seconds;
      prefill = false;
    }
  }

 private:
  size_t vocab() const { return static_cast<size_t>(model_.info().vocab_size); }

  // False when a stop was requested; the sequences are then as they were.
  bool feed(const std::vector<Search*>& active, bool prefill) {
    if (options_.stop != nullptr && options_.stop->stop_requested()) return false;
    std::vector<Feed> feeds;
    for (Search* search : active)
      for (size_t i = 0; i < search->live.size(); ++i) {
        const std::span<const int32_t> history = search->live[i].history;
        feeds.push_back({&search->sequences[i], prefill ? history : history.last(1), Feed::Rows::kLast});
      }
    return feed_texts(model_, feeds, options_, logits_);
  }

  void step(Search& search, std::span<const float> logits) {
    if (search.most == 0) return give_up(search, FinishReason::kLength);
    // Each live text can end in as many ways as there are end ids, so behind these there are enough that go on.
    const size_t looked_at = beams_ * std::max<size_t>(2, 1 + stops_.size());
    std::vector<Continuation> all;
    for (size_t beam = 0; beam < search.live.size(); ++beam) add_continuations(search, beam, logits.subspan(beam * vocab(), vocab()), looked_at, all);
    if (all.empty() && search.ended.empty())
      fail(Code::kNumeric, "[beam_search] prompt {}: no id is left to choose from: all are banned or have probability 0", search.index + 1);
    std::sort(all.begin(), all.end(), better);
    if (all.size() > looked_at) all.resize(looked_at);

    ++search.result.steps;
    std::vector<Live> next;
    std::vector<int64_t> parents;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const Continuation& c = all[rank];
      const Live& live = search.live[c.beam];
      if (std::optional<BeamText> text = ended(search, live, c)) {
        if (rank < beams_) keep(search, std::move(*text));
      } else if (next.size() < beams_) {
        next.push_back({live.history, c.sum});
        next.back().history.push_back(c.id);
        parents.push_back(static_cast<int64_t>(c.beam));
      }
    }
    search.live = std::move(next);
    if (search.live.empty() || is_over(search)) return finish(search);
    reorder(search.sequences, parents);
  }

  // The best `most` continuations of one live text.
  void add_continuations(const Search& search, size_t beam, std::span<const float> logits, size_t most, std::vector<Continuation>& all) {
    const Live& live = search.live[beam];
    const auto prompt = static_cast<int64_t>(search.first.size());
    const double log_sum = log_sum_exp(logits);
    logprobs_.resize(logits.size());
    for (size_t i = 0; i < logits.size(); ++i) logprobs_[i] = static_cast<float>(static_cast<double>(logits[i]) - log_sum);
    process_logits(logprobs_, live.history, prompt, sampling_.at(static_cast<int64_t>(live.history.size()) - prompt));

    const auto first = static_cast<std::ptrdiff_t>(all.size());
    const auto add = [&](int32_t id) {
      const float logprob = logprobs_[static_cast<size_t>(id)];
      if (std::isnan(logprob) || logprob == -kNever) fail(Code::kNumeric, "[beam_search] the log-probability of id {} is {}", id, logprob);
      if (logprob != kNever) all.push_back({live.sum + static_cast<double>(logprob), beam, id});
    };
    std::optional<std::span<const int32_t>> allowed;
    if (options_.allowed) allowed = options_.allowed({search.index, live.history, prompt});
    if (!allowed) {
      for (size_t id = 0; id < logits.size(); ++id) add(static_cast<int32_t>(id));
    } else if (allowed->empty()) {
      all.push_back({live.sum, beam, kNothing});
    } else {
      std::vector<int32_t> ids(allowed->begin(), allowed->end());
      std::sort(ids.begin(), ids.end());
      ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
      for (int32_t id : ids) {
        require(id >= 0 && static_cast<size_t>(id) < logits.size(), "[generate] the allowed ids hold {}; the vocabulary has {}", id, logits.size());
        // The only one is taken whatever is banned, as in generate(); then with the model's own log p.
        if (ids.size() == 1 && logprobs_[static_cast<size_t>(id)] == kNever)
          logprobs_[static_cast<size_t>(id)] = static_cast<float>(static_cast<double>(logits[static_cast<size_t>(id)]) - log_sum);
        add(id);
      }
    }
    if (all.size() - static_cast<size_t>(first) <= most) return;
    std::nth_element(all.begin() + first, all.begin() + first + static_cast<std::ptrdiff_t>(most), all.end(), better);
    all.resize(static_cast<size_t>(first) + most);
  }

  // The text that a continuation ends, or nothing when it goes on.
  std::optional<BeamText> ended(const Search& search, const Live& live, const Continuation& c) const {
    const size_t prompt = search.first.size();
    const bool stops = c.id == kNothing || std::binary_search(stops_.begin(), stops_.end(), c.id);
    const bool full = static_cast<int64_t>(live.history.size() - prompt) + 1 >= search.most;
    if (!stops && !full && options_.stop_strings.empty()) return {};
    BeamText text;
    text.ids.assign(live.history.begin() + static_cast<std::ptrdiff_t>(prompt), live.history.end());
    if (!stops) text.ids.push_back(c.id);
    const bool stopped = write(text);
    if (!stops && !full && !stopped) return {};
    text.logprob = c.sum;
    text.score = score(c.sum, live.history.size() - prompt + (c.id == kNothing ? 0 : 1));
    text.finish = stops || stopped ? FinishReason::kStop : FinishReason::kLength;
    return text;
  }

  // Fills in the text of the ids; true when a stop string ends it.
  bool write(BeamText& text) const {
    if (!model_.info().has_tokenizer) return false;
    StreamDecoder decoder(model_.tokenizer(), DecodeOptions{}, options_.stop_strings);
    for (int32_t id : text.ids)
      if (id < model_.tokenizer().vocab_size()) text.text += decoder.push(id);
    const bool stopped = decoder.stopped_by().has_value();
    if (!stopped) text.text += decoder.flush();
    return stopped;
  }

  double score(double sum, size_t tokens) const { return sum / std::pow(static_cast<double>(std::max<size_t>(tokens, 1)), beam_options_.length_penalty); }

  void keep(Search& search, BeamText text) const {
    const auto worse = std::find_if(search.ended.begin(), search.ended.end(), [&](const BeamText& other) { return other.score < text.score; });
    search.ended.insert(worse, std::move(text));
    if (search.ended.size() > beams_) search.ended.pop_back();
  }

  bool is_over(const Search& search) const {
    if (search.ended.size() < beams_) return false;
    using EarlyStopping = BeamOptions::EarlyStopping;
    if (beam_options_.early_stopping == EarlyStopping::kYes) return true;
    const bool may_grow = beam_options_.early_stopping == EarlyStopping::kNever && beam_options_.length_penalty > 0;
    const size_t now = search.live.front().history.size() - search.first.size();
    return score(search.live.front().sum, may_grow ? static_cast<size_t>(search.most) : now) <= search.ended.back().score;
  }

  // Ends the search with the live texts as they are.
  void give_up(Search& search, FinishReason reason) const {
    for (const Live& live : search.live) {
      BeamText text;
      text.ids.assign(live.history.begin() + static_cast<std::ptrdiff_t>(search.first.size()), live.history.end());
      write(text);
      text.logprob = live.sum;
      text.score = score(live.sum, text.ids.size());
      text.finish = reason;
      keep(search, std::move(text));
    }
    finish(search);
  }

  void finish(Search& search) const {
    const auto wanted = std::min(static_cast<size_t>(beam_options_.num_results), search.ended.size());
    search.result.texts.assign(std::make_move_iterator(search.ended.begin()), std::make_move_iterator(search.ended.begin() + static_cast<std::ptrdiff_t>(wanted)));
    search.sequences.clear();
    search.done = true;
  }

  const Model& model_;
  const GenerateOptions& options_;
  const BeamOptions& beam_options_;
  size_t beams_;
  EffectiveSampling sampling_;
  std::vector<int32_t> stops_;
  std::vector<float> logits_, logprobs_;
};

}  // namespace

std::vector<BeamResult> beam_search(const Model& model, std::span<const std::vector<int32_t>> prompts, const GenerateOptions& options,
                                    const BeamOptions& beam_options) {
  check(options, beam_options);
  Run run(model, options, beam_options);
  std::vector<Search> searches(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    searches[i].index = static_cast<int64_t>(i);
    run.start(searches[i], prompts[i]);
  }
  run.run(searches);
  std::vector<BeamResult> results;
  for (Search& search : searches) results.push_back(std::move(search.result));
  return results;
}

}  // namespace regard
