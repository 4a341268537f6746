// The backward pass in f32: its time over the forward pass of the same tensors, its rate against the FMA peak, and what
// a second thread gains when there is one head. Only visible pairs count: 10 d operations each for equal head sizes.
#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "attention/backward.h"
#include "attention/packed_kv.h"
#include "base/rng.h"
#include "harness.h"
#include "kernels/reference/attention_backward.h"
#include "kernels/registry.h"
#include "runtime/thread_pool.h"

namespace {

using namespace regard;

// `heads` heads of n tokens, forward and backward; packing is part of both.
struct Problem {
  Problem(int dim, int64_t tokens, int num_heads, const char* text, int threads)
      : d(dim),
        n(tokens),
        heads(num_heads),
        mask(Mask::parse(text)),
        plan(mask, {}, 1, num_heads),
        pool(threads),
        sizes{1, num_heads, num_heads, tokens, tokens, dim, dim},
        rows("bench", sizes, {}),
        positions("bench", sizes, mask, {}),
        shape{num_heads, num_heads, dim, dim, 1 / std::sqrt(static_cast<double>(dim)), 0} {
    uint64_t stream = 1;
    for (std::vector<float>* x : {&q, &k, &v, &dout}) {
      for (int64_t i = 0; i < heads * n * d; ++i)
        x->push_back(static_cast<float>(4 * random_uniform(1, stream, static_cast<uint64_t>(i)) - 2));
      ++stream;
    }
    for (std::vector<float>* x : {&out, &dq, &dk, &dv}) x->resize(q.size());
    lse.resize(static_cast<size_t>(heads * n));
  }

  TensorView<float> view(std::vector<float>& x) const { return {x.data(), {1, heads, n, d}}; }

  void forward() {
    const PackSource source{.rows = {.k = k.data(),
                                     .k_token_stride = d,
                                     .k_head_stride = n * d,
                                     .v = v.data(),
                                     .v_token_stride = d,
                                     .v_head_stride = n * d},
                            .kv_len = n};
    const PackedKv packed({.num_kv_heads = heads, .head_dim = d, .value_dim = d}, {source}, pool);
    SequenceQueries s;
    s.q = q.data(), s.out = out.data(), s.lse = lse.data();
    s.q_token_stride = s.out_token_stride = d, s.lse_token_stride = 1;
    s.q_head_stride = s.out_head_stride = n * d, s.lse_head_stride = n;
    s.tokens = n;
    s.keys = packed.view(0);
    attend_sequences({&s, 1}, shape, plan, workspace, pool);
  }
  void backward() {
    const BackwardTensors tensors{.q = view(q),
                                  .k = view(k),
                                  .v = view(v),
                                  .out = view(out),
                                  .lse = TensorView<float>(lse.data(), {1, heads, n}),
                                  .dout = view(dout),
                                  .dlse = {},
                                  .dq = view(dq),
                                  .dk = view(dk),
                                  .dv = view(dv)};
    backward_tensors(tensors, sizes, rows, shape, plan, positions, pool, nullptr);
  }

  double flops() const { return 10.0 * d * static_cast<double>(plan.count_total({0, n}, {0, n})); }

