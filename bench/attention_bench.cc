// Attention in f32 and on bf16 dot products: rates against the FMA peak of the same run, what skipping tiles
// gains, what a second thread gains. Only useful work is counted: visible pairs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string_view>

#include "attention/attention.h"
#include "attention/kv_cache.h"
#include "attention/packed_kv.h"
#include "base/rng.h"
#include "harness.h"
#include "kernels/reference/attention.h"
#include "kernels/registry.h"
#include "runtime/thread_pool.h"

namespace {

using namespace regard;

// One sequence with one KV head, and the last `q_len` of its tokens as queries.
struct Problem {
  Problem(int dim, int64_t kv_len, int64_t queries, int heads_per_kv, const char* mask_text, int threads = 1)
      : Problem(dim, kv_len, queries, heads_per_kv, Mask::parse(mask_text), threads) {}
  Problem(int dim, int64_t kv_len, int64_t queries, int heads_per_kv, const Mask& what_is_seen, int threads = 1,
          AttentionArithmetic arithmetic = AttentionArithmetic::kF32)
      : d(dim),
        n(kv_len),
        q_len(queries),
        group(heads_per_kv),
        mask(what_is_seen),
        plan(mask, {}, 1, heads_per_kv),
        pool(threads),
        cache({.geometry = {.num_kv_heads = 1, .head_dim = dim, .value_dim = dim}}) {
    fill(q, 1, q_len * group * d);
    fill(k, 2, n * d);
    fill(v, 3, n * d);
    out.resize(q.size());
    cache.append({.k = k.data(),
                  .k_token_stride = d,
                  .k_head_stride = 0,
                  .v = v.data(),
                  .v_token_stride = d,
                  .v_head_stride = 0},
                 n);
    shape = {group, 1, d, d, 1 / std::sqrt(static_cast<double>(d)), 0, nullptr, arithmetic};
    sequence.q = q.data();
    sequence.q_token_stride = sequence.out_token_stride = static_cast<int64_t>(group) * d;
    sequence.q_head_stride = sequence.out_head_stride = d;
    sequence.out = out.data();
    sequence.tokens = q_len;
    sequence.first_position = n - q_len;
    sequence.keys = cache.view();
    if (arithmetic == AttentionArithmetic::kF32) return;
    const KvRows rows{.k = k.data(), .k_token_stride = d, .v = v.data(), .v_token_stride = d};
    packed.emplace(KvGeometry{.num_kv_heads = 1, .head_dim = d, .value_dim = d, .type = DType::kBF16, .layout = KvLayout::kPairs},
                  std::vector<PackSource>{{.rows = rows, .kv_len = n}}, pool);
    sequence.keys = packed->view(0);
    tolerance = 2e-2;
  }

  static void fill(std::vector<float>& x, uint64_t stream, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
      x.push_back(static_cast<float>(4 * random_uniform(1, stream, static_cast<uint64_t>(i)) - 2));
  }

  void run() { attend_sequences({&sequence, 1}, shape, plan, workspace, pool); }

  double pairs() const {
    return static_cast<double>(group * plan.count_total({n - q_len, n}, {0, n}) / plan.num_q_heads());
  }
  double flops() const { return 4.0 * d * pairs(); }

  // Rows spread over the block against f64.
  void verify() {
    run();
    std::vector<double> want(static_cast<size_t>(d));
    for (int64_t row = 0; row < q_len * group; row += std::max<int64_t>(1, q_len * group / 7)) {
      const int64_t token = row / group;
      const int head = static_cast<int>(row % group);
      kernels::reference::attention_row<double>(
          [&](int64_t i) { return q[static_cast<size_t>(row * d + i)]; }, d, d, 0, n, shape.scale, 0.0,
          [&](int64_t j, int64_t i) { return k[static_cast<size_t>(j * d + i)]; },
          [&](int64_t j, int64_t c) { return v[static_cast<size_t>(j * d + c)]; },
          [&](int64_t j) { return mask.allowed(0, head, n - q_len + token, j); }, want.data());
      for (int c = 0; c < d; ++c)
        bench::require_answer(std::fabs(out[static_cast<size_t>(row * d + c)] - want[static_cast<size_t>(c)]) < tolerance,
                              fmt::format("attention d {} n {} {} row {}", d, n, mask.text(), row));
    }
  }

