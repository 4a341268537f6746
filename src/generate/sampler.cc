// Choosing one id from logits. The steps stand in the order in which they run; that order is the one of Hugging Face
// transformers and is part of the interface (regard/generate.h).
#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_map>

#include "base/check.h"
#include "base/math.h"
#include "base/rng.h"
#include "generate/options.h"
#include "generate/sampler.h"
#include "regard/generate.h"

namespace regard {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

void apply_bias(std::vector<float>& logits, const SamplingOptions& o) {
  for (const auto& [id, bias] : o.logit_bias) {
    require(id >= 0 && static_cast<size_t>(id) < logits.size(), "[sample] logit_bias names id {}; the vocabulary has {}", id, logits.size());
    logits[static_cast<size_t>(id)] += bias;
  }
}

void apply_penalties(std::vector<float>& logits, std::span<const int32_t> history, int64_t prompt_size, const SamplingOptions& o) {
  if (o.repetition_penalty != 1.0f) {
    std::vector<int32_t> seen(history.begin(), history.end());
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    for (int32_t id : seen) {
      float& logit = logits[static_cast<size_t>(id)];
      logit = logit > 0 ? logit / o.repetition_penalty : logit * o.repetition_penalty;
    }
  }
  if (o.frequency_penalty != 0 || o.presence_penalty != 0) {
    std::unordered_map<int32_t, int64_t> count;
    for (int32_t id : history.subspan(static_cast<size_t>(prompt_size))) ++count[id];
    for (const auto& [id, n] : count)
      logits[static_cast<size_t>(id)] -= o.frequency_penalty * static_cast<float>(n) + o.presence_penalty;
  }
}

// Bans every id that would complete an n-gram which has occurred before.
void block_ngrams(std::vector<float>& logits, std::span<const int32_t> history, int64_t n) {
  const auto size = static_cast<int64_t>(history.size());
  if (n < 1 || size < n) return;
  const auto tail = history.last(static_cast<size_t>(n - 1));
  for (int64_t i = 0; i + n <= size; ++i) {
    const auto gram = history.subspan(static_cast<size_t>(i), static_cast<size_t>(n));
    if (std::equal(tail.begin(), tail.end(), gram.begin())) logits[static_cast<size_t>(gram.back())] = kNever;
  }
}

// Most likely first; ties go to the lowest id.
bool likelier(const Candidate& a, const Candidate& b) { return a.logit != b.logit ? a.logit > b.logit : a.id < b.id; }

// Probabilities of what is left, in place. `top` is the largest logit among them.
void normalise(std::vector<Candidate>& c, float top) {
  double sum = 0;
  for (Candidate& x : c) sum += x.prob = math::exp(static_cast<double>(x.logit) - static_cast<double>(top));
  for (Candidate& x : c) x.prob /= sum;
}

// The most likely candidates in order, until `enough` holds of the sum of their probabilities. A heap, because a vocabulary
// has a quarter of a million entries and the answer is usually among the first hundred.
template <class Enough>
std::vector<Candidate> front(std::vector<Candidate>& c, Enough enough) {
  const auto below = [](const Candidate& a, const Candidate& b) { return likelier(b, a); };
  std::make_heap(c.begin(), c.end(), below);
  std::vector<Candidate> taken;
  double sum = 0;
  while (!c.empty() && (taken.empty() || !enough(sum))) {
    std::pop_heap(c.begin(), c.end(), below);
    sum += c.back().prob;
    taken.push_back(c.back());
    c.pop_back();
  }
  return taken;
}

// Keeps the candidates whose information is closest to the entropy, until they reach `mass`.
void keep_typical(std::vector<Candidate>& c, double mass) {
  double entropy = 0;
  for (const Candidate& x : c)
    if (x.prob > 0) entropy -= x.prob * math::log(x.prob);
  const auto distance = [&](const Candidate& x) { return x.prob > 0 ? std::fabs(-math::log(x.prob) - entropy) : std::numeric_limits<double>::infinity(); };
  std::sort(c.begin(), c.end(), [&](const Candidate& a, const Candidate& b) {
    const double da = distance(a), db = distance(b);
    return da != db ? da < db : likelier(a, b);
  });
  double sum = 0;
  size_t n = 0;
  while (n < c.size() && (n == 0 || sum < mass)) sum += c[n++].prob;
  c.resize(n);
}

}  // namespace

