// Attention in float: what the public attend() and attend_backward() do, on a given pool, over rows that lie side by side.
#include <algorithm>
#include <optional>

#include "attention/backward.h"
#include "attention/score_terms.h"
#include "base/checked.h"
#include "nn/training/attention_core.h"
#include "regard/attention_backward.h"

namespace regard::nn::training {
namespace {

// [batch, heads, seq, head_dim] over rows of heads.
template <class T>
TensorView<T> as_tensor(HeadRows<T> rows, const Sequences& sequences, int64_t heads, int64_t dim) {
  TensorView<T> view(rows.data, {sequences.batch, heads, sequences.seq, dim});
  view.strides = {sequences.seq * rows.row_stride, dim, rows.row_stride, 1};
  return view;
}

TensorView<const int64_t> positions(const Sequences& sequences, std::vector<int64_t>& memory) {
  if (sequences.encoding_positions.empty()) return {};
  memory.assign(sequences.encoding_positions.begin(), sequences.encoding_positions.end());
  return {memory.data(), {sequences.batch, sequences.seq}};
}

TransformerXl xl_of(const AttentionCoreConfig& config, const CoreTerms<const float>& terms) {
  TransformerXl xl;
  xl.u = {terms.xl_u, {config.num_q_heads, config.head_dim}};
  xl.v = {terms.xl_v, {config.num_q_heads, config.head_dim}};
  xl.r = {terms.xl_r, {terms.distances, config.num_q_heads, config.head_dim}};
  xl.first_distance = terms.first_distance;
  return xl;
}

AttentionOptions options_of(const Context<float>& context, const AttentionCoreConfig& config, const CoreCall<float>& call,
                            std::vector<int64_t>& q_encodings, std::vector<int64_t>& k_encodings) {
  const Sequences &queries = *call.queries, &keys = *call.keys;
  AttentionOptions options;
  options.scale = config.scale;
  options.softcap = config.softcap;
  options.query_lengths.assign(queries.lengths.begin(), queries.lengths.end());
  options.limits.key_lengths.assign(keys.lengths.begin(), keys.lengths.end());
  if (call.queries == call.keys && !queries.documents.empty()) {
    const MaskList ids = MaskList::per_row({queries.documents.begin(), queries.documents.end()}, queries.batch, queries.seq);
    options.limits.documents = DocumentLimit{ids, ids};
  }
  if (context.dropout.on && call.dropout > 0)
    options.dropout = Dropout{.rate = call.dropout, .seed = call.dropout_seed, .first_batch_row = context.dropout.first_sequence};
  if (!config.alibi_slopes.empty()) options.alibi = Alibi{config.alibi_slopes};
  if (call.terms.t5_table != nullptr)
    options.t5 = T5Bias{{call.terms.t5_table, {config.t5_buckets, config.num_q_heads}}, config.t5_direction, config.t5_max_distance};
  if (call.terms.xl_r != nullptr) options.xl = xl_of(config, call.terms);
  if (options.alibi || options.t5 || options.xl) {
    options.q_encoding_positions = positions(queries, q_encodings);
    options.k_encoding_positions = positions(keys, k_encodings);
  }
  return options;
}

KvGeometry geometry_of(const AttentionCoreConfig& config) {
  const auto dim = static_cast<int>(config.head_dim);
  return {.num_kv_heads = static_cast<int>(config.num_kv_heads), .head_dim = dim, .value_dim = dim};
}

// Where the keys and values of the sequences are.
void point_sources(const AttentionCoreConfig& config, const CoreCall<float>& call, std::vector<PackSource>& sources) {
  const int64_t kv_seq = call.keys->seq;
  sources.resize(static_cast<size_t>(call.keys->batch));
  for (int64_t b = 0; b < call.keys->batch; ++b)
    sources[static_cast<size_t>(b)] = {.rows = {.k = call.k.data + b * kv_seq * call.k.row_stride,
                                                .k_token_stride = call.k.row_stride,
                                                .k_head_stride = config.head_dim,
                                                .v = call.v.data + b * kv_seq * call.v.row_stride,
                                                .v_token_stride = call.v.row_stride,
                                                .v_head_stride = config.head_dim},
                                       .kv_len = kv_seq};
}

// What a plan depends on besides the lists of its batch.
struct PlanKey {
  int64_t batch = 0, seq = 0, kv_seq = 0;
  const ThreadPool* pool = nullptr;
  int threads = 0;
  double dropout = 0;
  int64_t first_distance = 0, distances = 0;  // of Transformer-XL's vectors
  bool operator==(const PlanKey&) const = default;
};

// The lists of a batch that attention looks at, kept so that the next layer, or the next batch, can be seen to have the same ones.
struct PlanLists {
  std::vector<int64_t> q_lengths, k_lengths;
  std::vector<int32_t> documents, q_encodings, k_encodings;

