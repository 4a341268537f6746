// A random problem of attention for attention_fuzz: sizes, mask and score terms are choices read from the input byte by
// byte, all numbers come from a seed. Most problems are tiny, so that many of them fit into a minute; a few reach over
// several tiles of keys and blocks of rows. Which ones is a hash of the whole input: no mutation keeps to large ones.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "base/rng.h"
#include "regard/attention.h"
#include "regard/mask.h"

namespace regard::fuzz {

class Choices {
 public:
  Choices(const uint8_t* data, size_t size) : data_(data), size_(size) {
    for (size_t i = 0; i < size; ++i) hash_ = (hash_ ^ data[i]) * 1099511628211u;
    hash_ ^= hash_ >> 29;
  }
  /// 0 .. n - 1; 0 behind the end of the input.
  int64_t below(int64_t n) {
    int64_t value = 0;
    for (int64_t range = 1; range < n; range *= 256) value = value * 256 + (at_ < size_ ? data_[at_++] : 0);
    return value % n;
  }
  int64_t of(std::initializer_list<int64_t> list) { return list.begin()[below(static_cast<int64_t>(list.size()))]; }
  /// True for one input of n, by all of its bytes.
  bool one_in(uint64_t n) {
    const bool yes = hash_ % n == 0;
    hash_ = hash_ / n * 0x9E3779B97F4A7C15u + n;
    hash_ ^= hash_ >> 31;
    return yes;
  }

 private:
  const uint8_t* data_;
  size_t size_, at_ = 0;
  uint64_t hash_ = 14695981039346656037u;
};

inline Mask random_mask(Choices& c, int64_t kv_len, int64_t heads, int depth) {
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
    case 1: return Mask::window(c.below(kv_len), c.below(40));
    case 2: return Mask::prefix(c.below(kv_len + 1));
    case 3: return Mask::blocks(1 + c.below(kv_len));
    case 4: return Mask::chunk(1 + c.below(kv_len));
    case 5: return Mask::dilated(1 + c.below(5));
    case 6: return Mask::none();
    case 7: {
      std::vector<Mask> each;
      for (int64_t h = 0; h < heads; ++h) each.push_back(Mask::window(c.below(kv_len), 0));
      return Mask::per_head(each);
    }
    default: return Mask::full();
  }
}

struct AttentionProblem {
  int64_t batch, heads, kv_heads, q_len, kv_len, dim, value_dim, q_begin;
  std::vector<float> q, k, v, dout, dlse, bias, sink, xl_u, xl_v, xl_r;
  Mask mask = Mask::full();
  std::vector<uint8_t> seen;  // [batch, heads, q_len, kv_len]
  AttentionOptions options;
  // What is asked beside the values; one thing for each input, as each costs a forward and a backward call.
  enum class Question { kPoison, kRowAlone, kThreads } question = Question::kPoison;
  bool with_baseline = false;  // the instruction set without a fused multiply-add takes part

