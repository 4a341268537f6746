// What a model file says about its model, in one form whichever file it was: GGUF metadata or config.json. Only facts of
// the file, nothing guessed; family.h turns them into a configuration.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "nn/training/transformer_config.h"
#include "regard/position.h"

namespace regard::model {

enum class FileKind { kGguf, kHuggingFace };

struct Facts {
  FileKind kind = FileKind::kGguf;
  std::string architecture;  ///< general.architecture or model_type
  std::string name;

  int64_t num_layers = 0;
  int64_t hidden_size = 0;
  int64_t num_q_heads = 0;
  int64_t num_kv_heads = 0;
  std::optional<int64_t> head_dim;
  std::optional<int64_t> ffn_size;  ///< some families leave the usual multiple of hidden_size unsaid
  std::optional<int64_t> vocab_size;  ///< GGUF files may leave it to the token list
  int64_t context = 0;
  double norm_eps = 0;
  std::optional<std::string> activation;
  std::optional<bool> tied_embeddings;
  std::optional<bool> qkv_bias;   ///< attention_bias: of all four projections in llama
  std::optional<bool> mlp_bias;

  std::optional<double> query_pre_attn_scalar;
  std::optional<double> attn_softcap, final_softcap;

  std::optional<int64_t> window;                ///< keys that a query of a windowed layer sees, itself included
  std::vector<bool> windowed_layers;            ///< by layer; empty when the file does not say
  std::optional<bool> use_window;               ///< Qwen2's switch
  std::optional<int64_t> max_window_layers;     ///< Qwen2: layers before this one keep full attention
  std::optional<int64_t> window_pattern;        ///< Gemma 3: every n-th layer sees everything

  /// Rotary embedding of full layers; of windowed layers where the file distinguishes them. rotary_dim is 0 when the file
  /// leaves it to head_dim, declared_length is left to the loader.
  std::optional<RopeConfig> rope, windowed_rope;
  std::optional<double> partial_rotary_factor;
  std::optional<double> local_rope_theta;       ///< Gemma 3, older spelling

  std::optional<nn::TransformerConfig> shape;  ///< where the file has more than a decoder: trained_shape.h, t5_shape.h

  std::vector<std::string> class_names;  ///< of a shape that tells classes apart, in their order; empty: the file names none

  std::vector<int32_t> eos_ids;
  std::optional<int32_t> bos_id;
  std::optional<int32_t> decoder_start;  ///< what the texts of an encoder-decoder begin with
};

}  // namespace regard::model
