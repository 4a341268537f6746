// Parts of the keys put together: finished results by their lse, running ones by the kernels' fold.
#include "attention/merge.h"

#include <cmath>

#include "attention/partial.h"
#include "attention/tensor_check.h"
#include "base/check.h"
#include "base/checked.h"
#include "regard/attention_merge.h"
#include "runtime/fp_control.h"

namespace regard {

using kernels::AttentionState;
using kernels::kLanes;
using kernels::kBlockRows;

namespace {

template <class T>
bool same_view(const TensorView<T>& a, const TensorView<float>& b) {
  return a.data == b.data && a.shape == b.shape && a.strides == b.strides;
}

// out and lse fit each other; `out_shape` is what they have to be, or null for the first pair.
struct RowPair {
  ByteRange out, lse;
};
template <class T>
RowPair check_pair(std::string_view function, std::string_view out_name, const TensorView<T>& out,
                   std::string_view lse_name, const TensorView<T>& lse, const TensorView<const float>& like) {
  const RowPair ranges{check_tensor(function, out_name, out, 4), check_tensor(function, lse_name, lse, 3)};
  require(out.shape == like.shape, "[{}] {} has shape {}, expected {}", function, out_name, shape_text(out),
          shape_text(like));
  require(lse.shape[0] == out.shape[0] && lse.shape[1] == out.shape[1] && lse.shape[2] == out.shape[2],
          "[{}] {} has shape {}, expected that of {} {} without its last axis", function, lse_name, shape_text(lse),
          out_name, shape_text(out));
  return ranges;
}

void require_apart(std::string_view function, std::string_view a_name, const ByteRange& a, std::string_view b_name,
                   const ByteRange& b) {
  require(!a.overlaps(b), "[{}] the memory of {} overlaps that of {}: give it its own", function, a_name, b_name);
}

template <class F>
void for_each_row(const TensorView<float>& out, F&& f) {
  for (int64_t b = 0; b < out.shape[0]; ++b)
    for (int64_t h = 0; h < out.shape[1]; ++h)
      for (int64_t i = 0; i < out.shape[2]; ++i) f(b, h, i);
}

constexpr float kEmpty = -std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// exp(lse) of a row that no sum can hold: +inf and NaN.
bool unusable(float lse) { return std::isnan(lse) || lse > std::numeric_limits<float>::max(); }

}  // namespace

void merge_attention(TensorView<const float> out_a, TensorView<const float> lse_a, TensorView<const float> out_b,
                     TensorView<const float> lse_b, TensorView<float> out, TensorView<float> lse) {
  constexpr std::string_view kName = "merge_attention";
  const FpControlScope default_rounding;
  const RowPair a = check_pair(kName, "out_a", out_a, "lse_a", lse_a, out_a);
  const RowPair b = check_pair(kName, "out_b", out_b, "lse_b", lse_b, out_a);
  const RowPair to = check_pair(kName, "out", out, "lse", lse, out_a);
  check_no_self_overlap(kName, "out", out);
  check_no_self_overlap(kName, "lse", lse);
  require_apart(kName, "out", to.out, "lse", to.lse);
  if (!same_view(out_a, out)) require_apart(kName, "out", to.out, "out_a", a.out);
  if (!same_view(out_b, out)) require_apart(kName, "out", to.out, "out_b", b.out);
  if (!same_view(lse_a, lse)) require_apart(kName, "lse", to.lse, "lse_a", a.lse);
  if (!same_view(lse_b, lse)) require_apart(kName, "lse", to.lse, "lse_b", b.lse);
  require_apart(kName, "out", to.out, "lse_a", a.lse);
  require_apart(kName, "out", to.out, "lse_b", b.lse);
  require_apart(kName, "lse", to.lse, "out_a", a.out);
  require_apart(kName, "lse", to.lse, "out_b", b.out);
  for_each_row(out, [&](int64_t i, int64_t h, int64_t n) {
    const float x = *lse_a.at(i, h, n), y = *lse_b.at(i, h, n);
    float* sum = lse.at(i, h, n);
    const auto each = [&](auto&& value) {
      for (int64_t c = 0; c < out.shape[3]; ++c) *out.at(i, h, n, c) = value(c);
    };
    const auto from_a = [&](int64_t c) { return *out_a.at(i, h, n, c); };
    const auto from_b = [&](int64_t c) { return *out_b.at(i, h, n, c); };
    if (unusable(x) || unusable(y)) {
      each([](int64_t) { return kNan; });
      *sum = kNan;
    } else if (x == kEmpty && y == kEmpty) {
      each([](int64_t) { return 0.0f; });
      *sum = kEmpty;
    } else if (y == kEmpty) {
      each(from_a);
      *sum = x;
    } else if (x == kEmpty) {
      each(from_b);
      *sum = y;
    } else {
      const MergeWeights w = merge_weights(x, y);
      each([&](int64_t c) {
        return static_cast<float>(w.a * static_cast<double>(from_a(c)) + w.b * static_cast<double>(from_b(c)));
      });
      *sum = w.lse;
    }
  });
}

void add_sink(TensorView<float> out, TensorView<float> lse, TensorView<const float> sink) {
  constexpr std::string_view kName = "add_sink";
  const FpControlScope default_rounding;
  const RowPair to = check_pair(kName, "out", out, "lse", lse, out);
  const ByteRange range = check_tensor(kName, "sink", sink, 1);
  require(sink.shape[0] == out.shape[1], "[{}] sink has shape {}, expected [{}]", kName, shape_text(sink),
          out.shape[1]);
  check_no_self_overlap(kName, "out", out);
  check_no_self_overlap(kName, "lse", lse);
  require_apart(kName, "out", to.out, "lse", to.lse);
  require_apart(kName, "sink", range, "out", to.out);
  require_apart(kName, "sink", range, "lse", to.lse);
  for_each_row(out, [&](int64_t i, int64_t h, int64_t n) {
    float* sum = lse.at(i, h, n);
    const float s = *sink.at(h);
    if (s == kEmpty) return;
    const bool nan = unusable(s) || unusable(*sum);
    if (*sum == kEmpty && !nan) {
      *sum = s;
      return;
    }
    const MergeWeights w = nan ? MergeWeights{kNan, kNan, kNan} : merge_weights(*sum, s);
    for (int64_t c = 0; c < out.shape[3]; ++c)
      *out.at(i, h, n, c) = nan ? kNan : static_cast<float>(w.a * static_cast<double>(*out.at(i, h, n, c)));
    *sum = w.lse;
  });
}

void PartialStore::check(std::string_view function, const CallSizes& sizes) const {
  require(
      sizes.batch == batch && sizes.num_q_heads == num_q_heads && sizes.q_len == q_len && sizes.value_dim == value_dim,
      "[{}] the state is for [{}, {}, {}, {}], the call for [{}, {}, {}, {}] (batch, heads, queries, value_dim)",
      function, batch, num_q_heads, q_len, value_dim, sizes.batch, sizes.num_q_heads, sizes.q_len, sizes.value_dim);
}

PartialAttention::PartialAttention(int64_t batch, int64_t num_q_heads, int64_t q_len, int64_t value_dim)
    : impl_(std::make_unique<Impl>()) {
  require(batch >= 0 && num_q_heads >= 1 && q_len >= 0 && value_dim >= 1,
          "[PartialAttention] sizes [{}, {}, {}, {}] (batch, heads, queries, value_dim) are out of range", batch,
          num_q_heads, q_len, value_dim);
  if (value_dim > kernels::kMaxHeadDim)
    fail(Code::kUnsupported, "[PartialAttention] value_dim {}: sizes above {} are not supported", value_dim,
         kernels::kMaxHeadDim);
  PartialStore& store = impl_->store;
  store.batch = batch;
  store.num_q_heads = num_q_heads;
  store.q_len = q_len;
  store.value_dim = value_dim;
  const auto rows = checked_mul<int64_t>(batch, num_q_heads);
  const auto all = rows ? checked_mul<int64_t>(*rows, q_len) : rows;
  const auto floats = all ? checked_mul<int64_t>(*all, store.padded()) : all;
  if (!floats)
    fail(Code::kResourceExhausted, "[PartialAttention] no memory for {} rows of {} heads", q_len, num_q_heads);
  store.m = AlignedBuffer<float>(static_cast<size_t>(*all));
  store.l = AlignedBuffer<float>(static_cast<size_t>(*all));
  store.o = AlignedBuffer<float>(static_cast<size_t>(*floats));
  std::fill_n(store.m.data(), *all, kEmpty);
  std::fill_n(store.l.data(), *all, 0.0f);
  std::fill_n(store.o.data(), *floats, 0.0f);
}
PartialAttention::PartialAttention(PartialAttention&&) noexcept = default;
PartialAttention& PartialAttention::operator=(PartialAttention&&) noexcept = default;
PartialAttention::~PartialAttention() = default;

namespace {

// The kernels read whole vectors of m and l, so a block of rows goes through memory that has spare lanes.
struct BlockOfRows {
  alignas(64) float m[kBlockRows + kLanes] = {};
  alignas(64) float l[kBlockRows + kLanes] = {};
  void load(const PartialStore& store, int64_t first, int rows) {
    std::copy_n(store.m.data() + first, rows, m);
    std::copy_n(store.l.data() + first, rows, l);
  }
  AttentionState state(float* o) { return {o, m, l}; }
};

}  // namespace

void PartialAttention::fold(const PartialAttention& other) {
  const FpControlScope default_rounding;
  PartialStore& into = impl_->store;
  const PartialStore& part = other.impl_->store;
  require(
      part.batch == into.batch && part.num_q_heads == into.num_q_heads && part.q_len == into.q_len &&
          part.value_dim == into.value_dim,
      "[PartialAttention::fold] states for [{}, {}, {}, {}] and [{}, {}, {}, {}] (batch, heads, queries, value_dim)",
      into.batch, into.num_q_heads, into.q_len, into.value_dim, part.batch, part.num_q_heads, part.q_len,
      part.value_dim);
  require(&other != this, "[PartialAttention::fold] a state cannot be folded into itself: its keys would count twice");
  const kernels::AttentionKernels& kernel = *kernels::kernels().attention;
  const int padded = into.padded();
  for (int64_t first = 0; first < into.num_rows(); first += kBlockRows) {
    const int rows = static_cast<int>(std::min<int64_t>(kBlockRows, into.num_rows() - first));
    BlockOfRows a, b;
    a.load(into, first, rows);
    b.load(part, first, rows);
    // The part is only read.
    kernel.fold(a.state(into.o.data() + first * padded), b.state(const_cast<float*>(part.o.data()) + first * padded),
                rows, padded);
    std::copy_n(a.m, rows, into.m.data() + first);
    std::copy_n(a.l, rows, into.l.data() + first);
  }
}

void PartialAttention::finish(TensorView<const float> sink, TensorView<float> out, TensorView<float> lse) const {
  constexpr std::string_view kName = "PartialAttention::finish";
  const FpControlScope default_rounding;
  const PartialStore& store = impl_->store;
  TensorView<const float> like;
  like.rank = 4;
  like.shape = {store.batch, store.num_q_heads, store.q_len, store.value_dim};
  const bool with_lse = lse.rank > 0 || lse.data != nullptr;
  AlignedBuffer<float> unused;
  if (!with_lse) {
    unused = AlignedBuffer<float>(static_cast<size_t>(store.num_rows()));
    lse = TensorView<float>(unused.data(), {store.batch, store.num_q_heads, store.q_len});
  }
  const RowPair to = check_pair(kName, "out", out, "lse", lse, like);
  check_no_self_overlap(kName, "out", out);
  check_no_self_overlap(kName, "lse", lse);
  require_apart(kName, "out", to.out, "lse", to.lse);
  if (sink.rank > 0) {
    check_tensor(kName, "sink", sink, 1);
    require(sink.shape[0] == store.num_q_heads, "[{}] sink has shape {}, expected [{}]", kName, shape_text(sink),
            store.num_q_heads);
  }
  const kernels::AttentionKernels& kernel = *kernels::kernels().attention;
  const int padded = store.padded(), value_dim = static_cast<int>(store.value_dim);
  AlignedBuffer<float> o(static_cast<size_t>(padded)), row(static_cast<size_t>(padded));
  // Row by row, so that out may have any strides; the bits of a row do not depend on how many are finished at once.
  for_each_row(out, [&](int64_t b, int64_t h, int64_t i) {
    const int64_t from = (b * store.num_q_heads + h) * store.q_len + i;
    BlockOfRows one;
    one.load(store, from, 1);
    float* values = o.data();
    float* result = row.data();
    std::copy_n(store.o.data() + from * padded, padded, values);
    const bool empty = one.l[0] == 0.0f;
    float logit = kEmpty, sum;
    if (sink.rank > 0) {
      float sinks[kLanes] = {*sink.at(h)};
      logit = sinks[0];
      kernel.fold_sink(one.state(values), sinks, 1, padded);
    }
    kernel.finish(one.state(values), 1, value_dim, &result, &sum);
    // The logit of a sink that stands alone is known better than by way of log2.
    *lse.at(b, h, i) = empty && std::isfinite(logit) ? logit : sum;
    for (int64_t c = 0; c < value_dim; ++c) *out.at(b, h, i, c) = result[c];
  });
}

}  // namespace regard
