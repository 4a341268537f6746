// What the tests of the attention kernels share: problems with known numbers, and masks told to a kernel tile by tile.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/math.h"
#include "base/rng.h"
#include "kernels/attention.h"

namespace regard::kernels::testing_kernels {

inline constexpr int kLengths[] = {0, 1, 15, 16, 17, 63, 64, 65, 255, 256, 257, 300, 511, 512, 513, 777};

inline float gaussian(uint64_t seed, uint64_t index) {
  const double u = random_uniform(seed, 1, index), v = random_uniform(seed, 2, index);
  return static_cast<float>(std::sqrt(-2 * std::log(1 - u)) * std::cos(2 * M_PI * v));
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Which key does row r see? Rows stand at the end of the keys.
using Sees = std::function<bool(int row, int key)>;
struct NamedMask {
  const char* name;
  Sees sees;
  enum Form { kIntervals, kWords } form;  // how the kernel is told
};

inline std::vector<NamedMask> masks(int rows, int kv_len) {
  const int first = kv_len - rows;
  const auto bits = [](double density) {
    return [density](int r, int j) {
      return random_uniform(99, static_cast<uint64_t>(r), static_cast<uint64_t>(j)) < density;
    };
  };
  return {
      {"full", [](int, int) { return true; }, NamedMask::kIntervals},
      {"causal", [first](int r, int j) { return j <= first + r; }, NamedMask::kIntervals},
      {"window(3, 0)", [first](int r, int j) { return j >= first + r - 3 && j <= first + r; }, NamedMask::kIntervals},
      {"window(100, 20)", [first](int r, int j) { return j >= first + r - 100 && j <= first + r + 20; },
       NamedMask::kIntervals},
      {"causal as words", [first](int r, int j) { return j <= first + r; }, NamedMask::kWords},
      {"half of the bits", bits(0.5), NamedMask::kWords},
      {"few bits", bits(0.005), NamedMask::kWords},
      {"most bits", bits(0.98), NamedMask::kWords},
      {"every other row nothing", [](int r, int j) { return r % 2 == 1 && j % 3 == 0; }, NamedMask::kWords},
  };
}

struct Problem {
  int d, dv, kv_len, rows;
  float factor, softcap = 0.0f;
  std::vector<float> q{}, k{}, v{};
  std::vector<float> bias{};   // [rows][kv_len], or none
  std::vector<float> sinks{};  // [rows], or none
  bool drops = false;
  bool keeps(int r, int64_t j) const {
    return !drops || random_uniform(7, static_cast<uint64_t>(r), static_cast<uint64_t>(j)) < 0.7;
  }
  float key(int64_t j, int i) const { return k[static_cast<size_t>(j * d + i)]; }
  float value(int64_t j, int c) const { return v[static_cast<size_t>(j * dv + c)]; }
};

inline Problem make(int d, int dv, int kv_len, int rows, float spread = 1.0f) {
  Problem p{d, dv, kv_len, rows, static_cast<float>(math::kLog2e / std::sqrt(double(d)))};
  const auto seed = static_cast<uint64_t>(d * 1000 + kv_len);
  for (int i = 0; i < rows * d; ++i) p.q.push_back(spread * gaussian(seed, static_cast<uint64_t>(i)));
  for (int i = 0; i < kv_len * d; ++i) p.k.push_back(gaussian(seed + 1, static_cast<uint64_t>(i)));
  for (int i = 0; i < kv_len * dv; ++i) p.v.push_back(gaussian(seed + 2, static_cast<uint64_t>(i)));
  return p;
}

struct Result {
  std::vector<float> out, lse;
  friend bool operator==(const Result& a, const Result& b) {
    return same_bits(a.out, b.out) && same_bits(a.lse, b.lse);
  }
};

// What a row of a problem has besides its scores, as the definition asks for it.
struct RowTerms {
  const Problem& p;
  int row;
  double keep_scale = 1, sink = -INFINITY;
  RowTerms(const Problem& problem, int r) : p(problem), row(r) {
    if (!p.sinks.empty()) sink = p.sinks[static_cast<size_t>(r)];
  }
  float bias(int64_t j) const { return p.bias.empty() ? 0.0f : p.bias[static_cast<size_t>(row * p.kv_len + j)]; }
  bool keep(int64_t j) const { return p.keeps(row, j); }
};

inline std::vector<float> gaussians(uint64_t seed, int count, float spread) {
  std::vector<float> x;
  for (int i = 0; i < count; ++i) x.push_back(spread * gaussian(seed, static_cast<uint64_t>(i)));
  return x;
}

// What `rows` rows from `first` on see of tile t, and what else they bring to it.
struct TileRows {
  const Problem& p;
  NamedMask::Form form;
  std::vector<int32_t> lo, hi;
  std::vector<uint64_t> words, keep;
  AlignedBuffer<float> bias;
  std::vector<const float*> bias_rows;

  TileRows(const Problem& problem, const NamedMask& mask, int t, int first, int rows)
      : p(problem),
        form(mask.form),
        words(static_cast<size_t>(rows * kPanelsPerTile), 0),
        keep(words),
        bias(static_cast<size_t>(rows * kTileKeys)) {
    for (int r = 0; r < rows; ++r) {
      bias_rows.push_back(bias.data() + r * kTileKeys);
      int low = kTileKeys, high = 0;
      for (int j = 0; j < kTileKeys; ++j) {
        const int key = t * kTileKeys + j;
        const auto word = static_cast<size_t>(r * kPanelsPerTile + j / 64);
        // A key that stands nowhere has a bias of NaN.
        bias[static_cast<size_t>(r * kTileKeys + j)] = key < p.kv_len ? RowTerms(p, first + r).bias(key) : NAN;
        if (p.keeps(first + r, key)) keep[word] |= uint64_t{1} << (j % 64);
        if (key >= p.kv_len || !mask.sees(first + r, key)) continue;
        low = std::min(low, j);
        high = j + 1;
        words[word] |= uint64_t{1} << (j % 64);
      }
      lo.push_back(low);
      hi.push_back(high);
    }
  }

  void tell(AttentionTile& tile) const {
    if (!p.bias.empty()) tile.bias = bias_rows.data();
    if (p.drops) tile.keep = reinterpret_cast<const uint64_t(*)[kPanelsPerTile]>(keep.data());
    if (form == NamedMask::kIntervals) tile.lo = lo.data(), tile.hi = hi.data();
    if (form == NamedMask::kWords) tile.words = reinterpret_cast<const uint64_t(*)[kPanelsPerTile]>(words.data());
  }
};

}  // namespace regard::kernels::testing_kernels
