// Linear layers on one thread: packed f32 against the sgemm of other libraries, every storage format against packed f32, and
// one row from memory. `linear_bench [sgemm|formats|row|all]`, all by default.
#include <cstdio>
#include <cstring>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/rng.h"
#include "harness.h"
#include "kernels/reference/linear.h"
#include "kernels/registry.h"
#include "nn/linear.h"
#include "support/random_weights.h"
#if defined(REGARD_HAVE_OPENBLAS)
#include <cblas.h>
#endif
#if defined(REGARD_HAVE_DNNL)
#include <oneapi/dnnl/dnnl.h>
#endif

namespace regard::bench {
namespace {

using ::regard::test::kWeightTypes;
using ::regard::test::random_weights;

AlignedBuffer<float> random_values(int64_t n, uint32_t seed) {
  AlignedBuffer<float> x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(2 * random_uniform(seed, 0, i) - 1);
  return x;
}

void multiply(const nn::Linear& layer, const float* x, int64_t rows, float* y) {
  static ThreadPool pool(1);
  layer.forward(pool, {x, {rows, layer.in()}}, {y, {rows, layer.out()}});
}

// A few outputs against the definition, bit for bit.
void check(DType type, const std::vector<uint8_t>& bytes, int64_t in, int64_t out, const float* x, int64_t rows, const float* y) {
  std::vector<float> w(static_cast<size_t>(in));
  const int64_t row = kernels::row_bytes(type, in).value();
  for (int64_t n : {int64_t{0}, out / 2, out - 1}) {
    kernels::reference::decode_row(type, bytes.data() + n * row, in, w.data());
    for (int64_t m : {int64_t{0}, rows - 1}) {
      float want = 0;
      if (kernels::kernels().isa == Isa::kBaseline)
        kernels::reference::linear(x + m * in, w.data(), 1, in, 1, &want, kernels::reference::MultiplyThenAdd{});
      else
        kernels::reference::linear(x + m * in, w.data(), 1, in, 1, &want);
      require_answer(std::memcmp(&want, y + m * out + n, 4) == 0, std::string(info(type).name) + " output " + std::to_string(m) + ", " + std::to_string(n));
    }
  }
}

struct Shape {
  int64_t rows, in, out;
};

void against_sgemm(double peak) {
  std::printf("\nf32, rows x in x out; GF/s, median (spread), and the ratio to the best peer\n");
  for (const Shape s : {Shape{512, 576, 1536}, Shape{512, 1536, 576}, Shape{2048, 2048, 2048}}) {
    const AlignedBuffer<float> x = random_values(s.rows * s.in, 1), w = random_values(s.in * s.out, 2);
    AlignedBuffer<float> y(static_cast<size_t>(s.rows * s.out)), peer(y.size());
    const nn::Linear layer = nn::make_linear(s.out, s.in, {w.data(), w.size()});
    multiply(layer, x.data(), s.rows, y.data());
    const auto* first = reinterpret_cast<const uint8_t*>(w.data());
    check(DType::kF32, {first, first + w.size() * 4}, s.in, s.out, x.data(), s.rows, y.data());

    // The peers get the weights transposed to [in, out], the layout they run fastest with.
    AlignedBuffer<float> transposed(w.size());
    for (int64_t n = 0; n < s.out; ++n)
      for (int64_t k = 0; k < s.in; ++k) transposed[static_cast<size_t>(k * s.out + n)] = w[static_cast<size_t>(n * s.in + k)];
    std::vector<const char*> names = {"regard"};
    std::vector<std::function<void()>> works = {[&] { multiply(layer, x.data(), s.rows, y.data()); }};
#if defined(REGARD_HAVE_OPENBLAS)
    names.push_back("OpenBLAS");
    works.push_back([&] {
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, static_cast<int>(s.rows), static_cast<int>(s.out), static_cast<int>(s.in), 1.0f, x.data(),
                  static_cast<int>(s.in), transposed.data(), static_cast<int>(s.out), 0.0f, peer.data(), static_cast<int>(s.out));
    });
#endif
#if defined(REGARD_HAVE_DNNL)
    names.push_back("oneDNN");
    works.push_back([&] { dnnl_sgemm('N', 'N', s.rows, s.out, s.in, 1.0f, x.data(), s.in, transposed.data(), s.out, 0.0f, peer.data(), s.out); });
#endif
    for (size_t i = 1; i < works.size(); ++i) {
      works[i]();
      double worst = 0;
      for (size_t j = 0; j < y.size(); ++j) worst = std::max(worst, std::abs(double{y[j]} - double{peer[j]}));
      require_answer(worst < 1e-6 * static_cast<double>(s.in), std::string(names[i]) + " differs by " + std::to_string(worst));
    }
    const std::vector<Timing> t = race(works, 1.0);
    const double gf = 2e-9 * static_cast<double>(s.rows * s.in * s.out);
    double best_peer = 0;
    std::printf("%5ld x %4ld x %4ld ", static_cast<long>(s.rows), static_cast<long>(s.in), static_cast<long>(s.out));
    for (size_t i = 0; i < t.size(); ++i) {
      std::printf(" %s %6.1f (%.0f %%)", names[i], gf / t[i].median, 100 * t[i].spread);
      if (i > 0) best_peer = std::max(best_peer, gf / t[i].median);
    }
    std::printf("  of peak %.2f", gf / t[0].median / peak);
    if (best_peer > 0) std::printf("  of best peer %.2f", gf / t[0].median / best_peer);
    std::printf("\n");
  }
}

void against_packed_f32(double peak) {
  const int64_t in = 1536, out = 576;
  std::printf("\nstorage formats, %ld x %ld; GF/s, median (spread), and the ratio to packed f32\n", static_cast<long>(in), static_cast<long>(out));
  const std::vector<uint8_t> plain = random_weights(DType::kF32, out, in, 1);
  const nn::Linear f32 = nn::make_linear({.type = DType::kF32, .out = out, .in = in}, plain);
  for (int64_t rows : {1, 2, 4, 8, 16, 64, 128, 512}) {
    const AlignedBuffer<float> x = random_values(rows * in, 3);
    AlignedBuffer<float> y(static_cast<size_t>(rows * out)), z(y.size());
    const double gf = 2e-9 * static_cast<double>(rows * in * out);
    std::printf("rows %3ld:", static_cast<long>(rows));
    for (DType type : kWeightTypes) {
      const std::vector<uint8_t> bytes = random_weights(type, out, in, 4);
      const nn::Linear layer = nn::make_linear({.type = type, .out = out, .in = in}, bytes);
      multiply(layer, x.data(), rows, z.data());
      check(type, bytes, in, out, x.data(), rows, z.data());
      const std::vector<Timing> t = race({[&] { multiply(f32, x.data(), rows, y.data()); }, [&] { multiply(layer, x.data(), rows, z.data()); }}, 0.15);
      if (type == DType::kF32)
        std::printf("  f32 %.1f (%.0f %%, of peak %.2f)", gf / t[1].median, 100 * t[1].spread, gf / t[1].median / peak);
      else
        std::printf("  %s %.1f (%.2f)", std::string(info(type).name).c_str(), gf / t[1].median, t[0].median / t[1].median);
    }
    std::printf("\n");
  }
}

// One row through more weights than any cache holds.
void one_row(double ghz) {
  const int64_t in = 1024, out = 640;
  std::printf("\none row, %ld x %ld; cycles per 16 weights in the cache and from memory, and bytes from memory\n", static_cast<long>(in), static_cast<long>(out));
  const AlignedBuffer<float> x = random_values(in, 5);
  AlignedBuffer<float> y(static_cast<size_t>(out));
  for (DType type : kWeightTypes) {
    const std::vector<uint8_t> bytes = random_weights(type, out, in, 4);
    std::vector<nn::Linear> layers;
    for (size_t total = 0; total < (size_t{256} << 20); total += layers.back().bytes()) layers.push_back(nn::make_linear({.type = type, .out = out, .in = in}, bytes));
    multiply(layers[0], x.data(), 1, y.data());
    check(type, bytes, in, out, x.data(), 1, y.data());
    const Timing hot = measure([&] { multiply(layers[0], x.data(), 1, y.data()); });
    const Timing cold = measure([&] { for (const nn::Linear& layer : layers) multiply(layer, x.data(), 1, y.data()); }, 1.0);
    const double vectors = static_cast<double>(in * out) / 16, n = static_cast<double>(layers.size());
    std::printf("  %-5s in cache %5.2f   from memory %5.2f (spread %.0f %%, best %.2f)   %5.1f GB/s\n", std::string(info(type).name).c_str(), 1e9 * ghz * hot.median / vectors,
                1e9 * ghz * cold.median / n / vectors, 100 * cold.spread, 1e9 * ghz * cold.best / n / vectors, 1e-9 * n * static_cast<double>(layers[0].bytes()) / cold.median);
  }
}

}  // namespace
}  // namespace regard::bench

int main(int argc, char** argv) {
  using namespace regard::bench;
  fix_peer_threads(argv, 1);
  const std::string what = argc > 1 ? argv[1] : "all";
  const Ceilings ceilings = measure_ceilings();
  print(ceilings);
  if (what == "sgemm" || what == "all") against_sgemm(ceilings.fma_gflops);
  if (what == "formats" || what == "all") against_packed_f32(ceilings.fma_gflops);
  if (what == "row" || what == "all") one_row(ceilings.ghz);
}