  PlanLists(const AttentionCoreConfig& config, const CoreCall<float>& call) {
    const auto keep = [](auto from, auto& to) { to.assign(from.begin(), from.end()); };
    keep(call.queries->lengths, q_lengths);
    keep(call.keys->lengths, k_lengths);
    keep(call.queries->documents, documents);
    if (!has_encodings(config, call)) return;
    keep(call.queries->encoding_positions, q_encodings);
    keep(call.keys->encoding_positions, k_encodings);
  }
  static bool has_encodings(const AttentionCoreConfig& config, const CoreCall<float>& call) {
    return !config.alibi_slopes.empty() || call.terms.t5_table != nullptr || call.terms.xl_r != nullptr;
  }
  bool empty() const { return q_lengths.empty() && k_lengths.empty() && documents.empty() && q_encodings.empty() && k_encodings.empty(); }
  bool are_those_of(const AttentionCoreConfig& config, const CoreCall<float>& call) const {
    const auto same = [](auto a, const auto& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); };
    const bool encodings = has_encodings(config, call);
    return same(call.queries->lengths, q_lengths) && same(call.keys->lengths, k_lengths) && same(call.queries->documents, documents) &&
           (!encodings || (same(call.queries->encoding_positions, q_encodings) && same(call.keys->encoding_positions, k_encodings)));
  }
};

// The gradients of the terms of one call, before they are added to those of the step.
struct TermGradients {
  std::vector<float> t5_table, xl_u, xl_v, xl_r;
  ScoreTermGradients views;

  TermGradients(const AttentionCoreConfig& config, const CoreTerms<const float>& terms) {
    const int64_t heads = config.num_q_heads, dim = config.head_dim;
    const auto room = [](std::vector<float>& memory, int64_t n) {
      memory.resize(static_cast<size_t>(n));
      return memory.data();
    };
    if (terms.t5_table != nullptr) views.t5_table = {room(t5_table, config.t5_buckets * heads), {config.t5_buckets, heads}};
    if (terms.xl_r == nullptr) return;
    views.xl_u = {room(xl_u, heads * dim), {heads, dim}};
    views.xl_v = {room(xl_v, heads * dim), {heads, dim}};
    views.xl_r = {room(xl_r, terms.distances * heads * dim), {terms.distances, heads, dim}};
  }
  TermGradients(const TermGradients&) = delete;

  void add_to(const CoreTerms<float>& sums) const {
    const auto add = [](const std::vector<float>& from, float* to) {
      for (size_t i = 0; i < from.size(); ++i) to[i] += from[i];
    };
    add(t5_table, sums.t5_table);
    add(xl_u, sums.xl_u);
    add(xl_v, sums.xl_v);
    add(xl_r, sums.xl_r);
  }
};

constexpr std::string_view kName = "AttentionCore";
// Plans that serve any batch of their shape: batches to train on and to evaluate, a shorter last one, and the last groups of these.
constexpr std::ptrdiff_t kMostPlans = 8;

}  // namespace

// A call, checked and made ready for tensors of its shape.
template <>
struct AttentionCore<float>::Plan {
  PlanKey key;
  PlanLists lists;
  uint64_t used_in = 0;  // pass
  TermGradients term_gradients;
  std::vector<int64_t> q_encodings, k_encodings;
  AttentionOptions options;
  CallSizes sizes;
  AttentionShape shape;
  CallRows rows;
  CallPositions positions;
  ScoreTerms terms;
  MaskPlan mask;
  std::vector<PackSource> sources;
  PackedKv packed;
  std::vector<SequenceQueries> sequences;
  std::shared_ptr<AttentionWorkspace> workspace;  // all plans have the same
  std::optional<BackwardPlan> backward;

  Plan(const PlanKey& plan_key, const Context<float>& context, const AttentionCoreConfig& config, const CoreCall<float>& call,
       std::shared_ptr<AttentionWorkspace> shared)
      : key(plan_key),
        lists(config, call),
        term_gradients(config, call.terms),
        options(options_of(context, config, call, q_encodings, k_encodings)),
        sizes{call.queries->batch, config.num_q_heads, config.num_kv_heads, call.queries->seq, call.keys->seq, config.head_dim, config.head_dim},
        shape(check_numbers(kName, sizes, options)),
        rows(kName, sizes, options),
        positions(kName, sizes, rows, config.mask, options),
        terms(kName, sizes, options, config.scale),
        mask(config.mask, options.limits, sizes.batch, config.num_q_heads),
        sources(sources_of(config, call)),
        packed(geometry_of(config), sources),
        workspace(std::move(shared)) {
    positions.check_queries(mask);
    for (int64_t b = 0; b < sizes.batch; ++b) {
      SequenceQueries s;
      s.q_head_stride = s.out_head_stride = config.head_dim;
      s.lse_token_stride = 1;
      s.lse_head_stride = s.tokens = sizes.q_len;
      s.positions = positions.queries(b);
      s.keys = packed.view(b);
      s.batch_row = b;
      sequences.push_back(s);
      terms.place(s, sources[static_cast<size_t>(b)], {.q_encoding = positions.query_encodings(b), .k_encoding = positions.key_encodings(b)});
    }
    if (!terms.empty()) shape.terms = &terms;
  }
  Plan(const Plan&) = delete;

  // Whether a batch of another pass may have use for it.
  bool is_lasting() const { return lists.empty(); }

