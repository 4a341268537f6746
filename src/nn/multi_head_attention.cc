#include "regard/multi_head_attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "base/check.h"
#include "base/checked.h"
#include "kernels/attention.h"
#include "nn/linear.h"

namespace regard {

namespace {

constexpr std::string_view kName = "MultiHeadAttention";

std::string text_of(const TensorView<const float>& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.shape.begin(), tensor.shape.begin() + tensor.rank, ", "));
}
bool given(const TensorView<const float>& tensor) { return tensor.rank > 0 || tensor.data != nullptr; }

MultiHeadAttentionConfig completed(MultiHeadAttentionConfig c) {
  require(c.d_model >= 1 && c.num_heads >= 1 && c.num_kv_heads >= 0 && c.head_dim >= 0 && c.key_width >= 0 &&
              c.value_width >= 0,
          "[{}] d_model {}, {} heads, {} KV heads, head_dim {}, widths {} and {}: a size is out of range", kName,
          c.d_model, c.num_heads, c.num_kv_heads, c.head_dim, c.key_width, c.value_width);
  if (c.num_kv_heads == 0) c.num_kv_heads = c.num_heads;
  require(c.num_heads % c.num_kv_heads == 0, "[{}] {} query heads cannot share {} KV heads evenly", kName, c.num_heads,
          c.num_kv_heads);
  if (c.head_dim == 0) {
    require(c.d_model % c.num_heads == 0,
            "[{}] d_model {} cannot be cut into {} heads evenly: change one of them, or state head_dim", kName,
            c.d_model, c.num_heads);
    c.head_dim = c.d_model / c.num_heads;
  }
  if (c.head_dim > kernels::kMaxHeadDim || c.num_heads > INT32_MAX)
    fail(Code::kUnsupported, "[{}] {} heads of {} elements are not supported, at most {} elements are", kName,
         c.num_heads, c.head_dim, kernels::kMaxHeadDim);
  if (c.key_width == 0) c.key_width = c.d_model;
  if (c.value_width == 0) c.value_width = c.d_model;
  return c;
}

void check_shape(std::string_view name, const TensorView<const float>& tensor, std::initializer_list<int64_t> shape) {
  const bool fits = tensor.rank == static_cast<int>(shape.size()) && tensor.data != nullptr &&
                    std::equal(shape.begin(), shape.end(), tensor.shape.begin());
  require(fits, "[{}] {} has shape {}, expected [{}]", kName, name, text_of(tensor), fmt::join(shape, ", "));
}

// Dense numbers of a matrix, and of a bias (none: empty).
struct Projection {
  int64_t out = 0, in = 0;
  std::vector<float> weight, bias;

  nn::Linear layer() const {
    nn::Linear linear = nn::make_linear(out, in, weight);
    if (!bias.empty()) {
      AlignedBuffer<float> b(bias.size());
      std::copy(bias.begin(), bias.end(), b.data());
      linear.set_bias(std::move(b));
    }
    return linear;
  }
  // The rows of these heads, in this order.
  Projection rows_of(std::span<const int64_t> heads, int64_t head_dim) const {
    Projection p{static_cast<int64_t>(heads.size()) * head_dim, in, {}, {}};
    for (const int64_t h : heads) {
      p.weight.insert(p.weight.end(), weight.begin() + h * head_dim * in, weight.begin() + (h + 1) * head_dim * in);
      if (!bias.empty()) p.bias.insert(p.bias.end(), bias.begin() + h * head_dim, bias.begin() + (h + 1) * head_dim);
    }
    return p;
  }
  // The columns of these heads; the bias stays.
  Projection columns_of(std::span<const int64_t> heads, int64_t head_dim) const {
    Projection p{out, static_cast<int64_t>(heads.size()) * head_dim, {}, bias};
    for (int64_t r = 0; r < out; ++r)
      for (const int64_t h : heads)
        p.weight.insert(p.weight.end(), weight.begin() + r * in + h * head_dim,
                        weight.begin() + r * in + (h + 1) * head_dim);
    return p;
  }
};

// Rows [first, first + out) of a matrix and of its bias.
Projection projection(const TensorView<const float>& weight, const TensorView<const float>& bias, int64_t first,
                      int64_t out) {
  Projection p{out, weight.shape[1], {}, {}};
  for (int64_t r = 0; r < out; ++r) {
    for (int64_t c = 0; c < p.in; ++c) p.weight.push_back(*weight.at(first + r, c));
    if (given(bias)) p.bias.push_back(*bias.at(first + r));
  }
  return p;
}

