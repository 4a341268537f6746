// config.json and generation_config.json of Hugging Face checkpoints, as one plain struct whichever spelling the file
// uses. Facts of the file only: what it leaves out stays empty here, and the model families decide what that means.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace regard {

/// A rotary embedding: rope_theta with rope_scaling (transformers before 5), or rope_parameters (from 5 on).
struct HfRope {
  std::optional<double> theta;
  std::string type = "default";  ///< default, linear, dynamic, yarn, llama3 or longrope ("su" is read as longrope)
  std::optional<double> factor;
  std::optional<int64_t> original_context;  ///< original_max_position_embeddings
  std::optional<double> low_freq_factor, high_freq_factor;         ///< llama3
  std::optional<double> beta_fast, beta_slow;                      ///< yarn
  std::optional<bool> truncate;                                    ///< yarn: false keeps the ends of the ramp unrounded
  std::optional<double> attention_factor, mscale, mscale_all_dim;  ///< yarn, longrope
  std::vector<double> short_factor, long_factor;                   ///< longrope
  std::optional<double> partial_rotary_factor;
  bool operator==(const HfRope&) const = default;
};

struct HfConfig {
  std::string model_type;  ///< of the text part, where the file describes several
  std::vector<std::string> architectures;
  std::optional<std::string> dtype;  ///< "bfloat16": a hint, each tensor says its own

  std::optional<int64_t> hidden_size, num_layers, num_q_heads, num_kv_heads, head_dim, ffn_size, vocab_size;
  std::optional<int64_t> context;  ///< max_position_embeddings
  std::optional<double> norm_eps;
  std::optional<std::string> activation;
  std::optional<bool> tie_word_embeddings;
  std::optional<bool> attention_bias, mlp_bias;
  std::optional<bool> use_bias;  ///< starcoder2: all linear layers
  std::optional<bool> scale_attn_weights, scale_attn_by_layer;  ///< gpt2; the second is scale_attn_by_inverse_layer_idx
  std::optional<bool> add_cross_attention;

  std::optional<double> query_pre_attn_scalar, attn_softcap, final_softcap;

  std::optional<int64_t> sliding_window;   ///< as the family counts it
  std::optional<bool> use_sliding_window;
  std::optional<int64_t> max_window_layers, sliding_window_pattern;
  std::vector<std::string> layer_types;    ///< "full_attention", "sliding_attention": one per layer, or empty
  std::optional<bool> use_bidirectional_attention;

  std::optional<HfRope> rope;                                    ///< of every layer
  std::vector<std::pair<std::string, HfRope>> rope_by_layer_type;  ///< instead of rope, where the file nests them
  std::optional<double> local_rope_theta;                        ///< rope_local_base_freq: windowed layers of older Gemma 3 files
  std::optional<double> partial_rotary_factor;                   ///< of the model; HfRope may have its own
  std::optional<int64_t> original_context;                       ///< of the model, Phi's spelling

  std::optional<int64_t> bos_id, pad_id;
  std::vector<int64_t> eos_ids;  ///< of generation_config.json where it has them, else of config.json
};

/// Reads both files; `generation` may be empty when there is none.
/// Refused with kCorruptData: wrong types, values outside any plausible range (the message names the place and the range),
/// heads that do not divide, special ids outside the vocabulary, both spellings of rope with different contents;
/// kUnsupported: unknown rope types, checkpoints whose tensors are quantised (quantization_config).
Result<HfConfig> read_hf_config(std::string_view config, std::string_view generation = {});

}  // namespace regard
