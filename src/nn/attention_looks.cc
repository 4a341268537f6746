#include "nn/attention_looks.h"

#include <algorithm>
#include <cstring>

#include "attention/kv_block.h"
#include "base/half.h"
#include "nn/attention_layer.h"

namespace regard::nn {
namespace {

// The key at the beginning of a token's bytes (attention/kv_block.h) in f32, as the kernels decode it.
void decode_key(const KvGeometry& g, const uint8_t* token, float* key) {
  const auto each = [&](auto decode) {
    for (int i = 0; i < g.head_dim; ++i) key[i] = decode(i);
  };
  const auto half = [&](int i) {
    uint16_t bits;
    std::memcpy(&bits, token + 2 * i, 2);
    return bits;
  };
  if (g.type == DType::kF32) std::memcpy(key, token, static_cast<size_t>(g.head_dim) * sizeof(float));
  if (g.type == DType::kF16) each([&](int i) { return half_to_float(half(i)); });
  if (g.type == DType::kBF16) each([&](int i) { return bf16_to_float(half(i)); });
  if (g.type == DType::kI8) {
    const uint8_t* scales = token + g.head_dim + g.value_dim;
    each([&](int i) {
      float scale;
      std::memcpy(&scale, scales + (g.scale_block == 0 ? 0 : i / g.scale_block) * 4, sizeof scale);
      return static_cast<float>(static_cast<int8_t>(token[i])) * scale;
    });
  }
}

// [num_kv_heads, keys, head_dim] of a cache that begins at position 0.
std::vector<float> decode_keys(const KvView& view) {
  const KvGeometry& g = view.geometry;
  std::vector<float> keys(static_cast<size_t>(g.num_kv_heads * view.end * g.head_dim));
  std::vector<uint8_t> token(static_cast<size_t>(token_bytes(g)));
  float* to = keys.data();
  for (int h = 0; h < g.num_kv_heads; ++h)
    for (int64_t p = 0; p < view.end; ++p, to += g.head_dim) {
      read_token(g, view.run_of(p, h), view.column_of(p), token.data());
      decode_key(g, token.data(), to);
    }
  return keys;
}

}  // namespace

AttentionOptions attention_options(const AttentionLayerConfig& config) {
  AttentionOptions options;
  options.scale = static_cast<double>(config.scale);
  options.softcap = static_cast<double>(config.softcap);
  if (!config.alibi_slopes.empty()) options.alibi = Alibi{config.alibi_slopes};
  if (!config.t5_table.empty()) {
    const int64_t buckets = static_cast<int64_t>(config.t5_table.size()) / config.num_q_heads;
    options.t5 = T5Bias{{config.t5_table.data(), {buckets, config.num_q_heads}}, config.t5_direction, config.t5_max_distance};
  }
  if (const AttentionLayerConfig::Xl& xl = config.xl; !xl.r.empty()) {
    const int64_t heads = config.num_q_heads, dim = config.head_dim;
    options.xl = TransformerXl{{xl.u.data(), {heads, dim}},
                               {xl.v.data(), {heads, dim}},
                               {xl.r.data(), {static_cast<int64_t>(xl.r.size()) / (heads * dim), heads, dim}},
                               xl.first_distance,
                               0};
  }
  return options;
}

AttentionLooks::AttentionLooks(const AttentionLayerConfig& config, std::span<SequenceQueries> queries) : config_(config), looks_(queries.size()) {
  for (size_t i = 0; i < queries.size(); ++i) {
    SequenceQueries& s = queries[i];
    Look& look = looks_[i];
    look.rows = s.tokens;
    look.first_position = s.first_position;
    look.keys = s.keys.end;
    for (int64_t h = 0; h < config.num_q_heads; ++h)
      for (int64_t r = 0; r < s.tokens; ++r) {
        const float* row = s.q + r * s.q_token_stride + h * s.q_head_stride;
        look.q.insert(look.q.end(), row, row + config.head_dim);
      }
    look.k = decode_keys(s.keys);
    look.lse.resize(static_cast<size_t>(config.num_q_heads * s.tokens));
    s.lse = look.lse.data();
    s.lse_token_stride = 1;
    s.lse_head_stride = s.tokens;
  }
}

void AttentionLooks::show(const AttentionObserver& observer) const {
  for (const Look& look : looks_) {
    AttentionOptions options = attention_options(config_);
    options.q_begin = {look.first_position};
    options.k_begin = {0};
    observer({{look.q.data(), {1, config_.num_q_heads, look.rows, config_.head_dim}},
              {look.k.data(), {1, config_.num_kv_heads, look.keys, config_.head_dim}},
              {look.lse.data(), {1, config_.num_q_heads, look.rows}},
              config_.mask,
              options});
  }
}

}  // namespace regard::nn
