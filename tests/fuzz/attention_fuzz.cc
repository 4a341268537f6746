// Random problems of attention, forward and backward: every instruction set agrees with the f64 reference, those with a
// fused multiply-add agree with each other to the bit, a row alone equals the row in company, and what no row may see
// can be NaN. The input is a list of choices (sizes, mask, terms), read byte by byte; all numbers come from a seed.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "base/isa.h"
#include "base/rng.h"
#include "fuzz/fuzz.h"
#include "kernels/reference/attention_backward.h"
#include "kernels/registry.h"
#include "regard/attention_backward.h"
#include "regard/error.h"

using namespace regard;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The reference takes a few milliseconds for so many.
constexpr int64_t kMostProducts = 2'000'000;

class Choices {
 public:
  Choices(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  /// 0 .. n - 1; 0 behind the end of the input.
  int64_t below(int64_t n) {
    int64_t value = 0;
    for (int64_t range = 1; range < n; range *= 256) value = value * 256 + (at_ < size_ ? data_[at_++] : 0);
    return value % n;
  }
  int64_t of(std::initializer_list<int64_t> list) { return list.begin()[below(static_cast<int64_t>(list.size()))]; }

 private:
  const uint8_t* data_;
  size_t size_, at_ = 0;
};

Mask random_mask(Choices& c, int64_t kv_len, int64_t heads, int depth) {
  if (depth > 0 && c.below(3) != 0) {
    const Mask a = random_mask(c, kv_len, heads, depth - 1);
    switch (c.below(4)) {
      case 0: return ~a;
      case 1: return a | random_mask(c, kv_len, heads, depth - 1);
      default: return a & random_mask(c, kv_len, heads, depth - 1);
    }
  }
  switch (c.below(10)) {
    case 0: return Mask::causal();
    case 1: return Mask::window(c.below(300), c.below(40));
    case 2: return Mask::prefix(c.below(kv_len + 1));
    case 3: return Mask::blocks(1 + c.below(100));
    case 4: return Mask::chunk(1 + c.below(300));
    case 5: return Mask::dilated(1 + c.below(5));
    case 6: return Mask::none();
    case 7: {
      std::vector<Mask> each;
      for (int64_t h = 0; h < heads; ++h) each.push_back(Mask::window(c.below(200), 0));
      return Mask::per_head(each);
    }
    default: return Mask::full();
  }
}

struct Problem {
  int64_t batch, heads, kv_heads, q_len, kv_len, dim, value_dim, q_begin;
  std::vector<float> q, k, v, dout, bias, sink;
  Mask mask = Mask::full();
  AttentionOptions options;
  Alibi alibi;

  explicit Problem(Choices& c) {
    batch = 1 + c.below(2);
    kv_heads = 1 + c.below(2);
    heads = kv_heads * (1 + c.below(3));
    q_len = c.of({1, 2, 5, 6, 7, 13, 40, 97});
    kv_len = c.of({1, 15, 16, 17, 63, 64, 65, 255, 256, 257, 300, 513});
    dim = c.of({1, 8, 16, 33, 40, 64});
    value_dim = c.of({1, 16, 24, 33, 64});
    while (batch * heads * q_len * kv_len * (dim + value_dim) > kMostProducts) q_len = (q_len + 1) / 2;
    q_begin = c.below(kv_len);
    mask = random_mask(c, kv_len, heads, 3);
    options.q_begin = {q_begin};
    options.k_begin = {0};
    if (c.below(4) == 0) options.softcap = 5;
    const auto seed = static_cast<uint64_t>(c.below(256));
    const double spread = c.below(2) == 0 ? 1 : 4;
    fill(q, seed, 1, batch * heads * q_len * dim, spread);
    fill(k, seed, 2, batch * kv_heads * kv_len * dim, spread);
    fill(v, seed, 3, batch * kv_heads * kv_len * value_dim, 1);
    fill(dout, seed, 4, batch * heads * q_len * value_dim, 1);
    if (c.below(3) == 0) {
      const int64_t shape[4] = {c.below(2) == 0 ? 1 : batch, c.below(2) == 0 ? 1 : heads, c.below(2) == 0 ? 1 : q_len,
                                c.below(2) == 0 ? 1 : kv_len};
      fill(bias, seed, 5, shape[0] * shape[1] * shape[2] * shape[3], 2);
      options.bias = {bias.data(), {shape[0], shape[1], shape[2], shape[3]}};
    }
    if (c.below(4) == 0) {
      alibi.slopes = alibi_slopes(heads);
      options.alibi = alibi;
    }
    if (c.below(4) == 0) {
      fill(sink, seed, 6, heads, 2);
      options.sink = {sink.data(), {heads}};
    }
  }

