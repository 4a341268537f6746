// Masks from elsewhere: expressions must be found again from their bits, and every classic mistake must be named. The
// bits come from the predicates of terms.h or are written out here.
#include "regard/mask_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "base/half.h"
#include "mask/terms.h"
#include "regard/error.h"

namespace regard {
namespace {

using namespace mask_testing;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Bits bits_of(const Rule& rule, int64_t batch, int64_t heads, int64_t q_len, int64_t kv_len, int64_t q_begin) {
  Bits bits{batch, heads, q_len, kv_len, {}};
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t q = 0; q < q_len; ++q)
        for (int64_t k = 0; k < kv_len; ++k) bits.bits.push_back(rule.sees({b, h, q_begin + q, k}));
  return bits;
}

BitTable table_of(const Bits& bits) { return BitTable::from_array(Polarity::kKeep, bits.view()); }

bool is_same(const RecognisedMask& found, const Bits& bits) {
  const uint8_t* bit = bits.bits.data();
  for (int64_t b = 0; b < bits.batch; ++b)
    for (int64_t h = 0; h < bits.heads; ++h)
      for (int64_t q = 0; q < bits.q_len; ++q)
        for (int64_t k = 0; k < bits.kv_len; ++k)
          if (found.mask.allowed(b, h, found.q_begin + q, k) != (*bit++ != 0)) return false;
  return true;
}

Rule known_term(int64_t size) {
  switch (pick(0, 9)) {
    case 0:
      return causal();
    case 1:
      return window(pick(0, size), pick(0, size));
    case 2:
      return window(kUnlimited, pick(0, size));
    case 3:
      return prefix({pick(1, size)});
    case 4:
      return lengths({pick(1, size), pick(1, size)});
    case 5:
      return documents(Rows{packed_ids(2 * size)});
    case 6:
      return blocks(pick(1, size));
    case 7:
      return chunk(pick(1, size));
    default:
      return dilated(pick(1, size));
  }
}

// Single terms and what joins two by &: always found. Joined by |: found where the terms are read off one by one.
RC_GTEST_PROP(MaskCheck, TermsAreFoundAgain, ()) {
  for (int i = 0; i < 10; ++i) {
    const int64_t size = pick(4, 40);
    const Rule one = known_term(size), two = known_term(size);
    for (const Rule& rule : {one, one & two}) {
      RC_LOG() << rule.mask.text() << "\n";
      const Bits bits = bits_of(rule, 2, 1, size, size, 0);
      const auto found = recognise_mask(table_of(bits));
      RC_ASSERT(found.has_value());
      RC_ASSERT(is_same(*found, bits));
    }
  }
}

RC_GTEST_PROP(MaskCheck, WhatIsFoundIsEqual, ()) {
  for (int i = 0; i < 10; ++i) {
    const int64_t q_len = pick(1, 20), kv_len = pick(1, 140), begin = pick(0, 30);
    const Rule rule = random_rule(30, Kinds::kAll, 2);
    const Bits bits = bits_of(rule, pick(1, 3), kHeads, q_len, kv_len, begin);
    if (const auto found = recognise_mask(table_of(bits))) RC_ASSERT(is_same(*found, bits));
    if (const auto found = recognise_mask(table_of(bits), begin)) RC_ASSERT(is_same(*found, bits));
  }
}

std::string found_in(const Rule& rule, int64_t q_len, int64_t kv_len, int64_t q_begin, int64_t batch = 1) {
  const auto found = recognise_mask(table_of(bits_of(rule, batch, 1, q_len, kv_len, q_begin)));
  return found ? found->mask.text() + " from " + std::to_string(found->q_begin) : "nothing";
}

TEST(MaskCheck, Names) {
  EXPECT_EQ(found_in(full(), 9, 9, 0), "full from 0");
  EXPECT_EQ(found_in(none(), 9, 9, 0), "none from 0");
  EXPECT_EQ(found_in(causal(), 9, 9, 0), "causal from 0");
  EXPECT_EQ(found_in(causal(), 3, 9, 0), "causal from 0");
  EXPECT_EQ(found_in(causal(), 3, 9, 6), "causal from 6");
  EXPECT_EQ(found_in(causal(), 3, 9, 4), "causal from 4");
  EXPECT_EQ(found_in(window(3, 0), 100, 100, 0), "window(3, 0) from 0");
  EXPECT_EQ(found_in(window(3, 2), 100, 100, 0), "window(3, 2) from 0");
  EXPECT_EQ(found_in(~causal(), 9, 9, 0), "~causal from 0");
  EXPECT_EQ(found_in(causal() & ~window(0, 0), 9, 9, 0), "~window(0, *) from 0");  // k < q
  EXPECT_EQ(found_in(prefix({3}), 9, 9, 0), "prefix(3) from 0");
  EXPECT_EQ(found_in(lengths({3, 5}), 9, 9, 0, 2), "lengths(3, 5) from 0");
  EXPECT_EQ(found_in(blocks(4), 30, 30, 0), "blocks(4) from 0");
  EXPECT_EQ(found_in(chunk(4), 30, 30, 0), "chunk(4) from 0");
  EXPECT_EQ(found_in(dilated(4), 30, 30, 0), "dilated(4) from 0");
  EXPECT_EQ(found_in(documents(Rows{{7, 7, 3, 3, 3, 9}}), 6, 6, 0), "documents(0, 0, 1, 1, 1, 2) from 0");
  EXPECT_EQ(found_in(causal() & documents(Rows{{7, 7, 3, 3, 3, 9}}), 6, 6, 0),
            "causal & documents(0, 0, 1, 1, 1, 2) from 0");
  EXPECT_EQ(found_in(causal() | prefix({4}), 30, 30, 0), "causal | prefix(4) from 0");
  EXPECT_EQ(found_in(causal() & lengths({12, 20}), 30, 30, 0, 2), "causal & lengths(12, 20) from 0");
  EXPECT_EQ(found_in(window(5, 5) | prefix({2}), 30, 30, 0), "window(5, 5) | prefix(2) from 0");
  EXPECT_EQ(found_in(window(1, 1) | dilated(7), 30, 30, 0), "window(1, 1) | dilated(7) from 0");
  EXPECT_EQ(found_in(causal() & chunk(8), 30, 30, 0), "causal & chunk(8) from 0");
  EXPECT_EQ(found_in(blocks(8) & dilated(2), 30, 30, 0), "blocks(8) & dilated(2) from 0");
  EXPECT_EQ(found_in(chunk(8) | prefix({3}), 32, 32, 0), "prefix(3) | chunk(8) from 0");
  EXPECT_EQ(found_in(causal() | documents(Rows{{0, 0, 0, 1, 1, 1, 1, 2, 2, 2}}), 10, 10, 0),
            "causal | documents(0, 0, 0, 1, 1, 1, 1, 2, 2, 2) from 0");
  Bits noise{1, 1, 20, 20, {}};
  for (int i = 0; i < 400; ++i) noise.bits.push_back(static_cast<uint8_t>(i * i % 7 == 1 || i % 13 == 2));
  EXPECT_FALSE(recognise_mask(table_of(noise)));
}

// ---- mistakes ----

struct Floats {
  std::vector<float> values;
  std::vector<int64_t> shape;
  MaskArray array() const { return {DType::kF32, shape, values.data()}; }
};

Floats added(const Rule& rule, int64_t q_len, int64_t kv_len, float hidden = -INFINITY, float visible = 0) {
  Floats floats{{}, {q_len, kv_len}};
  for (int64_t q = 0; q < q_len; ++q)
    for (int64_t k = 0; k < kv_len; ++k) floats.values.push_back(rule.sees({0, 0, q, k}) ? visible : hidden);
  return floats;
}

MaskArray truth(const Bits& bits) {
  return {DType::kBool, {bits.batch, bits.heads, bits.q_len, bits.kv_len}, bits.bits.data()};
}

std::vector<std::string> names(const MaskReport& report) {
  std::vector<std::string> all;
  for (const MaskFault& fault : report.faults) all.push_back(fault.name);
  return all;
}

MaskCheck expecting(const char* text) {
  MaskCheck check;
  check.expected = Mask::parse(text);
  return check;
}

TEST(MaskCheck, GoodMasksHaveNoFaults) {
  EXPECT_THAT(names(check_mask_array(added(causal(), 8, 8).array())), IsEmpty());
  EXPECT_THAT(names(check_mask_array(added(causal(), 8, 8).array(), expecting("causal"))), IsEmpty());
  EXPECT_THAT(names(check_mask_array(truth(bits_of(lengths({3, 5}), 2, 1, 8, 8, 0)), expecting("lengths(3, 5)"))),
              IsEmpty());
  const MaskReport report = check_mask_array(truth(bits_of(window(3, 0), 1, 2, 8, 8, 0)));
  EXPECT_THAT(names(report), IsEmpty());
  ASSERT_TRUE(report.recognised);
  EXPECT_EQ(report.recognised->mask, Mask::window(3, 0));
  EXPECT_THAT(report.shape, ElementsAre(1, 2, 8, 8));
  EXPECT_EQ(report.reading, "bool, true keeps");
}

TEST(MaskCheck, Numbers) {
  EXPECT_THAT(names(check_mask_array(added(causal(), 8, 8, 0, 1).array())), ElementsAre("zero-and-one"));
  EXPECT_THAT(names(check_mask_array(added(causal(), 8, 8, 0, 0).array())), ElementsAre("hides-nothing"));
  const MaskReport finite = check_mask_array(added(causal(), 8, 8, -1e9f).array());
  EXPECT_THAT(names(finite), ElementsAre("finite-minimum"));
  EXPECT_EQ(finite.faults[0].q, 0);
  EXPECT_EQ(finite.faults[0].k, 1);
  EXPECT_EQ(finite.recognised->mask, Mask::causal());  // what was meant
  EXPECT_THAT(names(check_mask_array(added(causal(), 8, 8, NAN).array())), ElementsAre("not-a-number"));
  EXPECT_THAT(names(check_mask_array(added(causal(), 8, 8, -INFINITY, 0.5f).array())), ElementsAre("bias"));
  std::vector<uint16_t> halves;
  for (int q = 0; q < 4; ++q)
    for (int k = 0; k < 4; ++k) halves.push_back(k <= q ? uint16_t{0} : float_to_half(-65504));
  EXPECT_THAT(names(check_mask_array({DType::kF16, {4, 4}, halves.data()})), ElementsAre("half-minimum"));
  std::vector<int64_t> integers;
  for (int q = 0; q < 4; ++q)
    for (int k = 0; k < 4; ++k) integers.push_back(k <= q);
  const MaskReport report = check_mask_array({DType::kI64, {4, 4}, integers.data()});
  EXPECT_THAT(names(report), ElementsAre("integer-type"));
  EXPECT_EQ(report.recognised->mask, Mask::causal());
  for (int64_t& x : integers) x = (x - 1) * 10000;
  EXPECT_THAT(names(check_mask_array({DType::kI64, {4, 4}, integers.data()})),
              ElementsAre("integer-type", "finite-minimum"));
}

TEST(MaskCheck, Shapes) {
  MaskCheck check;
  check.batch = 2;
  check.num_q_heads = 4;
  check.q_len = 6;
  check.kv_len = 9;
  check.q_begin = 3;
  const auto with = [&](std::vector<int64_t> shape) {
    int64_t size = 1;
    for (int64_t n : shape) size *= n;
    const std::vector<uint8_t> ones(static_cast<size_t>(size), 1);
    return names(check_mask_array({DType::kBool, shape, ones.data()}, check));
  };
  EXPECT_THAT(with({6, 9}), IsEmpty());
  EXPECT_THAT(with({4, 6, 9}), IsEmpty());
  EXPECT_THAT(with({2, 1, 1, 9}), IsEmpty());
  EXPECT_THAT(with({9, 6}), ElementsAre("swapped-axes"));
  EXPECT_THAT(with({4, 2, 6, 9}), ElementsAre("swapped-axes"));
  EXPECT_THAT(with({2, 9}), ElementsAre("padding-shape"));
  EXPECT_THAT(with({2, 6, 9}), ElementsAre("batch-axis"));
  EXPECT_THAT(with({6, 8}), ElementsAre("shape"));
  EXPECT_THROW(with({6}), Error);
  EXPECT_THROW(with({1, 1, 1, 6, 9}), Error);
}

TEST(MaskCheck, PolarityAndRows) {
  const Bits turned = bits_of(~causal(), 1, 1, 8, 8, 0);
  EXPECT_THAT(names(check_mask_array(truth(turned))), ElementsAre("polarity"));
  EXPECT_EQ(check_mask_array(truth(turned)).recognised->mask, Mask::causal());
  EXPECT_THAT(names(check_mask_array(truth(turned), expecting("causal"))), ElementsAre("polarity"));
  MaskCheck drop;
  drop.polarity = Polarity::kDrop;
  EXPECT_THAT(names(check_mask_array(truth(turned), drop)), IsEmpty());
  drop.polarity = Polarity::kKeep;  // said so: then it really is ~causal, whose last row is empty
  const MaskReport kept = check_mask_array(truth(turned), drop);
  EXPECT_THAT(names(kept), ElementsAre("empty-row"));
  EXPECT_EQ(kept.faults[0].q, 7);
  const MaskReport empty = check_mask_array(truth(bits_of(lengths({3, 0}), 2, 1, 8, 8, 0)));
  EXPECT_THAT(names(empty), ElementsAre("empty-row"));
  EXPECT_EQ(empty.faults[0].batch, 1);
}

TEST(MaskCheck, Corners) {
  MaskCheck check = expecting("causal");
  check.q_begin = 6;  // the last 3 of 9
  EXPECT_THAT(names(check_mask_array(truth(bits_of(causal(), 1, 1, 3, 9, 0)), check)), ElementsAre("corner"));
  EXPECT_THAT(names(check_mask_array(truth(bits_of(causal(), 1, 1, 3, 9, 6)), check)), IsEmpty());
  check.q_begin = 0;
  EXPECT_THAT(names(check_mask_array(truth(bits_of(causal(), 1, 1, 3, 9, 6)), check)), ElementsAre("corner"));
  EXPECT_THAT(names(check_mask_array(truth(bits_of(causal(), 1, 1, 3, 9, 0)))), ElementsAre("corner"));  // nothing said
  EXPECT_THAT(names(check_mask_array(truth(bits_of(causal(), 1, 1, 3, 9, 6)))), IsEmpty());
  EXPECT_THROW(check_mask_array(truth(bits_of(causal(), 1, 1, 3, 9, 6)), expecting("causal")), Error);
}

TEST(MaskCheck, AgainstWhatWasExpected) {
  const Rows ids{{0, 0, 0, 1, 1, 1, 1, 2}};
  const auto check = [](const Rule& rule, const char* text, int64_t q_len = 8) {
    return check_mask_array(truth(bits_of(rule, 1, 1, q_len, 8, 0)), expecting(text));
  };
  EXPECT_THAT(names(check(causal() | documents(ids), "causal & documents(0, 0, 0, 1, 1, 1, 1, 2)")),
              ElementsAre("or-for-and"));
  EXPECT_THAT(names(check(causal() & prefix({3}), "causal | prefix(3)")), ElementsAre("and-for-or"));
  EXPECT_THAT(names(check(causal() & prefix({5}), "prefix(5)")), ElementsAre("extra-causal"));
  EXPECT_THAT(names(check(causal() & lengths({5}), "lengths(5)", 4)), ElementsAre("causal-on-cross"));
  EXPECT_THAT(names(check(window(4, 0), "window(3, 0)")), ElementsAre("window-count"));
  EXPECT_THAT(names(check(causal() & (window(2, 0) | prefix({1})), "causal & (window(3, 0) | sinks(1))")),
              ElementsAre("window-count"));
  EXPECT_THAT(names(check(~causal() | window(0, 0), "causal")), ElementsAre("swapped-axes"));
  const MaskReport report = check(causal(), "window(3, 0)");
  EXPECT_THAT(names(report), ElementsAre("differs"));
  EXPECT_EQ(report.faults[0].q, 4);
  EXPECT_EQ(report.faults[0].k, 0);
  EXPECT_EQ(report.faults[0].says, "the pair is visible, but forbidden by window(3, 0) in window(3, 0)");
  EXPECT_EQ(report.recognised->mask, Mask::causal());
  EXPECT_THAT(names(check_mask_array(truth(bits_of(causal() | documents(ids), 1, 1, 8, 8, 0)))),
              Contains("or-for-and"));
}

// The first difference, by query, key, batch row and head, against a walk.
RC_GTEST_PROP(MaskCheck, DifferencesAreTheFirst, ()) {
  const int64_t size = pick(1, 70);
  const Rule said = random_rule(size, Kinds::kAll, 1), meant = random_rule(size, Kinds::kAll, 1);
  const Bits bits = bits_of(said, kBatch, kHeads, size, size, 0);
  MaskCheck check;
  check.expected = meant.mask;
  const MaskReport report = check_mask_array(truth(bits), check);
  const auto fault = std::find_if(report.faults.begin(), report.faults.end(),
                                  [](const MaskFault& f) { return f.name != "empty-row"; });
  for (int64_t q = 0; q < size; ++q)
    for (int64_t k = 0; k < size; ++k)
      for (int64_t b = 0; b < kBatch; ++b)
        for (int64_t h = 0; h < kHeads; ++h) {
          if (said.sees({b, h, q, k}) == meant.sees({b, h, q, k})) continue;
          RC_ASSERT(fault != report.faults.end());
          RC_ASSERT(std::tuple(*fault->q, *fault->k, *fault->batch, *fault->head) == std::tuple(q, k, b, h));
          return;
        }
  RC_ASSERT(fault == report.faults.end());
}

}  // namespace
}  // namespace regard
