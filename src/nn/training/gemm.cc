#include "nn/training/gemm.h"

#include <algorithm>

#include "base/check.h"
#include "base/checked.h"
#include "kernels/registry.h"
#include "nn/training/gemm_bf16.h"
#include "nn/training/gemm_parts.h"

namespace regard::nn::training {
namespace {

using kernels::GemmKernels;

// Inner positions that are multiplied at a time: a panel of them stays in the second-level cache, and the rows of a tile in the
// first-level cache, while the sums make few trips through memory.
constexpr int64_t kInner = 768;
// Outputs, at most, whose sum is one chain in the gradient of an input. The head of a large vocabulary sums tens of thousands of small
// terms that nearly cancel: one chain over 49,152 of them is off by 8e-5 of the result, parts of kInner by 1e-6.
constexpr int64_t kLongestChain = 8192;
// Rows of one item, at most: the panels pass a block of rows, so longer blocks stream the panels less often. Measured best of 128 to
// 512, most for the widest layers.
constexpr int64_t kBlockRows = 512;

int64_t panels_of(int64_t columns, const GemmKernels& k) { return ceil_div<int64_t>(columns, k.panel_columns); }
int64_t panel_floats(int64_t columns, int64_t inner, const GemmKernels& k) { return panels_of(columns, k) * k.panel_columns * inner; }
int columns_of(int64_t panel, int64_t columns, const GemmKernels& k) {
  return static_cast<int>(std::min<int64_t>(k.panel_columns, columns - panel * k.panel_columns));
}

void pack_panel(const GemmKernels& k, const Matrix& b, int64_t panel, float* panels) {
  if (b.inner == 0) return;  // an empty matrix may have no address
  const int64_t c = panel * k.panel_columns;
  float* to = panels + c * b.inner;
  const int columns = columns_of(panel, b.columns, k);
  if (b.stored == Stored::kAsIs)
    k.pack_columns(b.data + c, b.ld, b.inner, columns, to);
  else
    k.pack_transposed(b.data + c * b.ld, b.ld, b.inner, columns, to);
}

// How many blocks rows are cut into, given the panels: as few as share the work out evenly.
int64_t row_blocks(int64_t rows, int64_t panels, int64_t threads, const GemmKernels& k) {
  constexpr int64_t kPerBlock = 4;  // what beginning a block costs, in rows
  const int64_t fewest = ceil_div(rows, kBlockRows), most = std::max(fewest, std::min(2 * threads * fewest, rows / (4 * k.tile_rows)));
  int64_t best = fewest, best_cost = 0;
  for (int64_t blocks = fewest; blocks <= most; ++blocks) {
    const int64_t cost = ceil_div(panels * blocks, threads) * (ceil_div(rows, blocks) + kPerBlock);
    if (blocks == fewest || cost < best_cost) {
      best = blocks;
      best_cost = cost;
    }
  }
  return best;
}

// How a long sum is made: one chain, or sums of parts of the inner dimension added up in order.
enum class Sum { kChain, kParts };

// What multiply_rows() of one part of the inner dimension gives, added to c.
void add_part(const GemmKernels& k, const float* a, int64_t lda, int64_t rows, const float* panel, int64_t inner, float* c, int64_t ldc,
              int columns) {
  constexpr int64_t kFloats = 4096;  // 16 KB of the stack, and of the first-level cache
  alignas(64) float part[kFloats];
  const int64_t step = kFloats / k.panel_columns / k.tile_rows * k.tile_rows;
  for (int64_t r0 = 0; r0 < rows; r0 += step) {
    const int64_t n = std::min(step, rows - r0);
    k.multiply_rows(a + r0 * lda, lda, n, panel, inner, nullptr, part, k.panel_columns, columns, Accumulate::kOverwrite);
    for (int64_t r = 0; r < n; ++r)
      for (int j = 0; j < columns; ++j) c[(r0 + r) * ldc + j] += part[r * k.panel_columns + j];
  }
}

// c = a times packed panels: blocks of rows, which all panels pass before the next.
void multiply_rows(const GemmContext& context, TensorView<const float> a, const float* panels, const float* bias, TensorView<float> c,
                   Accumulate accumulate, Sum sum) {
  const GemmKernels& k = *kernels::kernels().gemm;
  const int64_t rows = a.shape[0], inner = a.shape[1], columns = c.shape[1], lda = a.strides[0], ldc = c.strides[0];
  if (rows == 0 || columns == 0) return;
  const int64_t count = panels_of(columns, k), blocks = row_blocks(rows, count, context.pool.size(), k);
  const int64_t chunks = std::max<int64_t>(1, ceil_div(inner, kInner));  // no positions give the start and the bias
  const auto begin = [&](int64_t block) { return std::min(rows, round_up(rows * block / blocks, k.tile_rows)); };
  share(context, count * blocks, rows * columns * std::max<int64_t>(1, inner), [&](int64_t item, int) {
    const int64_t panel = item % count, r0 = begin(item / count), r1 = begin(item / count + 1), j = panel * k.panel_columns;
    for (int64_t i = 0; i < chunks; ++i) {
      const int64_t k0 = inner * i / chunks, k1 = inner * (i + 1) / chunks;
      if (sum == Sum::kParts && (i > 0 || accumulate == Accumulate::kAdd)) {
        add_part(k, a.data + r0 * lda + k0, lda, r1 - r0, panels + j * inner + k0 * k.panel_columns, k1 - k0, c.data + r0 * ldc + j, ldc,
                 columns_of(panel, columns, k));
        continue;
      }
      k.multiply_rows(a.data + r0 * lda + k0, lda, r1 - r0, panels + j * inner + k0 * k.panel_columns, k1 - k0,
                      bias != nullptr && i + 1 == chunks ? bias + j : nullptr, c.data + r0 * ldc + j, ldc, columns_of(panel, columns, k),
                      i == 0 ? accumulate : Accumulate::kAdd);
    }
  });
}

// How the rows of a weight gradient are cut into strips: whole tiles, and as many strips for each thread.
struct Strips {
  int64_t tiles, count, tile_rows, rows;
  Strips(int64_t height, int64_t threads, const GemmKernels& k)
      : tiles(ceil_div<int64_t>(height, k.tile_rows)),
        count(std::min(tiles, round_up(ceil_div<int64_t>(height, k.strip_rows), threads))),
        tile_rows(k.tile_rows),
        rows(height) {}
  int64_t begin(int64_t strip) const { return std::min(rows, tiles * strip / count * tile_rows); }
};

// Where the parts of the scratch of a weight gradient are, in floats: all panels, then a strip for each thread.
struct GradientScratch {
  int64_t panels, strip, total;
  GradientScratch(int64_t width, int64_t rows, int64_t threads, const GemmKernels& k) {
    const int64_t inner = std::min(rows, kInner);
    panels = panel_floats(width, inner, k);
    strip = k.strip_rows * inner;
    total = panels + threads * strip;
  }
};

// c[i][j] += sum over m of a[m][i] b[m][j], for c dense. Rows m come in chunks; the threads pack b's chunk together, then each
// packs strips of a and multiplies them. An element belongs to one strip, so its chain is whole.
void multiply_gradient(const GemmContext& context, TensorView<const float> a, TensorView<const float> b, float* c, ColumnSums sums) {
  const GemmKernels& k = *kernels::kernels().gemm;
  const int64_t rows = a.shape[0], height = a.shape[1], width = b.shape[1], lda = a.strides[0], ldb = b.strides[0];
  const Strips cut(height, context.pool.size(), k);
  const GradientScratch layout(width, rows, context.pool.size(), k);
  float* const panels = context.scratch.data();
  const int64_t count = panels_of(width, k), chunks = ceil_div(rows, kInner);
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const int64_t m0 = rows * chunk / chunks, inner = rows * (chunk + 1) / chunks - m0;
    const Matrix part{b.data + m0 * ldb, ldb, inner, width};
    share(context, count, inner * width, [&](int64_t panel, int) {
      pack_panel(k, part, panel, panels);
      const int64_t j = panel * k.panel_columns;
      if (sums.of_b != nullptr) k.add_rows(part.data + j, ldb, inner, columns_of(panel, width, k), sums.of_b + j);
    });
    share(context, cut.count, inner * height * std::max<int64_t>(1, width), [&](int64_t item, int thread) {
      const int64_t i0 = cut.begin(item), i1 = cut.begin(item + 1);
      float* const strip = panels + layout.panels + thread * layout.strip;
      const float* from = a.data + m0 * lda + i0;
      const int size = static_cast<int>(i1 - i0);
      k.pack_strip(from, lda, inner, size, strip);
      if (sums.of_a != nullptr) k.add_rows(from, lda, inner, size, sums.of_a + i0);
      const int64_t next = item + 1 < cut.count ? inner : 0;  // rows of what this thread packs next, most likely
      for (int64_t panel = 0; panel < count; ++panel) {
        const int64_t j = panel * k.panel_columns, f0 = next * panel / count, f1 = next * (panel + 1) / count;
        k.multiply_strip(strip, size, panels + j * inner, inner, c + i0 * width + j, width, columns_of(panel, width, k), Accumulate::kAdd,
                         {from + size + f0 * lda, lda, f1 - f0});
      }
    });
  }
}

template <class T>
void require_rows(const char* function, const char* name, const TensorView<T>& x, int64_t rows, int64_t width) {
  require(x.rank == 2 && x.shape[0] == rows && x.shape[1] == width, "[TrainableLinear::{}] {} is [{}, {}] with {} axes; expected [{}, {}]", function,
          name, x.shape[0], x.shape[1], x.rank, rows, width);
  require(width <= 1 || x.strides[1] == 1, "[TrainableLinear::{}] the elements of a row of {} are {} apart; expected 1", function, name, x.strides[1]);
  require(rows <= 1 || x.strides[0] >= width, "[TrainableLinear::{}] rows of {} are {} apart and overlap; expected at least {}", function, name,
          x.strides[0], width);
}

void require_scratch(const char* function, const GemmContext& context, const TrainableLinearConfig& config, int64_t rows) {
  const int64_t needed = gemm_scratch(context.pool, config, rows), given = static_cast<int64_t>(context.scratch.size());
  require(given >= needed, "[TrainableLinear::{}] {} floats of scratch; expected at least {}", function, given, needed);
}

}  // namespace