  // The first head against f64: some rows of dq, and all of dk and dv where n is small enough to wait for.
  void verify() {
    forward();
    backward();
    const auto name = [&](const char* what) { return fmt::format("{} d {} n {} {}", what, d, n, mask.text()); };
    const int64_t step = n <= 1024 ? 1 : n / 7;
    std::vector<double> wide_dq(static_cast<size_t>(d)), scratch(static_cast<size_t>(d + n)),
        wide_dk(static_cast<size_t>(n * d)), wide_dv(static_cast<size_t>(n * d));
    double top = 0, error = 0;
    const auto compare = [&](const float* got, const double* want, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        top = std::max(top, std::fabs(want[i]));
        error = std::max(error, std::fabs(got[i] - want[i]));
      }
    };
    const auto rows_of = [this](const std::vector<float>& x) {
      return [&x, this](int64_t j, int64_t i) { return x[static_cast<size_t>(j * d + i)]; };
    };
    for (int64_t row = 0; row < n; row += step) {
      kernels::reference::attention_backward_row<double>(
          [&](int64_t i) { return q[static_cast<size_t>(row * d + i)]; },
          [&](int64_t c) { return dout[static_cast<size_t>(row * d + c)]; }, 0.0, d, d, 0, n, shape.scale, 0.0, rows_of(k),
          rows_of(v), [&](int64_t j) { return mask.allowed(0, 0, row, j); }, scratch.data(), wide_dq.data(),
          [&](int64_t j) { return wide_dk.data() + j * d; }, [&](int64_t j) { return wide_dv.data() + j * d; });
      compare(dq.data() + row * d, wide_dq.data(), d);
    }
    bench::require_answer(error < 1e-5 * top, name("dq"));
    if (step > 1) return;
    top = error = 0;
    compare(dk.data(), wide_dk.data(), n * d);
    bench::require_answer(error < 1e-5 * top, name("dk"));
    top = error = 0;
    compare(dv.data(), wide_dv.data(), n * d);
    bench::require_answer(error < 1e-5 * top, name("dv"));
  }

  int d;
  int64_t n;
  int heads;
  Mask mask;
  MaskPlan plan;
  ThreadPool pool;
  CallSizes sizes;
  CallRows rows;
  CallPositions positions;
  AttentionShape shape;
  std::vector<float> q, k, v, dout, out, lse, dq, dk, dv;
  AttentionWorkspace workspace;
};

void print_rates(const bench::Ceilings& ceilings) {
  fmt::print(
      "\nOne head, one thread: backward time over forward time (at most 2.6), GF/s of visible pairs (share of the FMA "
      "peak)\n");
  for (int d : {64, 128})
    for (int64_t n : {1024, 2048, 8192})
      for (const char* text : {"full", "causal"}) {
        Problem p(d, n, 1, text, 1);
        p.verify();
        const auto t = bench::race({[&] { p.forward(); }, [&] { p.backward(); }}, 1.0);
        const double rate = p.flops() / t[1].median * 1e-9;
        fmt::print("  d {:3} n {:5} {:6}: {:.2f}  {:6.1f} ({:.3f})  spread {:.3f} {:.3f}\n", d, n, text,
                   t[1].median / t[0].median, rate, rate / ceilings.fma_gflops, t[0].spread, t[1].spread);
      }
}

void print_threads() {
  fmt::print("\nTwo threads over one, backward\n");
  for (int heads : {1, 4})
    for (int d : {64, 128})
      for (int64_t n : {1024, 4096, 8192})
        for (const char* text : {"full", "causal"}) {
          if (heads > 1 && n > 1024) continue;
          Problem one(d, n, heads, text, 1), two(d, n, heads, text, 2);
          one.verify();
          two.verify();
          bench::require_answer(std::memcmp(one.dq.data(), two.dq.data(), one.dq.size() * sizeof(float)) == 0 &&
                                    std::memcmp(one.dk.data(), two.dk.data(), one.dk.size() * sizeof(float)) == 0 &&
                                    std::memcmp(one.dv.data(), two.dv.data(), one.dv.size() * sizeof(float)) == 0,
                                "bits on two threads");
          const auto t = bench::race({[&] { one.backward(); }, [&] { two.backward(); }}, 1.0, bench::Clock::kWall);
          fmt::print("  {} head{} d {:3} n {:5} {:6}: {:.2f}  spread {:.3f} {:.3f}\n", heads, heads == 1 ? " " : "s", d,
                     n, text, t[0].median / t[1].median, t[0].spread, t[1].spread);
        }
}

}  // namespace

int main() {
  fmt::print("kernels: {}\n", isa_name(kernels::kernels().isa));
  const bench::Ceilings ceilings = bench::measure_ceilings();
  bench::print(ceilings);
  print_rates(ceilings);
  print_threads();
}
