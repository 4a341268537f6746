// A Transformer of any TransformerConfig, without dropout, written on the tape from the papers' formulas: one sequence after the
// other, one head after the other, by the names of the parameters.
#pragma once

#include <fmt/format.h>

#include <map>
#include <numeric>

#include "nn/training/parameter_names.h"
#include "support/tape.h"
#include "support/training_cases.h"

namespace regard::test {

class TapeTransformer {
 public:
  using Var = Tape::Var;

  TapeTransformer(const nn::TransformerConfig& config, nn::ParameterStore<double>& store) : c_(nn::completed(config)) {
    for (size_t i = 0; i < store.parameters().size(); ++i) {
      const nn::Parameter& p = store.parameters()[i];
      const double* x = store.value(static_cast<int>(i));
      const int64_t columns = p.shape.back();
      parameters_[p.name] = tape_.leaf(columns == 0 ? 0 : p.size / columns, columns, {x, x + p.size});
    }
  }

  /// The sum of the objectives over the counted labels, and all gradients.
  double run(const BatchData& data) {
    Var total = tape_.constant(0);
    for (int64_t b = 0; b < data.batch; ++b) {
      const int64_t n = data.lengths.empty() ? data.seq : data.lengths[static_cast<size_t>(b)];
      if (n == 0) continue;
      Side side{b, n, data.seq, &data.tokens, &data.documents, &data.encoding_positions};
      Var x = 0;
      if (c_.architecture == nn::Architecture::kEncoderDecoder) {
        const int64_t m = data.source_lengths.empty() ? data.source_seq : data.source_lengths[static_cast<size_t>(b)];
        static const std::vector<int32_t> none;
        const Side source{b, m, data.source_seq, &data.source, &none, &none};
        Var memory = 0;
        if (m > 0) memory = stack(source, nn::training::StackKind::kEncoder, nullptr);
        x = stack(side, nn::training::StackKind::kDecoder, m > 0 ? &memory : nullptr);
      } else {
        x = stack(side, c_.architecture == nn::Architecture::kEncoder ? nn::training::StackKind::kEncoder : nn::training::StackKind::kDecoder, nullptr);
      }
      const Var head = parameters_.at(c_.head == nn::Head::kTied ? nn::training::embedding_name(c_) : nn::training::head_name(c_) + ".weight");
      const Var logits = capped(tape_.times(tape_.scale(x, c_.head_scale), tape_.transposed(head)), c_.final_softcap);
      for (int64_t t = 0; t < n; ++t)
        if (const int32_t label = data.labels[static_cast<size_t>(b * data.seq + t)]; label != nn::kIgnoredLabel)
          total = tape_.add(total, loss(logits, t, label));
    }
    tape_.backward(total);
    return tape_[total].x[0];
  }

  const std::vector<double>& gradient(const std::string& name) const { return tape_[parameters_.at(name)].gradient; }

 private:
  struct Side {
    int64_t b, n, stride;
    const std::vector<int32_t>*tokens, *documents, *encodings;
    int64_t position(int64_t t) const { return encodings->empty() ? t : (*encodings)[static_cast<size_t>(b * stride + t)]; }
    bool same_document(int64_t i, int64_t j) const {
      return documents->empty() || (*documents)[static_cast<size_t>(b * stride + i)] == (*documents)[static_cast<size_t>(b * stride + j)];
    }
  };

  Var columns(Var a, int64_t first, int64_t count) {
    std::vector<int64_t> index;
    for (int64_t r = 0; r < tape_.rows(a); ++r)
      for (int64_t i = 0; i < count; ++i) index.push_back(r * tape_.columns(a) + first + i);
    return tape_.pick(a, tape_.rows(a), count, std::move(index));
  }
  Var table_rows(Var table, const std::vector<int64_t>& rows) {
    std::vector<int64_t> index;
    for (const int64_t r : rows)
      for (int64_t i = 0; i < tape_.columns(table); ++i) index.push_back(r * tape_.columns(table) + i);
    return tape_.pick(table, static_cast<int64_t>(rows.size()), tape_.columns(table), std::move(index));
  }
  bool has(const std::string& name) const { return parameters_.count(name) > 0; }

  Var linear(Var x, const std::string& name, nn::training::WeightLayout layout) {
    const Var w = parameters_.at(name + ".weight");
    const Var y = tape_.times(x, layout == nn::training::WeightLayout::kInOut ? w : tape_.transposed(w));
    return has(name + ".bias") ? tape_.add(y, parameters_.at(name + ".bias")) : y;
  }