int64_t gemm_scratch(const ThreadPool& pool, const TrainableLinearConfig& layer, int64_t rows) {
  const bool is_out_in = layer.layout == WeightLayout::kOutIn;
  const int64_t height = is_out_in ? layer.out : layer.in, width = is_out_in ? layer.in : layer.out;
  if (layer.precision == GemmPrecision::kBF16)
    return std::max({bf16::gradient_scratch(pool, height, width, rows), bf16::rows_scratch(pool, rows, layer.in),
                     bf16::rows_scratch(pool, rows, layer.out)});
  return GradientScratch(width, rows, pool.size(), *kernels::kernels().gemm).total;
}

TrainableLinear::TrainableLinear(const TrainableLinearConfig& config) : config_(config) {
  require(config.out >= 0 && config.in >= 0, "[TrainableLinear] a matrix of [{}, {}]; sizes cannot be negative", config.out, config.in);
  if (config.precision == GemmPrecision::kBF16 && kernels::kernels().gemm_bf16 == nullptr)
    fail(Code::kUnsupported, "[TrainableLinear] the instruction set in use, {}, has no bf16 dot products (avx512_bf16 has them); ask for f32",
         isa_name(kernels::kernels().isa));
  const GemmKernels& k = *kernels::kernels().gemm;
  const auto elements = checked_mul<int64_t>(config.out, config.in);
  const auto padded = checked_mul<int64_t>(std::max(config.out, config.in), std::min(config.out, config.in) + k.panel_columns);
  if (!elements || !padded) fail(Code::kResourceExhausted, "[TrainableLinear] a matrix of [{}, {}] does not fit in memory", config.out, config.in);
  if (config.precision == GemmPrecision::kBF16) {
    forward_bf16_ = AlignedBuffer<uint32_t>(static_cast<size_t>(bf16::panel_dwords(config.out, config.in)));
    backward_bf16_ = AlignedBuffer<uint32_t>(static_cast<size_t>(bf16::panel_dwords(config.in, config.out)));
    return;
  }
  forward_ = AlignedBuffer<float>(static_cast<size_t>(panel_floats(config.out, config.in, k)));
  backward_ = AlignedBuffer<float>(static_cast<size_t>(panel_floats(config.in, config.out, k)));
}

