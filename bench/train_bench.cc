// The matrix products of training steps beside those of other libraries: `train_bench [threads [f32|bf16]]`, one thread and both by
// default. Ours pack the weights in every call, as a step with one micro-batch does.
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/half.h"
#include "base/rng.h"
#include "harness.h"
#include "kernels/registry.h"
#include "nn/training/gemm.h"
#if defined(REGARD_HAVE_OPENBLAS)
#include <cblas.h>
#endif
#if defined(REGARD_HAVE_DNNL)
#include <oneapi/dnnl/dnnl.h>

#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#endif

namespace regard::bench {
namespace {

using namespace nn::training;

AlignedBuffer<float> random_values(int64_t n, uint32_t seed) {
  AlignedBuffer<float> x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(2 * random_uniform(seed, 0, i) - 1);
  return x;
}

enum class Role { kForward, kInputGradient, kWeightGradient };

// C [m, n] += or = A B with k products each: y = x W^T, dx = dy W, dW += dy^T x.
struct Shape {
  const char* name;
  Role role;
  int64_t m, n, k;
};
constexpr Shape kShapes[] = {
    {"forward, C 128", Role::kForward, 768, 384, 128},          {"dW, C 128", Role::kWeightGradient, 512, 128, 768},
    {"forward, C 384", Role::kForward, 4096, 1536, 384},        {"dx, C 384", Role::kInputGradient, 4096, 384, 1536},
    {"dW, C 384", Role::kWeightGradient, 1536, 384, 4096},      {"logits, V 8192", Role::kForward, 2048, 8192, 512},
};

// A and B as the role has them in memory: A is [k, m] for a weight gradient and [m, k] else, B is [n, k] forward and [k, n] else.
struct Problem {
  Shape shape;
  AlignedBuffer<float> a, b, c;
  TrainableLinear layer;
  AlignedBuffer<float> scratch;

  Problem(const Shape& s, const ThreadPool& pool, GemmPrecision precision = GemmPrecision::kF32)
      : shape(s), a(random_values(s.m * s.k, 1)), b(random_values(s.n * s.k, 2)), c(static_cast<size_t>(s.m * s.n)) {
    TrainableLinearConfig config{.out = s.n, .in = s.k};
    int64_t rows = s.m;
    if (s.role == Role::kInputGradient) config = {.out = s.k, .in = s.n};
    if (s.role == Role::kWeightGradient) config = {.out = s.m, .in = s.n}, rows = s.k;
    config.precision = precision;
    layer = TrainableLinear(config);
    scratch = AlignedBuffer<float>(static_cast<size_t>(gemm_scratch(pool, config, rows)));
  }
  bool a_is_transposed() const { return shape.role == Role::kWeightGradient; }
  bool b_is_transposed() const { return shape.role == Role::kForward; }
  float beta() const { return shape.role == Role::kWeightGradient ? 1.0f : 0.0f; }

