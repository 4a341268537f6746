#include "nn/linear.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/checked.h"
#include "kernels/registry.h"
#include "runtime/fp_control.h"

namespace regard::nn {
namespace {

using kernels::HalfPanels;
using kernels::kPanelColumns;

// Below this many products waking a thread costs more than the work: about 3 microseconds on one core.
constexpr int64_t kWorthAThread = 65536;

// Rows of one item when there are many: measured best of 64 to 256. Longer blocks decode and stream the panels less often, and
// their part of x has to stay in the second-level cache while all panels pass.
constexpr int64_t kBlockRows = 256;
// What decoding a panel costs, in rows of the same panel.
constexpr int64_t kDecodeRows = 2;
// Blocks begin at multiples of this, so that register tiles are whole on every instruction set.
constexpr int64_t kRowStep = 6;

float* scratch() {
  thread_local AlignedBuffer<float> buffer(kernels::kLinearScratch);
  return buffer.data();
}

struct Plan {
  const Linear* layer = nullptr;
  kernels::LinearKernel kernel = nullptr;
  TensorView<float> y;
  int64_t first_half = 0;  // among the half panels of all layers in one row
  int64_t halves = 0;
};

}  // namespace

// One call of forward_many, after its arguments were checked. Items are cut so that each is computed whole by one thread; two
// ways of cutting differ in who computes an output, never in its bits.
struct LinearWork {
  TensorView<const float> x;
  int64_t rows = 0;
  std::array<Plan, kMaxLinearOutputs> plans;
  size_t count = 0;
  int64_t halves = 0;  // of all layers

  void add(const Plan& plan) {
    Plan& p = plans[count++] = plan;
    p.first_half = halves;
    p.halves = 2 * ceil_div<int64_t>(p.layer->out(), kPanelColumns);  // even, so that 2p and 2p + 1 are always one panel
    halves += p.halves;
  }

  // Half panels of one layer, rows [r0, r1).
  void compute(const Plan& plan, HalfPanels part, int64_t r0, int64_t r1) const {
    const Linear& layer = *plan.layer;
    const int64_t ldy = plan.y.strides[0];
    float* y = plan.y.data + r0 * ldy;
    plan.kernel(layer.panels(), x.data + r0 * x.strides[0], x.strides[0], r1 - r0, y, ldy, part, scratch());
    const float* bias = layer.bias();
    if (bias == nullptr) return;
    const int64_t n0 = 32 * part.begin, n1 = std::min(32 * part.end, layer.out());
    const kernels::ElementwiseKernels& k = *kernels::kernels().elementwise;
    for (int64_t r = r0; r < r1 && n0 < n1; ++r, y += ldy) k.add(bias + n0, n1 - n0, y + n0);
  }

  // Half panels [begin, end) of all layers in one row, rows [r0, r1).
  void compute_halves(int64_t begin, int64_t end, int64_t r0, int64_t r1) const {
    for (size_t i = 0; i < count; ++i) {
      const Plan& plan = plans[i];
      const int64_t from = std::max(begin - plan.first_half, int64_t{0}), to = std::min(end - plan.first_half, plan.halves);
      if (from < to) compute(plan, {from, to}, r0, r1);
    }
  }

  // A few rows: every thread owns one contiguous stretch of half panels, so that its reads are one stream, and goes through it
  // by whole panels; only where two threads meet may a panel be cut.
  void run_fused(ThreadPool& pool, const StopToken* stop) const {
    const int64_t threads = pool.size();
    int64_t slots = 0;  // panels that a stretch touches, at most
    for (int64_t t = 0; t < threads; ++t)
      slots = std::max(slots, ceil_div(halves * (t + 1) / threads, int64_t{2}) - halves * t / threads / 2);
    pool.for_each(
        threads * slots,
        [&](int64_t item, int) {
          const int64_t t = item / slots, from = halves * t / threads, to = halves * (t + 1) / threads;
          const int64_t panel = from / 2 + item % slots;
          compute_halves(std::max(2 * panel, from), std::min(2 * panel + 2, to), 0, rows);
        },
        stop);
  }

  // Many rows: blocks of rows times panels. A thread takes all panels past a block before it goes on to the next.
  void run_tiled(ThreadPool& pool, const StopToken* stop) const {
    const int64_t panels = halves / 2, blocks = row_blocks(pool.size());
    pool.for_each(
        panels * blocks,
        [&](int64_t item, int) {
          const int64_t panel = item % panels, block = item / panels;
          compute_halves(2 * panel, 2 * panel + 2, block_begin(block, blocks), block_begin(block + 1, blocks));
        },
        stop);
  }