void TrainableLinear::forward(const GemmContext& context, const float* weight, const float* bias, TensorView<const float> x,
                              TensorView<float> y) {
  require_rows("forward", "x", x, x.shape[0], config_.in);
  require_rows("forward", "y", y, x.shape[0], config_.out);
  if (!forward_packed_) pack(context, weight, Direction::kForward);
  if (config_.precision == GemmPrecision::kF32) return multiply_rows(context, x, forward_.data(), bias, y, Accumulate::kOverwrite, Sum::kChain);
  require_scratch("forward", context, config_, x.shape[0]);
  bf16::multiply_rows(context, x, forward_bf16_.data(), bias, y, Accumulate::kOverwrite);
}

void TrainableLinear::backward_input(const GemmContext& context, const float* weight, TensorView<const float> dy, TensorView<float> dx,
                                     Accumulate accumulate) {
  require_rows("backward_input", "dy", dy, dy.shape[0], config_.out);
  require_rows("backward_input", "dx", dx, dy.shape[0], config_.in);
  if (!backward_packed_) pack(context, weight, Direction::kBackward);
  if (config_.precision == GemmPrecision::kF32)
    return multiply_rows(context, dy, backward_.data(), nullptr, dx, accumulate, config_.out > kLongestChain ? Sum::kParts : Sum::kChain);
  require_scratch("backward_input", context, config_, dy.shape[0]);
  bf16::multiply_rows(context, dy, backward_bf16_.data(), nullptr, dx, accumulate);
}