  void run(ThreadPool& pool) {
    const GemmContext context{pool, {scratch.data(), scratch.size()}};
    layer.weights_changed();
    const auto [name, role, m, n, k] = shape;
    switch (role) {
      case Role::kForward: return layer.forward(context, b.data(), nullptr, {a.data(), {m, k}}, {c.data(), {m, n}});
      case Role::kInputGradient: return layer.backward_input(context, b.data(), {a.data(), {m, k}}, {c.data(), {m, n}});
      case Role::kWeightGradient: return layer.backward_weight(context, {b.data(), {k, n}}, {a.data(), {k, m}}, c.data(), nullptr);
    }
  }
  // What may be off for each product.
  double tolerance() const { return layer.config().precision == GemmPrecision::kF32 ? 1e-6 : 1e-3; }
  // Some elements against f64.
  void check() {
    for (int64_t i : {int64_t{0}, shape.m / 2, shape.m - 1})
      for (int64_t j = 0; j < shape.n; ++j) {
        double sum = 0;
        for (int64_t l = 0; l < shape.k; ++l)
          sum += double{a[static_cast<size_t>(a_is_transposed() ? l * shape.m + i : i * shape.k + l)]} *
                 double{b[static_cast<size_t>(b_is_transposed() ? j * shape.k + l : l * shape.n + j)]};
        require_answer(std::abs(double{c[static_cast<size_t>(i * shape.n + j)]} - sum) < tolerance() * static_cast<double>(shape.k),
                       std::string(shape.name) + " at " + std::to_string(i) + ", " + std::to_string(j));
      }
  }
};

void against_sgemm(ThreadPool& pool) {
  std::printf("\nC = A B in f32, m x n x k on %d threads; GF/s, median (spread), and the ratio to the best peer\n", pool.size());
  for (const Shape& s : kShapes) {
    Problem p(s, pool);
    std::fill(p.c.begin(), p.c.end(), 0.0f);
    p.run(pool);
    p.check();
    AlignedBuffer<float> peer(p.c.size());
    std::vector<const char*> names = {"regard"};
    std::vector<std::function<void()>> works = {[&] { p.run(pool); }};
    [[maybe_unused]] const int64_t lda = p.a_is_transposed() ? s.m : s.k, ldb = p.b_is_transposed() ? s.k : s.n;
#if defined(REGARD_HAVE_OPENBLAS)
    names.push_back("OpenBLAS");
    works.push_back([&] {
      cblas_sgemm(CblasRowMajor, p.a_is_transposed() ? CblasTrans : CblasNoTrans, p.b_is_transposed() ? CblasTrans : CblasNoTrans, static_cast<int>(s.m),
                  static_cast<int>(s.n), static_cast<int>(s.k), 1.0f, p.a.data(), static_cast<int>(lda), p.b.data(), static_cast<int>(ldb), p.beta(),
                  peer.data(), static_cast<int>(s.n));
    });
#endif
#if defined(REGARD_HAVE_DNNL)
    names.push_back("oneDNN");
    works.push_back([&] {
      dnnl_sgemm(p.a_is_transposed() ? 'T' : 'N', p.b_is_transposed() ? 'T' : 'N', s.m, s.n, s.k, 1.0f, p.a.data(), lda, p.b.data(), ldb, p.beta(),
                 peer.data(), s.n);
    });
#endif
    for (size_t i = 1; i < works.size(); ++i) {
      std::fill(peer.begin(), peer.end(), 0.0f);
      works[i]();
      double worst = 0;
      for (size_t j = 0; j < peer.size(); ++j) worst = std::max(worst, std::abs(double{p.c[j]} - double{peer[j]}));
      require_answer(worst < 2e-6 * static_cast<double>(s.k), std::string(names[i]) + " differs by " + std::to_string(worst));
    }
    const std::vector<Timing> t = race(works, 2.0, pool.size() == 1 ? Clock::kThreadCpu : Clock::kWall);
    const double gf = 2e-9 * static_cast<double>(s.m * s.n * s.k);
    double best_peer = 0;
    std::printf("%-15s %4ld x %4ld x %4ld ", s.name, static_cast<long>(s.m), static_cast<long>(s.n), static_cast<long>(s.k));
    for (size_t i = 0; i < t.size(); ++i) {
      std::printf(" %s %6.1f (%.0f %%)", names[i], gf / t[i].median, 100 * t[i].spread);
      if (i > 0) best_peer = std::max(best_peer, gf / t[i].median);
    }
    if (best_peer > 0) std::printf("  of best peer %.2f", gf / t[0].median / best_peer);
    std::printf("\n");
  }
}

#if defined(REGARD_HAVE_DNNL)
// A matrix product of oneDNN with operands that are bf16 already and a result in f32.
class DnnlBf16 {
 public:
  explicit DnnlBf16(Problem& p) : a_(round(p.a)), b_(round(p.b)), c(p.c.size()) {
    using tag = dnnl::memory::format_tag;
    using type = dnnl::memory::data_type;
    const Shape& s = p.shape;
    const dnnl::memory::desc a({s.m, s.k}, type::bf16, p.a_is_transposed() ? tag::ba : tag::ab),
        b({s.k, s.n}, type::bf16, p.b_is_transposed() ? tag::ba : tag::ab), result({s.m, s.n}, type::f32, tag::ab);
    dnnl::primitive_attr attributes;
    if (p.beta() != 0.0f) {
      dnnl::post_ops sum;
      sum.append_sum(p.beta());
      attributes.set_post_ops(sum);
    }
    product_ = dnnl::matmul(dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, result), attributes, engine_));
    arguments_ = {{DNNL_ARG_SRC, {a, engine_, a_.data()}}, {DNNL_ARG_WEIGHTS, {b, engine_, b_.data()}}, {DNNL_ARG_DST, {result, engine_, c.data()}}};
  }
  void run() {
    product_.execute(stream_, arguments_);
    stream_.wait();
  }

