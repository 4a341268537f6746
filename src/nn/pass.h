// What the modules share while rows run through a model once: the threads, the scratch memory, the request to stop.
#pragma once

#include <array>
#include <cstdint>

#include "attention/attention.h"
#include "base/aligned_buffer.h"
#include "nn/attention_looks.h"
#include "regard/stop_token.h"
#include "runtime/thread_pool.h"

namespace regard::nn {

/// Rows of scratch memory by purpose. Slots grow and never shrink, so that a loop of equal passes allocates once. Two
/// purposes that live at the same time have two slots.
class Scratch {
 public:
  enum Slot { kNormed, kQuery, kKey, kValue, kBranch, kGate, kUp, kSlots };

  /// At least `size` floats, aligned and not initialised; what the slot held is lost when it grows. Errors: kResourceExhausted.
  float* get(Slot slot, int64_t size) {
    AlignedBuffer<float>& buffer = buffers_[slot];
    if (buffer.size() < static_cast<size_t>(size)) {
      buffer = {};  // first give back, then take
      buffer = AlignedBuffer<float>(static_cast<size_t>(size));
    }
    return buffer.data();
  }

  AttentionWorkspace attention;

 private:
  std::array<AlignedBuffer<float>, kSlots> buffers_;
};

struct Pass {
  ThreadPool& pool;
  Scratch& scratch;
  int64_t rows = 0;  ///< tokens of all sequences together
  const StopToken* stop = nullptr;
  const AttentionObserver* observer = nullptr;  ///< of the attention; null: nobody looks
};

}  // namespace regard::nn
