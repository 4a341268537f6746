// The public call for gradients: check, then backward.cc.
#include <vector>

#include "attention/backward.h"
#include "attention/score_terms.h"
#include "attention/tensor_check.h"
#include "base/check.h"
#include "regard/attention_backward.h"
#include "runtime/thread_pool.h"

namespace regard {

namespace {

constexpr std::string_view kName = "attend_backward";

struct NamedRange {
  std::string_view name;
  ByteRange bytes;
};

// Errors: kInvalidArgument unless `tensor` has the shape of `like`.
template <class T, class U>
NamedRange check_like(std::string_view name, const TensorView<T>& tensor, const TensorView<U>& like) {
  const NamedRange range{name, check_tensor(kName, name, tensor, like.rank)};
  require(tensor.shape == like.shape, "[{}] {} has shape {}, expected {}", kName, name, shape_text(tensor),
          shape_text(like));
  return range;
}

bool absent(const TensorView<float>& tensor) { return tensor.rank == 0 && tensor.data == nullptr; }

// A gradient of the shape of `like`, in memory of its own.
void check_gradient(std::string_view name, const TensorView<float>& gradient, const TensorView<const float>& like,
                    std::vector<NamedRange>& others) {
  if (absent(gradient)) return;
  require(like.rank != 0, "[{}] {} is wanted, but the options have no such term", kName, name);
  const NamedRange range = check_like(name, gradient, like);
  check_no_self_overlap(kName, name, gradient);
  for (const NamedRange& other : others)
    require(!range.bytes.overlaps(other.bytes), "[{}] the memory of {} overlaps that of {}: give it its own", kName,
            name, other.name);
  others.push_back(range);
}

void fill_zero(const TensorView<float>& gradient) {
  if (gradient.data == nullptr) return;
  for (int64_t a = 0; a < gradient.shape[0]; ++a)
    for (int64_t b = 0; b < gradient.shape[1]; ++b)
      for (int64_t c = 0; c < gradient.shape[2]; ++c)
        for (int64_t d = 0; d < gradient.shape[3]; ++d) *gradient.at(a, b, c, d) = 0.0f;
}

// The rows of a gradient as the kernels write them: its own, or a dense copy that is copied back at the end.
struct DenseRows {
  explicit DenseRows(const TensorView<float>& gradient)
      : given(gradient), rows(absent(gradient) || has_dense_rows(gradient) ? gradient : dense_like(gradient, copy)) {}
  void give_back() const {
    if (!copy.empty()) copy_tensor(rows, given);
  }
  AlignedBuffer<float> copy;
  TensorView<float> given, rows;
};

}  // namespace

void attend_backward(TensorView<const float> q, TensorView<const float> k, TensorView<const float> v,
                     TensorView<const float> out, TensorView<const float> lse, TensorView<const float> dout,
                     TensorView<const float> dlse, const Mask& mask, const AttentionOptions& options,
                     TensorView<float> dq, TensorView<float> dk, TensorView<float> dv,
                     const ScoreTermGradients& wanted) {
  std::vector<NamedRange> ranges = {{"q", check_tensor(kName, "q", q, 4)},
                                    {"k", check_tensor(kName, "k", k, 4)},
                                    {"v", check_tensor(kName, "v", v, 4)}};
  const CallSizes sizes = check_sizes(kName, q, k, &v);
  const AttentionShape shape = check_numbers(kName, sizes, options);
  const CallRows rows(kName, sizes, options);
  TensorView<const float> out_shape, lse_shape;
  out_shape.rank = 4;
  out_shape.shape = {sizes.batch, sizes.num_q_heads, sizes.q_len, sizes.value_dim};
  lse_shape.rank = 3;
  lse_shape.shape = {sizes.batch, sizes.num_q_heads, sizes.q_len, 1};
  ranges.push_back(check_like("out", out, out_shape));
  ranges.push_back(check_like("lse", lse, lse_shape));
  ranges.push_back(check_like("dout", dout, out_shape));
  if (dlse.rank != 0 || dlse.data != nullptr) ranges.push_back(check_like("dlse", dlse, lse_shape));
  const ScoreTerms terms(kName, rows.widest(), options, shape.scale);
  for (const ByteRange& range : terms.ranges()) ranges.push_back({"a score term", range});
  const bool term_wanted = !absent(wanted.bias) || !absent(wanted.t5_table) || !absent(wanted.sink) ||
                           !absent(wanted.xl_u) || !absent(wanted.xl_v) || !absent(wanted.xl_r);
  require(!absent(dq) || !absent(dk) || !absent(dv) || term_wanted,
          "[{}] no gradient is wanted: give dq, dk, dv or that of a score term", kName);
  check_gradient("dq", dq, q, ranges);
  check_gradient("dk", dk, k, ranges);
  check_gradient("dv", dv, v, ranges);
  check_gradient("terms.bias", wanted.bias, options.bias, ranges);
  check_gradient("terms.t5_table", wanted.t5_table, options.t5 ? options.t5->table : TensorView<const float>{}, ranges);
  check_gradient("terms.sink", wanted.sink, options.sink, ranges);
  const TransformerXl xl = options.xl.value_or(TransformerXl{});
  check_gradient("terms.xl_u", wanted.xl_u, xl.u, ranges);
  check_gradient("terms.xl_v", wanted.xl_v, xl.v, ranges);
  check_gradient("terms.xl_r", wanted.xl_r, xl.r, ranges);
  const CallPositions positions(kName, sizes, rows, mask, options);
  if (sizes.batch == 0) {  // sums over nothing
    for (const TensorView<float>* gradient :
         {&wanted.bias, &wanted.t5_table, &wanted.sink, &wanted.xl_u, &wanted.xl_v, &wanted.xl_r})
      fill_zero(*gradient);
    return;
  }
  const MaskPlan plan(mask, options.limits, rows.batch(), sizes.num_q_heads);
  positions.check_queries(plan);

  AlignedBuffer<float> copies[5], own_dq;
  if (options.xl && absent(dq)) {  // the gradients of u and v are sums of its rows
    TensorView<float> shape_of_q;
    shape_of_q.rank = 4;
    shape_of_q.shape = q.shape;
    dq = dense_like(shape_of_q, own_dq);
  }
  const DenseRows dq_rows(dq), dk_rows(dk), dv_rows(dv);
  const BackwardTensors tensors{.q = with_dense_rows(q, copies[0]),
                                .k = with_dense_rows(k, copies[1]),
                                .v = with_dense_rows(v, copies[2]),
                                .out = with_dense_rows(out, copies[3]),
                                .lse = lse,
                                .dout = with_dense_rows(dout, copies[4]),
                                .dlse = dlse,
                                .dq = dq_rows.rows,
                                .dk = dk_rows.rows,
                                .dv = dv_rows.rows};
  BackwardTermCall term_call;
  if (!terms.empty()) term_call = {.terms = &terms, .options = &options, .wanted = &wanted};
  backward_tensors(tensors, sizes, rows, shape, plan, positions, default_pool(), options.stop, term_call);
  dq_rows.give_back();
  dk_rows.give_back();
  dv_rows.give_back();
}

}  // namespace regard
