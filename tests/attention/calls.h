// Calls of the public interface as the tests make them.
#pragma once

#include <initializer_list>
#include <string>

#include "attention/testing.h"
#include "regard/attention.h"
#include "regard/error.h"

namespace regard::testing_attention {

inline TensorView<const float> q_view(const Problem& p) {
  return TensorView<const float>(p.q.data(), {p.batch, p.num_q_heads, p.q_len, p.d});
}
inline TensorView<const float> k_view(const Problem& p) {
  return TensorView<const float>(p.k.data(), {p.batch, p.num_kv_heads, p.kv_len, p.d});
}
inline TensorView<const float> v_view(const Problem& p) {
  return TensorView<const float>(p.v.data(), {p.batch, p.num_kv_heads, p.kv_len, p.dv});
}
inline TensorView<float> out_view(const Problem& p, Result& r) {
  return {r.out.data(), {p.batch, p.num_q_heads, p.q_len, p.dv}};
}
inline TensorView<float> lse_view(const Problem& p, Result& r) {
  return {r.lse.data(), {p.batch, p.num_q_heads, p.q_len}};
}

inline AttentionOptions options_of(const Problem& p) {
  AttentionOptions o;
  o.scale = p.scale;
  o.softcap = p.softcap;
  o.q_begin = {p.q_begin};
  o.k_begin = {p.k_begin};
  return o;
}

inline Result run(const Problem& p, const Mask& mask, const AttentionOptions& options) {
  Result r(p);
  attend(q_view(p), k_view(p), v_view(p), mask, options, out_view(p, r), lse_view(p, r));
  return r;
}
inline Result run(const Problem& p, const Mask& mask) { return run(p, mask, options_of(p)); }

inline std::vector<Mask> masks() {
  return {Mask::full(),
          Mask::causal(),
          Mask::window(100, 20),
          Mask::parse("causal & (window(31, 0) | sinks(4))"),
          Mask::parse("causal & ~dilated(3)"),
          Mask::parse("per_head(causal, window(10, *), full, none)"),
          Mask::parse("chunk(40) | prefix(3)")};
}

inline Problem with_lengths(int64_t q_len, int64_t kv_len, int64_t d, int64_t dv) {
  Problem p;
  p.num_q_heads = 4, p.num_kv_heads = 2;
  p.q_len = q_len, p.kv_len = kv_len, p.d = d, p.dv = dv;
  p.q_begin = std::max<int64_t>(0, kv_len - q_len);
  return p;
}

// The call must be refused with this code, and its message must name these.
template <class F>
void expect_refused(Code code, std::initializer_list<const char*> words, F&& call) {
  try {
    call();
    ADD_FAILURE() << "not refused";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    for (const char* word : words)
      EXPECT_NE(std::string(e.what()).find(word), std::string::npos)
          << "\"" << word << "\" is missing in: " << e.what();
  }
}

}  // namespace regard::testing_attention
