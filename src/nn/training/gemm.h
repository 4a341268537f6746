// The matrix products of a training step: y = x W^T + b forward, dx = dy W and dW += dy^T x backward. Start at TrainableLinear.
//
// Every element is one chain of fused multiply-adds in rising index, from 0 or from the value that is there (carried through
// memory where the inner dimension is cut), so its bits depend neither on threads, nor on how many rows are computed
// together, nor on blocking; and a weight gradient does not depend on how its rows were cut into micro-batches.
// The gradient of an input over more than 8,192 outputs alone is made in parts (backward_input()).
#pragma once

#include <cstdint>
#include <span>

#include "base/aligned_buffer.h"
#include "kernels/gemm.h"
#include "regard/stop_token.h"
#include "regard/tensor.h"
#include "runtime/thread_pool.h"

namespace regard::nn::training {

using kernels::Accumulate;

/// In which precision operands enter products. Sums are f32 either way, and so is what is stored.
enum class GemmPrecision {
  kF32,
  /// Rounded to bf16 when they are packed; needs avx512_bf16. A chain then goes over pairs of its index (kernels/reference/bf16.h):
  /// its bits still depend on nothing else, but a weight gradient keeps them over several calls only where each but the last has
  /// an even number of rows. Bias and its gradient stay f32.
  kBF16,
};

/// How a matrix that takes `in` values to `out` values lies in memory, dense and row-major. W(n, k) is the weight of input k in
/// output n.
enum class WeightLayout {
  kOutIn,  ///< [out, in]: a linear layer of most files
  kInOut,  ///< [in, out]: GPT-2's
};

struct TrainableLinearConfig {
  int64_t out = 0;
  int64_t in = 0;
  WeightLayout layout = WeightLayout::kOutIn;
  GemmPrecision precision = GemmPrecision::kF32;
};

/// What a call runs on. `scratch` is aligned to 64 bytes and has at least gemm_scratch() floats; nothing in it outlives the call.
struct GemmContext {
  ThreadPool& pool;
  std::span<float> scratch;
  const StopToken* stop = nullptr;
};

/// Floats of scratch for any call with that layer, a pool of that size and that many rows (or fewer).
int64_t gemm_scratch(const ThreadPool& pool, const TrainableLinearConfig& layer, int64_t rows);

/// A linear layer whose weights change. It owns no parameter: the weights are an argument of every call, and the same ones
/// until weights_changed() is called. They are packed once per direction and change, into memory that the layer keeps.
///
/// Shapes: x [rows, in], y [rows, out], weights as config().layout says, bias [out]. Rows of x, y, dx, dy may lie apart
/// (strides[0]); the elements of a row are contiguous. Results do not overlap operands.
/// A NaN or infinity in a row of x or dy stays in that row of y or dx.
/// Threads: one call at a time. Determinism: the bits depend on the operands and the instruction set alone.
/// Errors: kInvalidArgument for shapes that do not fit or too little scratch; kCancelled when `stop` was requested, results
/// are unspecified then.
class TrainableLinear {
 public:
  TrainableLinear() = default;
  /// Errors: kInvalidArgument for a negative size; kUnsupported for a precision that there are no kernels for; kResourceExhausted.
  explicit TrainableLinear(const TrainableLinearConfig& config);

  const TrainableLinearConfig& config() const noexcept { return config_; }
  /// Memory of the packed weights of both directions.
  size_t packed_bytes() const noexcept { return (forward_.size() + backward_.size() + forward_bf16_.size() + backward_bf16_.size()) * sizeof(float); }

  /// The weights are others now: the next call of each direction packs them anew.
  void weights_changed() noexcept { forward_packed_ = backward_packed_ = false; }

  /// y[m][n] = sum over k of x[m][k] W(n, k), then + bias[n] as one addition; bias may be null. The bits are those of nn::Linear
  /// with the same weights in f32.
  void forward(const GemmContext& context, const float* weight, const float* bias, TensorView<const float> x, TensorView<float> y);

  /// dx[m][k] = sum over n of dy[m][n] W(n, k), which begins at 0 or at what dx holds. In f32, more than 8,192 outputs are cut into
  /// parts of at most 768, as even as can be; each is a chain from 0, and they are added to dx in order.
  void backward_input(const GemmContext& context, const float* weight, TensorView<const float> dy, TensorView<float> dx,
                      Accumulate accumulate = Accumulate::kOverwrite);

  /// dweight(n, k) += sum over m of dy[m][n] x[m][k] and dbias[n] += sum over m of dy[m][n]: each one chain in rising m from what
  /// is there, so that rows may come in several calls. dbias may be null.
  void backward_weight(const GemmContext& context, TensorView<const float> x, TensorView<const float> dy, float* dweight, float* dbias) const;

 private:
  enum class Direction { kForward, kBackward };
  void pack(const GemmContext& context, const float* weight, Direction direction);

  TrainableLinearConfig config_;
  bool forward_packed_ = false, backward_packed_ = false;
  AlignedBuffer<float> forward_, backward_;  // panels of W^T and of W
  AlignedBuffer<uint32_t> forward_bf16_, backward_bf16_;
};

}  // namespace regard::nn::training
