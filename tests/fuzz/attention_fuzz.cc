// Random problems of attention, forward and backward with the gradients of score terms (attention_problem.h): the sets
// of instructions agree with the f64 reference, those with a fused multiply-add agree with each other to the bit. Of each
// problem one more thing is asked: that a row alone equals the row in company, that threads do not matter, or that what
// no row may see can be NaN.
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "base/isa.h"
#include "fuzz/attention_problem.h"
#include "fuzz/fuzz.h"
#include "kernels/reference/attention_backward.h"
#include "kernels/registry.h"
#include "regard/attention_backward.h"
#include "regard/error.h"
#include "runtime/thread_pool.h"

using namespace regard;
using Problem = fuzz::AttentionProblem;

namespace {

struct Result {
  std::vector<float> out, lse, dq, dk, dv, dbias, dsink, du, dxv, dr;
  bool operator==(const Result& other) const {
    const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
      return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
    };
    return same(out, other.out) && same(lse, other.lse) && same(dq, other.dq) && same(dk, other.dk) &&
           same(dv, other.dv) && same(dbias, other.dbias) && same(dsink, other.dsink) && same(du, other.du) &&
           same(dxv, other.dxv) && same(dr, other.dr);
  }
};

Result compute(const Problem& p, const std::vector<float>& k, const std::vector<float>& v) {
  Result r;
  r.out.resize(p.dout.size());
  r.lse.resize(p.dlse.size());
  r.dq.resize(p.q.size());
  r.dk.resize(k.size());
  r.dv.resize(v.size());
  const auto q_view = p.view(p.q, p.heads, p.q_len, p.dim), k_view = p.view(k, p.kv_heads, p.kv_len, p.dim),
             v_view = p.view(v, p.kv_heads, p.kv_len, p.value_dim);
  const TensorView<float> out(r.out.data(), {p.batch, p.heads, p.q_len, p.value_dim}),
      lse(r.lse.data(), {p.batch, p.heads, p.q_len});
  ScoreTermGradients terms;
  const auto wanted = [](std::vector<float>& gradient, const std::vector<float>& of) {
    gradient.resize(of.size());
    return of.empty() ? nullptr : gradient.data();
  };
  if (float* to = wanted(r.dbias, p.bias)) {
    const auto& s = p.options.bias.shape;
    terms.bias = {to, {s[0], s[1], s[2], s[3]}};
  }
  if (float* to = wanted(r.dsink, p.sink)) terms.sink = {to, {p.heads}};
  if (float* to = wanted(r.du, p.xl_u)) terms.xl_u = {to, {p.heads, p.dim}};
  if (float* to = wanted(r.dxv, p.xl_v)) terms.xl_v = {to, {p.heads, p.dim}};
  if (float* to = wanted(r.dr, p.xl_r)) terms.xl_r = {to, {p.options.xl->r.shape[0], p.heads, p.dim}};
  attend(q_view, k_view, v_view, p.mask, p.options, out, lse);
  attend_backward(q_view, k_view, v_view, out, lse, p.view(p.dout, p.heads, p.q_len, p.value_dim),
                  {p.dlse.data(), {p.batch, p.heads, p.q_len}}, p.mask, p.options,
                  {r.dq.data(), {p.batch, p.heads, p.q_len, p.dim}},
                  {r.dk.data(), {p.batch, p.kv_heads, p.kv_len, p.dim}},
                  {r.dv.data(), {p.batch, p.kv_heads, p.kv_len, p.value_dim}}, terms);
  return r;
}

// A sum, and that of the sizes of what was added.
struct Sum {
  double value = 0, size = 0;
  void add(double x) { value += x, size += std::fabs(x); }
};

struct Wanted {
  std::vector<double> out, lse, dq, dk, dv;
  std::vector<Sum> dbias, dsink, du, dxv, dr;
  double largest_score = 0;
};

// What attention_row() asks a row's terms for.
struct RowTerms {
  const double* biases;
  double bias(int64_t j) const { return biases[j]; }
  bool keep(int64_t) const { return true; }
  double keep_scale = 1, sink = -std::numeric_limits<double>::infinity();
};