  explicit AttentionProblem(Choices& c) {
    const bool large = c.one_in(1024), medium = large || c.one_in(48);
    batch = 1 + c.below(2);
    kv_heads = 1 + c.below(2);
    heads = kv_heads * (1 + c.below(3));
    q_len = c.of({1, 2, 5, 6, 7, 13, 40, 97});
    kv_len = c.of({1, 15, 16, 17, 63, 64, 65, 255, 256, 257, 300, 513});
    dim = c.of({1, 2, 8, 16, 33, 40, 64});
    value_dim = c.of({1, 2, 16, 24, 33, 64});
    if (!medium) {
      kv_len = 1 + kv_len % 67;
      dim = 1 + dim % 19;
      value_dim = 1 + value_dim % 18;
    }
    const int64_t most_products = large ? 1'000'000 : medium ? 60'000 : 2'000;
    for (int64_t* length : {&q_len, &kv_len})
      while (*length > 1 && products() > most_products) *length = (*length + 1) / 2;
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
    fill(dlse, seed, 10, batch * heads * q_len, 1);
    if (c.below(3) == 0) {
      const int64_t shape[4] = {c.below(2) == 0 ? 1 : batch, c.below(2) == 0 ? 1 : heads, c.below(2) == 0 ? 1 : q_len,
                                c.below(2) == 0 ? 1 : kv_len};
      fill(bias, seed, 5, shape[0] * shape[1] * shape[2] * shape[3], 2);
      options.bias.shape = {shape[0], shape[1], shape[2], shape[3]};
    }
    if (c.below(4) == 0) options.alibi = Alibi{alibi_slopes(heads)};
    if (c.below(4) == 0) fill(sink, seed, 6, heads, 2);
    if (c.below(3) == 0) {
      TransformerXl xl;
      xl.clamp = c.below(2) == 0 ? 0 : 1 + c.below(64);
      xl.first_distance = xl.clamp > 0 ? -xl.clamp : q_begin - kv_len + 1;
      const int64_t count = xl.clamp > 0 ? 2 * xl.clamp + 1 : q_len + kv_len - 1;
      xl.r.shape[0] = count;
      options.xl = xl;
      if (c.below(4) != 0) fill(xl_u, seed, 7, heads * dim, 1);
      if (c.below(4) != 0) fill(xl_v, seed, 8, heads * dim, 1);
      fill(xl_r, seed, 9, count * heads * dim, 1);
    }
    const int64_t asked = c.below(16);
    question = asked == 15 ? Question::kThreads : asked % 2 == 1 ? Question::kRowAlone : Question::kPoison;
    with_baseline = c.below(4) == 0;
    point();
    for (int64_t row = 0; row < batch * heads * q_len; ++row)
      for (int64_t j = 0; j < kv_len; ++j)
        seen.push_back(mask.allowed(row / q_len / heads, row / q_len % heads, q_begin + row % q_len, j));
  }
  AttentionProblem(const AttentionProblem& other) = default;

  /// Makes the options point to this problem's numbers: after each change and copy.
  void point() {
    if (!bias.empty()) {
      const auto& s = options.bias.shape;
      options.bias = {bias.data(), {s[0], s[1], s[2], s[3]}};
    }
    if (!sink.empty()) options.sink = {sink.data(), {heads}};
    if (!options.xl) return;
    if (!xl_u.empty()) options.xl->u = {xl_u.data(), {heads, dim}};
    if (!xl_v.empty()) options.xl->v = {xl_v.data(), {heads, dim}};
    options.xl->r = {xl_r.data(), {options.xl->r.shape[0], heads, dim}};
  }

  /// The problem of the last query alone.
  AttentionProblem last_row() const {
    AttentionProblem one = *this;
    one.q_len = 1;
    one.q_begin = q_begin + q_len - 1;
    one.options.q_begin = {one.q_begin};
    one.q = last_rows(q, dim), one.dout = last_rows(dout, value_dim), one.dlse = last_rows(dlse, 1);
    one.point();
    return one;
  }
  /// Of a tensor [batch, heads, q_len, d].
  std::vector<float> last_rows(const std::vector<float>& x, int64_t d) const {
    std::vector<float> rows;
    for (int64_t row = 1; row <= batch * heads; ++row)
      rows.insert(rows.end(), x.begin() + (row * q_len - 1) * d, x.begin() + row * q_len * d);
    return rows;
  }

  int64_t products() const { return batch * heads * q_len * kv_len * (dim + value_dim); }
  TensorView<const float> view(const std::vector<float>& x, int64_t h, int64_t n, int64_t d) const {
    return {x.data(), {batch, h, n, d}};
  }
  /// Where the dense bias of a pair lies.
  size_t bias_at(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const auto& s = options.bias.shape;
    return static_cast<size_t>((((s[0] == 1 ? 0 : b) * s[1] + (s[1] == 1 ? 0 : h)) * s[2] + (s[2] == 1 ? 0 : i)) * s[3] +
                               (s[3] == 1 ? 0 : j));
  }
  /// Which vector of xl.r a pair has.
  int64_t vector_of(int64_t i, int64_t j) const {
    int64_t distance = q_begin + i - j;
    if (options.xl->clamp > 0) distance = std::clamp(distance, -options.xl->clamp, options.xl->clamp);
    return distance - options.xl->first_distance;
  }

 private:
  static void fill(std::vector<float>& x, uint64_t seed, uint64_t stream, int64_t n, double spread) {
    for (int64_t i = 0; i < n; ++i)
      x.push_back(static_cast<float>(spread * (2 * random_uniform(seed, stream, static_cast<uint64_t>(i)) - 1)));
  }
};

}  // namespace regard::fuzz