 private:
  static std::vector<uint16_t> round(const AlignedBuffer<float>& x) {
    std::vector<uint16_t> y;
    for (const float v : x) y.push_back(float_to_bf16(v));
    return y;
  }
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::vector<uint16_t> a_, b_;
  dnnl::matmul product_;
  std::unordered_map<int, dnnl::memory> arguments_;

 public:
  std::vector<float> c;
};
#endif

void in_bf16(ThreadPool& pool) {
  std::printf("\nThe same on bf16 dot products, from operands in f32; beside f32, and beside oneDNN with operands that are bf16 already\n");
  for (const Shape& s : kShapes) {
    Problem p(s, pool, GemmPrecision::kBF16), f32(s, pool);
    std::fill(p.c.begin(), p.c.end(), 0.0f);
    p.run(pool);
    p.check();
    std::vector<const char*> names = {"regard", "f32"};
    std::vector<std::function<void()>> works = {[&] { p.run(pool); }, [&] { f32.run(pool); }};
#if defined(REGARD_HAVE_DNNL)
    DnnlBf16 peer(p);
    peer.run();
    double worst = 0;
    for (size_t j = 0; j < peer.c.size(); ++j) worst = std::max(worst, std::abs(double{p.c[j]} - double{peer.c[j]}));
    require_answer(worst < 2e-6 * static_cast<double>(s.k), "oneDNN differs by " + std::to_string(worst));
    names.push_back("oneDNN");
    works.push_back([&] { peer.run(); });
#endif
    const std::vector<Timing> t = race(works, 2.0, pool.size() == 1 ? Clock::kThreadCpu : Clock::kWall);
    const double gf = 2e-9 * static_cast<double>(s.m * s.n * s.k);
    std::printf("%-15s %4ld x %4ld x %4ld ", s.name, static_cast<long>(s.m), static_cast<long>(s.n), static_cast<long>(s.k));
    for (size_t i = 0; i < t.size(); ++i) std::printf(" %s %6.1f (%.0f %%)", names[i], gf / t[i].median, 100 * t[i].spread);
    std::printf("  over f32 %.2f", t[1].median / t[0].median);
    if (t.size() > 2) std::printf("  of oneDNN %.2f", t[2].median / t[0].median);
    std::printf("\n");
  }
}

}  // namespace
}  // namespace regard::bench

int main(int argc, char** argv) {
  using namespace regard::bench;
  const int threads = argc > 1 ? std::max(1, std::atoi(argv[1])) : 1;
  fix_peer_threads(argv, threads);
  print(measure_ceilings());
  regard::ThreadPool pool(threads);
  if (argc < 3 || std::string(argv[2]) == "f32") against_sgemm(pool);
  if ((argc < 3 || std::string(argv[2]) == "bf16") && regard::kernels::kernels().gemm_bf16 != nullptr) in_bf16(pool);
}
