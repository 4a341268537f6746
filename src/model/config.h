// The configuration of a stack of blocks, usually a decoder: every choice that the layers need, with nothing left to guess.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/activation.h"
#include "nn/block.h"
#include "nn/norm.h"
#include "nn/training/transformer_config.h"
#include "regard/dtype.h"
#include "regard/mask.h"
#include "regard/position.h"
#include "regard/score_terms.h"

namespace regard::model {

struct DecoderConfig {
  int64_t num_layers = 0;
  int64_t hidden_size = 0;
  int64_t num_q_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn_size = 0;
  int64_t vocab_size = 0;
  int64_t num_classes = 0;  ///< not 0: the head tells so many classes apart and predicts no tokens
  int64_t context = 0;  ///< tokens that the model was trained for

  nn::NormKind norm = nn::NormKind::kRms;
  float norm_eps = 1e-5f;
  nn::NormPlacement placement = nn::NormPlacement::kPre;
  nn::Activation activation = nn::Activation::kSilu;
  nn::FeedForwardKind feed_forward = nn::FeedForwardKind::kGated;  ///< ffn_size 0: there is none

  bool query_key_norm = false;  ///< of self-attention, per head, before the rotation

  float attention_scale = 0;  ///< scores are q.k times this
  float attention_softcap = 0;  ///< c tanh(score / c); 0: none. Gemma team, 2024, "Gemma 2", section 2
  float final_softcap = 0;      ///< the same for logits
  float embedding_scale = 1;

  nn::PositionKind position = nn::PositionKind::kRope;
  int64_t max_positions = 0;  ///< kLearned: rows of the table; no sequence is longer
  Sinusoidal sinusoidal = Sinusoidal::kPaper;
  int64_t t5_buckets = 32, t5_max_distance = 128;
  T5Direction t5_direction = T5Direction::kCausal;
  RopeConfig rope;           ///< layers that see everything
  RopeConfig windowed_rope;  ///< layers with a window
  Mask mask = Mask::causal();  ///< of layers without a window; a decoder's shows no later key
  int64_t window = 0;        ///< keys that a query of a windowed layer sees, itself included
  std::vector<bool> windowed;  ///< by layer

  bool cross_attention = false;  ///< every block looks at an encoder's output, too
  float head_scale = 1;          ///< multiplies what the head reads

  DType cache_type = DType::kF32;  ///< of the caches; ModelOptions

  bool tied_embeddings = false;
  std::vector<int32_t> eos_ids;

  /// Logits of a row.
  int64_t head_rows() const { return num_classes > 0 ? num_classes : vocab_size; }
};

}  // namespace regard::model