  Var norm(Var x, const std::string& name) {
    const double n = static_cast<double>(tape_.columns(x));
    if (c_.norm == nn::NormKind::kLayer) x = tape_.subtract(x, tape_.scale(tape_.row_sums(x), 1 / n));
    const Var variance = tape_.scale(tape_.row_sums(tape_.multiply(x, x)), 1 / n);
    x = tape_.multiply(x, tape_.power(tape_.add(variance, tape_.constant(c_.norm_eps)), -0.5));
    const Var stored = parameters_.at(name + ".weight");
    x = tape_.multiply(x, c_.norm_gain == nn::NormGain::kStored ? stored : tape_.add(stored, tape_.constant(1)));
    return has(name + ".bias") ? tape_.add(x, parameters_.at(name + ".bias")) : x;
  }

  // c tanh(x / c), where c is not 0.
  Var capped(Var x, double c) {
    if (c == 0) return x;
    const Var t = tape_.map(tape_.scale(x, 1 / c), [](double v) { return std::tanh(v); }, [](double v) { return 1 / (std::cosh(v) * std::cosh(v)); });
    return tape_.scale(t, c);
  }

  Var activation(Var x) {
    const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
    switch (c_.activation) {
      case nn::Activation::kSilu:
        return tape_.multiply(x, tape_.map(x, sigmoid, [sigmoid](double v) { return sigmoid(v) * (1 - sigmoid(v)); }));
      case nn::Activation::kRelu: return tape_.map(x, [](double v) { return v > 0 ? v : 0; }, [](double v) { return v > 0 ? 1.0 : 0.0; });
      case nn::Activation::kGeluErf:
        return tape_.multiply(x, tape_.map(x, [](double v) { return (1 + std::erf(v / std::sqrt(2.0))) / 2; },
                                           [](double v) { return std::exp(-v * v / 2) / std::sqrt(2 * M_PI); }));
      case nn::Activation::kGeluTanh: {
        const Var cube = tape_.scale(tape_.multiply(x, tape_.multiply(x, x)), 0.044715);
        const Var t = tape_.map(tape_.scale(tape_.add(x, cube), std::sqrt(2 / M_PI)), [](double v) { return std::tanh(v); },
                                [](double v) { return 1 / (std::cosh(v) * std::cosh(v)); });
        return tape_.scale(tape_.multiply(x, tape_.add(t, tape_.constant(1))), 0.5);
      }
    }
    return x;
  }

  // Pairs (i, i + half) or (2i, 2i + 1) as complex numbers times e^(i position f).
  Var rotated(Var x, const Side& side, const RopeConfig& rope) {
    const int64_t half = rope.rotary_dim / 2, dim = tape_.columns(x);
    const std::vector<double> frequencies = Rope(rope).frequencies();
    std::vector<double> cos(static_cast<size_t>(side.n * dim), 1.0), sin(static_cast<size_t>(side.n * dim), 0.0);
    std::vector<int64_t> partner(static_cast<size_t>(side.n * dim), -1);
    for (int64_t t = 0; t < side.n; ++t)
      for (int64_t i = 0; i < half; ++i) {
        const bool split = rope.order == RopeOrder::kHalfSplit;
        const auto a = static_cast<size_t>(t * dim + (split ? i : 2 * i)), b = static_cast<size_t>(t * dim + (split ? i + half : 2 * i + 1));
        const double angle = static_cast<double>(side.position(t)) * frequencies[static_cast<size_t>(i)];
        cos[a] = cos[b] = std::cos(angle);
        sin[a] = -std::sin(angle);
        sin[b] = std::sin(angle);
        partner[a] = static_cast<int64_t>(b);
        partner[b] = static_cast<int64_t>(a);
      }
    const Var turned = tape_.multiply(tape_.pick(x, side.n, dim, std::move(partner)), tape_.leaf(side.n, dim, std::move(sin)));
    return tape_.add(tape_.multiply(x, tape_.leaf(side.n, dim, std::move(cos))), turned);
  }