void process_logits(std::vector<float>& logits, std::span<const int32_t> history, int64_t prompt_size, const SamplingOptions& o) {
  apply_bias(logits, o);
  apply_penalties(logits, history, prompt_size, o);
  block_ngrams(logits, history, o.no_repeat_ngram);
}

std::vector<Candidate> candidates(std::span<const float> raw, std::span<const int32_t> history, int64_t prompt_size, const SamplingOptions& o) {
  check_sampling(o);
  require(prompt_size >= 0 && static_cast<size_t>(prompt_size) <= history.size(), "[sample] a prompt of {} in a history of {}", prompt_size, history.size());
  for (int32_t id : history)
    require(id >= 0 && static_cast<size_t>(id) < raw.size(), "[sample] the history holds id {}; the vocabulary has {}", id, raw.size());
  std::vector<float> logits(raw.begin(), raw.end());
  process_logits(logits, history, prompt_size, o);

  // NaN would compare false with everything and hide; every logit is looked at once.
  int32_t best = -1;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || logits[i] == -kNever) fail(Code::kNumeric, "[sample] the logit of id {} is {}", i, logits[i]);
    if (logits[i] != kNever && (best < 0 || logits[i] > logits[static_cast<size_t>(best)])) best = static_cast<int32_t>(i);
  }
  if (best < 0) fail(Code::kNumeric, "[sample] no id is left to choose from: all {} are banned or have probability 0", logits.size());
  if (o.temperature == 0) return {{best, logits[static_cast<size_t>(best)], 1.0}};

  std::vector<Candidate> c;
  c.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i)
    if (logits[i] != kNever) c.push_back({static_cast<int32_t>(i), logits[i] / o.temperature});
  if (o.top_k > 0 && static_cast<size_t>(o.top_k) < c.size()) {
    std::nth_element(c.begin(), c.begin() + o.top_k, c.end(), likelier);
    c.resize(static_cast<size_t>(o.top_k));
    std::sort(c.begin(), c.end(), likelier);  // nth_element leaves an order that is nobody's promise, and sums depend on it
  }
  const float top = logits[static_cast<size_t>(best)] / o.temperature;
  normalise(c, top);
  if (o.top_p < 1) {
    c = front(c, [&](double sum) { return sum >= static_cast<double>(o.top_p); });
    normalise(c, top);
  }
  if (o.min_p > 0) {
    const double least = static_cast<double>(o.min_p) * std::max_element(c.begin(), c.end(), [](auto& a, auto& b) { return a.prob < b.prob; })->prob;
    c.erase(std::remove_if(c.begin(), c.end(), [&](const Candidate& x) { return x.prob < least; }), c.end());
    normalise(c, top);
  }
  if (o.typical_p < 1) {
    keep_typical(c, static_cast<double>(o.typical_p));
    normalise(c, std::max_element(c.begin(), c.end(), [](auto& a, auto& b) { return a.logit < b.logit; })->logit);
  }
  return c;
}

int32_t sample(std::span<const float> logits, std::span<const int32_t> history, int64_t prompt_size, const SamplingOptions& options, uint64_t choice,
               int64_t token_index) {
  std::vector<Candidate> c = candidates(logits, history, prompt_size, options);
  if (c.size() == 1) return c.front().id;
  // Inverse transform over the candidates in order of likelihood. Should rounding leave the sum below the draw, the last one is taken.
  const double draw = random_uniform(options.seed, choice, static_cast<uint64_t>(token_index));
  return front(c, [&](double sum) { return sum > draw; }).back().id;
}

}  // namespace regard