  int64_t block_begin(int64_t block, int64_t blocks) const {
    return std::min(rows, ceil_div(rows * block / blocks, kRowStep) * kRowStep);
  }

  // More blocks even out the shares of the threads, and decode every panel more often.
  int64_t row_blocks(int64_t threads) const {
    const int64_t fewest = std::max<int64_t>(1, rows / kBlockRows), most = std::max(fewest, std::min(2 * threads * fewest, rows / (4 * kRowStep)));
    int64_t best = fewest, best_cost = 0;
    for (int64_t blocks = fewest; blocks <= most; ++blocks) {
      const int64_t cost = ceil_div(halves / 2 * blocks, threads) * (ceil_div(rows, blocks) + kDecodeRows);
      if (blocks == fewest || cost < best_cost) {
        best = blocks;
        best_cost = cost;
      }
    }
    return best;
  }
};

void forward_many(ThreadPool& pool, TensorView<const float> x, std::span<const LinearOutput> outputs, const StopToken* stop) {
  require(outputs.size() <= kMaxLinearOutputs, "[Linear::forward] {} layers at once; at most {}", outputs.size(), kMaxLinearOutputs);
  require(x.rank == 2, "[Linear::forward] x has {} axes; expected 2, [rows, in]", x.rank);
  require(x.shape[1] <= 1 || x.strides[1] == 1, "[Linear::forward] the elements of a row of x are {} apart; expected 1", x.strides[1]);
  LinearWork work;
  work.x = x;
  work.rows = x.shape[0];
  const kernels::LinearKernels& table = *kernels::kernels().linear;
  int64_t products = 0;
  for (const LinearOutput& output : outputs) {
    require(output.layer != nullptr, "[Linear::forward] output {} has no layer", work.count);
    const Linear& layer = *output.layer;
    const TensorView<float>& y = output.y;
    require(x.shape[1] == layer.in(), "[Linear::forward] x is [{}, {}] but the layer takes rows of {}", x.shape[0], x.shape[1], layer.in());
    require(y.rank == 2 && y.shape[0] == x.shape[0] && y.shape[1] == layer.out(), "[Linear::forward] y is [{}, {}] with {} axes; expected [{}, {}]",
            y.shape[0], y.shape[1], y.rank, x.shape[0], layer.out());
    require(y.shape[1] <= 1 || y.strides[1] == 1, "[Linear::forward] the elements of a row of y are {} apart; expected 1", y.strides[1]);
    require(y.shape[0] <= 1 || y.strides[0] >= y.shape[1], "[Linear::forward] rows of y are {} apart and overlap; expected at least {}", y.strides[0],
            y.shape[1]);
    if (work.rows == 0 || layer.out() == 0) continue;
    work.add({&layer, table.of(layer.config().type), y});
    products += layer.out() * std::max<int64_t>(1, layer.in());
  }
  if (work.count == 0) return;
  if (products * work.rows < kWorthAThread) {
    pool.for_each(1, [&](int64_t, int) { work.compute_halves(0, work.halves, 0, work.rows); }, stop);  // runs here
  } else if (work.rows <= table.fused_rows) {
    work.run_fused(pool, stop);
  } else {
    work.run_tiled(pool, stop);
  }
}

void Linear::set_bias(AlignedBuffer<float> bias) {
  require(bias.empty() || bias.size() == static_cast<size_t>(config_.out), "[Linear::set_bias] {} biases for {} outputs", bias.size(), config_.out);
  bias_ = std::move(bias);
}

void Linear::forward(ThreadPool& pool, TensorView<const float> x, TensorView<float> y, const StopToken* stop) const {
  const LinearOutput output{this, y};
  forward_many(pool, x, {&output, 1}, stop);
}

void Linear::row(int64_t n, float* y) const {
  require(n >= 0 && n < config_.out, "[Linear::row] row {} of a matrix with {}", n, config_.out);
  const FpControlScope default_rounding;
  kernels::decode_column(panels(), n, y);
}

kernels::Panels Linear::panels() const noexcept {
  return {config_.type, config_.out, config_.in, panel_bytes_, panels_.data()};
}

LinearPack::LinearPack(const LinearConfig& config) : config_(config) {
  const DTypeInfo type = info(config.type);
  require(is_weight_type(config.type), "[LinearPack] weights of type {} are not supported; expected f32, f16, bf16 or a block format", type.name);
  require(config.out >= 0 && config.in >= 0, "[LinearPack] a matrix of [{}, {}]; sizes cannot be negative", config.out, config.in);
  require(config.in % type.values == 0, "[LinearPack] rows of {} are no whole number of {} blocks of {}", config.in, type.name, type.values);
  const auto row = kernels::row_bytes(config.type, config.in), panel = kernels::panel_bytes(config.type, config.in);
  const int64_t panels = config.out / kPanelColumns + (config.out % kPanelColumns != 0);
  const auto file = row ? checked_mul<int64_t>(*row, config.out) : row;
  const auto packed = panel ? checked_mul<int64_t>(*panel, panels) : panel;
  if (!file || !packed) fail(Code::kResourceExhausted, "[LinearPack] a {} matrix of [{}, {}] does not fit in memory", type.name, config.out, config.in);
  row_bytes_ = *row;
  panel_bytes_ = *panel;
  const auto bytes = static_cast<size_t>(*packed);
  panels_ = config_.arena != nullptr ? AlignedBuffer<uint8_t>(bytes, *config_.arena) : AlignedBuffer<uint8_t>(bytes);
  if (row_bytes_ == 0) packed_rows_ = config.out;  // rows without weights: nothing will come
}

// Packs `count` whole rows: a panel, or what is left of the last one.
Result<Done> LinearPack::pack(const uint8_t* rows, int64_t count) {
  uint8_t* panel = panels_.data() + packed_rows_ / kPanelColumns * panel_bytes_;
  const auto status = kernels::pack_panel(config_.type, rows, row_bytes_, static_cast<int>(count), config_.in, panel);
  if (status != kernels::PackStatus::kPacked)
    return corrupt("a scale in rows {} to {} of a {} matrix is infinite or not a number", packed_rows_, packed_rows_ + count - 1, info(config_.type).name);
  packed_rows_ += count;
  return Done{};
}

Result<Done> LinearPack::add(std::span<const uint8_t> bytes) {
  const int64_t left = file_bytes() - packed_rows_ * row_bytes_ - static_cast<int64_t>(waiting_bytes_);
  require(std::cmp_less_equal(bytes.size(), left), "[LinearPack::add] {} more bytes where {} are left of a matrix of {}", bytes.size(), left, file_bytes());
  while (!bytes.empty()) {
    const int64_t count = std::min<int64_t>(kPanelColumns, config_.out - packed_rows_);
    const auto whole = static_cast<size_t>(count * row_bytes_);
    if (waiting_bytes_ == 0 && bytes.size() >= whole) {  // a panel in one piece needs no copy
      REGARD_CHECK(pack(bytes.data(), count));
      bytes = bytes.subspan(whole);
      continue;
    }
    if (waiting_.empty()) waiting_ = AlignedBuffer<uint8_t>(static_cast<size_t>(kPanelColumns * row_bytes_));
    const size_t taken = std::min(bytes.size(), whole - waiting_bytes_);
    std::memcpy(waiting_.data() + waiting_bytes_, bytes.data(), taken);
    waiting_bytes_ += taken;
    bytes = bytes.subspan(taken);
    if (waiting_bytes_ == whole) {
      waiting_bytes_ = 0;
      REGARD_CHECK(pack(waiting_.data(), count));
    }
  }
  return Done{};
}

Linear LinearPack::finish() {
  require(packed_rows_ == config_.out && waiting_bytes_ == 0, "[LinearPack::finish] {} of {} rows of the matrix were given", packed_rows_, config_.out);
  Linear layer;
  layer.config_ = config_;
  layer.config_.arena = nullptr;  // was there for building
  layer.panel_bytes_ = panel_bytes_;
  layer.panels_ = std::move(panels_);
  *this = LinearPack(LinearConfig{});
  return layer;
}

Linear make_linear(const LinearConfig& config, std::span<const uint8_t> bytes) {
  LinearPack pack(config);
  std::move(pack.add(bytes)).value_or_throw();
  return pack.finish();
}

Linear make_linear(int64_t out, int64_t in, std::span<const float> weights) {
  return make_linear({.type = DType::kF32, .out = out, .in = in}, {reinterpret_cast<const uint8_t*>(weights.data()), weights.size_bytes()});
}

}  // namespace regard::nn
