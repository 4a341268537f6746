// The public calls over whole tensors: check, pack, attend. attend_onto() leaves its rows unfinished, see merge.cc.
#include "attention/call.h"
#include "attention/partial.h"
#include "attention/score_terms.h"
#include "attention/statistics_pass.h"
#include "attention/tensor_check.h"
#include "base/check.h"
#include "regard/attention.h"
#include "regard/attention_merge.h"
#include "runtime/thread_pool.h"

namespace regard {

namespace {

void check_outputs(std::string_view name, const CallSizes& sizes, const TensorView<float>& out,
                   const TensorView<float>& lse, const std::vector<ByteRange>& inputs) {
  const ByteRange out_range = check_tensor(name, "out", out, 4);
  require(out.shape[0] == sizes.batch && out.shape[1] == sizes.num_q_heads && out.shape[2] == sizes.q_len &&
              out.shape[3] == sizes.value_dim,
          "[{}] out has shape {}, expected [{}, {}, {}, {}]", name, shape_text(out), sizes.batch, sizes.num_q_heads,
          sizes.q_len, sizes.value_dim);
  check_no_self_overlap(name, "out", out);
  for (const ByteRange& input : inputs)
    require(!out_range.overlaps(input), "[{}] the memory of out overlaps that of an input: give it its own", name);
  if (lse.rank == 0 && lse.data == nullptr) return;
  const ByteRange lse_range = check_tensor(name, "lse", lse, 3);
  require(lse.shape[0] == sizes.batch && lse.shape[1] == sizes.num_q_heads && lse.shape[2] == sizes.q_len,
          "[{}] lse has shape {}, expected [{}, {}, {}]", name, shape_text(lse), sizes.batch, sizes.num_q_heads,
          sizes.q_len);
  check_no_self_overlap(name, "lse", lse);
  for (const ByteRange& input : inputs)
    require(!lse_range.overlaps(input), "[{}] the memory of lse overlaps that of an input: give it its own", name);
  require(!lse_range.overlaps(out_range), "[{}] the memory of lse overlaps that of out: give it its own", name);
}

// Into out and lse, or into `partial` where it is not null; with `statistics` of the rows where these are wanted.
void attend_tensors(std::string_view name, TensorView<const float> q, TensorView<const float> k,
                    TensorView<const float> v, const Mask& mask, const AttentionOptions& options,
                    PartialStore* partial, TensorView<float> out, TensorView<float> lse,
                    const StatisticsRequest* statistics = nullptr) {
  std::vector<ByteRange> inputs = {check_tensor(name, "q", q, 4), check_tensor(name, "k", k, 4),
                                   check_tensor(name, "v", v, 4)};
  const CallSizes sizes = check_sizes(name, q, k, &v);
  AttentionShape shape =
      check_numbers(name, sizes, options, statistics == nullptr ? Arithmetics::kAll : Arithmetics::kF32);
  const CallRows rows(name, sizes, options);
  ScoreTerms terms(name, rows.widest(), options, shape.scale);
  inputs.insert(inputs.end(), terms.ranges().begin(), terms.ranges().end());
  if (partial == nullptr)
    check_outputs(name, sizes, out, lse, inputs);
  else
    partial->check(name, sizes);
  const CallPositions positions(name, sizes, rows, mask, options);
  std::optional<StatisticsPass> pass;
  if (statistics != nullptr) {
    inputs.push_back(check_tensor(name, "out", out, 4));
    if (lse.data != nullptr) inputs.push_back(check_tensor(name, "lse", lse, 3));
    pass.emplace(name, sizes, rows, positions, mask, options, *statistics, std::move(inputs));
  }
  if (sizes.batch == 0 || sizes.q_len == 0) return;
  const MaskPlan plan(mask, options.limits, rows.batch(), sizes.num_q_heads);
  positions.check_queries(plan);

  AlignedBuffer<float> q_copy, k_copy, v_copy, out_copy;
  q = with_dense_rows(q, q_copy);
  k = with_dense_rows(k, k_copy);
  v = with_dense_rows(v, v_copy);
  const bool as_it_is = partial != nullptr || has_dense_rows(out);
  const TensorView<float> result = as_it_is ? out : dense_like(out, out_copy);

  std::vector<PackSource> sources;
  for (int64_t b = 0; b < rows.batch(); ++b) {
    PackSource source;
    source.kv_len = rows.kv_len(b);
    source.k_begin = positions.k_begin(b);
    source.positions = positions.keys(b);
    if (source.kv_len > 0)
      source.rows = {.k = k.at(rows.entry(b), 0, rows.first_key(b)),
                     .k_token_stride = k.strides[2],
                     .k_head_stride = k.strides[1],
                     .v = v.at(rows.entry(b), 0, rows.first_key(b)),
                     .v_token_stride = v.strides[2],
                     .v_head_stride = v.strides[1]};
    sources.push_back(source);
  }
  ThreadPool& pool = default_pool();
  KvGeometry geometry{.num_kv_heads = shape.num_kv_heads, .head_dim = shape.head_dim, .value_dim = shape.value_dim};
  if (shape.arithmetic == AttentionArithmetic::kBf16Dots) {
    geometry.type = DType::kBF16;
    geometry.layout = KvLayout::kPairs;
  }
  const PackedKv packed(geometry, sources, pool);

  const auto queries_from = [&](int64_t entry, int64_t first, int64_t count) {
    SequenceQueries s;
    s.q = q.at(entry, 0, first);
    s.q_token_stride = q.strides[2];
    s.q_head_stride = q.strides[1];
    s.out = partial != nullptr ? nullptr : result.at(entry, 0, first);
    s.out_token_stride = result.strides[2];
    s.out_head_stride = result.strides[1];
    s.lse = lse.data == nullptr ? nullptr : lse.at(entry, 0, first);
    s.lse_token_stride = lse.strides[2];
    s.lse_head_stride = lse.strides[1];
    s.tokens = count;
    if (partial != nullptr) s.partial = partial->rows(entry, first);
    return s;
  };
  std::vector<SequenceQueries> sequences;
  for (int64_t b = 0; b < rows.batch(); ++b) {
    SequenceQueries s = queries_from(rows.entry(b), rows.first_query(b), rows.q_len(b));
    s.first_position = positions.q_begin(b);
    s.positions = positions.queries(b);
    s.keys = packed.view(b);
    s.batch_row = b;
    sequences.push_back(s);
    terms.place(s, sources[static_cast<size_t>(b)],
                {.q_encoding = positions.query_encodings(b), .k_encoding = positions.key_encodings(b)});
  }
  // Rows behind the last sequence stand nowhere: empty ones.
  const std::vector<int64_t> nowhere(static_cast<size_t>(rows.slack()), -1);
  if (!nowhere.empty()) {
    sequences.push_back(queries_from(0, sizes.q_len - rows.slack(), rows.slack()));
    sequences.back().positions = nowhere.data();
  }
  if (!terms.empty()) shape.terms = &terms;
  AttentionWorkspace workspace;
  if (pass)
    pass->run(sequences, sources, shape, plan, pool, options.stop);
  else
    attend_sequences(sequences, shape, plan, workspace, pool, options.stop);
  terms.check_distances(name);
  if (!out_copy.empty()) copy_tensor(result, out);
}

}  // namespace

void attend(TensorView<const float> q, TensorView<const float> k, TensorView<const float> v, const Mask& mask,
            const AttentionOptions& options, TensorView<float> out, TensorView<float> lse) {
  attend_tensors("attend", q, k, v, mask, options, nullptr, out, lse);
}

void attend_with_statistics(TensorView<const float> q, TensorView<const float> k, TensorView<const float> v,
                            const Mask& mask, const AttentionOptions& options, TensorView<float> out,
                            TensorView<float> lse, const KeySet& set, const RowStatistics& statistics) {
  const StatisticsRequest request{set, statistics};
  attend_tensors("attend_with_statistics", q, k, v, mask, options, nullptr, out, lse, &request);
}

void attend_onto(PartialAttention& state, TensorView<const float> q, TensorView<const float> k,
                 TensorView<const float> v, const Mask& mask, const AttentionOptions& options) {
  if (options.sink.rank > 0)
    fail(Code::kUnsupported, "[attend_onto] a sink belongs to the whole row: give it to PartialAttention::finish()");
  if (options.dropout) fail(Code::kUnsupported, "[attend_onto] dropout is for whole rows in training: use attend()");
  attend_tensors("attend_onto", q, k, v, mask, options, &state.impl_->store, {}, {});
}

}  // namespace regard
