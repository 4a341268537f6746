// Nats per token of a text, in windows that slide or are cut.
#include <algorithm>

#include "base/check.h"
#include "generate/logprobs.h"
#include "nn/rows.h"
#include "regard/generate.h"
#include "runtime/thread_pool.h"

namespace regard {
namespace {

// Rows of logits held at once; a row is a whole vocabulary, a megabyte in the largest ones.
constexpr int64_t kRowsAtOnce = 32;

// Nats of tokens [first, end) given [begin, ...): feeds the window from an empty sequence.
double score_window(const Model& model, std::span<const int32_t> tokens, int64_t begin, int64_t first, int64_t end, const EvalOptions& options) {
  const auto part = [&](int64_t from, int64_t to) { return tokens.subspan(static_cast<size_t>(from), static_cast<size_t>(to - from)); };
  Sequence sequence(model);
  const ForwardOptions forward{Output::kLogits, options.prefill_chunk, options.stop};
  // The row of token t predicts token t + 1, so rows before first - 1 are fed without asking for logits.
  if (first - 1 > begin) {
    const Feed context{&sequence, part(begin, first - 1), Feed::Rows::kNone};
    model.forward({&context, 1}, forward, nullptr);
  }
  const auto vocab = static_cast<size_t>(model.info().vocab_size);
  std::vector<float> logits(static_cast<size_t>(kRowsAtOnce) * vocab);
  double nats = 0;
  for (int64_t t = first - 1; t < end - 1; t += kRowsAtOnce) {
    const int64_t rows = std::min(kRowsAtOnce, end - 1 - t);
    const Feed feed{&sequence, part(t, t + rows), Feed::Rows::kAll};
    model.forward({&feed, 1}, forward, logits.data());
    std::vector<double> lost(static_cast<size_t>(rows));
    nn::for_each_row(default_pool(), rows, static_cast<int64_t>(vocab), [&](int64_t r) {
      const auto row = std::span<const float>(logits).subspan(static_cast<size_t>(r) * vocab, vocab);
      lost[static_cast<size_t>(r)] = log_sum_exp(row) - static_cast<double>(row[static_cast<size_t>(tokens[static_cast<size_t>(t + r + 1)])]);
    });
    for (double x : lost) nats += x;
  }
  return nats;
}

}  // namespace

EvalState evaluate(const Model& model, std::span<const int32_t> tokens, const EvalOptions& options, EvalState state) {
  const auto size = static_cast<int64_t>(tokens.size());
  const int64_t window = options.window == 0 ? model.context() : options.window;
  const int64_t stride = options.stride == 0 ? window : options.stride;
  require(window >= 2 && window <= model.context(), "[evaluate] window is {}; expected 2 to {}, the context of the model", window, model.context());
  require(stride >= 1 && stride <= window, "[evaluate] stride is {}; expected 1 to {}, the window", stride, window);
  require(state.next_token >= 0 && state.next_token <= size, "[evaluate] the state goes on at token {} of a text of {}", state.next_token, size);
  for (int32_t id : tokens)
    require(id >= 0 && id < model.info().vocab_size, "[evaluate] the text holds id {}; the vocabulary has {}", id, model.info().vocab_size);
  while (state.next_token < size) {
    // A window begins `stride` after the one before it, which ended at next_token.
    const int64_t begin = state.next_token == 0 ? 0 : state.next_token - window + stride;
    require(begin >= 0, "[evaluate] the state goes on at token {}, which no window of {} with stride {} reaches", state.next_token, window, stride);
    const int64_t end = std::min(begin + window, size);
    const int64_t first = std::max(state.next_token, begin + 1);
    if (options.stop != nullptr && options.stop->stop_requested()) return state;
    if (first < end) {
      try {
        state.nats += score_window(model, tokens, begin, first, end, options);
      } catch (const Error& error) {
        if (error.code() != Code::kCancelled) throw;
        return state;
      }
      state.scored_tokens += end - first;
    }
    state.next_token = end;
    if (options.progress) options.progress(end, size, state.nats);
  }
  return state;
}

}  // namespace regard
