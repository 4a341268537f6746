// A Transformer's stack as modules: embedding, blocks, final norm, head. Start at Decoder::forward. An encoder is one too: its mask
// shows later keys, and so it is fed whole texts at once.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "attention/kv_cache.h"
#include "model/config.h"
#include "nn/block.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "regard/model.h"

namespace regard::model {

struct DecoderWeights {
  std::shared_ptr<const nn::Linear> embedding;  ///< [vocab, hidden]; rows are looked up. Encoder and decoder share one
  nn::Linear positions;  ///< [max_positions, hidden], of PositionKind::kLearned
  nn::Linear head;       ///< absent (default-constructed) when the embedding serves as the head
  nn::Norm final_norm;
  std::vector<nn::Block> blocks;
};

/// The keys and values of one sequence, layer by layer.
using Caches = std::vector<KvCache>;

/// Tokens for one sequence, see regard/model.h.
struct DecoderFeed {
  Caches* caches = nullptr;
  std::span<const int32_t> tokens;
  Feed::Rows rows = Feed::Rows::kLast;
  const Caches* source = nullptr;  ///< what the blocks of a decoder with cross-attention look at
};

/// What the attention of a layer is shown to, see nn/attention_looks.h.
using LayerObserver = std::function<void(int64_t layer, const nn::ObservedAttention&)>;

/// The shape of one layer's cache, and what a token takes in the caches of all layers.
KvGeometry cache_geometry(const DecoderConfig& config);
uint64_t cache_bytes_per_token(const DecoderConfig& config);

/// Upper bound of the scratch memory of a pass over `rows` tokens on so many threads.
uint64_t workspace_bytes(const DecoderConfig& config, int64_t rows, int threads);

class Decoder {
 public:
  /// `context` is the declared length of a sequence. Errors: kInvalidArgument when weights and configuration disagree, or for a
  /// context beyond the learned positions.
  Decoder(DecoderConfig config, DecoderWeights weights, int64_t context);

  const DecoderConfig& config() const { return config_; }
  int64_t context() const { return context_; }

  Caches make_caches() const;

  /// What the blocks remember of a source: the keys and values of an encoder's output, dense [rows, hidden]. Errors: kCancelled.
  Caches remember(ThreadPool& pool, nn::Scratch& scratch, const float* encoded, int64_t rows, const StopToken* stop) const;

  /// What Model::forward promises, on checked feeds; `observer` may be null. On an error the caches hold a part of the tokens; the caller truncates.
  void forward(ThreadPool& pool, nn::Scratch& scratch, std::span<const DecoderFeed> feeds, const ForwardOptions& options, const LayerObserver* observer,
               float* out) const;

 private:
  struct Chunk;
  void run_chunk(const nn::Pass& pass, const Chunk& chunk, Output output, const LayerObserver* observer, float* out) const;
  const nn::Linear& head() const { return weights_.head.out() > 0 ? weights_.head : *weights_.embedding; }

  DecoderConfig config_;
  DecoderWeights weights_;
  int64_t context_;
  std::optional<Rope> rope_, windowed_rope_;  // of PositionKind::kRope
};

}  // namespace regard::model