  Var attention(Var x, const Side& side, const nn::training::AttentionNames& names, nn::training::WeightLayout layout,
                nn::training::StackKind kind, const Var* memory, bool cross, bool windowed = false) {
    const int64_t dim = c_.head_dim, q_width = c_.num_q_heads * dim, kv_width = c_.num_kv_heads * dim, n = side.n;
    if (cross && memory == nullptr) {  // nothing to look at: the output's bias alone
      const Var zeros = tape_.leaf(n, q_width, std::vector<double>(static_cast<size_t>(n * q_width), 0.0));
      return linear(zeros, names.output, layout);
    }
    const Var from = cross ? *memory : x;
    const int64_t m = tape_.rows(from);
    Var q, k, v;
    if (!names.fused.empty()) {
      const Var all = linear(x, names.fused, layout);
      q = columns(all, 0, q_width);
      k = columns(all, q_width, kv_width);
      v = columns(all, q_width + kv_width, kv_width);
    } else {
      q = linear(x, names.query, layout);
      k = linear(from, names.key, layout);
      v = linear(from, names.value, layout);
    }
    Var out = 0;
    for (int64_t h = 0; h < c_.num_q_heads; ++h) {
      const int64_t shared = h / (c_.num_q_heads / c_.num_kv_heads);
      Var qh = columns(q, h * dim, dim), kh = columns(k, shared * dim, dim);
      if (!names.query_norm.empty()) {
        qh = norm(qh, names.query_norm);
        kh = norm(kh, names.key_norm);
      }
      if (!cross && c_.position == nn::PositionKind::kRope) {
        qh = rotated(qh, side, windowed ? c_.windowed_rope : c_.rope);
        kh = rotated(kh, side, windowed ? c_.windowed_rope : c_.rope);
      }
      std::vector<double> visible;
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < m; ++j) {
          const Mask& mask = kind == nn::training::StackKind::kDecoder ? c_.mask : c_.encoder_mask;
          const bool near = !windowed || (j <= i && i - j < c_.window);
          visible.push_back(cross || (near && mask.allowed(side.b, h, i, j) && side.same_document(i, j)) ? 1.0 : 0.0);
        }
      const bool xl = !cross && c_.position == nn::PositionKind::kXl;
      const Var content = xl ? tape_.add(qh, table_rows(parameters_.at(names.content_bias), {h})) : qh;
      Var scores = tape_.scale(tape_.times(content, tape_.transposed(kh)), c_.attention_scale);
      scores = capped(scores, c_.attention_softcap);
      if (!cross && c_.position != nn::PositionKind::kRope) scores = biased(scores, qh, side, names, kind, h);
      const Var weights = tape_.softmax(scores, tape_.leaf(n, m, std::move(visible)));
      const Var oh = tape_.times(weights, columns(v, shared * dim, dim));
      // Into its columns of the whole.
      std::vector<int64_t> place(static_cast<size_t>(n * q_width), -1);
      for (int64_t i = 0; i < n; ++i)
        for (int64_t a = 0; a < dim; ++a) place[static_cast<size_t>(i * q_width + h * dim + a)] = i * dim + a;
      const Var placed = tape_.pick(oh, n, q_width, std::move(place));
      out = h == 0 ? placed : tape_.add(out, placed);
    }
    return linear(out, names.output, layout);
  }

