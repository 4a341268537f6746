// Proofs about masks that models use, by name: verdicts, counter-examples and what is said about them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "regard/error.h"
#include "regard/mask_proof.h"

namespace regard {
namespace {

using ::testing::HasSubstr;
using Key = std::tuple<int64_t, int64_t, int64_t, int64_t>;  // q, k, batch, head

Key key_of(const CounterExample& e) { return {e.q.value_or(-1), e.k.value_or(-1), e.batch, e.head}; }

Proof ask(const char* mask, const char* property, const ProofBounds& bounds = {}) {
  return prove(Mask::parse(mask), MaskProperty::parse(property), bounds);
}

std::string answer(const char* mask, const char* property, const ProofBounds& bounds = {}) {
  const Proof proof = ask(mask, property, bounds);
  std::string text(verdict_name(proof.verdict));
  if (proof.counter_example) {
    if (proof.counter_example->q) text += " q " + std::to_string(*proof.counter_example->q);
    if (proof.counter_example->k) text += " k " + std::to_string(*proof.counter_example->k);
    text += ", " + proof.counter_example->because;
  }
  return text;
}

TEST(MaskProof, WhatModelsUse) {
  EXPECT_EQ(answer("causal & (window(127, 0) | sinks(4))", "causal"), "proved");
  EXPECT_EQ(answer("causal & window(127, 0) | sinks(4)", "causal"), "refuted q 0 k 1, allowed by prefix(4)");
  EXPECT_EQ(answer("window(1000, 0)", "equals:causal"),
            "refuted q 1001 k 0, forbidden by window(1000, 0); under causal it is allowed by causal");
  EXPECT_EQ(answer("window(1000, 0)", "implies:causal"), "proved");
  EXPECT_EQ(answer("blocks(64)", "equals:causal | chunk(64)"), "proved");
  EXPECT_EQ(answer("causal & (window(63, 0) | dilated(64))", "no-empty-row"), "proved");
  EXPECT_EQ(answer("causal | prefix(8)", "decode-equals-prefill"), "refuted q 0 k 1, allowed by prefix(8)");
  EXPECT_EQ(answer("causal & window(127, 0)", "ring(128)"), "proved");
  EXPECT_EQ(answer("causal & window(127, 0)", "ring(127)"),
            "refuted q 127 k 0, allowed by causal and window(127, 0); its slot 0 holds a later key by then");
  EXPECT_EQ(answer("causal & window(127, 0)", "ring(159, 32)"),
            "proved");  // the window of the first query and the 31 behind it
  EXPECT_EQ(answer("causal & window(127, 0)", "ring(158, 32)"),
            "refuted q 128 k 1, allowed by causal and window(127, 0); its slot 1 holds a later key by then");
  EXPECT_EQ(answer("causal & window(127, 0) | sinks(4) & causal", "ring(128)"),
            "refuted q 128 k 0, allowed by prefix(4) and causal; its slot 0 holds a later key by then");
  EXPECT_EQ(answer("causal & ~window(0, 0)", "no-empty-row"), "refuted q 0, key 0 is forbidden by ~window(0, 0)");
  EXPECT_EQ(answer("causal & ~window(0, 0)", "reachable"), "refuted k 0, query 0 is forbidden by ~window(0, 0)");
  EXPECT_EQ(answer("causal", "reachable"), "proved");
}

TEST(MaskProof, ConstantsBeyondEnumeration) {
  const int64_t million = 1'000'000, huge = int64_t{1} << 61;
  EXPECT_THAT(answer("window(1000000, 0)", "equals:causal"), HasSubstr("refuted q 1000001 k 0"));
  EXPECT_THAT(answer("causal & dilated(1000003) & dilated(999983)", "window(1000000, 0)"),
              HasSubstr("refuted q " + std::to_string((million + 3) * (million - 17)) + " k 0"));
  EXPECT_EQ(answer("blocks(1000003) & causal", "implies:blocks(999983)"), "proved");
  EXPECT_THAT(answer("blocks(1000003)", "implies:blocks(999983)"), HasSubstr("refuted q 0 k 999983"));
  const Mask far = Mask::window(huge, 0);
  const Proof proof = prove(far, MaskProperty::parse("equals:causal"));
  ASSERT_TRUE(proof.counter_example);
  EXPECT_EQ(proof.counter_example->q, huge + 1);
  EXPECT_EQ(answer("chunk(1073741824) & ~chunk(2147483648)", "implies:none"), "proved");
  EXPECT_EQ(answer("window(*, 0) & window(0, *)", "equals:chunk(1)"), "proved");
  EXPECT_THAT(answer("(chunk(65536) | dilated(4096)) & causal", "window(65535, 0)"), HasSubstr("refuted q 65536 k 0"));
}

// Row 60 is the first behind row 0 that 4, 3 and 5 divide.
TEST(MaskProof, ARowThatIsEmptyOnceInAPeriod) {
  EXPECT_THAT(answer("prefix(1) & (window(0, 0) | ~dilated(4) | ~dilated(3) | ~dilated(5))", "no-empty-row"),
              HasSubstr("refuted q 60, key 60 is forbidden by prefix(1)"));
  EXPECT_EQ(answer("window(0, 0) | prefix(1) & (~dilated(4) | ~dilated(3) | ~dilated(5))", "no-empty-row"), "proved");
}

TEST(MaskProof, Lists) {
  EXPECT_EQ(answer("causal & documents(0, 0, 1, 1, 1, 2)", "documents(0, 0, 1, 1, 1, 2)"), "proved");
  EXPECT_EQ(answer("causal | documents(0, 0, 1, 1, 1, 2)", "documents(0, 0, 1, 1, 1, 2)"),
            "refuted q 2 k 0, allowed by causal");
  EXPECT_EQ(answer("documents(0, 0, 1; 0, 5, 1)", "reachable"),
            "refuted k 1, query 1 is forbidden by documents(0, 0, 1; 0, 5, 1)");
  EXPECT_EQ(answer("tree(2; -1, 0, 0, 1)", "causal"), "refuted q 0 k 1, allowed by tree(2; -1, 0, 0, 1)");
  EXPECT_EQ(answer("lengths(3, 5)", "lengths(3, 4)"), "refuted q 0 k 4, allowed by lengths(3, 5)");
  EXPECT_EQ(ask("lengths(3, 5)", "lengths(3, 4)").counter_example->batch, 1);
  EXPECT_EQ(answer("per_head(causal, causal, full)", "causal"), "refuted q 0 k 1, allowed by full");
  EXPECT_EQ(ask("per_head(causal, causal, full)", "causal").counter_example->head, 2);
  ProofBounds limits;
  limits.limits.key_lengths = {4};
  EXPECT_EQ(answer("full", "lengths(4)", limits), "proved");
  EXPECT_EQ(ask("full", "lengths(4)").scope, "all lengths");
  EXPECT_EQ(ask("documents(0, 0, 1)", "causal").scope, "3 queries and 3 keys");
}

TEST(MaskProof, Shards) {
  ProofBounds bounds;
  bounds.q_len = 64;
  EXPECT_EQ(answer("causal", "shards(contiguous(4); striped(3, 5))"), "proved");
  EXPECT_EQ(answer("causal", "shards(0-31, 32-*; 0-15, 16-*)"), "proved");
  EXPECT_EQ(answer("causal", "shards(0-31, 33-*; 0-15, 16-*)"), "refuted q 32 k 0, allowed by causal");
  EXPECT_EQ(ask("causal", "shards(0-31, 33-*; 0-15, 16-*)").counter_example->found, "computed by no rank");
  EXPECT_EQ(answer("causal", "shards(0-*; 0-15, 10-*)"), "refuted q 10 k 10, allowed by causal");
  EXPECT_EQ(ask("causal", "shards(0-*; 0-15, 10-*)").counter_example->found, "computed 2 times");
  EXPECT_EQ(answer("full", "shards(contiguous(4); contiguous(2); local)", bounds), "proved");
  // Query 0 of rank 0 sees key 32 as key 0 of rank 1.
  EXPECT_EQ(answer("causal", "shards(contiguous(4); contiguous(2); local)", bounds),
            "refuted q 0 k 32, forbidden by causal; to its rank it is query 0 and key 0, allowed by causal");
  EXPECT_EQ(answer("causal", "shards(0-31, 32-*; 0-31, 32-*; local)"),
            "refuted q 0 k 32, forbidden by causal; to its rank it is query 0 and key 0, allowed by causal");
  EXPECT_THAT(answer("causal", "shards(striped(2); striped(2); local)"), HasSubstr("refuted q 0 k 1, "));
  EXPECT_EQ(answer("dilated(4)", "shards(contiguous(4); contiguous(2); local)", bounds),
            "proved");  // parts of 16 and 32
}

// Without lengths: each length from 1 on.
TEST(MaskProof, LocalShardsAtAllLengths) {
  EXPECT_EQ(answer("full", "shards(contiguous(4); contiguous(2); local)"), "proved");
  EXPECT_EQ(answer("full", "shards(striped(4); contiguous(1); local)"), "proved");
  EXPECT_EQ(ask("full", "shards(contiguous(4); contiguous(2); local)").scope, "all lengths");
  EXPECT_EQ(answer("causal | ~causal", "shards(contiguous(4); 0-9, 10-*; local)"), "proved");
  EXPECT_EQ(answer("causal", "shards(contiguous(4); contiguous(4); local)"),
            "refuted q 0 k 1, forbidden by causal; to its rank, of 2 queries and keys, it is query 0 and key 0, allowed "
            "by causal");
  EXPECT_EQ(answer("causal", "shards(contiguous(1); contiguous(1); local)"), "proved");
  EXPECT_EQ(answer("causal", "shards(striped(1); 0-*; local)"), "proved");
  // Stripes of a multiple of the step keep the residues.
  EXPECT_EQ(answer("dilated(4)", "shards(striped(5, 8); striped(3, 12); local)"), "proved");
  EXPECT_EQ(answer("dilated(4)", "shards(striped(5, 8); 0-3, 4-23, 24-*; local)"), "proved");
  EXPECT_THAT(answer("dilated(4)", "shards(striped(5, 8); striped(3, 6); local)"), HasSubstr("refuted q 0 k 6, "));
  EXPECT_THAT(answer("dilated(4)", "shards(striped(5, 8); 0-5, 6-*; local)"), HasSubstr("refuted q 0 k 6, "));
  // No key before 1,000,000 is hidden: it takes that many of them, or a query with as many before it.
  EXPECT_THAT(answer("window(*, 1000000)", "shards(contiguous(1); contiguous(3); local)"),
              HasSubstr("refuted q 0 k 1000001, forbidden by window(*, 1000000); to its rank, of "));
  EXPECT_THAT(answer("window(1000000, *)", "shards(contiguous(3); striped(2); local)"),
              HasSubstr("refuted q 1000001 k 0, forbidden by window(1000000, *); to its rank, of 1000002 "));
  // Query 1 sees key 1001 and query 0 does not; but they are of two parts only where there are no 1001 keys.
  EXPECT_THAT(answer("window(*, 1000)", "shards(contiguous(4); contiguous(1); local)"),
              HasSubstr("refuted q 251 k 1001, allowed by window(*, 1000); to its rank, of 1002 "));
  // The same with a million takes 250,000 lengths of parts; with a million of millions too many.
  EXPECT_THAT(answer("window(*, 1000000)", "shards(contiguous(4); contiguous(1); local)"),
              HasSubstr("refuted q 250001 k 1000001, "));
  const Proof far = ask("window(*, 1000000000000)", "shards(contiguous(4); contiguous(1); local)");
  EXPECT_EQ(far.verdict, Verdict::kNotDecided);
  EXPECT_THAT(far.reason, HasSubstr("parts of many more queries would have to be tried; give the lengths"));
  for (const char* text : {"shards(0-3, 5-*; striped(2); local)", "shards(contiguous(2); 0-9, 8-*; local)"}) {
    const Proof gaps = ask("full", text);
    EXPECT_EQ(gaps.verdict, Verdict::kNotDecided);
    EXPECT_THAT(gaps.reason, HasSubstr("ranges leave gaps or overlap"));
  }
}

// Lengths of up to 40, one after the other and pair by pair.
TEST(MaskProof, LocalShardsAgainstLengths) {
  constexpr int64_t kMost = 40;
  const char* cuts[] = {"contiguous(1)", "contiguous(2)", "contiguous(3)", "contiguous(7)", "striped(2)",
                        "striped(3, 2)", "striped(2, 5)", "0-4, 5-*",      "0-1, 2-8, 9-*"};
  const auto local = [](const std::string& cut, int64_t n, int64_t p) {
    if (cut.starts_with("contiguous")) {
      const int64_t ranks = cut[11] - '0';
      return p % ((n + ranks - 1) / ranks);
    }
    if (cut == "striped(2)") return p / 2;
    if (cut == "striped(3, 2)") return p / 6 * 2 + p % 2;
    if (cut == "striped(2, 5)") return p / 10 * 5 + p % 5;
    if (cut == "0-4, 5-*") return p < 5 ? p : p - 5;
    return p < 2 ? p : p < 9 ? p - 2 : p - 9;
  };
  int64_t proved = 0, refuted = 0;
  for (const char* text :
       {"causal", "window(3, 1)", "window(*, 6)", "window(7, *)", "blocks(3)", "chunk(4) | prefix(2)", "dilated(2)",
        "dilated(5)", "full", "~none & prefix(9)", "~window(8, *)", "~window(2, *) & prefix(1)", "window(*, 9) & ~prefix(8)",
        "blocks(5) | causal", "per_head(full, dilated(2), window(4, *))"}) {
    const Mask mask = Mask::parse(text);
    std::vector<uint8_t> sees;  // [head, q, k]
    const int64_t heads = std::string(text).starts_with("per_head") ? 3 : 1;
    for (int64_t at = 0; at < heads * kMost * kMost; ++at)
      sees.push_back(mask.allowed(0, at / kMost / kMost, at / kMost % kMost, at % kMost));
    for (const std::string q_cut : cuts)
      for (const std::string k_cut : cuts) {
        std::optional<Key> want;
        for (int64_t q = 0; q < kMost && !want; ++q)
          for (int64_t k = 0; k < kMost && !want; ++k)
            for (int64_t h = 0; h < heads && !want; ++h)
              for (int64_t n = std::max(q, k) + 1; n <= kMost && !want; ++n)
                if (sees[static_cast<size_t>((h * kMost + q) * kMost + k)] !=
                    sees[static_cast<size_t>((h * kMost + local(q_cut, n, q)) * kMost + local(k_cut, n, k))])
                  want = Key{q, k, 0, h};
        const Proof proof = prove(mask, MaskProperty::parse("shards(" + q_cut + "; " + k_cut + "; local)"));
        SCOPED_TRACE(std::string(text) + " " + proof.property);
        ASSERT_EQ(proof.verdict, want ? Verdict::kRefuted : Verdict::kProved) << proof.reason;
        (want ? refuted : proved)++;
        if (!want) continue;
        ASSERT_TRUE(proof.counter_example);
        EXPECT_EQ(key_of(*proof.counter_example), *want);
      }
  }
  EXPECT_GT(proved, 100);
  EXPECT_GT(refuted, 500);
}

TEST(MaskProof, LocalShardsAgainstPairs) {
  // Cuts of 12 positions, and where the part of every position begins.
  const struct {
    const char* text;
    int64_t local[12];
  } cuts[] = {{"contiguous(3)", {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3}},
              {"contiguous(5)", {0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2}},
              {"striped(2)", {0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5}},
              {"striped(3, 2)", {0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3}},
              {"0-4, 5-11", {0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6}}};
  ProofBounds bounds;
  bounds.q_len = 12;
  for (const char* text : {"causal", "window(3, 1)", "blocks(3)", "chunk(4) | prefix(2)", "dilated(3)", "full",
                           "causal & documents(0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 3, 3)"})
    for (const auto& q_cut : cuts)
      for (const auto& k_cut : cuts) {
        const Mask mask = Mask::parse(text);
        std::optional<Key> seen;
        for (int64_t q = 0; q < 12 && !seen; ++q)
          for (int64_t k = 0; k < 12 && !seen; ++k)
            if (mask.allowed(0, 0, q, k) != mask.allowed(0, 0, q_cut.local[q], k_cut.local[k])) seen = Key{q, k, 0, 0};
        const std::string property = std::string("shards(") + q_cut.text + "; " + k_cut.text + "; local)";
        const Proof proof = prove(mask, MaskProperty::parse(property), bounds);
        EXPECT_EQ(proof.verdict, seen ? Verdict::kRefuted : Verdict::kProved) << text << " " << property;
        if (seen && proof.counter_example) {
          EXPECT_EQ(key_of(*proof.counter_example), *seen) << text << " " << property;
        }
      }
}

// Only the last positions of blocks of both sizes at once see the next key.
TEST(MaskProof, NeverAGuess) {
  const char* mask = "window(*, 1) & ~causal & ~blocks(999983) & ~blocks(1000003)";
  EXPECT_THAT(answer(mask, "implies:none"), HasSubstr("refuted q " + std::to_string(999983ll * 1000003 - 1)));
  ProofBounds bounds;
  bounds.max_work = 10'000;
  const Proof proof = ask(mask, "implies:none", bounds);
  EXPECT_EQ(proof.verdict, Verdict::kNotDecided);
  EXPECT_FALSE(proof.counter_example);
  EXPECT_THAT(proof.reason, HasSubstr("blocks and steps of 999983, 1000003"));
  StopToken stop;
  stop.request_stop();
  bounds.max_work = 1'000'000'000;
  bounds.stop = &stop;
  EXPECT_THROW(ask(mask, "implies:none", bounds), Error);
}

TEST(MaskProof, ErrorsSayWhatWasExpected) {
  const auto message = [](auto call) {
    try {
      call();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  const auto parse = [&](const char* text) { return message([&] { MaskProperty::parse(text); }); };
  EXPECT_THAT(parse("casual"), HasSubstr("'casual' is no property; expected causal, window(l, r)"));
  EXPECT_THAT(parse("causal(3)"), HasSubstr("causal takes nothing"));
  EXPECT_THAT(parse("ring"), HasSubstr("expected ring(...)"));
  EXPECT_THAT(parse("ring(0)"), HasSubstr("'0' given as the slots of a ring"));
  EXPECT_THAT(parse("ring(9999999999999999999)"), HasSubstr("expected a whole number"));
  EXPECT_THAT(parse("implies causal"), HasSubstr("is no property"));
  EXPECT_THAT(parse("equals:"), HasSubstr("expected a term"));
  EXPECT_THAT(parse("shards(striped(2))"), HasSubstr("expected shards(cut of the queries; cut of the keys)"));
  EXPECT_THAT(parse("shards(half; half)"), HasSubstr("'half' is no part of a cut"));
  EXPECT_THAT(parse("shards(0-x; striped(2))"), HasSubstr("'x' given as the last position of a part"));
  EXPECT_THAT(parse("window(3, 0) | causal"), HasSubstr("expected window(...)"));
  ProofBounds bounds;
  bounds.q_len = 2;
  bounds.kv_len = 6;
  EXPECT_THAT(message([&] { ask("full", "causal", bounds); }), HasSubstr("state q_begin: 0 for the first queries, 4"));
  EXPECT_EQ(message([&] { ask("full", "no-empty-row", bounds); }), "no error");
  bounds.q_begin = 4;
  EXPECT_THAT(message([&] { ask("documents(0, 0, 1)", "no-empty-row", bounds); }),
              HasSubstr("beyond the end of documents"));
  bounds = {};
  bounds.batch = 3;
  EXPECT_THAT(message([&] { ask("lengths(1, 2)", "causal", bounds); }), HasSubstr("lengths"));
}

TEST(MaskProof, Explanations) {
  const Mask mask = Mask::parse("causal & (window(2, 0) | ~dilated(3))");
  const MaskExplanation e = explain(mask, 0, 0, 5, 1);
  EXPECT_TRUE(e.sees);
  ASSERT_EQ(e.parts.size(), 2u);
  EXPECT_EQ(e.parts[1].text, "window(2, 0) | ~dilated(3)");
  EXPECT_FALSE(e.parts[1].parts[0].sees);
  EXPECT_TRUE(e.parts[1].parts[1].sees);
  EXPECT_FALSE(e.parts[1].parts[1].parts[0].sees);
  EXPECT_EQ(explain_decision(mask, 0, 0, 5, 1), "allowed by causal and ~dilated(3)");
  EXPECT_EQ(explain_decision(mask, 0, 0, 5, 2), "forbidden by window(2, 0) and ~dilated(3)");
  EXPECT_EQ(explain_decision(mask, 0, 0, 5, 6), "forbidden by causal");
  EXPECT_EQ(explain_decision(Mask::parse("per_head(causal, chunk(2) | full)"), 0, 1, 0, 3), "allowed by full");
}

}  // namespace
}  // namespace regard