// [batch, len, width] as rows with a dense last axis: itself where it can be, else a copy.
struct Rows {
  TensorView<const float> view;
  AlignedBuffer<float> copy;
};
Rows rows_of(std::string_view name, const TensorView<const float>& x, int64_t width) {
  require(x.rank == 3 && x.shape[2] == width, "[{}] {} has shape {}, expected [batch, tokens, {}]", kName, name,
          text_of(x), width);
  require(x.size() == 0 || x.data != nullptr, "[{}] {} {} has no data", kName, name, text_of(x));
  Rows rows;
  const int64_t count = x.shape[0] * x.shape[1];
  rows.view = TensorView<const float>(x.data, {count, width});
  const bool dense = (x.strides[2] == 1 || width == 1) && x.strides[1] >= width &&
                     (x.shape[0] == 1 || x.strides[0] == x.shape[1] * x.strides[1]);
  if (dense) {
    rows.view.strides[0] = x.strides[1];
  } else if (count > 0) {
    rows.copy = AlignedBuffer<float>(static_cast<size_t>(count * width));
    float* to = rows.copy.data();
    for (int64_t b = 0; b < x.shape[0]; ++b)
      for (int64_t i = 0; i < x.shape[1]; ++i)
        for (int64_t c = 0; c < width; ++c) *to++ = *x.at(b, i, c);
    rows.view.data = rows.copy.data();
  }
  return rows;
}

// Projected rows as [batch, heads, tokens, dim].
TensorView<float> heads_of(AlignedBuffer<float>& rows, int64_t batch, int64_t tokens, int64_t heads, int64_t dim) {
  TensorView<float> view(rows.data(), {batch, heads, tokens, dim});
  view.strides = {tokens * heads * dim, dim, heads * dim, 1};
  return view;
}

AlignedBuffer<float> room_for(int64_t batch, int64_t tokens, int64_t width) {
  const auto rows = checked_mul(batch, tokens);
  const auto size = rows ? checked_mul(*rows, width) : rows;
  if (!size)
    fail(Code::kResourceExhausted, "[{}] no memory for {} x {} rows of {} numbers", kName, batch, tokens, width);
  return AlignedBuffer<float>(static_cast<size_t>(*size));
}

}  // namespace

struct MultiHeadAttention::Impl {
  MultiHeadAttentionConfig config;
  std::vector<int64_t> heads;
  Projection query, key, value, output;
  std::vector<float> before, after;  // talking heads, [num_heads, num_heads]; empty: none
  nn::Linear query_layer, key_layer, value_layer, output_layer;

  void pack() {
    query_layer = query.layer();
    key_layer = key.layer();
    value_layer = value.layer();
    output_layer = output.layer();
  }
  TensorView<const float> mix(const std::vector<float>& matrix) const {
    if (matrix.empty()) return {};
    return TensorView<const float>(matrix.data(), {config.num_heads, config.num_heads});
  }
};

MultiHeadAttention::MultiHeadAttention(const MultiHeadAttentionConfig& given_config,
                                       const MultiHeadAttentionWeights& w) {
  auto impl = std::make_shared<Impl>();
  const MultiHeadAttentionConfig c = impl->config = completed(given_config);
  const int64_t q = c.num_heads * c.head_dim, kv = c.num_kv_heads * c.head_dim;
  if (given(w.fused)) {
    require(!given(w.query) && !given(w.key) && !given(w.value),
            "[{}] both a fused projection and separate ones are given, expected one kind", kName);
    require(c.key_width == c.d_model && c.value_width == c.d_model,
            "[{}] a fused projection needs inputs of one width; d_model is {}, key_width {}, value_width {}", kName,
            c.d_model, c.key_width, c.value_width);
    check_shape("fused", w.fused, {q + 2 * kv, c.d_model});
    if (given(w.fused_bias)) check_shape("fused_bias", w.fused_bias, {q + 2 * kv});
    impl->query = projection(w.fused, w.fused_bias, 0, q);
    impl->key = projection(w.fused, w.fused_bias, q, kv);
    impl->value = projection(w.fused, w.fused_bias, q + kv, kv);
  } else {
    const auto part = [](std::string_view name, const TensorView<const float>& weight,
                         const TensorView<const float>& bias, int64_t out, int64_t in) {
      check_shape(name, weight, {out, in});
      if (given(bias)) check_shape(fmt::format("{}_bias", name), bias, {out});
      return projection(weight, bias, 0, out);
    };
    impl->query = part("query", w.query, w.query_bias, q, c.d_model);
    impl->key = part("key", w.key, w.key_bias, kv, c.key_width);
    impl->value = part("value", w.value, w.value_bias, kv, c.value_width);
  }
  check_shape("output", w.output, {c.d_model, q});
  if (given(w.output_bias)) check_shape("output_bias", w.output_bias, {c.d_model});
  impl->output = projection(w.output, w.output_bias, 0, c.d_model);
  for (const auto& [from, to, name] : {std::tuple{&w.talking.before, &impl->before, "talking.before"},
                                       std::tuple{&w.talking.after, &impl->after, "talking.after"}}) {
    if (!given(*from)) continue;
    check_shape(name, *from, {c.num_heads, c.num_heads});
    *to = projection(*from, {}, 0, c.num_heads).weight;
  }
  for (int64_t h = 0; h < c.num_heads; ++h) impl->heads.push_back(h);
  impl->pack();
  impl_ = std::move(impl);
}

