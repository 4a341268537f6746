// Attention in double: the formulas of kernels/reference, row by row. For checks; nothing here is fast.
#include <algorithm>

#include "kernels/dropout.h"
#include "kernels/reference/attention_backward.h"
#include "nn/training/attention_core.h"

namespace regard::nn::training {
namespace {

using kernels::kTileKeys;

// What one query row sees and adds, as kernels/reference/attention.h asks for it.
class Row {
 public:
  Row(const Context<double>& context, const AttentionCoreConfig& config, const CoreCall<double>& call, int64_t b, int64_t head, int64_t t)
      : config_(config), call_(call), b_(b), head_(head), t_(t), query_row_(b * call.queries->seq + t) {
    if (context.dropout.on && call.dropout > 0) {
      keep_scale = 1 / (1 - call.dropout);
      const auto key = kernels::dropout_row_key(call.dropout_seed, context.dropout.first_sequence + b, head, t);
      keep_.resize(static_cast<size_t>((call.keys->seq + kTileKeys - 1) / kTileKeys));
      for (size_t tile = 0; tile < keep_.size(); ++tile)
        kernels::dropout_keep_words(key, static_cast<int64_t>(tile), kernels::dropout_threshold(call.dropout), keep_[tile].words);
    }
  }

  int64_t query_row() const { return query_row_; }
  int64_t key_row(int64_t j) const { return b_ * call_.keys->seq + j; }
  int64_t kv_head() const { return head_ / (config_.num_q_heads / config_.num_kv_heads); }
  const double* query() const { return call_.q.data + query_row_ * call_.q.row_stride + head_ * config_.head_dim; }
  const double* key(int64_t j) const { return call_.k.data + key_row(j) * call_.k.row_stride + kv_head() * config_.head_dim; }
  const double* value(int64_t j) const { return call_.v.data + key_row(j) * call_.v.row_stride + kv_head() * config_.head_dim; }
  double content(int64_t i) const {
    return query()[i] + (call_.terms.xl_u == nullptr ? 0.0 : call_.terms.xl_u[head_ * config_.head_dim + i]);
  }
  double place(int64_t i) const { return query()[i] + call_.terms.xl_v[head_ * config_.head_dim + i]; }

  bool visible(int64_t j) const {
    if (t_ >= call_.queries->length(b_) || j >= call_.keys->length(b_)) return false;
    const auto& ids = call_.queries->documents;
    if (call_.queries == call_.keys && !ids.empty() && ids[static_cast<size_t>(query_row_)] != ids[static_cast<size_t>(key_row(j))]) return false;
    return config_.mask.allowed(b_, head_, t_, j);
  }

  int64_t distance(int64_t j) const { return call_.queries->encoding_position(query_row_) - call_.keys->encoding_position(key_row(j)); }
  int64_t bucket(int64_t j) const { return t5_bucket(-distance(j), config_.t5_buckets, config_.t5_max_distance, config_.t5_direction); }
  const double* relative(int64_t j) const {
    return call_.terms.xl_r + ((distance(j) - call_.terms.first_distance) * config_.num_q_heads + head_) * config_.head_dim;
  }
  double bias(int64_t j) const {
    double sum = 0;
    if (!config_.alibi_slopes.empty())
      sum -= static_cast<double>(config_.alibi_slopes[static_cast<size_t>(head_)]) * static_cast<double>(std::abs(distance(j)));
    if (call_.terms.t5_table != nullptr) sum += call_.terms.t5_table[bucket(j) * config_.num_q_heads + head_];
    if (call_.terms.xl_r != nullptr)
      for (int64_t i = 0; i < config_.head_dim; ++i) sum += config_.scale * place(i) * relative(j)[i];
    return sum;
  }
  bool keep(int64_t j) const {
    if (keep_.empty()) return true;
    return keep_[static_cast<size_t>(j / kTileKeys)].words[j % kTileKeys / 64] >> (j % 64) & 1;
  }

  double keep_scale = 1;
  double sink = -std::numeric_limits<double>::infinity();

