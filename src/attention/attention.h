// Attention over cached keys and values, for a batch of sequences at once: prompts, chunks of prompts and single
// decoded tokens together. Read attend_sequences() first; how rows meet tiles is in row_block.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "attention/kv_view.h"
#include "mask/plan.h"
#include "regard/attention.h"
#include "regard/stop_token.h"
#include "runtime/workspace.h"

namespace regard {

class ScoreTerms;
class ThreadPool;

/// What all sequences of a call have in common.
struct AttentionShape {
  int num_q_heads = 0;
  int num_kv_heads = 0;  ///< num_q_heads is a multiple; query head h reads KV head h / (num_q_heads / num_kv_heads)
  int head_dim = 0;
  int value_dim = 0;
  double scale = 0;    ///< multiplies q . k
  double softcap = 0;  ///< s -> softcap * tanh(s / softcap) after the scale; 0: none
  const ScoreTerms* terms = nullptr;  ///< placed for each sequence of the call, in their order; null: none
  /// kBf16Dots: the keys and values of all sequences are KvLayout::kPairs, and the kernels in use have attention_bf16.
  AttentionArithmetic arithmetic = AttentionArithmetic::kF32;
};

/// Running results of the rows of a sequence, not yet divided: m and l at [head * head_stride + token], o in rows of
/// padded_dim(value_dim) in the same order.
struct PartialRows {
  float* m = nullptr;
  float* l = nullptr;
  float* o = nullptr;
  int64_t head_stride = 0;
};

/// The queries of one sequence and where they look. Strides count floats; the head_dim and value_dim elements of a row
/// are contiguous. q and out may be the same memory when their strides are the same.
struct SequenceQueries {
  const float* q = nullptr;
  int64_t q_token_stride = 0, q_head_stride = 0;
  float* out = nullptr;
  int64_t out_token_stride = 0, out_head_stride = 0;
  float* lse = nullptr;  ///< [token][head] by strides; null: not wanted
  int64_t lse_token_stride = 0, lse_head_stride = 0;
  PartialRows partial;  ///< m not null: the keys are folded into these, and out, lse and sinks are left alone

  int64_t tokens = 0;
  int64_t first_position = 0;  ///< token i stands at first_position + i ...
  const int64_t* positions =
      nullptr;  ///< ... or at positions[i]; a negative one is a slot that was never written: an empty row
  KvView keys;
  int64_t batch_row = 0;  ///< of the mask
};

/// One stretch of work: a block of rows of one KV head against a range of tiles.
struct AttentionItem {
  int32_t sequence = 0;
  int32_t kv_head = 0;
  int64_t first_row = 0;  ///< row = token * group + head of the group
  int32_t rows = 0;
  int32_t shared = -1;  ///< when the tiles of a block are shared out: number of the block; else -1
  int64_t part = 0;     ///< and number of this tile's partial result
  int64_t tile_begin = 0, tile_end = 0;
  int64_t cost = 0;
};

/// Memory that attention needs besides its tensors: scratch for each thread, partial results of decode. It grows and is
/// kept, so that a loop of equal steps allocates nothing. Belongs to one caller at a time.
class AttentionWorkspace {
 public:
  size_t total_bytes() const noexcept;

  /// How many blocks of the last call had their tiles shared out over the threads; tests ask which way was taken.
  int64_t shared_blocks() const noexcept { return shared_blocks_; }

 private:
  friend class AttentionCall;
  int64_t shared_blocks_ = 0;
  Workspace threads_;
  std::vector<AttentionItem> items_, ordered_;
  std::vector<int64_t> first_part_;  // per shared block
  AlignedBuffer<float> parts_;
  std::unique_ptr<std::atomic<int>[]> missing_;  // tiles of each shared block that are not done yet
  size_t missing_size_ = 0;
};

/// out = softmax(mask(softcap(scale q k^T) + terms)) v and lse for all sequences, in one phase of the pool.
///
/// An empty row gives 0 and -inf. A row's bits depend on its query, its position, the keys and values it may see and
/// the mask: not on the other rows of the call, the batch, the threads, or how the sequence was cut into calls. The
/// shapes are the caller's to get right (programmer errors are not checked here; regard::attend does). Errors:
/// kCancelled when `stop` was requested, with the outputs undefined; kResourceExhausted for the workspace. Cost: time
/// grows with the tiles that are not empty; memory is scratch for each thread, and for decoding on several threads one
/// partial result for each tile: about rows / 512 of the bytes of keys and values that are read.
void attend_sequences(std::span<const SequenceQueries> sequences, const AttentionShape& shape, const MaskPlan& mask,
                      AttentionWorkspace& workspace, ThreadPool& pool, const StopToken* stop = nullptr);

}  // namespace regard