  static void fill(std::vector<float>& x, uint64_t seed, uint64_t stream, int64_t n, double spread) {
    for (int64_t i = 0; i < n; ++i)
      x.push_back(static_cast<float>(spread * (2 * random_uniform(seed, stream, static_cast<uint64_t>(i)) - 1)));
  }
  bool sees(int64_t b, int64_t h, int64_t i, int64_t j) const { return mask.allowed(b, h, q_begin + i, j); }
  double bias_at(int64_t b, int64_t h, int64_t i, int64_t j) const {
    double sum = 0;
    if (options.alibi) sum -= alibi.slopes[static_cast<size_t>(h)] * std::fabs(static_cast<double>(q_begin + i - j));
    if (!bias.empty()) {
      const auto& s = options.bias.shape;
      sum += *options.bias.at(s[0] == 1 ? 0 : b, s[1] == 1 ? 0 : h, s[2] == 1 ? 0 : i, s[3] == 1 ? 0 : j);
    }
    return sum;
  }
  bool plain() const { return bias.empty() && !options.alibi && sink.empty(); }

  TensorView<const float> view(const std::vector<float>& x, int64_t h, int64_t n, int64_t d) const {
    return {x.data(), {batch, h, n, d}};
  }
};

struct Result {
  std::vector<float> out, lse, dq, dk, dv;
};

Result compute(const Problem& p, const std::vector<float>& k, const std::vector<float>& v, bool backward) {
  Result r;
  r.out.resize(static_cast<size_t>(p.batch * p.heads * p.q_len * p.value_dim));
  r.lse.resize(static_cast<size_t>(p.batch * p.heads * p.q_len));
  const auto q_view = p.view(p.q, p.heads, p.q_len, p.dim), k_view = p.view(k, p.kv_heads, p.kv_len, p.dim),
             v_view = p.view(v, p.kv_heads, p.kv_len, p.value_dim);
  const TensorView<float> out(r.out.data(), {p.batch, p.heads, p.q_len, p.value_dim}),
      lse(r.lse.data(), {p.batch, p.heads, p.q_len});
  attend(q_view, k_view, v_view, p.mask, p.options, out, lse);
  if (!backward) return r;
  r.dq.resize(p.q.size());
  r.dk.resize(k.size());
  r.dv.resize(v.size());
  attend_backward(q_view, k_view, v_view, out, lse, p.view(p.dout, p.heads, p.q_len, p.value_dim), {}, p.mask, p.options,
                  {r.dq.data(), {p.batch, p.heads, p.q_len, p.dim}}, {r.dk.data(), {p.batch, p.kv_heads, p.kv_len, p.dim}},
                  {r.dv.data(), {p.batch, p.kv_heads, p.kv_len, p.value_dim}});
  return r;
}

struct Wanted {
  std::vector<double> out, lse, dq, dk, dv;
  double largest_score = 0;
};

Wanted reference(const Problem& p) {
  Wanted w;
  w.out.resize(static_cast<size_t>(p.batch * p.heads * p.q_len * p.value_dim));
  w.lse.resize(static_cast<size_t>(p.batch * p.heads * p.q_len));
  w.dq.resize(p.q.size());
  w.dk.resize(p.k.size());
  w.dv.resize(p.v.size());
  std::vector<double> scratch(static_cast<size_t>(p.value_dim + p.kv_len));
  const double scale = 1 / std::sqrt(static_cast<double>(p.dim));
  for (int64_t row = 0; row < p.batch * p.heads * p.q_len; ++row) {
    const int64_t i = row % p.q_len, h = row / p.q_len % p.heads, b = row / p.q_len / p.heads;
    const int64_t kv = (b * p.kv_heads + h / (p.heads / p.kv_heads)) * p.kv_len;
    const auto query = [&](int64_t x) { return static_cast<double>(p.q[static_cast<size_t>(row * p.dim + x)]); };
    const auto key = [&](int64_t j, int64_t x) { return static_cast<double>(p.k[static_cast<size_t>((kv + j) * p.dim + x)]); };
    const auto value = [&](int64_t j, int64_t x) {
      return static_cast<double>(p.v[static_cast<size_t>((kv + j) * p.value_dim + x)]);
    };
    const auto visible = [&](int64_t j) { return p.sees(b, h, i, j); };
    struct Terms {
      const Problem& p;
      int64_t b, h, i;
      double bias(int64_t j) const { return p.bias_at(b, h, i, j); }
      bool keep(int64_t) const { return true; }
      double keep_scale = 1, sink = -kInfinity;
    } terms{p, b, h, i};
    if (!p.sink.empty()) terms.sink = p.sink[static_cast<size_t>(h)];
    w.lse[static_cast<size_t>(row)] = kernels::reference::attention_row<double>(
        query, p.dim, p.value_dim, 0, p.kv_len, scale, p.options.softcap, key, value, visible,
        &w.out[static_cast<size_t>(row * p.value_dim)], nullptr, terms);
    for (int64_t j = 0; j < p.kv_len; ++j) {
      double s = 0;
      for (int64_t x = 0; x < p.dim; ++x) s += query(x) * key(j, x);
      w.largest_score = std::max(w.largest_score, std::fabs(s * scale) + std::fabs(p.bias_at(b, h, i, j)));
    }
    if (!p.plain()) continue;
    kernels::reference::attention_backward_row<double>(
        query, [&](int64_t c) { return static_cast<double>(p.dout[static_cast<size_t>(row * p.value_dim + c)]); }, 0.0, p.dim,
        p.value_dim, 0, p.kv_len, scale, p.options.softcap, key, value, visible, scratch.data(),
        &w.dq[static_cast<size_t>(row * p.dim)], [&](int64_t j) { return &w.dk[static_cast<size_t>((kv + j) * p.dim)]; },
        [&](int64_t j) { return &w.dv[static_cast<size_t>((kv + j) * p.value_dim)]; });
  }
  return w;
}

void near(const std::vector<float>& got, const std::vector<double>& want, double tolerance) {
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isinf(want[i]))
      fuzz::demand(static_cast<double>(got[i]) == want[i]);
    else
      fuzz::demand(std::fabs(static_cast<double>(got[i]) - want[i]) <= tolerance);
  }
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