void TrainableLinear::backward_weight(const GemmContext& context, TensorView<const float> x, TensorView<const float> dy, float* dweight,
                                      float* dbias) const {
  require_rows("backward_weight", "x", x, x.shape[0], config_.in);
  require_rows("backward_weight", "dy", dy, x.shape[0], config_.out);
  require_scratch("backward_weight", context, config_, x.shape[0]);
  const auto multiply = config_.precision == GemmPrecision::kBF16 ? bf16::multiply_gradient : multiply_gradient;
  if (config_.layout == WeightLayout::kOutIn)
    multiply(context, dy, x, dweight, {.of_a = dbias});
  else
    multiply(context, x, dy, dweight, {.of_b = dbias});
}

// Forward multiplies with W^T [in, out], backward with W [out, in]; one of them is what lies in memory.
void TrainableLinear::pack(const GemmContext& context, const float* weight, Direction direction) {
  const bool is_forward = direction == Direction::kForward;
  const int64_t inner = is_forward ? config_.in : config_.out, columns = is_forward ? config_.out : config_.in;
  const bool as_is = is_forward == (config_.layout == WeightLayout::kInOut);
  const Matrix b{weight, as_is ? columns : inner, inner, columns, as_is ? Stored::kAsIs : Stored::kTransposed};
  if (config_.precision == GemmPrecision::kBF16) {
    bf16::pack(context, b, (is_forward ? forward_bf16_ : backward_bf16_).data());
  } else {
    const GemmKernels& k = *kernels::kernels().gemm;
    float* const panels = is_forward ? forward_.data() : backward_.data();
    share(context, panels_of(columns, k), inner * columns, [&](int64_t panel, int) { pack_panel(k, b, panel, panels); });
  }
  (is_forward ? forward_packed_ : backward_packed_) = true;
}

}  // namespace regard::nn::training
