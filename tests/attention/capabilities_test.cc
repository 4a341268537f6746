// The table of what each call takes against the calls themselves, and against the page that shows it.
#include "attention/capabilities.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <map>

#include "attention/calls.h"
#include "regard/attention_backward.h"
#include "regard/attention_merge.h"
#include "regard/attention_weights.h"
#include "regard/talking_heads.h"

namespace regard {
namespace {

using namespace testing_attention;

// One batch row, four heads over two, eight queries and keys; every option has its arrays here.
struct Calls {
  Problem p = with_lengths(8, 8, 4, 4);
  std::vector<float> bias, table, u, distances, sink = std::vector<float>(4, 0.5f), mix;
  std::vector<int64_t> positions = {7, 6, 5, 4, 3, 2, 1, 0};
  std::map<std::string_view, std::function<void(AttentionOptions&)>> options;
  std::vector<std::function<std::vector<float>(const AttentionOptions&)>> calls;  // in the order of the table

  static std::vector<float> numbers(int64_t n) {
    std::vector<float> x;
    for (int64_t i = 0; i < n; ++i) x.push_back(static_cast<float>(i * 7 % 11) / 5 - 1);
    return x;
  }

  Calls() {
    p.batch = 1;
    p.q_begin = 0;
    p.q = numbers(4 * 8 * 4);
    p.k = numbers(2 * 8 * 4);
    p.v = numbers(2 * 8 * 4 + 3);
    p.v.erase(p.v.begin(), p.v.begin() + 3);
    bias = numbers(64);
    table = numbers(32);
    u = numbers(16);
    distances = numbers(15 * 4 * 4);
    mix = numbers(16);
    options = {
        {"scale", [](AttentionOptions& o) { o.scale = -0.3; }},
        {"softcap", [](AttentionOptions& o) { o.softcap = 0.2; }},
        {"arithmetic", [](AttentionOptions& o) { o.arithmetic = AttentionArithmetic::kBf16Dots; }},
        {"bias", [this](AttentionOptions& o) { o.bias = {bias.data(), {1, 1, 8, 8}}; }},
        {"alibi", [](AttentionOptions& o) { o.alibi = Alibi{{1, 2, 3, 4}}; }},
        {"t5", [this](AttentionOptions& o) { o.t5 = T5Bias{.table = {table.data(), {8, 4}}}; }},
        {"xl",
         [this](AttentionOptions& o) {
           o.xl = TransformerXl{.u = {u.data(), {4, 4}}, .v = {u.data(), {4, 4}}, .r = {distances.data(), {15, 4, 4}}, .first_distance = -7};
         }},
        {"sink", [this](AttentionOptions& o) { o.sink = {sink.data(), {4}}; }},
        {"dropout",
         [](AttentionOptions& o) { o.dropout = Dropout{.rate = 0.5, .seed = 3, .weights = Dropout::Weights::kAfter}; }},
        {"q_positions",
         [this](AttentionOptions& o) {
           o.q_begin.clear();
           o.q_positions = {positions.data(), {8}};
         }},
        {"q_offsets", [](AttentionOptions& o) { o.q_offsets = {0, 3, 8}; }},
        {"query_lengths", [](AttentionOptions& o) { o.query_lengths = {5}; }},
        {"limits", [](AttentionOptions& o) { o.limits.key_lengths = {4}; }},
    };
    calls = {
        [this](const AttentionOptions& o) { return run(p, Mask::causal(), o).out; },
        [this](const AttentionOptions& o) {
          Result forward = run(p, Mask::causal(), o);
          std::vector<float> dq(p.q.size()), dk(p.k.size()), dv(p.v.size()), dout = numbers(4 * 8 * 4);
          attend_backward(q_view(p), k_view(p), v_view(p), out_view(p, forward), lse_view(p, forward),
                          TensorView<const float>(dout.data(), {1, 4, 8, 4}), {}, Mask::causal(), o,
                          {dq.data(), {1, 4, 8, 4}}, {dk.data(), {1, 2, 8, 4}}, {dv.data(), {1, 2, 8, 4}});
          dq.insert(dq.end(), dv.begin(), dv.end());
          return dq;
        },
        [this](const AttentionOptions& o) {
          AttentionOptions whole = o;  // lse of the call alone, when the weights are to refuse an option that attend() takes
          Result forward = run(p, Mask::causal(), whole);
          std::vector<float> weights(4 * 64), sums(4 * 8);
          attention_column_sums(q_view(p), k_view(p), lse_view(p, forward), Mask::causal(), o, {0, 8}, {sums.data(), {1, 4, 8}});
          attention_weights(q_view(p), k_view(p), lse_view(p, forward), Mask::causal(), o, {0, 8}, {0, 8},
                            {weights.data(), {1, 4, 8, 8}});
          return weights;
        },
        [this](const AttentionOptions& o) {
          PartialAttention state(1, 4, 8, 4);
          attend_onto(state, q_view(p), k_view(p), v_view(p), Mask::causal(), o);
          Result r(p);
          state.finish({}, out_view(p, r), lse_view(p, r));
          return r.out;
        },
        [this](const AttentionOptions& o) {
          Result r(p);
          const TensorView<const float> matrix(mix.data(), {4, 4});
          attend_talking_heads(q_view(p), k_view(p), v_view(p), {.before = matrix, .after = matrix}, Mask::causal(), o, out_view(p, r));
          return r.out;
        },
    };
  }
};

AttentionOptions plain() {
  AttentionOptions o;
  o.q_begin = {0};
  o.k_begin = {0};
  return o;
}

TEST(AttentionCapabilities, AreWhatTheCallsDo) {
  Calls c;
  ASSERT_EQ(c.calls.size(), kAttentionCalls.size());
  ASSERT_EQ(c.options.size(), std::size(kAttentionCapabilities));
  for (size_t call = 0; call < c.calls.size(); ++call) {
    const std::vector<float> without = c.calls[call](plain());
    for (const AttentionCapability& capability : kAttentionCapabilities) {
      SCOPED_TRACE(std::string(kAttentionCalls[call]) + " with " + std::string(capability.option));
      // An arithmetic that the instruction set in use does not have is refused everywhere.
      const bool exists = capability.option != "arithmetic" || kernels::kernels().attention_bf16 != nullptr;
      const bool taken = exists && capability.taken[call];
      AttentionOptions with = plain();
      c.options.at(capability.option)(with);
      if (capability.option == "q_offsets") with.q_begin = with.k_begin = {};
      try {
        const std::vector<float> result = c.calls[call](with);
        EXPECT_TRUE(taken) << "not refused";
        EXPECT_NE(result, without) << "taken, and without effect";
      } catch (const Error& error) {
        EXPECT_FALSE(taken) << error.what();
        EXPECT_NE(std::string(error.what()).find(capability.option), std::string::npos) << error.what();
      }
    }
  }
}

TEST(AttentionCapabilities, StandOnThePage) {
  std::ifstream in(std::string(REGARD_TEST_DATA) + "/../docs/attention.md", std::ios::binary);
  const std::string page{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  EXPECT_NE(page.find(attention_capabilities_markdown()), std::string::npos)
      << "put this into docs/attention.md:\n"
      << attention_capabilities_markdown();
}

}  // namespace
}  // namespace regard