double largest(const std::vector<double>& x) {
  double top = 0;
  for (double value : x) top = std::max(top, std::fabs(value));
  return top;
}

// Keys that no row of the batch row and KV head sees may hold anything.
void poison(const Problem& p, std::vector<float>& k, std::vector<float>& v) {
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t kv = 0; kv < p.kv_heads; ++kv)
      for (int64_t j = 0; j < p.kv_len; ++j) {
        bool seen = false;
        for (int64_t g = 0; g < p.heads / p.kv_heads && !seen; ++g)
          for (int64_t i = 0; i < p.q_len && !seen; ++i) seen = p.sees(b, kv * (p.heads / p.kv_heads) + g, i, j);
        if (seen) continue;
        const int64_t at = (b * p.kv_heads + kv) * p.kv_len + j;
        std::fill_n(k.begin() + at * p.dim, p.dim, std::numeric_limits<float>::quiet_NaN());
        std::fill_n(v.begin() + at * p.value_dim, p.value_dim, std::numeric_limits<float>::infinity());
      }
}

// The last query alone gives the bits that it has among the others.
void check_row_alone(const Problem& p, const Result& all) {
  if (p.q_len == 1 || (!p.bias.empty() && p.options.bias.shape[2] > 1)) return;
  Problem one = p;
  one.q_len = 1;
  one.q_begin = p.q_begin + p.q_len - 1;
  one.options.q_begin = {one.q_begin};
  if (!p.bias.empty()) one.options.bias.data = one.bias.data();
  if (!p.sink.empty()) one.options.sink.data = one.sink.data();
  one.q.clear();
  std::vector<float> out, lse;
  for (int64_t row = 0; row < p.batch * p.heads; ++row) {
    const int64_t last = (row + 1) * p.q_len - 1;
    one.q.insert(one.q.end(), p.q.begin() + last * p.dim, p.q.begin() + (last + 1) * p.dim);
    out.insert(out.end(), all.out.begin() + last * p.value_dim, all.out.begin() + (last + 1) * p.value_dim);
    lse.push_back(all.lse[static_cast<size_t>(last)]);
  }
  const Result alone = compute(one, one.k, one.v, false);
  fuzz::demand(same_bits(alone.out, out) && same_bits(alone.lse, lse));
}

