// What all modules of a step share: threads, parameters, where rows belong to, and the clock of dropout.
#pragma once

#include <cstdint>
#include <span>

#include "base/rng.h"
#include "nn/parameters.h"
#include "regard/stop_token.h"
#include "runtime/thread_pool.h"

namespace regard::nn::training {

/// The rows of an activation: row b * seq + t is token t of sequence b. Empty spans as in TokenBatch.
struct Sequences {
  int64_t batch = 0;
  int64_t seq = 0;
  std::span<const int64_t> lengths;
  std::span<const int32_t> documents;
  std::span<const int32_t> encoding_positions;

  int64_t rows() const noexcept { return batch * seq; }
  int64_t length(int64_t b) const noexcept { return lengths.empty() ? seq : lengths[static_cast<size_t>(b)]; }
  /// Whether a row is a token and no padding.
  bool is_token(int64_t row) const noexcept { return row % seq < length(row / seq); }
  int64_t encoding_position(int64_t row) const noexcept {
    return encoding_positions.empty() ? row % seq : encoding_positions[static_cast<size_t>(row)];
  }

  /// `count` sequences from `first` on, as a batch of their own.
  Sequences part(int64_t first, int64_t count) const {
    const auto cut = [&](auto list, int64_t width) {
      return list.empty() ? list : list.subspan(static_cast<size_t>(first * width), static_cast<size_t>(count * width));
    };
    return {count, seq, cut(lengths, 1), cut(documents, seq), cut(encoding_positions, seq)};
  }
};

/// Where dropout happens; with the layer it makes a stream of its own.
enum class DropoutSite : uint64_t { kEmbedding, kAttentionBranch, kCrossBranch, kFeedForwardBranch, kAttention, kCrossAttention, kCount };

/// Decides what dropout leaves out, as a function of (seed, step, layer, site; sequence, token, element).
struct DropoutClock {
  bool on = false;
  uint64_t seed = 0;
  int64_t step = 0;
  int64_t first_sequence = 0;

  uint64_t seed_of(int64_t layer, DropoutSite site) const noexcept {
    return random_bits(seed, static_cast<uint64_t>(layer) * static_cast<uint64_t>(DropoutSite::kCount) + static_cast<uint64_t>(site),
                       static_cast<uint64_t>(step));
  }
};

template <class T>
struct Context {
  ThreadPool& pool;
  ParameterStore<T>& parameters;
  uint64_t pass = 0;  ///< number of the call of the model, within which parameters keep their values
  DropoutClock dropout;
  const StopToken* stop = nullptr;

  /// For sequences from `first` on.
  Context from(int64_t first) const {
    Context part = *this;
    part.dropout.first_sequence += first;
    return part;
  }
};

}  // namespace regard::nn::training
