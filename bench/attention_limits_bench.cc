// What attention promises beside speed: errors against f64, as shares of their bounds, and the memory that 64k tokens take.
//
// A bound of an output is 6 eps (1 + max |s|) sum w |v| with eps = 2^-24 (tests/attention hold every mask and shape to it); gradients
// are bound to 1e-5 of the largest, and the bf16 kernel to 1.5 times the error of the f32 kernel on inputs rounded to bf16.
#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <numbers>
#include <span>
#include <vector>

#include "base/rng.h"
#include "harness.h"
#include "kernels/reference/attention.h"
#include "kernels/reference/attention_backward.h"
#include "kernels/registry.h"
#include "regard/attention_backward.h"
#include "regard/dtype.h"
#include "regard/runtime.h"
#include "support/process_memory.h"

namespace {

using namespace regard;

std::vector<float> gaussian(uint64_t stream, int64_t count) {
  std::vector<float> x;
  for (int64_t i = 0; i < count; ++i) {
    const double u = 1 - random_uniform(2, stream, static_cast<uint64_t>(2 * i)), v = random_uniform(2, stream, static_cast<uint64_t>(2 * i + 1));
    x.push_back(static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v)));
  }
  return x;
}

// One head of n tokens, forward and backward.
struct Head {
  Head(int dim, int64_t tokens, const char* text) : d(dim), n(tokens), mask(Mask::parse(text)), out(q.size()), dq(q.size()), dk(q.size()), dv(q.size()) {}

  TensorView<float> view(std::vector<float>& x) const { return {x.data(), {1, 1, n, d}}; }
  TensorView<float> lse_view() { return {lse.data(), {1, 1, n}}; }
  void forward(const AttentionOptions& options = {}) { attend(view(q), view(k), view(v), mask, options, view(out), lse_view()); }
  void backward() {
    attend_backward(view(q), view(k), view(v), view(out), lse_view(), view(dout), {}, mask, {}, view(dq), view(dk), view(dv));
  }
  auto row(const std::vector<float>& x, int64_t i) const {
    return [&x, at = i * d](int64_t c) { return x[static_cast<size_t>(at + c)]; };
  }
  auto rows(const std::vector<float>& x) const {
    return [&x, this](int64_t j, int64_t c) { return x[static_cast<size_t>(j * d + c)]; };
  }

  int d;
  int64_t n;
  Mask mask;
  std::vector<float> q = gaussian(1, n * d), k = gaussian(2, n * d), v = gaussian(3, n * d), dout = gaussian(4, n * d), out, dq, dk, dv,
                     lse = std::vector<float>(static_cast<size_t>(n));
};

// The output in f64, and in `scale` what its bound is a multiple of: eps (1 + max |s|) sum w |v|.
std::vector<double> exact_output(const Head& h, int64_t i, std::vector<double>* scale) {
  std::vector<double> want(static_cast<size_t>(h.d)), absolute(want.size());
  const double factor = 1 / std::sqrt(static_cast<double>(h.d));
  const auto seen = [&](int64_t j) { return h.mask.allowed(0, 0, i, j); };
  kernels::reference::attention_row<double>(h.row(h.q, i), h.d, h.d, 0, h.n, factor, 0.0, h.rows(h.k), h.rows(h.v), seen, want.data());
  if (scale == nullptr) return want;
  kernels::reference::attention_row<double>(h.row(h.q, i), h.d, h.d, 0, h.n, factor, 0.0, h.rows(h.k),
                                            [&](int64_t j, int64_t c) { return std::fabs(h.rows(h.v)(j, c)); }, seen, absolute.data());
  double top = 0;
  for (int64_t j = 0; j < h.n; ++j) {
    double s = 0;
    for (int c = 0; c < h.d && seen(j); ++c) s += factor * static_cast<double>(h.row(h.q, i)(c)) * h.rows(h.k)(j, c);
    top = std::max(top, std::fabs(s));
  }
  for (double& x : absolute) x *= std::ldexp(1 + top, -24);
  *scale = std::move(absolute);
  return want;
}