const std::vector<Isa>& usable() {
  static const std::vector<Isa> list = [] {
    std::vector<Isa> found;
    for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512}) {
      try {
        kernels::kernel_set(isa);
        found.push_back(isa);
      } catch (const Error&) {  // not on this machine
      }
    }
    return found;
  }();
  return list;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Choices choices(data, size);
  const Problem p(choices);
  const Wanted want = reference(p);
  const double eps = 1.2e-7 * (1 + want.largest_score);
  std::optional<Result> fused;
  for (const Isa isa : usable()) {
    const kernels::ForcedIsa forced(isa);
    const bool backward = p.plain();
    const Result got = compute(p, p.k, p.v, backward);
    near(got.out, want.out, 8 * eps);
    near(got.lse, want.lse, 8 * eps);
    if (backward) {  // 2: numbers that cancel to a small gradient are of that size
      near(got.dq, want.dq, 40 * eps * (2 + largest(want.dq)));
      near(got.dk, want.dk, 40 * eps * (2 + largest(want.dk)));
      near(got.dv, want.dv, 40 * eps * (2 + largest(want.dv)));
    }
    if (isa != Isa::kBaseline) {
      if (fused)
        fuzz::demand(same_bits(got.out, fused->out) && same_bits(got.lse, fused->lse) && same_bits(got.dq, fused->dq) &&
                     same_bits(got.dk, fused->dk) && same_bits(got.dv, fused->dv));
      fused = got;
    }
    std::vector<float> k = p.k, v = p.v;
    poison(p, k, v);
    const Result poisoned = compute(p, k, v, backward);
    fuzz::demand(same_bits(got.out, poisoned.out) && same_bits(got.lse, poisoned.lse) && same_bits(got.dq, poisoned.dq) &&
                 same_bits(got.dk, poisoned.dk) && same_bits(got.dv, poisoned.dv));
    check_row_alone(p, got);
  }
  return 0;
}

std::vector<std::string> regard::fuzz::seeds() {
  std::vector<std::string> all;
  for (uint64_t seed = 0; seed < 16; ++seed) {
    std::string bytes;
    for (uint64_t i = 0; i < 24; ++i) bytes += static_cast<char>(static_cast<uint8_t>(256 * random_uniform(7, seed, i)));
    all.push_back(bytes);
  }
  return all;
}
