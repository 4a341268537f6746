// The backward kernels against their scalar definition, on bits, on the instruction set in use: blocks of any number of
// rows and panels, so that no sum can know how it was cut.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/rng.h"
#include "kernels/reference/spec_backward.h"
#include "kernels/registry.h"

namespace regard::kernels {
namespace {

using reference::Rounding;

std::vector<float> gaussians(uint64_t seed, int count) {
  std::vector<float> x;
  for (int i = 0; i < count; ++i) {
    const double u = random_uniform(seed, 1, static_cast<uint64_t>(i)),
                 v = random_uniform(seed, 2, static_cast<uint64_t>(i));
    x.push_back(static_cast<float>(std::sqrt(-2 * std::log(1 - u)) * std::cos(2 * M_PI * v)));
  }
  return x;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Dropout and a bias by numbers; the definition asks them pair by pair.
struct Terms {
  const std::vector<float>& biases;
  int row, keys;
  double keep_scale, sink = -INFINITY;
  float bias(int64_t j) const { return biases[static_cast<size_t>(row * keys + static_cast<int>(j))]; }
  bool keep(int64_t j) const { return keep_scale == 1 || (row * 7 + static_cast<int>(j)) % 3 != 0; }
};

struct Problem {
  int d, dv, rows, keys;
  float scale, factor, softcap;
  double keep_scale;
  std::vector<float> q, k, v, out, dout, lse, delta_of_lse, bias;
  std::function<bool(int row, int key)> sees;
};

struct Gradients {
  std::vector<float> q, k, v, bias;
  friend bool operator==(const Gradients& a, const Gradients& b) {
    return same_bits(a.q, b.q) && same_bits(a.k, b.k) && same_bits(a.v, b.v) && same_bits(a.bias, b.bias);
  }
};

Gradients zeros(const Problem& p) {
  return {std::vector<float>(p.q.size()), std::vector<float>(p.k.size()), std::vector<float>(p.v.size()),
          std::vector<float>(p.bias.size())};
}

template <Rounding R>
Gradients by_spec(const Problem& p) {
  Gradients g = zeros(p);
  for (int r = 0; r < p.rows; ++r)
    reference::attention_backward_row_spec<R>(
        &p.q[static_cast<size_t>(r * p.d)], &p.out[static_cast<size_t>(r * p.dv)],
        &p.dout[static_cast<size_t>(r * p.dv)], p.lse[static_cast<size_t>(r)], p.delta_of_lse[static_cast<size_t>(r)],
        p.d, p.dv, 0, p.keys, p.scale, p.factor, p.softcap,
        [&](int64_t j, int i) { return p.k[static_cast<size_t>(j * p.d + i)]; },
        [&](int64_t j, int c) { return p.v[static_cast<size_t>(j * p.dv + c)]; },
        [&](int64_t j) { return p.sees(r, static_cast<int>(j)); }, &g.q[static_cast<size_t>(r * p.d)],
        [&](int64_t j) { return &g.k[static_cast<size_t>(j * p.d)]; },
        [&](int64_t j) { return &g.v[static_cast<size_t>(j * p.dv)]; },
        [&](int64_t j, float x) { g.bias[static_cast<size_t>(r * p.keys + static_cast<int>(j))] = x; },
        Terms{p.bias, r, p.keys, p.keep_scale});
  for (float& x : g.k) x = reference::spec_finish(x, static_cast<float>(math::kLn2));
  for (float& x : g.v) x = reference::spec_finish(x, static_cast<float>(p.keep_scale));
  return g;
}

// `block_rows` rows against `panels` panels at a time; slots behind the last key are NaN.
Gradients by_kernel(const Problem& p, int block_rows, int panels) {
  const AttentionBackwardKernels& kernel = *kernels().attention_backward;
  const int d = padded_dim(p.d), dv = padded_dim(p.dv), block_keys = panels * kPanelKeys;
  Gradients g = zeros(p);
  const auto buffer = [](int size, float filler) {
    AlignedBuffer<float> b(static_cast<size_t>(size));
    std::fill_n(b.data(), size, filler);
    return b;
  };
  AlignedBuffer<float> q = buffer(block_rows * d, NAN), dout = buffer(block_rows * dv, NAN),
                       weights = buffer(block_rows * kWeightStride, NAN), ds = buffer(block_rows * kWeightStride, NAN),
                       db = buffer(block_rows * kWeightStride, NAN), bias = buffer(block_rows * kTileKeys, NAN);
  for (int base = 0; base < p.keys; base += block_keys) {
    const int count = std::min(block_keys, p.keys - base);
    AlignedBuffer<float> k = buffer(block_keys * p.d, NAN), v = buffer(block_keys * p.dv, NAN),
                         k_rows = buffer(block_keys * d, NAN), dk = buffer(block_keys * d, 0),
                         dvs = buffer(block_keys * dv, 0);
    for (int j = 0; j < count; ++j) {
      const float* key = &p.k[static_cast<size_t>((base + j) * p.d)];
      const int64_t panel = j / kPanelKeys * kPanelKeys;
      kernels().attention->pack_keys(key, 0, 1, p.d, k.data() + panel * p.d, j % kPanelKeys);
      kernels().attention->pack_keys(&p.v[static_cast<size_t>((base + j) * p.dv)], 0, 1, p.dv, v.data() + panel * p.dv,
                                     j % kPanelKeys);
      kernel.load_rows(&key, 1, p.d, 1.0f, k_rows.data() + j * d);
    }
    for (int first = 0; first < p.rows; first += block_rows) {
      const int rows = std::min(block_rows, p.rows - first);
      std::vector<const float*> q_rows, dout_rows, out_rows, bias_rows;
      std::vector<float*> dq;
      std::vector<float> high, low, delta(static_cast<size_t>(rows));
      std::vector<uint64_t> seen(static_cast<size_t>(rows * kPanelsPerTile), 0), keep(seen);
      bool everything = count == block_keys;
      for (int r = 0; r < rows; ++r) {
        const auto row = static_cast<size_t>(first + r);
        q_rows.push_back(&p.q[row * static_cast<size_t>(p.d)]);
        dout_rows.push_back(&p.dout[row * static_cast<size_t>(p.dv)]);
        out_rows.push_back(&p.out[row * static_cast<size_t>(p.dv)]);
        dq.push_back(&g.q[row * static_cast<size_t>(p.d)]);
        const reference::SplitLse lse = reference::spec_split_lse(p.lse[row]);
        high.push_back(lse.high), low.push_back(lse.low);
        bias_rows.push_back(bias.data() + r * kTileKeys);
        const Terms terms{p.bias, first + r, p.keys, p.keep_scale};
        for (int j = 0; j < block_keys; ++j) {
          const bool sees = j < count && p.sees(first + r, base + j);
          everything = everything && sees;
          bias.data()[r * kTileKeys + j] = sees ? terms.bias(base + j) : NAN;
          const auto word = static_cast<size_t>(r * kPanelsPerTile + j / 64);
          if (sees) seen[word] |= uint64_t{1} << (j % 64);
          if (sees && terms.keep(base + j)) keep[word] |= uint64_t{1} << (j % 64);
        }
      }
      kernel.load_rows(q_rows.data(), rows, p.d, p.factor, q.data());
      kernel.load_rows(dout_rows.data(), rows, p.dv, 1.0f, dout.data());
      kernel.dot_rows(dout_rows.data(), out_rows.data(), rows, p.dv, delta.data());
      for (int r = 0; r < rows; ++r) delta[static_cast<size_t>(r)] -= p.delta_of_lse[static_cast<size_t>(first + r)];
      const auto words = [](const std::vector<uint64_t>& x) {
        return reinterpret_cast<const uint64_t(*)[kPanelsPerTile]>(x.data());
      };
      const BackwardBlock block{.q = q.data(),
                                .dout = dout.data(),
                                .dout_stride = padded_dim(p.dv),
                                .rows = rows,
                                .panels = panels,
                                .head_dim = p.d,
                                .value_dim = p.dv,
                                .softcap = p.softcap,
                                .k = k.data(),
                                .v = v.data(),
                                .k_rows = k_rows.data(),
                                .lse_high = high.data(),
                                .lse_low = low.data(),
                                .delta = delta.data(),
                                .seen = everything ? nullptr : words(seen),
                                .bias = bias_rows.data(),
                                .keep = p.keep_scale == 1 ? nullptr : words(keep),
                                .keep_scale = static_cast<float>(p.keep_scale),
                                .dq = nullptr,
                                .p = weights.data(),
                                .ds = ds.data(),
                                .db = db.data()};
      kernel.weights(block);
      kernel.add_keys(block, dk.data(), dvs.data());
      kernel.add_queries(block, dq.data());
      for (int r = 0; r < rows; ++r)
        for (int j = 0; j < count; ++j)
          if (p.sees(first + r, base + j))
            g.bias[static_cast<size_t>((first + r) * p.keys + base + j)] = db.data()[r * kWeightStride + j];
    }
    for (int j = 0; j < count; ++j) {
      const float* from = dk.data() + j * d;
      float* to = &g.k[static_cast<size_t>((base + j) * p.d)];
      kernel.finish_rows(&from, 1, p.d, static_cast<float>(math::kLn2), &to);
      from = dvs.data() + j * dv;
      to = &g.v[static_cast<size_t>((base + j) * p.dv)];
      kernel.finish_rows(&from, 1, p.dv, static_cast<float>(p.keep_scale), &to);
    }
  }
  for (int r = 0; r < p.rows; ++r) {
    float* row = &g.q[static_cast<size_t>(r * p.d)];
    kernel.finish_rows(&row, 1, p.d, p.scale, &row);
  }
  return g;
}

TEST(AttentionBackwardKernels, EqualTheirDefinitionInBlocksOfAnySize) {
  const std::vector<std::function<bool(int, int)>> sights = {
      [](int, int) { return true; }, [](int r, int j) { return j <= 3 * r + 5; },
      [](int r, int j) { return random_uniform(9, static_cast<uint64_t>(r), static_cast<uint64_t>(j)) < 0.5; },
      [](int r, int j) { return r % 3 != 1 && j % 64 >= 61; }};
  const int sizes[][2] = {{1, 1}, {16, 33}, {40, 16}, {64, 72}, {100, 64}};
  for (const auto& [d, dv] : sizes)
    for (int keys : {5, 256, 300})
      for (size_t sight = 0; sight < sights.size(); ++sight)
        for (double keep_scale : {1.0, 1.25}) {
          constexpr int kRows = 50;
          Problem p{d,
                    dv,
                    kRows,
                    keys,
                    static_cast<float>(1 / std::sqrt(double(d))),
                    static_cast<float>(math::kLog2e / std::sqrt(double(d))),
                    sight == 1 ? 1.5f : 0.0f,
                    keep_scale,
                    gaussians(1, kRows * d),
                    gaussians(2, keys * d),
                    gaussians(3, keys * dv),
                    gaussians(4, kRows * dv),
                    gaussians(5, kRows * dv),
                    gaussians(6, kRows),
                    gaussians(7, kRows),
                    gaussians(8, kRows * keys),
                    sights[sight]};
          // Any number does for lse, as long as weights stay finite.
          for (float& x : p.lse) x = 6.0f + std::fabs(x);
          const Gradients want =
              kernels().isa == Isa::kBaseline ? by_spec<Rounding::kSeparate>(p) : by_spec<Rounding::kFused>(p);
          for (const auto& [rows, panels] : {std::pair{1, 4}, {2, 1}, {6, 2}, {7, 3}, {50, 4}}) {
            const Gradients got = by_kernel(p, rows, panels);
            ASSERT_EQ(got, want) << "d " << d << " dv " << dv << " keys " << keys << " sight " << sight << " blocks of "
                                 << rows << " rows, " << panels << " panels";
          }
        }
}

}  // namespace
}  // namespace regard::kernels