MultiHeadAttention MultiHeadAttention::from_torch(const Tensors& tensors, std::string_view prefix, int64_t num_heads) {
  constexpr std::string_view kCall = "MultiHeadAttention::from_torch";
  constexpr std::string_view kKnown[] = {"in_proj_weight", "in_proj_bias",  "q_proj_weight",
                                         "k_proj_weight",  "v_proj_weight", "out_proj.weight",
                                         "out_proj.bias",  "bias_k",        "bias_v"};
  for (auto it = tensors.lower_bound(prefix); it != tensors.end() && it->first.starts_with(prefix); ++it)
    if (std::find(std::begin(kKnown), std::end(kKnown), std::string_view(it->first).substr(prefix.size())) ==
        std::end(kKnown))
      fail(Code::kUnsupported, "[{}] tensor {} is none of torch.nn.MultiheadAttention", kCall, it->first);
  const auto find = [&](std::string_view name) {
    const auto it = tensors.find(fmt::format("{}{}", prefix, name));
    return it == tensors.end() ? TensorView<const float>{} : it->second;
  };
  const auto need = [&](std::string_view name, int rank) {
    const TensorView<const float> tensor = find(name);
    if (!given(tensor)) fail(Code::kNotFound, "[{}] there is no tensor {}{}", kCall, prefix, name);
    require(tensor.rank == rank, "[{}] {}{} has shape {}, expected {} axes", kCall, prefix, name, text_of(tensor),
            rank);
    return tensor;
  };
  for (const std::string_view name : {"bias_k", "bias_v"})
    if (given(find(name)))
      fail(Code::kUnsupported, "[{}] {}{}: a learned key beside the sequence is not supported", kCall, prefix, name);
  MultiHeadAttentionWeights w;
  w.output = need("out_proj.weight", 2);
  w.output_bias = find("out_proj.bias");
  MultiHeadAttentionConfig config{.d_model = w.output.shape[0], .num_heads = num_heads};
  const TensorView<const float> bias = find("in_proj_bias");
  if (given(find("in_proj_weight"))) {
    w.fused = need("in_proj_weight", 2);
    w.fused_bias = bias;
  } else {
    w.query = need("q_proj_weight", 2);
    w.key = need("k_proj_weight", 2);
    w.value = need("v_proj_weight", 2);
    config.key_width = w.key.shape[1];
    config.value_width = w.value.shape[1];
    if (given(bias)) {
      check_shape("in_proj_bias", bias, {3 * config.d_model});
      TensorView<const float>* parts[] = {&w.query_bias, &w.key_bias, &w.value_bias};
      for (int64_t i = 0; i < 3; ++i) {
        *parts[i] = bias;
        parts[i]->shape[0] = config.d_model;
        parts[i]->data = bias.at(i * config.d_model);
      }
    }
  }
  return MultiHeadAttention(config, w);
}

const MultiHeadAttentionConfig& MultiHeadAttention::config() const noexcept { return impl_->config; }
const std::vector<int64_t>& MultiHeadAttention::heads() const noexcept { return impl_->heads; }