  int d;
  int64_t n, q_len;
  int group;
  Mask mask;
  MaskPlan plan;
  ThreadPool pool;
  KvCache cache;
  std::optional<PackedKv> packed;
  double tolerance = 2e-5;
  std::vector<float> q, k, v, out;
  AttentionShape shape;
  SequenceQueries sequence;
  AttentionWorkspace workspace;
};

void print_forward() {
  fmt::print("\nForward, one head, one thread: GF/s of visible pairs (share of the FMA peak), causal speed-up\n");
  for (int d : {64, 128})
    for (int64_t n : {1024, 2048, 4096, 8192, 16384}) {
      Problem full(d, n, n, 1, "full"), causal(d, n, n, 1, "causal");
      full.verify();
      causal.verify();
      const auto t = bench::race({[&] { full.run(); }, [&] { causal.run(); }, [] { bench::multiply_adds(); }}, 1.0);
      const double f = full.flops() / t[0].median * 1e-9, c = causal.flops() / t[1].median * 1e-9,
                   peak = bench::multiply_adds() / t[2].median * 1e-9;
      fmt::print(
          "  d {:3} n {:5}: full {:6.1f} ({:.3f})  causal {:6.1f} ({:.3f})  speed-up {:.2f}  spread {:.3f} {:.3f}\n", d,
          n, f, f / peak, c, c / peak, t[0].median / t[1].median, t[0].spread,
          t[1].spread);
    }
}

void print_bf16() {
  fmt::print("\nOn bf16 dot products, one head, one thread: GF/s (share of their peak), speed over f32 (d 64: 1.65 -> 1.80, "
             "d 128: 1.75 -> 1.90)\n");
  for (int d : {64, 128})
    for (int64_t n : {1024, 2048, 4096, 8192})
      for (const char* text : {"full", "causal"}) {
        const Mask mask = Mask::parse(text);
        Problem f32(d, n, n, 1, mask), bf16(d, n, n, 1, mask, 1, AttentionArithmetic::kBf16Dots);
        f32.verify();
        bf16.verify();
        const auto t = bench::race({[&] { f32.run(); }, [&] { bf16.run(); }, [] { bench::bf16_products(); }}, 1.0);
        const double rate = bf16.flops() / t[1].median * 1e-9, peak = bench::bf16_products() / t[2].median * 1e-9;
        fmt::print("  d {:3} n {:5} {:6}: {:6.1f} ({:.3f})  speed {:.2f}  spread {:.3f} {:.3f}\n", d, n, text, rate, rate / peak,
                   t[0].median / t[1].median, t[0].spread, t[1].spread);
      }
}

// A table with the bit at [q, k] where `seen(q, k)`.
template <class Seen>
Mask table_of(int64_t n, Seen seen) {
  std::vector<uint8_t> bits;
  for (int64_t q = 0; q < n; ++q)
    for (int64_t k = 0; k < n; ++k) bits.push_back(seen(q, k) ? 1 : 0);
  return Mask::from_array(Polarity::kKeep, TensorView<const uint8_t>(bits.data(), {n, n}));
}

bool coin(int64_t index) { return random_uniform(1, 9, static_cast<uint64_t>(index)) < 0.5; }

// `n` tokens of documents of 256 to 768.
Mask packed_documents(int64_t n) {
  std::vector<int64_t> ids;
  for (int64_t document = 0; static_cast<int64_t>(ids.size()) < n; ++document) {
    const auto length = 256 + static_cast<int64_t>(513 * random_uniform(1, 8, static_cast<uint64_t>(document)));
    ids.insert(ids.end(), static_cast<size_t>(std::min(length, n - static_cast<int64_t>(ids.size()))), document);
  }
  return Mask::documents(MaskList(std::move(ids)));
}

void print_masks() {
  constexpr int64_t kMany = 16384, kSome = 4096;
  fmt::print("\nOther masks, one thread, beside the full kernel on {} keys: speed per visible pair as its share\n", kSome);
  for (int d : {64, 128}) {
    Problem full(d, kSome, kSome, 1, "full");
    const auto line = [&](const std::string& name, const Mask& mask, int64_t n, const char* goal) {
      Problem p(d, n, n, 1, mask);
      p.verify();
      const auto t = bench::race({[&] { full.run(); }, [&] { p.run(); }}, 1.0);
      fmt::print("  d {:3} {:36} {:.3f}  spread {:.3f}  {}\n", d, name,
                 p.pairs() / t[1].median / (full.pairs() / t[0].median), t[1].spread, goal);
    };
    line("window 512 at 16k", Mask::parse("causal & window(511, 0)"), kMany, "(0.80 -> 0.88)");
    line("window 128 at 16k", Mask::parse("causal & window(127, 0)"), kMany, "(0.55 -> 0.70)");
    line("window 512 and 4 sinks at 16k", Mask::parse("causal & (window(511, 0) | sinks(4))"), kMany, "");
    line("packed documents at 16k", packed_documents(kMany), kMany, "(0.75 -> 0.85)");

    // Here all pairs count: what a mask without structure costs, and what empty blocks save.
    Problem random(d, kSome, kSome, 1, table_of(kSome, [](int64_t q, int64_t k) { return coin(q * kSome + k); }));
    Problem blocks(d, kSome, kSome, 1, table_of(kSome, [](int64_t q, int64_t k) { return coin(q / 64 * kSome + k / 64); }));
    random.verify();
    blocks.verify();
    const auto t = bench::race({[&] { full.run(); }, [&] { random.run(); }, [&] { blocks.run(); }}, 1.0);
    fmt::print("  d {:3} {:36} {:.3f}  spread {:.3f}  (0.85 -> 0.90), time of full / time\n", d, "half of all bits, at random",
               t[0].median / t[1].median, t[1].spread);
    fmt::print("  d {:3} {:36} {:.3f}  spread {:.3f}  (1.60 -> 1.85), time of full / time\n", d, "half of all 64 x 64 blocks",
               t[0].median / t[2].median, t[2].spread);
  }
}

void print_threads() {
  fmt::print("\nTwo threads over one, one head, forward\n");
  for (int d : {64, 128})
    for (int64_t n : {1024, 2048, 8192})
      for (const char* text : {"full", "causal"}) {
        Problem one(d, n, n, 1, text), two(d, n, n, 1, text, 2);
        const auto t = bench::race({[&] { one.run(); }, [&] { two.run(); }}, 1.0, bench::Clock::kWall);
        bench::require_answer(std::memcmp(one.out.data(), two.out.data(), one.out.size() * sizeof(float)) == 0,
                              "bits on two threads");
        fmt::print("  d {:3} n {:5} {:6}: {:.2f}\n", d, n, text, t[0].median / t[1].median);
      }
}

}  // namespace

// The parts named on the command line (forward, bf16, masks, threads), or all of them.
int main(int argc, char** argv) {
  const auto wanted = [&](std::string_view part) {
    return argc == 1 || std::find(argv + 1, argv + argc, part) != argv + argc;
  };
  fmt::print("kernels: {}\n", isa_name(kernels::kernels().isa));
  const bench::Ceilings ceilings = bench::measure_ceilings();
  bench::print(ceilings);
  if (wanted("forward")) print_forward();
  if (wanted("bf16") && kernels::kernels().attention_bf16 != nullptr) print_bf16();
  if (wanted("masks")) print_masks();
  if (wanted("threads")) print_threads();
}