  Var biased(Var scores, Var q, const Side& side, const nn::training::AttentionNames& names, nn::training::StackKind kind, int64_t h) {
    const int64_t n = side.n;
    if (c_.position == nn::PositionKind::kAlibi) {
      std::vector<double> bias;
      const auto slope = static_cast<double>(alibi_slopes(c_.num_q_heads)[static_cast<size_t>(h)]);
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < n; ++j) bias.push_back(-slope * static_cast<double>(std::abs(side.position(i) - side.position(j))));
      return tape_.add(scores, tape_.leaf(n, n, std::move(bias)));
    }
    if (c_.position == nn::PositionKind::kT5) {
      const auto direction = kind == nn::training::StackKind::kDecoder ? T5Direction::kCausal : T5Direction::kBidirectional;
      std::vector<int64_t> index;
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < n; ++j)
          index.push_back(t5_bucket(side.position(j) - side.position(i), c_.t5_buckets, c_.t5_max_distance, direction) * c_.num_q_heads + h);
      return tape_.add(scores, tape_.pick(parameters_.at(nn::training::stack_names(c_, kind).t5_table), n, n, std::move(index)));
    }
    if (c_.position != nn::PositionKind::kXl) return scores;
    std::vector<double> sinusoids;
    for (int64_t d = 1 - c_.max_positions; d < c_.max_positions; ++d)
      for (int64_t i = 0; i < c_.hidden_size; ++i) {
        const double angle = static_cast<double>(d) * std::pow(10000.0, -static_cast<double>(i / 2 * 2) / static_cast<double>(c_.hidden_size));
        sinusoids.push_back(i % 2 == 0 ? std::sin(angle) : std::cos(angle));
      }
    const int64_t distances = 2 * c_.max_positions - 1;
    const Var r = columns(linear(tape_.leaf(distances, c_.hidden_size, std::move(sinusoids)), names.relative, nn::training::WeightLayout::kOutIn),
                          h * c_.head_dim, c_.head_dim);
    const Var along = tape_.scale(tape_.times(tape_.add(q, table_rows(parameters_.at(names.position_bias), {h})), tape_.transposed(r)), c_.attention_scale);
    std::vector<int64_t> index;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) index.push_back(i * distances + side.position(i) - side.position(j) + c_.max_positions - 1);
    return tape_.add(scores, tape_.pick(along, n, n, std::move(index)));
  }

  template <class Branch>
  Var residual(Var x, const std::string& name, const std::string& on_branch, Branch branch) {
    if (c_.placement == nn::NormPlacement::kSandwich) return tape_.add(x, norm(branch(norm(x, name)), on_branch));
    if (c_.placement == nn::NormPlacement::kPre) return tape_.add(x, branch(norm(x, name)));
    return norm(tape_.add(x, branch(x)), name);
  }

  Var stack(const Side& side, nn::training::StackKind kind, const Var* memory) {
    std::vector<int64_t> ids, places;
    for (int64_t t = 0; t < side.n; ++t) {
      ids.push_back((*side.tokens)[static_cast<size_t>(side.b * side.stride + t)]);
      places.push_back(side.position(t));
    }
    Var x = tape_.scale(table_rows(parameters_.at(nn::training::embedding_name(c_)), ids), c_.embedding_scale);
    const nn::training::StackNames names = nn::training::stack_names(c_, kind);
    if (c_.position == nn::PositionKind::kLearned) x = tape_.add(x, table_rows(parameters_.at(names.positions), places));
    if (c_.position == nn::PositionKind::kSinusoidal) {
      std::vector<double> fixed;
      for (const int64_t p : places)
        for (int64_t i = 0; i < c_.hidden_size; ++i) {
          const double angle = static_cast<double>(p) * std::pow(10000.0, -static_cast<double>(i / 2 * 2) / static_cast<double>(c_.hidden_size));
          fixed.push_back(i % 2 == 0 ? std::sin(angle) : std::cos(angle));
        }
      x = tape_.add(x, tape_.leaf(side.n, c_.hidden_size, std::move(fixed)));
    }
    const bool pair = c_.architecture == nn::Architecture::kEncoderDecoder;
    const int64_t layers = pair && kind == nn::training::StackKind::kEncoder ? c_.num_encoder_layers : c_.num_layers;
    for (int64_t i = 0; i < layers; ++i) {
      const nn::training::BlockNames b = nn::training::block_names(c_, kind, i);
      const bool windowed = kind == nn::training::StackKind::kDecoder && nn::is_windowed(c_, i);
      x = residual(x, b.self_norm, b.self_branch_norm, [&](Var in) { return attention(in, side, b.self, b.layout, kind, nullptr, false, windowed); });
      if (!b.cross_norm.empty()) x = residual(x, b.cross_norm, "", [&](Var in) { return attention(in, side, b.cross, b.layout, kind, memory, true); });
      if (!b.feed_forward_norm.empty())
        x = residual(x, b.feed_forward_norm, b.feed_forward_branch_norm, [&](Var in) {
          Var y = linear(in, b.feed_forward.up, b.layout);
          y = b.feed_forward.gate.empty() ? activation(y) : tape_.multiply(activation(linear(in, b.feed_forward.gate, b.layout)), y);
          return linear(y, b.feed_forward.down, b.layout);
        });
    }
    return c_.placement == nn::NormPlacement::kPost ? x : norm(x, names.norm);
  }

  // (1 - e) (-log p[label]) + e / n sum (-log p) + z (log sum exp)^2
  Var loss(Var logits, int64_t row, int64_t label) {
    const int64_t n = tape_.columns(logits);
    std::vector<int64_t> index(static_cast<size_t>(n));
    std::iota(index.begin(), index.end(), row * n);
    const Var x = tape_.pick(logits, 1, n, std::move(index));
    const Var lse = tape_.log(tape_.row_sums(tape_.exp(x)));
    const Var nats = tape_.subtract(lse, tape_.pick(x, 1, 1, {label}));
    const Var even = tape_.subtract(lse, tape_.scale(tape_.row_sums(x), 1 / static_cast<double>(n)));
    const Var smooth = tape_.add(tape_.scale(nats, 1 - c_.label_smoothing), tape_.scale(even, c_.label_smoothing));
    return tape_.add(smooth, tape_.scale(tape_.multiply(lse, lse), c_.z_loss));
  }

  nn::TransformerConfig c_;
  Tape tape_;
  std::map<std::string, Var> parameters_;
};

}  // namespace regard::test