void MultiHeadAttention::forward(TensorView<const float> query, TensorView<const float> key,
                                 TensorView<const float> value, const Mask& mask, const AttentionOptions& options,
                                 TensorView<float> out) const {
  const Impl& m = *impl_;
  const MultiHeadAttentionConfig& c = m.config;
  const Rows q_rows = rows_of("query", query, c.d_model), k_rows = rows_of("key", key, c.key_width),
             v_rows = rows_of("value", value, c.value_width);
  const int64_t batch = query.shape[0], q_len = query.shape[1], kv_len = key.shape[1];
  require(key.shape[0] == batch && value.shape[0] == batch && value.shape[1] == kv_len,
          "[{}] query {}, key {} and value {} must agree in batch, keys and values in length", kName, text_of(query),
          text_of(key), text_of(value));
  require(out.rank == 3 && out.shape[0] == batch && out.shape[1] == q_len && out.shape[2] == c.d_model &&
              (out.size() == 0 || out.data != nullptr),
          "[{}] out has shape {}, expected [{}, {}, {}]", kName, text_of(out), batch, q_len, c.d_model);
  const int64_t q_width = c.num_heads * c.head_dim, kv_width = c.num_kv_heads * c.head_dim;
  AlignedBuffer<float> q = room_for(batch, q_len, q_width), k = room_for(batch, kv_len, kv_width),
                       v = room_for(batch, kv_len, kv_width), context = room_for(batch, q_len, q_width);
  ThreadPool& pool = default_pool();
  const nn::LinearOutput to_q{&m.query_layer, {q.data(), {batch * q_len, q_width}}},
      to_k{&m.key_layer, {k.data(), {batch * kv_len, kv_width}}},
      to_v{&m.value_layer, {v.data(), {batch * kv_len, kv_width}}};
  const bool same = query.data == key.data && query.data == value.data && query.shape == key.shape &&
                    query.shape == value.shape && query.strides == key.strides && query.strides == value.strides;
  if (same) {
    nn::forward_many(pool, q_rows.view, std::array{to_q, to_k, to_v}, options.stop);
  } else {
    to_q.layer->forward(pool, q_rows.view, to_q.y, options.stop);
    to_k.layer->forward(pool, k_rows.view, to_k.y, options.stop);
    to_v.layer->forward(pool, v_rows.view, to_v.y, options.stop);
  }
  const auto heads = [&](AlignedBuffer<float>& rows, int64_t tokens, int64_t count) {
    return heads_of(rows, batch, tokens, count, c.head_dim);
  };
  const TensorView<float> result = heads(context, q_len, c.num_heads);
  if (m.before.empty() && m.after.empty())
    attend(heads(q, q_len, c.num_heads), heads(k, kv_len, c.num_kv_heads), heads(v, kv_len, c.num_kv_heads), mask,
           options, result);
  else
    attend_talking_heads(heads(q, q_len, c.num_heads), heads(k, kv_len, c.num_kv_heads),
                         heads(v, kv_len, c.num_kv_heads), {.before = m.mix(m.before), .after = m.mix(m.after)}, mask,
                         options, result);

  const TensorView<const float> rows(context.data(), {batch * q_len, q_width});
  AlignedBuffer<float> y = room_for(batch, q_len, c.d_model);
  m.output_layer.forward(pool, rows, {y.data(), {batch * q_len, c.d_model}}, options.stop);
  const float* from = y.data();
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = 0; i < q_len; ++i)
      for (int64_t x = 0; x < c.d_model; ++x) *out.at(b, i, x) = *from++;
}

void MultiHeadAttention::forward(TensorView<const float> x, const Mask& mask, const AttentionOptions& options,
                                 TensorView<float> out) const {
  forward(x, x, x, mask, options, out);
}

MultiHeadAttention MultiHeadAttention::without_heads(std::span<const int64_t> heads) const {
  const Impl& m = *impl_;
  const int64_t dim = m.config.head_dim, group = m.config.num_heads / m.config.num_kv_heads;
  if (!m.before.empty() || !m.after.empty())
    fail(Code::kUnsupported, "[{}] heads that talk cannot be taken out: none has an output of its own", kName);
  for (const int64_t head : heads)
    require(std::find(m.heads.begin(), m.heads.end(), head) != m.heads.end(), "[{}] head {} is not one of the heads {}",
            kName, head, fmt::join(m.heads, ", "));
  auto impl = std::make_shared<Impl>();
  // Places of the query heads that stay, and of the KV heads they read.
  std::vector<int64_t> q_places, kv_places, shared(static_cast<size_t>(m.config.num_kv_heads));
  for (int64_t place = 0; place < m.config.num_heads; ++place) {
    const int64_t head = m.heads[static_cast<size_t>(place)];
    if (std::find(heads.begin(), heads.end(), head) != heads.end()) continue;
    q_places.push_back(place);
    impl->heads.push_back(head);
    if (shared[static_cast<size_t>(place / group)]++ == 0) kv_places.push_back(place / group);
  }
  require(!q_places.empty(), "[{}] no head would be left of {}", kName, fmt::join(m.heads, ", "));
  const int64_t most = *std::max_element(shared.begin(), shared.end());
  const bool even = std::all_of(shared.begin(), shared.end(), [&](int64_t n) { return n == 0 || n == most; });
  if (!even) {
    kv_places.clear();
    for (const int64_t place : q_places) kv_places.push_back(place / group);
  }
  impl->config = m.config;
  impl->config.num_heads = static_cast<int64_t>(q_places.size());
  impl->config.num_kv_heads = static_cast<int64_t>(kv_places.size());
  impl->query = m.query.rows_of(q_places, dim);
  impl->key = m.key.rows_of(kv_places, dim);
  impl->value = m.value.rows_of(kv_places, dim);
  impl->output = m.output.columns_of(q_places, dim);
  impl->pack();
  return MultiHeadAttention(std::shared_ptr<const Impl>(std::move(impl)));
}

}  // namespace regard