 private:
  struct KeepWords {
    uint64_t words[kernels::kPanelsPerTile];
  };
  const AttentionCoreConfig& config_;
  const CoreCall<double>& call_;
  int64_t b_, head_, t_, query_row_;
  std::vector<KeepWords> keep_;
};

}  // namespace

template <>
void AttentionCore<double>::forward(const Context<double>& context, const CoreCall<double>& call, HeadRows<double> out, double* lse,
                                    Memory) const {
  const int64_t dim = config_.head_dim, seq = call.queries->seq;
  context.pool.for_each(call.queries->batch * config_.num_q_heads, [&](int64_t item, int) {
    const int64_t b = item / config_.num_q_heads, head = item % config_.num_q_heads;
    for (int64_t t = 0; t < seq; ++t) {
      const Row row(context, config_, call, b, head, t);
      lse[item * seq + t] = kernels::reference::attention_row<double>(
          [&](int64_t i) { return row.content(i); }, dim, dim, 0, call.keys->seq, config_.scale, config_.softcap,
          [&](int64_t j, int64_t i) { return row.key(j)[i]; }, [&](int64_t j, int64_t c) { return row.value(j)[c]; },
          [&](int64_t j) { return row.visible(j); }, out.data + row.query_row() * out.row_stride + head * dim, nullptr, row);
    }
  });
}

template <>
void AttentionCore<double>::backward(const Context<double>& context, const CoreCall<double>& call, HeadRows<const double>, const double*,
                                     HeadRows<const double> dout, const CoreGradients<double>& gradients) const {
  const int64_t dim = config_.head_dim, seq = call.queries->seq, kv_seq = call.keys->seq;
  for (int64_t r = 0; r < call.keys->rows(); ++r)
    for (int64_t i = 0; i < config_.num_kv_heads * dim; ++i)
      gradients.dk.data[r * gradients.dk.row_stride + i] = gradients.dv.data[r * gradients.dv.row_stride + i] = 0;
  std::vector<double> scratch(static_cast<size_t>(dim + kv_seq)), db(static_cast<size_t>(kv_seq));
  const CoreTerms<double>& terms = gradients.terms;
  for (int64_t b = 0; b < call.queries->batch; ++b)
    for (int64_t head = 0; head < config_.num_q_heads; ++head)
      for (int64_t t = 0; t < seq; ++t) {
        const Row row(context, config_, call, b, head, t);
        const int64_t kv_head = row.kv_head();
        const double* dout_row = dout.data + row.query_row() * dout.row_stride + head * dim;
        double* dq = gradients.dq.data + row.query_row() * gradients.dq.row_stride + head * dim;
        kernels::reference::attention_backward_row<double>(
            [&](int64_t i) { return row.content(i); }, [&](int64_t c) { return dout_row[c]; }, 0.0, dim, dim, 0, kv_seq, config_.scale, config_.softcap,
            [&](int64_t j, int64_t i) { return row.key(j)[i]; }, [&](int64_t j, int64_t c) { return row.value(j)[c]; },
            [&](int64_t j) { return row.visible(j); }, scratch.data(), dq,
            [&](int64_t j) { return gradients.dk.data + row.key_row(j) * gradients.dk.row_stride + kv_head * dim; },
            [&](int64_t j) { return gradients.dv.data + row.key_row(j) * gradients.dv.row_stride + kv_head * dim; }, db.data(), row);
        if (terms.xl_u != nullptr)
          for (int64_t i = 0; i < dim; ++i) terms.xl_u[head * dim + i] += dq[i];
        for (int64_t j = 0; j < kv_seq; ++j) {
          if (!row.visible(j)) continue;
          const double d = db[static_cast<size_t>(j)];
          if (terms.t5_table != nullptr) terms.t5_table[row.bucket(j) * config_.num_q_heads + head] += d;
          if (terms.xl_r == nullptr) continue;
          double* dr = terms.xl_r + (row.relative(j) - call.terms.xl_r);
          for (int64_t i = 0; i < dim; ++i) {
            const double along = config_.scale * d * row.relative(j)[i];
            dq[i] += along;
            terms.xl_v[head * dim + i] += along;
            dr[i] += config_.scale * d * row.place(i);
          }
        }
      }
}

template <>
size_t AttentionCore<double>::scratch(const Sequences&) const {
  return 0;
}

}  // namespace regard::nn::training