void print_errors() {
  fmt::print("\nErrors against f64, gaussian inputs\n");
  for (int d : {64, 128})
    for (const char* text : {"full", "causal", "causal & window(255, 0)"}) {
      Head h(d, 2048, text);
      h.forward();
      double share = 0;
      for (int64_t i = 0; i < h.n; i += 61) {
        std::vector<double> scale;
        const std::vector<double> want = exact_output(h, i, &scale);
        for (int x = 0; x < d; ++x) {
          const auto at = static_cast<size_t>(i * d + x);
          share = std::max(share, std::fabs(h.out[at] - want[static_cast<size_t>(x)]) / (6 * scale[static_cast<size_t>(x)]));
        }
      }
      bench::require_answer(share <= 1, fmt::format("output d {} {}", d, text));

      h.backward();
      std::vector<double> dq(h.q.size()), dk(h.q.size()), dv(h.q.size()), scratch(static_cast<size_t>(d + h.n));
      for (int64_t i = 0; i < h.n; ++i)
        kernels::reference::attention_backward_row<double>(
            h.row(h.q, i), h.row(h.dout, i), 0.0, d, d, 0, h.n, 1 / std::sqrt(static_cast<double>(d)), 0.0, h.rows(h.k), h.rows(h.v),
            [&](int64_t j) { return h.mask.allowed(0, 0, i, j); }, scratch.data(), dq.data() + i * d, [&](int64_t j) { return dk.data() + j * d; },
            [&](int64_t j) { return dv.data() + j * d; });
      const auto error = [](const std::vector<float>& got, const std::vector<double>& want) {
        double top = 0, most = 0;
        for (size_t i = 0; i < got.size(); ++i) {
          top = std::max(top, std::fabs(want[i]));
          most = std::max(most, std::fabs(got[i] - want[i]));
        }
        return most / top;
      };
      const double of_dq = error(h.dq, dq), of_dk = error(h.dk, dk), of_dv = error(h.dv, dv);
      bench::require_answer(std::max({of_dq, of_dk, of_dv}) <= 1e-5, fmt::format("gradients d {} {}", d, text));
      fmt::print("  d {:3} {:24} output {:.3f} of its bound; of the largest gradient: dq {:.1e}, dk {:.1e}, dv {:.1e} (at most 1e-5)\n", d, text,
                 share, of_dq, of_dk, of_dv);
    }
}

void print_bf16_errors() {
  fmt::print("\nbf16 dot products: largest error over that of the f32 kernel on inputs rounded to bf16 (at most 1.5)\n");
  for (int d : {64, 128})
    for (const char* text : {"full", "causal"}) {
      Head h(d, 2048, text), rounded_inputs(d, 2048, text);
      for (auto* x : {&rounded_inputs.q, &rounded_inputs.k, &rounded_inputs.v})
        for (float& value : *x) value = rounded(value, DType::kBF16);
      AttentionOptions options;
      options.arithmetic = AttentionArithmetic::kBf16Dots;
      h.forward(options);
      rounded_inputs.forward();
      double of_bf16 = 0, of_inputs = 0;
      for (int64_t i = 0; i < h.n; i += 61) {
        const std::vector<double> want = exact_output(h, i, nullptr);
        for (int x = 0; x < d; ++x) {
          const auto at = static_cast<size_t>(i * d + x);
          of_bf16 = std::max(of_bf16, std::fabs(h.out[at] - want[static_cast<size_t>(x)]));
          of_inputs = std::max(of_inputs, std::fabs(rounded_inputs.out[at] - want[static_cast<size_t>(x)]));
        }
      }
      bench::require_answer(of_bf16 <= 1.5 * of_inputs, fmt::format("bf16 d {} {}", d, text));
      fmt::print("  d {:3} {:6}: {:.2f}\n", d, text, of_bf16 / of_inputs);
    }
}

// A matrix of weights would take 16 GiB.
void print_memory() {
  fmt::print("\n65,536 tokens, one head, forward and backward, causal: how far the peak of resident memory rises above the tensors\n");
  for (int threads : {1, 2}) {
    set_num_threads(threads);
    Head h(64, 65536, "causal");
    h.forward();  // gradients are tensors too: their pages are touched before
    for (auto* x : {&h.dq, &h.dk, &h.dv}) std::fill(x->begin(), x->end(), 0.0f);
    if (!(std::ofstream("/proc/self/clear_refs") << "5" << std::flush)) {
      fmt::print("  skipped: the peak cannot be reset here\n");
      return;
    }
    const auto before = test::status_bytes("VmRSS");
    h.forward();
    const auto forward = test::status_bytes("VmHWM");
    h.backward();
    const double mib = 1 << 20, packed = 2.0 * 65536 * 64 * sizeof(float) / mib, rows = 65536.0 * 64 / mib;
    const double rise = static_cast<double>(test::status_bytes("VmHWM") - before) / mib, limit = threads + packed + rows;
    bench::require_answer(rise <= limit, "memory of 64k tokens");
    fmt::print("  {} thread{}: forward {:.1f} MiB, with backward {:.1f} MiB (at most {:.0f}: {:.0f} for packed keys and values, 1 for each thread, 64 bytes a token)\n",
               threads, threads == 1 ? "" : "s", static_cast<double>(forward - before) / mib, rise, limit, packed);
  }
}

}  // namespace

int main() {
  fmt::print("kernels: {}\n", isa_name(kernels::kernels().isa));
  print_errors();
  if (kernels::kernels().attention_bf16 != nullptr) print_bf16_errors();
  print_memory();
}
