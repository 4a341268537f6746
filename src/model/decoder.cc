#include "model/decoder.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/registry.h"
#include "nn/rows.h"

namespace regard::model {
namespace {

RopeConfig declared(RopeConfig rope, int64_t context) {
  rope.declared_length = context;
  return rope;
}

bool wanted(const DecoderFeed& feed, size_t token) {
  return feed.rows == Feed::Rows::kAll || (feed.rows == Feed::Rows::kLast && token + 1 == feed.tokens.size());
}

}  // namespace

// A run of tokens that are computed together: pieces of feeds, one after the other.
struct Decoder::Chunk {
  struct Piece {
    const DecoderFeed* feed;
    size_t begin, end;       // of feed->tokens
    int64_t first_position;
  };
  std::vector<Piece> pieces;
  int64_t rows = 0;
};

Decoder::Decoder(DecoderConfig config, DecoderWeights weights, int64_t context)
    : config_(std::move(config)),
      weights_(std::move(weights)),
      context_(context) {
  if (config_.position == nn::PositionKind::kRope) {
    rope_.emplace(declared(config_.rope, context));
    windowed_rope_.emplace(declared(config_.windowed_rope, context));
  }
  if (config_.position == nn::PositionKind::kLearned) {
    require(context <= config_.max_positions, "[Model::load] a context of {} tokens; this model has learned positions for {}", context, config_.max_positions);
    require(weights_.positions.in() == config_.hidden_size && weights_.positions.out() == config_.max_positions,
            "[Decoder] the table of positions is {} x {}; expected {} x {}", weights_.positions.out(), weights_.positions.in(), config_.max_positions,
            config_.hidden_size);
  }
  require(weights_.embedding->in() == config_.hidden_size && weights_.embedding->out() == config_.vocab_size,
          "[Decoder] the embedding is {} x {}; expected {} x {}", weights_.embedding->out(), weights_.embedding->in(), config_.vocab_size,
          config_.hidden_size);
  require(head().in() == config_.hidden_size && head().out() == config_.head_rows(), "[Decoder] the head is {} x {}; expected {} x {}", head().out(),
          head().in(), config_.head_rows(), config_.hidden_size);
  require(static_cast<int64_t>(weights_.blocks.size()) == config_.num_layers, "[Decoder] {} blocks for {} layers", weights_.blocks.size(),
          config_.num_layers);
}

KvGeometry cache_geometry(const DecoderConfig& config) {
  KvGeometry geometry;
  geometry.num_kv_heads = static_cast<int>(config.num_kv_heads);
  geometry.head_dim = static_cast<int>(config.head_dim);
  geometry.value_dim = static_cast<int>(config.head_dim);
  geometry.type = config.cache_type;
  return geometry;
}

Caches Decoder::make_caches() const {
  Caches caches;
  caches.reserve(weights_.blocks.size());
  for (size_t i = 0; i < weights_.blocks.size(); ++i) caches.emplace_back(KvCacheOptions{cache_geometry(config_), context_, nullptr});
  return caches;
}

Caches Decoder::remember(ThreadPool& pool, nn::Scratch& scratch, const float* encoded, int64_t rows, const StopToken* stop) const {
  Caches caches = make_caches();
  const nn::Pass pass{pool, scratch, rows, stop};
  for (size_t i = 0; i < caches.size(); ++i) weights_.blocks[i].cross()->attention.remember(pass, encoded, caches[i]);
  return caches;
}

void Decoder::forward(ThreadPool& pool, nn::Scratch& scratch, std::span<const DecoderFeed> feeds, const ForwardOptions& options,
                      const LayerObserver* observer, float* out) const {
  const int64_t width = options.output == Output::kLogits ? config_.head_rows() : config_.hidden_size;
  Chunk chunk;
  int64_t written = 0;
  const auto flush = [&] {
    if (chunk.rows == 0) return;
    run_chunk({pool, scratch, chunk.rows, options.stop}, chunk, options.output, observer, out + written * width);
    for (const Chunk::Piece& piece : chunk.pieces)
      for (size_t t = piece.begin; t < piece.end; ++t) written += wanted(*piece.feed, t) ? 1 : 0;
    chunk = {};
  };
  for (const DecoderFeed& feed : feeds) {
    const int64_t known = feed.caches->front().size();
    for (size_t begin = 0; begin < feed.tokens.size();) {
      if (chunk.rows == options.chunk) flush();
      const size_t end = std::min(feed.tokens.size(), begin + static_cast<size_t>(options.chunk - chunk.rows));
      chunk.pieces.push_back({&feed, begin, end, known + static_cast<int64_t>(begin)});
      chunk.rows += static_cast<int64_t>(end - begin);
      begin = end;
    }
  }
  flush();
}

void Decoder::run_chunk(const nn::Pass& pass, const Chunk& chunk, Output output, const LayerObserver* observer, float* out) const {
  const int64_t rows = pass.rows, hidden = config_.hidden_size, half = rope_ ? rope_->half() : 0;
  AlignedBuffer<float> x(static_cast<size_t>(rows * hidden));
  // Angles of full layers, then of windowed ones: cosines and sines of every row.
  const bool two_ropes = std::find(config_.windowed.begin(), config_.windowed.end(), true) != config_.windowed.end();
  AlignedBuffer<float> angles(static_cast<size_t>((two_ropes ? 4 : 2) * rows * half));
  const nn::RopeAngles full{angles.data(), angles.data() + rows * half, half};
  const nn::RopeAngles windowed{angles.data() + 2 * rows * half, angles.data() + 3 * rows * half, half};

  std::vector<int32_t> ids(static_cast<size_t>(rows));
  std::vector<int64_t> positions(static_cast<size_t>(rows));
  std::vector<nn::SequenceRows> sequences;
  std::vector<int64_t> output_rows;
  int64_t row = 0;
  for (const Chunk::Piece& piece : chunk.pieces) {
    sequences.push_back({nullptr, row, static_cast<int64_t>(piece.end - piece.begin), piece.first_position, nullptr});
    for (size_t t = piece.begin; t < piece.end; ++t, ++row) {
      ids[static_cast<size_t>(row)] = piece.feed->tokens[t];
      positions[static_cast<size_t>(row)] = piece.first_position + static_cast<int64_t>(t - piece.begin);
      if (wanted(*piece.feed, t)) output_rows.push_back(row);
    }
  }
  const kernels::ElementwiseKernels& k = *kernels::kernels().elementwise;
  const bool placed = config_.position == nn::PositionKind::kLearned || config_.position == nn::PositionKind::kSinusoidal;
  float* places = placed ? pass.scratch.get(nn::Scratch::kBranch, rows * hidden) : nullptr;
  nn::for_each_row(pass.pool, rows, 8 * hidden, [&](int64_t r) {
    weights_.embedding->row(ids[static_cast<size_t>(r)], x.data() + r * hidden);
    if (config_.embedding_scale != 1) k.scale(config_.embedding_scale, hidden, x.data() + r * hidden);
    const int64_t position = positions[static_cast<size_t>(r)];
    if (places != nullptr) {
      const std::span<float> place(places + r * hidden, static_cast<size_t>(hidden));
      if (config_.position == nn::PositionKind::kLearned) weights_.positions.row(position, place.data());
      else sinusoidal(config_.sinusoidal, first_position(config_.sinusoidal) + position, place);
      k.add(place.data(), hidden, x.data() + r * hidden);
    }
    if (!rope_) return;
    rope_->angles(position, angles.data() + r * half, angles.data() + (rows + r) * half);
    if (two_ropes) windowed_rope_->angles(position, angles.data() + (2 * rows + r) * half, angles.data() + (3 * rows + r) * half);
  });

  for (size_t layer = 0; layer < weights_.blocks.size(); ++layer) {
    if (pass.stop != nullptr && pass.stop->stop_requested()) fail(Code::kCancelled, "[Model::forward] stopped on request");
    for (size_t i = 0; i < sequences.size(); ++i) {
      const DecoderFeed& feed = *chunk.pieces[i].feed;
      sequences[i].cache = &(*feed.caches)[layer];
      if (feed.source != nullptr) sequences[i].source = &(*feed.source)[layer];
    }
    nn::AttentionObserver observe;
    nn::Pass watched = pass;
    if (observer != nullptr) {
      observe = [&](const nn::ObservedAttention& seen) { (*observer)(static_cast<int64_t>(layer), seen); };
      watched.observer = &observe;
    }
    weights_.blocks[layer].forward(watched, config_.windowed[layer] ? windowed : full, sequences, x.data());
  }

  const auto count = static_cast<int64_t>(output_rows.size());
  if (count == 0) return;
  float* last = output == Output::kHidden ? out : pass.scratch.get(nn::Scratch::kNormed, count * hidden);
  nn::for_each_row(pass.pool, count, hidden, [&](int64_t i) {
    const float* row_of_last = x.data() + output_rows[static_cast<size_t>(i)] * hidden;
    if (config_.placement == nn::NormPlacement::kPost) std::copy_n(row_of_last, hidden, last + i * hidden);  // each block has normalised it
    else weights_.final_norm.row(row_of_last, last + i * hidden);
  });
  if (output == Output::kHidden) return;
  if (config_.head_scale != 1)
    nn::for_each_row(pass.pool, count, hidden, [&](int64_t i) { k.scale(config_.head_scale, hidden, last + i * hidden); });
  const int64_t width = config_.head_rows();
  head().forward(pass.pool, {last, {count, hidden}}, {out, {count, width}}, pass.stop);
  if (config_.final_softcap > 0)
    nn::for_each_row(pass.pool, count, width, [&](int64_t i) {
      float* logits = out + i * width;
      k.scale(1 / config_.final_softcap, width, logits);
      k.tanh(logits, width, logits);
      k.scale(config_.final_softcap, width, logits);
    });
}

uint64_t cache_bytes_per_token(const DecoderConfig& config) {
  return static_cast<uint64_t>(config.num_layers * KvCache::tile_bytes(cache_geometry(config)) / kernels::kTileKeys);
}

uint64_t workspace_bytes(const DecoderConfig& config, int64_t rows, int threads) {
  const int64_t q = config.num_q_heads * config.head_dim, kv = config.num_kv_heads * config.head_dim;
  // Residual stream, normed rows and branch; queries, keys, values; gate and up; angles of two rotations.
  const int64_t per_row = 3 * config.hidden_size + q + 2 * kv + 2 * config.ffn_size + 2 * config.head_dim;
  // A block of rows in the attention of each thread: scaled queries, results and scores; and a chunk of decoded weights.
  const int64_t per_thread = kernels::kMaxBlockRows * (4 * config.head_dim + 4 * kernels::kLanes) + kernels::kMaxMicroRows * kernels::kTileKeys + kernels::kLinearScratch;
  return static_cast<uint64_t>(rows * per_row + threads * per_thread) * sizeof(float);
}

}  // namespace regard::model
