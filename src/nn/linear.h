// Linear layers: weights stay in the precision of their file, packed once; results are those of the dequantised f32 weights,
// bit for bit, whatever the number of rows and threads. Nothing outside this file and kernels/ knows a storage format.
//
// Build one with LinearPack from the rows of a file, use it with forward() or forward_many(). The same packed copy answers
// row(), so that a tied embedding is stored once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "kernels/panels.h"
#include "regard/dtype.h"
#include "regard/stop_token.h"
#include "regard/tensor.h"
#include "runtime/thread_pool.h"

namespace regard::nn {

/// How products are summed. Only the exact way exists; approximate ones would be asked for by name.
enum class Arithmetic {
  kExact,  ///< one chain of f32 fused multiply-adds over the inner dimension, from +0, in index order
};

struct LinearConfig {
  DType type = DType::kF32;  ///< F32, F16, BF16 or a block format
  int64_t out = 0;           ///< rows of the stored matrix, columns of the result
  int64_t in = 0;            ///< length of a stored row; a multiple of the type's block length
  Arithmetic arithmetic = Arithmetic::kExact;
  Arena* arena = nullptr;    ///< where the packed weights go while they are built; null: memory of their own
};

/// y = x W^T + b, with W stored as [out, in].
/// Threads: everything const may be called from several threads at once.
class Linear {
 public:
  Linear() = default;

  const LinearConfig& config() const noexcept { return config_; }
  int64_t in() const noexcept { return config_.in; }
  int64_t out() const noexcept { return config_.out; }
  bool has_bias() const noexcept { return !bias_.empty(); }

  /// Memory that the weights and the bias take.
  size_t bytes() const noexcept { return panels_.size() + bias_.size() * sizeof(float); }

  /// Adds `bias` [out] to every row of the result, as one addition after the chain of products; empty takes it away.
  /// Errors: kInvalidArgument for another length.
  void set_bias(AlignedBuffer<float> bias);

  /// y[m][n] = sum over k of x[m][k] W[n][k] + b[n]. x is [rows, in], y is [rows, out], both with the last axis contiguous; y
  /// does not overlap x. in = 0 gives the bias alone. A NaN or infinity in a row of x stays in that row.
  /// Determinism: a row's bits depend on that row and the instruction set alone.
  /// Errors: kInvalidArgument for shapes that do not fit; kCancelled when `stop` was requested, y is unspecified then.
  void forward(ThreadPool& pool, TensorView<const float> x, TensorView<float> y, const StopToken* stop = nullptr) const;

  /// Row n of W as `in` floats: what an embedding looks up. No bias. Errors: kInvalidArgument unless 0 <= n < out.
  void row(int64_t n, float* y) const;

  /// The packed weights, for kernels.
  kernels::Panels panels() const noexcept;

 private:
  friend class LinearPack;
  LinearConfig config_;
  int64_t panel_bytes_ = 0;
  AlignedBuffer<uint8_t> panels_;
  AlignedBuffer<float> bias_;
  const float* bias() const noexcept { return bias_.empty() ? nullptr : bias_.data(); }
  friend struct LinearWork;
};

/// One of several layers that read the same input, and where its result goes.
struct LinearOutput {
  const Linear* layer = nullptr;
  TensorView<float> y;  ///< [rows, layer->out()]
};

/// layer.forward(x, y) for each of the outputs, as one step of the pool (query, key and value; gate and up): the threads share
/// all columns evenly and meet once. At most kMaxLinearOutputs. Otherwise as Linear::forward.
inline constexpr size_t kMaxLinearOutputs = 8;
void forward_many(ThreadPool& pool, TensorView<const float> x, std::span<const LinearOutput> outputs, const StopToken* stop = nullptr);

/// Packs a matrix while its file is being read.
///
///   LinearPack pack({.type = DType::kQ4_1, .out = 576, .in = 1536});
///   while (more) if (auto done = pack.add(bytes); !done) return done.failure();
///   Linear layer = pack.finish();
///
/// Memory: the packed matrix (bytes() of the result) and at most 64 rows of the file.
class LinearPack {
 public:
  /// Errors: kInvalidArgument for a type that holds no weights, a negative size or an `in` that is no multiple of the block
  /// length; kResourceExhausted when the sizes overflow or the memory is not to be had.
  explicit LinearPack(const LinearConfig& config);

  /// The number of bytes that the whole matrix has in a file.
  int64_t file_bytes() const noexcept { return config_.out * row_bytes_; }

  /// The next bytes of the matrix as the file has them, cut anywhere. Errors: a Failure kCorruptData that names the row when a
  /// scale is infinite or NaN; nothing more can be added then. Throws kInvalidArgument for more bytes than file_bytes().
  Result<Done> add(std::span<const uint8_t> bytes);

  /// The layer. Errors: kInvalidArgument when bytes are missing. The builder is empty afterwards.
  Linear finish();

 private:
  Result<Done> pack(const uint8_t* rows, int64_t count);

  LinearConfig config_;
  int64_t row_bytes_ = 0, panel_bytes_ = 0;
  int64_t packed_rows_ = 0;   // a multiple of 64 until the last panel is done
  size_t waiting_bytes_ = 0;  // in waiting_, the beginning of the next panel
  AlignedBuffer<uint8_t> waiting_;
  AlignedBuffer<uint8_t> panels_;
};

/// A matrix that is in memory already, in one step; for tests and small tools. Errors: as LinearPack, all thrown.
Linear make_linear(const LinearConfig& config, std::span<const uint8_t> bytes);
Linear make_linear(int64_t out, int64_t in, std::span<const float> weights);

}  // namespace regard::nn
