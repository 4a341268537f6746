// Decode: one token's queries against a long cache, every type that a cache stores. What counts is how fast keys and values are
// read, beside a plain read of as many bytes in the same moments. "From memory" is a cache four times as large as most
// third-level caches, "from 4 MiB" one that stays in them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "attention/attention.h"
#include "attention/kv_cache.h"
#include "base/rng.h"
#include "harness.h"
#include "kernels/reference/attention.h"
#include "kernels/registry.h"
#include "runtime/thread_pool.h"

namespace {

using namespace regard;

// One sequence with one KV head, the queries of its last token, and a mask that says nothing.
struct Problem {
  Problem(int dim, DType stored, int64_t bytes, int heads, int threads)
      : d(dim),
        n(bytes / (2 * dim * info(stored).bytes)),
        group(heads),
        plan(Mask::causal(), {}, 1, heads),
        pool(threads),
        cache({.geometry = {.num_kv_heads = 1, .head_dim = dim, .value_dim = dim, .type = stored}}),
        q(static_cast<size_t>(heads * dim)),
        out(q.size()),
        shape{heads, 1, dim, dim, 1 / std::sqrt(static_cast<double>(dim)), 0, nullptr, AttentionArithmetic::kF32} {
    for (size_t i = 0; i < q.size(); ++i) q[i] = number(1, static_cast<int64_t>(i));
    std::vector<float> k(static_cast<size_t>(kPiece * d)), v(k.size());
    for (int64_t first = 0; first < n; first += kPiece) {
      for (int64_t i = 0; i < kPiece * d; ++i) {
        k[static_cast<size_t>(i)] = number(2, first * d + i);
        v[static_cast<size_t>(i)] = number(3, first * d + i);
      }
      cache.append({.k = k.data(), .k_token_stride = d, .k_head_stride = 0, .v = v.data(), .v_token_stride = d, .v_head_stride = 0},
                   std::min(kPiece, n - first));
    }
    sequence.q = q.data();
    sequence.q_head_stride = sequence.out_head_stride = d;
    sequence.out = out.data();
    sequence.tokens = 1;
    sequence.first_position = n - 1;
    sequence.keys = cache.view();
  }

  static float number(uint64_t stream, int64_t i) { return static_cast<float>(4 * random_uniform(1, stream, static_cast<uint64_t>(i)) - 2); }
  void run() { attend_sequences({&sequence, 1}, shape, plan, workspace, pool); }
  // Of keys and values as they are stored: codes with their scales.
  double bytes() const { return static_cast<double>(n) / kernels::kTileKeys * static_cast<double>(cache.geometry().tile_bytes()); }

  // Every head against f64 on the numbers before they were stored.
  void verify() {
    run();
    static const std::map<DType, double> tolerance = {{DType::kF32, 2e-5}, {DType::kF16, 2e-3}, {DType::kBF16, 1e-2}, {DType::kI8, 2e-2}};
    std::vector<double> want(static_cast<size_t>(d));
    for (int h = 0; h < group; ++h) {
      kernels::reference::attention_row<double>(
          [&](int64_t i) { return q[static_cast<size_t>(h * d + i)]; }, d, d, 0, n, shape.scale, 0.0,
          [&](int64_t j, int64_t i) { return number(2, j * d + i); }, [&](int64_t j, int64_t c) { return number(3, j * d + c); },
          [](int64_t) { return true; }, want.data());
      for (int c = 0; c < d; ++c)
        bench::require_answer(std::fabs(out[static_cast<size_t>(h * d + c)] - want[static_cast<size_t>(c)]) < tolerance.at(cache.geometry().type),
                              fmt::format("decode {} d {} head {}", info(cache.geometry().type).name, d, h));
    }
  }

  static constexpr int64_t kPiece = 4096;
  int d;
  int64_t n;
  int group;
  MaskPlan plan;
  ThreadPool pool;
  KvCache cache;
  std::vector<float> q, out;
  AttentionShape shape;
  SequenceQueries sequence;
  AttentionWorkspace workspace;
};

constexpr int64_t kFar = int64_t{128} << 20, kNear = int64_t{4} << 20;

// What must be reached and what is aimed at, on one thread; empty: nothing is.
std::string far_goal(DType type, int group) {
  if (group <= 4 && (type == DType::kF32 || type == DType::kBF16)) return "(0.85 -> 0.95)";
  if (group == 8 && type == DType::kF32) return "(0.65 -> 0.75)";
  return group == 1 && type == DType::kI8 ? "(0.75 -> 0.85)" : "";
}
std::string near_goal(DType type, int group) {
  if (group != 1) return "";
  return type == DType::kF32 ? "(0.78 -> 0.88)" : type == DType::kBF16 ? "(0.62 -> 0.75)" : "";
}

struct Rate {
  double gbytes;
  double share;  // of a plain read
};

// The middle of three caches of so many bytes: the rate depends on where in memory a cache happens to lie.
Rate middle_rate(int d, DType type, int64_t bytes, int group, double seconds) {
  std::vector<Rate> rates;
  for (int place = 0; place < 3; ++place) {
    Problem problem(d, type, bytes, group, 1);
    if (place == 0 && bytes == kNear) problem.verify();
    const auto t = bench::race({[&] { problem.run(); }, [&] { bench::read_bytes(static_cast<size_t>(bytes)); }}, seconds);
    rates.push_back({problem.bytes() / t[0].median * 1e-9, problem.bytes() / static_cast<double>(bytes) * t[1].median / t[0].median});
  }
  std::sort(rates.begin(), rates.end(), [](const Rate& a, const Rate& b) { return a.share < b.share; });
  return rates[1];
}

void print_one_thread() {
  fmt::print("\nOne thread, one KV head: GB/s of keys and values as stored (share of a plain read of the same moments), the middle of three\n");
  for (DType type : {DType::kF32, DType::kBF16, DType::kF16, DType::kI8})
    for (int d : {64, 128})
      for (int group : {1, 3, 4, 8}) {
        const Rate far = middle_rate(d, type, kFar, group, 0.25), near = middle_rate(d, type, kNear, group, 0.1);
        fmt::print("  {:4} d {:3} group {}: from memory {:5.1f} ({:.2f}) {:15} from 4 MiB {:6.1f} ({:.2f}) {}\n", info(type).name, d, group,
                   far.gbytes, far.share, far_goal(type, group), near.gbytes, near.share, near_goal(type, group));
      }
}

void print_two_threads(const bench::Ceilings& ceilings) {
  fmt::print("\nTwo threads share the keys of one head: GB/s (share of what two threads read)\n");
  for (DType type : {DType::kF32, DType::kBF16})
    for (int d : {64, 128})
      for (int group : {1, 4, 8}) {
        Problem memory(d, type, kFar, group, 2);
        const bench::Timing a = bench::measure([&] { memory.run(); }, 0.5, bench::Clock::kWall);
        const double rate = memory.bytes() / a.median * 1e-9;
        fmt::print("  {:4} d {:3} group {}: {:5.1f} ({:.2f})\n", info(type).name, d, group, rate, rate / ceilings.read_gbytes_two);
      }
}

}  // namespace

int main() {
  fmt::print("kernels: {}\n", isa_name(kernels::kernels().isa));
  const bench::Ceilings ceilings = bench::measure_ceilings();
  bench::print(ceilings);
  print_one_thread();
  print_two_threads(ceilings);
}
