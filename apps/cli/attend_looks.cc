#include "attend_looks.h"

#include <fmt/format.h>

#include <algorithm>

#include "regard/npy.h"

namespace regard::cli {

LookRequest::LookRequest(const Arguments& arguments, const Bindings& bindings)
    : stats_path_(output_path(arguments, "stats", kNpyMagic)),
      top_path_(output_path(arguments, "top", kNpyMagic)),
      top_weights_path_(output_path(arguments, "top-weights", kNpyMagic)),
      sums_path_(output_path(arguments, "column-sums", kNpyMagic)),
      top_k_(arguments.integer("top-k")) {
  if (arguments.source("top-k") == Source::kCommandLine && top_path_.empty() && top_weights_path_.empty()) {
    throw UsageError("--top-k needs --top or --top-weights");
  }
  if (!arguments.has("stats-set")) return;
  if (stats_path_.empty()) throw UsageError("--stats-set needs --stats");
  set_ = Mask::parse(arguments.text("stats-set"), bindings);
}

std::vector<std::string> LookRequest::statistics() const {
  std::vector<std::string> names = {"total", "entropy", "distance", "largest", "largest_key"};
  if (set_) names.emplace_back("mass");
  return names;
}

void LookRequest::reserve(const Tensor& q, const Tensor& k) {
  const std::vector<int64_t> rows = {q.batch(), q.heads(), q.length()};
  const auto with = [&](int64_t last) {
    return std::vector<int64_t>{rows[0], rows[1], rows[2], last};
  };
  if (!stats_path_.empty()) {
    stats_ = empty_tensor(with(static_cast<int64_t>(statistics().size())));
    columns_.resize(stats_.values.size());
    largest_keys_.resize(stats_.values.size() / statistics().size());
  }
  if (!top_path_.empty() || !top_weights_path_.empty()) {
    top_shape_ = with(top_k_);
    top_weights_ = empty_tensor(top_shape_);
    top_keys_.resize(top_weights_.values.size());
  }
  if (!sums_path_.empty()) sums_ = empty_tensor({q.batch(), q.heads(), k.length()});
}

RowStatistics LookRequest::row_statistics(const Tensor& q) {
  const size_t rows = largest_keys_.size();
  const auto column = [&](size_t i) { return TensorView<float>(columns_.data() + i * rows, {q.batch(), q.heads(), q.length()}); };
  RowStatistics to;
  to.total = column(0);
  to.entropy = column(1);
  to.distance = column(2);
  to.largest = column(3);
  to.largest_key = {largest_keys_.data(), {q.batch(), q.heads(), q.length()}};
  if (set_) to.mass = column(5);
  return to;
}

void LookRequest::save_statistics(std::vector<WrittenArray>& written) {
  const size_t rows = largest_keys_.size(), count = statistics().size();
  for (size_t r = 0; r < rows; ++r) columns_[4 * rows + r] = static_cast<float>(largest_keys_[r]);
  for (size_t r = 0; r < rows; ++r)
    for (size_t i = 0; i < count; ++i) stats_.values[r * count + i] = columns_[i * rows + r];
  save_npy(stats_path_, stats_.shape, stats_.values);
  written.push_back({stats_path_, "float32", stats_.shape, statistics()});
}

void LookRequest::attend(Tensor& q, Tensor& k, Tensor& v, const Mask& mask, const AttentionOptions& options, Tensor& out, TensorView<float> lse) {
  // Weights after dropout are known only when those before it are summed up.
  statistics_done_ = !stats_path_.empty() && !(options.dropout && options.dropout->weights == Dropout::Weights::kAfter);
  if (statistics_done_)
    attend_with_statistics(q.view(), k.view(), v.view(), mask, options, out.view(), lse, {.mask = set_}, row_statistics(q));
  else
    regard::attend(q.view(), k.view(), v.view(), mask, options, out.view(), lse);
}

void LookRequest::run(Tensor& q, Tensor& k, TensorView<const float> lse, const Mask& mask, const AttentionOptions& options,
                      std::vector<WrittenArray>& written) {
  if (!stats_path_.empty()) {
    if (!statistics_done_) attention_statistics(q.view(), k.view(), lse, mask, options, {0, q.length()}, {.mask = set_}, row_statistics(q));
    save_statistics(written);
  }
  if (!top_shape_.empty()) {
    const TensorView<int64_t> keys(top_keys_.data(), {top_shape_[0], top_shape_[1], top_shape_[2], top_shape_[3]});
    attention_top_keys(q.view(), k.view(), lse, mask, options, {0, q.length()}, keys, top_weights_.view());
    if (!top_path_.empty()) {
      save_npy(top_path_, top_shape_, top_keys_);
      written.push_back({top_path_, "int64", top_shape_});
    }
    if (!top_weights_path_.empty()) {
      save_npy(top_weights_path_, top_shape_, top_weights_.values);
      written.push_back({top_weights_path_, "float32", top_shape_});
    }
  }
  if (!sums_path_.empty()) {
    attention_column_sums(q.view(), k.view(), lse, mask, options, {0, q.length()}, sums_.view());
    save_npy(sums_path_, sums_.shape, sums_.values);
    written.push_back({sums_path_, "float32", sums_.shape});
  }
}

std::vector<Option> look_options() {
  return {
      {.name = "stats", .type = Type::kOutputFile, .value = "FILE",
       .help = "What each row amounts to: float32 [batch, heads, q_len, 5 or 6]: sum of the weights, entropy in nats, mean distance query - key, "
               "largest weight, number of its key, and the share of --stats-set. --json names them."},
      {.name = "stats-set", .type = Type::kText, .value = "MASK",
       .help = "A mask; --stats then has what each row gives to the keys that it allows: 'prefix(4)', 'window(0, 0)'."},
      {.name = "top-k", .type = Type::kInteger, .value = "N", .help = "How many keys --top and --top-weights have for each row.", .fallback = "8",
       .min = 1, .max = 1048576},
      {.name = "top", .type = Type::kOutputFile, .value = "FILE",
       .help = "The keys that each row looks at most: int64 [batch, heads, q_len, N], by falling weight; -1 where there are no more."},
      {.name = "top-weights", .type = Type::kOutputFile, .value = "FILE", .help = "Their weights: float32, likewise."},
      {.name = "column-sums", .type = Type::kOutputFile, .value = "FILE",
       .help = "How much each key is looked at, summed over the queries: float32 [batch, heads, kv_len]."},
  };
}

}  // namespace regard::cli