  static std::vector<PackSource> sources_of(const AttentionCoreConfig& config, const CoreCall<float>& call) {
    std::vector<PackSource> sources;
    point_sources(config, call, sources);
    return sources;
  }
};

template <>
AttentionCore<float>::Plan& AttentionCore<float>::plan(const Context<float>& context, const CoreCall<float>& call) const {
  const double dropout = context.dropout.on ? call.dropout : 0;
  const PlanKey key{call.queries->batch,  call.queries->seq, call.keys->seq,           &context.pool,
                    context.pool.size(), dropout,           call.terms.first_distance, call.terms.distances};
  const auto make = [&] {
    auto workspace = plans_.empty() ? std::make_shared<AttentionWorkspace>() : plans_.front()->workspace;
    return std::make_shared<Plan>(key, context, config_, call, std::move(workspace));
  };
  for (const auto& planned : plans_) {
    if (planned->key != key || !planned->lists.are_those_of(config_, call)) continue;
    planned->terms.set_dropout(call.dropout_seed, context.dropout.first_sequence);
    if (call.terms.t5_table != nullptr && planned->used_in != context.pass) planned->terms.set_t5(*planned->options.t5);  // a step changed it
    if (call.terms.xl_r != nullptr) {  // those of this layer, projected anew
      planned->options.xl = xl_of(config_, call.terms);
      planned->terms.set_xl(*planned->options.xl);
    }
    planned->used_in = context.pass;
    return *planned;
  }
  // Before it goes in: what only an older batch had use for, and the oldest that lasts when there are many.
  std::erase_if(plans_, [&](const auto& p) { return !p->is_lasting() && p->used_in + 1 < context.pass; });
  const auto lasting = [](const auto& p) { return p->is_lasting(); };
  auto made = make();
  made->used_in = context.pass;
  if (made->is_lasting() && std::count_if(plans_.begin(), plans_.end(), lasting) == kMostPlans)
    plans_.erase(std::find_if(plans_.begin(), plans_.end(), lasting));
  plans_.push_back(std::move(made));
  return *plans_.back();
}

template <>
size_t AttentionCore<float>::scratch(const Sequences& keys) const {
  Memory packed;
  const int64_t tiles = ceil_div<int64_t>(keys.seq, kernels::kTileKeys);
  packed.take<std::byte>(keys.batch * tiles * geometry_of(config_).tile_bytes());
  return packed.used();
}

template <>
void AttentionCore<float>::forward(const Context<float>& context, const CoreCall<float>& call, HeadRows<float> out, float* lse,
                                   Memory scratch) const {
  const int64_t batch = call.queries->batch, seq = call.queries->seq;
  if (batch == 0 || seq == 0) return;
  Plan& p = plan(context, call);
  point_sources(config_, call, p.sources);
  p.packed.pack(p.sources, scratch.take<std::byte>(static_cast<int64_t>(p.packed.bytes())), context.pool);
  for (int64_t b = 0; b < batch; ++b) {
    SequenceQueries& s = p.sequences[static_cast<size_t>(b)];
    s.q = call.q.data + b * seq * call.q.row_stride;
    s.q_token_stride = call.q.row_stride;
    s.out = out.data + b * seq * out.row_stride;
    s.out_token_stride = out.row_stride;
    s.lse = lse + b * config_.num_q_heads * seq;
  }
  attend_sequences(p.sequences, p.shape, p.mask, *p.workspace, context.pool, context.stop);
  p.terms.check_distances(kName);
}

template <>
void AttentionCore<float>::backward(const Context<float>& context, const CoreCall<float>& call, HeadRows<const float> out, const float* lse,
                                    HeadRows<const float> dout, const CoreGradients<float>& gradients) const {
  const Sequences &queries = *call.queries, &keys = *call.keys;
  if (queries.batch == 0) return;
  Plan& p = plan(context, call);
  const int64_t dim = config_.head_dim, heads = config_.num_q_heads, kv_heads = config_.num_kv_heads;
  const BackwardTensors tensors{.q = as_tensor(call.q, queries, heads, dim),
                                .k = as_tensor(call.k, keys, kv_heads, dim),
                                .v = as_tensor(call.v, keys, kv_heads, dim),
                                .out = as_tensor(out, queries, heads, dim),
                                .lse = {lse, {queries.batch, heads, queries.seq}},
                                .dout = as_tensor(dout, queries, heads, dim),
                                .dlse = {},
                                .dq = as_tensor(gradients.dq, queries, heads, dim),
                                .dk = as_tensor(gradients.dk, keys, kv_heads, dim),
                                .dv = as_tensor(gradients.dv, keys, kv_heads, dim)};
  BackwardTermCall terms;
  if (!p.terms.empty()) terms = {.terms = &p.terms, .options = &p.options, .wanted = &p.term_gradients.views};
  if (!p.backward) p.backward.emplace(tensors, p.sizes, p.rows, p.shape, p.mask, p.positions, context.pool, terms);
  p.backward->run(tensors, context.stop);
  p.term_gradients.add_to(gradients.terms);
}

}  // namespace regard::nn::training