Wanted reference(const Problem& p) {
  Wanted w{std::vector<double>(p.dout.size()), std::vector<double>(p.dlse.size()), std::vector<double>(p.q.size()),
           std::vector<double>(p.k.size()), std::vector<double>(p.v.size()), std::vector<Sum>(p.bias.size()),
           std::vector<Sum>(p.sink.size()), std::vector<Sum>(p.xl_u.size()), std::vector<Sum>(p.xl_v.size()),
           std::vector<Sum>(p.xl_r.size())};
  std::vector<double> scratch(static_cast<size_t>(p.value_dim + p.kv_len)), biases(static_cast<size_t>(p.kv_len)),
      db(static_cast<size_t>(p.kv_len)), content(static_cast<size_t>(p.dim)), position(static_cast<size_t>(p.dim));
  const double scale = 1 / std::sqrt(static_cast<double>(p.dim));
  for (int64_t row = 0; row < p.batch * p.heads * p.q_len; ++row) {
    const int64_t i = row % p.q_len, h = row / p.q_len % p.heads, b = row / p.q_len / p.heads;
    const int64_t kv = (b * p.kv_heads + h / (p.heads / p.kv_heads)) * p.kv_len;
    const float *q = p.q.data() + row * p.dim, *k = p.k.data() + kv * p.dim, *v = p.v.data() + kv * p.value_dim,
                *dout = p.dout.data() + row * p.value_dim;
    const uint8_t* seen = p.seen.data() + row * p.kv_len;
    for (int64_t x = 0; x < p.dim; ++x) {
      const auto at = static_cast<size_t>(x), in_head = static_cast<size_t>(h * p.dim + x);
      content[at] = position[at] = static_cast<double>(q[x]);
      if (!p.xl_u.empty()) content[at] += static_cast<double>(p.xl_u[in_head]);
      if (!p.xl_v.empty()) position[at] += static_cast<double>(p.xl_v[in_head]);
    }
    const auto vector = [&](int64_t j) { return p.xl_r.data() + (p.vector_of(i, j) * p.heads + h) * p.dim; };
    for (int64_t j = 0; j < p.kv_len; ++j) {
      if (seen[j] == 0) continue;
      double s = 0, sum = 0, relative = 0;
      for (int64_t x = 0; x < p.dim; ++x) s += content[static_cast<size_t>(x)] * static_cast<double>(k[j * p.dim + x]);
      if (p.options.alibi)
        sum -= static_cast<double>(p.options.alibi->slopes[static_cast<size_t>(h)]) *
               std::fabs(static_cast<double>(p.q_begin + i - j));
      if (!p.bias.empty()) sum += static_cast<double>(p.bias[p.bias_at(b, h, i, j)]);
      for (int64_t x = 0; x < p.dim && p.options.xl; ++x)
        relative += position[static_cast<size_t>(x)] * scale * static_cast<double>(vector(j)[x]);
      biases[static_cast<size_t>(j)] = sum + relative;
      w.largest_score = std::max(w.largest_score, std::fabs(s * scale) + std::fabs(sum) + std::fabs(relative));
    }
    const auto query = [&](int64_t x) { return content[static_cast<size_t>(x)]; };
    const auto key = [&](int64_t j, int64_t x) { return static_cast<double>(k[j * p.dim + x]); };
    const auto value = [&](int64_t j, int64_t c) { return static_cast<double>(v[j * p.value_dim + c]); };
    const auto visible = [&](int64_t j) { return seen[j] != 0; };
    RowTerms terms{biases.data()};
    if (!p.sink.empty()) terms.sink = static_cast<double>(p.sink[static_cast<size_t>(h)]);
    w.lse[static_cast<size_t>(row)] = kernels::reference::attention_row<double>(
        query, p.dim, p.value_dim, 0, p.kv_len, scale, p.options.softcap, key, value, visible,
        w.out.data() + row * p.value_dim, nullptr, terms);
    double* dq = w.dq.data() + row * p.dim;
    const double dsink = kernels::reference::attention_backward_row<double>(
        query, [&](int64_t c) { return static_cast<double>(dout[c]); },
        static_cast<double>(p.dlse[static_cast<size_t>(row)]), p.dim, p.value_dim, 0, p.kv_len, scale,
        p.options.softcap, key, value, visible, scratch.data(), dq,
        [&](int64_t j) { return w.dk.data() + (kv + j) * p.dim; },
        [&](int64_t j) { return w.dv.data() + (kv + j) * p.value_dim; }, db.data(), terms);
    if (!p.sink.empty()) w.dsink[static_cast<size_t>(h)].add(dsink);
    for (int64_t x = 0; x < p.dim && !p.xl_u.empty(); ++x) w.du[static_cast<size_t>(h * p.dim + x)].add(dq[x]);
    for (int64_t j = 0; j < p.kv_len; ++j) {
      const double change = db[static_cast<size_t>(j)];
      if (!p.bias.empty()) w.dbias[p.bias_at(b, h, i, j)].add(change);
      for (int64_t x = 0; x < p.dim && p.options.xl; ++x) {
        const double through_r = change * scale * static_cast<double>(vector(j)[x]);
        dq[x] += through_r;
        if (!p.xl_v.empty()) w.dxv[static_cast<size_t>(h * p.dim + x)].add(through_r);
        w.dr[static_cast<size_t>(vector(j) - p.xl_r.data() + x)].add(change * scale * position[static_cast<size_t>(x)]);
      }
    }
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

// 2: numbers that cancel to a small gradient are of that size.
void near(const std::vector<float>& got, const std::vector<Sum>& want, double eps) {
  double top = 2;
  for (const Sum& sum : want) top = std::max(top, 2 + sum.size);
  for (size_t i = 0; i < want.size(); ++i)
    fuzz::demand(std::fabs(static_cast<double>(got[i]) - want[i].value) <= 40 * eps * top);
}

double largest(const std::vector<double>& x) {
  double top = 0;
  for (double value : x) top = std::max(top, std::fabs(value));
  return top;
}

void check_values(const Result& got, const Wanted& want) {
  const double eps = 1.2e-7 * (1 + want.largest_score);
  near(got.out, want.out, 8 * eps);
  near(got.lse, want.lse, 8 * eps);
  near(got.dq, want.dq, 40 * eps * (2 + largest(want.dq)));
  near(got.dk, want.dk, 40 * eps * (2 + largest(want.dk)));
  near(got.dv, want.dv, 40 * eps * (2 + largest(want.dv)));
  near(got.dbias, want.dbias, eps);
  near(got.dsink, want.dsink, eps);
  near(got.du, want.du, eps);
  near(got.dxv, want.dxv, eps);
  near(got.dr, want.dr, eps);
}

// Keys that no row of the batch row and KV head sees may hold anything.
void poison(const Problem& p, std::vector<float>& k, std::vector<float>& v) {
  const int64_t rows = p.heads / p.kv_heads * p.q_len;
  for (int64_t head = 0; head < p.batch * p.kv_heads; ++head)
    for (int64_t j = 0; j < p.kv_len; ++j) {
      bool seen = false;
      for (int64_t r = 0; r < rows && !seen; ++r) seen = p.seen[static_cast<size_t>((head * rows + r) * p.kv_len + j)] != 0;
      if (seen) continue;
      const int64_t at = head * p.kv_len + j;
      std::fill_n(k.begin() + at * p.dim, p.dim, std::numeric_limits<float>::quiet_NaN());
      std::fill_n(v.begin() + at * p.value_dim, p.value_dim, std::numeric_limits<float>::infinity());
    }
}

// The last query alone has the bits that it has among the others, in its gradient too.
void check_row_alone(const Problem& p, const Result& all) {
  if (p.q_len == 1 || (!p.bias.empty() && p.options.bias.shape[2] > 1)) return;
  const Problem one = p.last_row();
  const Result alone = compute(one, one.k, one.v);
  Result want = alone;
  want.out = p.last_rows(all.out, p.value_dim), want.lse = p.last_rows(all.lse, 1), want.dq = p.last_rows(all.dq, p.dim);
  fuzz::demand(alone == want);
}

void ask(const Problem& p, const Result& got) {
  if (p.question == Problem::Question::kRowAlone) return check_row_alone(p, got);
  if (p.question == Problem::Question::kThreads) {
    set_default_pool_size(3);
    fuzz::demand(compute(p, p.k, p.v) == got);
    return set_default_pool_size(1);
  }
  std::vector<float> k = p.k, v = p.v;
  poison(p, k, v);
  fuzz::demand(compute(p, k, v) == got);
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
  [[maybe_unused]] static const bool one_thread = (set_default_pool_size(1), true);
  fuzz::Choices choices(data, size);
  const Problem p(choices);
  const Wanted want = reference(p);
  std::optional<Result> fused;
  for (const Isa isa : usable()) {
    if (isa == Isa::kBaseline && !p.with_baseline && usable().size() > 1) continue;
    const kernels::ForcedIsa forced(isa);
    const Result got = compute(p, p.k, p.v);
    if (fused) {
      fuzz::demand(got == *fused);
    } else {
      check_values(got, want);
      ask(p, got);
    }
    if (isa != Isa::kBaseline) fused = got;
  }
  return 0;
}

std::vector<std::string> regard::fuzz::seeds() {
  std::vector<std::string> all;
  for (uint64_t seed = 0; seed < 16; ++seed) {
    std::string bytes;
    for (uint64_t i = 0; i < 32; ++i) bytes += static_cast<char>(static_cast<uint8_t>(256 * random_uniform(7, seed, i)));
    all.push_back(bytes);
  }
  return all;
}
