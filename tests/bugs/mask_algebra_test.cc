// Faults that users of other libraries met, as cases: the visible sets that are right. Each test bears the number of
// its case; the cases about kernels, caches and models are beside those.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include "mask/plan.h"
#include "regard/error.h"
#include "regard/mask_view.h"

namespace regard {
namespace {

using Sets = std::vector<std::vector<int64_t>>;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<int64_t> members(const std::vector<Interval>& runs, int64_t from) {
  std::vector<int64_t> all;
  for (const Interval& run : runs)
    for (int64_t k = run.begin; k < run.end; ++k) all.push_back(k - from);
  return all;
}

// The keys each query sees, numbered from the first key of the call; by the view's rows, and checked pair by pair.
Sets rows(const MaskView& view, int64_t b = 0, int64_t h = 0) {
  Sets sets;
  for (int64_t q = view.queries().begin; q < view.queries().end; ++q) {
    sets.push_back(members(view.row(b, h, q), view.keys().begin));
    EXPECT_EQ(static_cast<int64_t>(sets.back().size()), view.count_row(b, h, q));
  }
  return sets;
}

Sets rows(const Mask& mask, int64_t q_len, int64_t kv_len, std::optional<Placement> placement = {},
          MaskLimits limits = {}) {
  return rows(MaskView(mask, {1, 1, q_len, kv_len, placement, std::move(limits)}));
}
Sets rows(const char* text, int64_t n) { return rows(Mask::parse(text), n, n); }

// The slots that a query sees when slots carry positions of their own, -1 for one that was never written.
std::vector<int64_t> slots(const Mask& mask, int64_t q, const std::vector<int64_t>& positions) {
  std::vector<int64_t> seen;
  for (size_t slot = 0; slot < positions.size(); ++slot)
    if (mask.allowed(0, 0, q, positions[slot])) seen.push_back(static_cast<int64_t>(slot));
  return seen;
}

template <class Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

const Sets kCausal3{{0}, {0, 1}, {0, 1, 2}};

TEST(MaskBugs, BugCase01EmptyRow) {
  const bool keep[] = {true, false, false, false, false, false};
  EXPECT_EQ(rows(Mask::from_array(Polarity::kKeep, TensorView<const bool>(keep, {2, 3})), 2, 3), (Sets{{0}, {}}));
}

TEST(MaskBugs, BugCase02EmptyRowInABand) {
  EXPECT_EQ(rows("window(1, 0) & prefix(2)", 4), (Sets{{0}, {0, 1}, {1}, {}}));
}

TEST(MaskBugs, BugCase04ForbiddenTwiceIsForbidden) {
  const Sets right{{0}, {0, 1}, {0, 1}};
  EXPECT_EQ(rows("causal & lengths(2)", 3), right);
  EXPECT_EQ(rows("causal & causal & lengths(2) & prefix(2)", 3), right);
}

TEST(MaskBugs, BugCase10WhichCorner) {
  const Mask causal = Mask::causal();
  EXPECT_EQ(rows(causal, 2, 5, Placement{0, 0}), (Sets{{0}, {0, 1}}));
  EXPECT_EQ(rows(causal, 2, 5, Placement{3, 0}), (Sets{{0, 1, 2, 3}, {0, 1, 2, 3, 4}}));
  // More queries than keys, the corner at the bottom right: the keys stand at positions 3 and 4.
  EXPECT_EQ(rows(causal, 5, 2, Placement{0, 3}), (Sets{{}, {}, {}, {0}, {0, 1}}));
  EXPECT_THAT(error_of([&] { rows(causal, 2, 5); }),
              AllOf(HasSubstr("causal"), HasSubstr("2 queries and 5 keys"), HasSubstr("q_begin 3")));
  EXPECT_THAT(error_of([&] { rows(Mask::parse("prefix(2) | ~(full & window(1, 1))"), 2, 5); }), HasSubstr("window"));
  EXPECT_EQ(rows(Mask::prefix(1) | Mask::lengths({2}), 2, 5),
            (Sets{{0, 1}, {0, 1}}));  // compares nothing: no corner to state
}

TEST(MaskBugs, BugCase11OneQueryAmongSixteenKeys) {
  EXPECT_EQ(rows(Mask::causal(), 1, 16, Placement{15, 0})[0].size(), 16u);
  EXPECT_EQ(rows(Mask::causal(), 1, 16, Placement{0, 0}), (Sets{{0}}));
}

TEST(MaskBugs, BugCase12PrefillIntoACacheIsCausalToo) {
  EXPECT_EQ(rows("causal", 4), (Sets{{0}, {0, 1}, {0, 1, 2}, {0, 1, 2, 3}}));
  EXPECT_EQ(rows(Mask::causal(), 1, 5, Placement{4, 0}), (Sets{{0, 1, 2, 3, 4}}));
}

TEST(MaskBugs, BugCase13CrossAttentionIsNotCausal) {
  EXPECT_EQ(rows(Mask(), 2, 4), (Sets{{0, 1, 2, 3}, {0, 1, 2, 3}}));
}

TEST(MaskBugs, BugCase14CausalOnEveryPath) {
  EXPECT_EQ(rows("causal", 3), kCausal3);
  const MaskPlan plan(Mask::causal(), {}, 1, 1);
  for (int64_t q = 0; q < 3; ++q) {
    uint64_t word = 0;
    plan.fill_words(0, 0, q, 0, 1, &word);
    EXPECT_EQ(word, (uint64_t{2} << q) - 1);
    EXPECT_EQ(plan.hull(0, 0, q), (Interval{0, q + 1}));
  }
}

TEST(MaskBugs, BugCase15PolarityIsNamed) {
  const bool upper[] = {false, true, true, false, false, true, false, false, false};
  const TensorView<const bool> array(upper, {3, 3});
  EXPECT_EQ(rows(Mask::from_array(Polarity::kKeep, array), 3, 3), (Sets{{1, 2}, {2}, {}}));
  EXPECT_EQ(rows(Mask::from_array(Polarity::kDrop, array), 3, 3), kCausal3);
}

template <class T>
concept TakenAsMask = requires(TensorView<const T> view) { Mask::from_array(Polarity::kKeep, view); };

TEST(MaskBugs, BugCase16FloatsAreNoMask) {
  static_assert(TakenAsMask<bool> && TakenAsMask<uint8_t>);
  static_assert(!TakenAsMask<float> && !TakenAsMask<double> && !TakenAsMask<int32_t> && !TakenAsMask<int64_t>);
  const uint8_t bytes[] = {0, 1, 255, 1};
  EXPECT_THAT(error_of([&] { Mask::from_array(Polarity::kKeep, TensorView<const uint8_t>(bytes, {2, 2})); }),
              HasSubstr("byte 255"));
}

TEST(MaskBugs, BugCase17LeftPadding) {
  const std::vector<int64_t> positions{-1, -1, 0, 1};
  EXPECT_EQ(slots(Mask::causal(), -1, positions), (std::vector<int64_t>{}));
  EXPECT_EQ(slots(Mask::causal(), 0, positions), (std::vector<int64_t>{2}));
  EXPECT_EQ(slots(Mask::causal(), 1, positions), (std::vector<int64_t>{2, 3}));
}

TEST(MaskBugs, BugCase18PaddingHidesKeysNotQueries) {
  EXPECT_EQ(rows("lengths(2)", 3), (Sets{{0, 1}, {0, 1}, {0, 1}}));
  EXPECT_EQ(rows(Mask::full(), 3, 3, {}, {{2}, {}}), (Sets{{0, 1}, {0, 1}, {0, 1}}));
}

TEST(MaskBugs, BugCase19LengthsBelongToTheBatchRowNotTheHead) {
  const MaskView view(Mask::lengths({1, 2}), {2, 2, 2, 2, {}, {}});
  for (int64_t h = 0; h < 2; ++h) {
    EXPECT_EQ(rows(view, 0, h), (Sets{{0}, {0}}));
    EXPECT_EQ(rows(view, 1, h), (Sets{{0, 1}, {0, 1}}));
  }
}

TEST(MaskBugs, BugCase20EveryBatchRowHasItsOwnLength) {
  const MaskView view(Mask::lengths({1, 3}), {2, 1, 3, 3, {}, {}});
  EXPECT_EQ(rows(view, 0), (Sets{{0}, {0}, {0}}));
  EXPECT_EQ(rows(view, 1), (Sets{{0, 1, 2}, {0, 1, 2}, {0, 1, 2}}));
  EXPECT_TRUE(view.mask().depends_on_batch());
  EXPECT_THAT(error_of([] { MaskView(Mask::lengths({1, 3}), {3, 1, 3, 3, {}, {}}); }),
              HasSubstr("lengths has 2 numbers for a batch of 3"));
}

TEST(MaskBugs, BugCase21EncoderPaddingHoldsAtEveryStep) {
  const MaskView view(Mask::lengths({2, 3}), {2, 1, 1, 3, {}, {}});
  EXPECT_EQ(rows(view, 0), (Sets{{0, 1}}));
  EXPECT_EQ(rows(view, 1), (Sets{{0, 1, 2}}));
  const MaskView later(Mask::lengths({2, 3}), {2, 1, 1, 3, Placement{7, 0}, {}});
  EXPECT_EQ(rows(later, 0), (Sets{{0, 1}}));
}

TEST(MaskBugs, BugCase22CausalAndPaddedOnTheLeft) {
  EXPECT_EQ(rows("causal & ~prefix(1)", 3), (Sets{{}, {1}, {1, 2}}));
}

TEST(MaskBugs, BugCase23WindowsSpellOutTheirCounts) {
  EXPECT_EQ(rows("window(2, 0)", 6)[5], (std::vector<int64_t>{3, 4, 5}));
  EXPECT_EQ(rows("window(3, 0)", 6)[5], (std::vector<int64_t>{2, 3, 4, 5}));
  const int64_t one = 1;  // "W keys with the own one" is window(W - 1, 0), at W = 1 the own key
  EXPECT_EQ(rows(Mask::window(one - 1, 0), 3, 3), (Sets{{0}, {1}, {2}}));
}

TEST(MaskBugs, BugCase24AWindowAlone) {
  EXPECT_EQ(rows("window(1, 1)", 5), (Sets{{0, 1}, {0, 1, 2}, {1, 2, 3}, {2, 3, 4}, {3, 4}}));
}

TEST(MaskBugs, BugCase25UnlimitedIsNoWidth) {
  EXPECT_EQ(rows("window(*, *)", 4), rows("full", 4));
  EXPECT_EQ(rows("window(*, 0)", 4), rows("causal", 4));
  EXPECT_EQ(rows("window(0, *)", 4), (Sets{{0, 1, 2, 3}, {1, 2, 3}, {2, 3}, {3}}));
  EXPECT_EQ(rows("window(0, 0)", 4), (Sets{{0}, {1}, {2}, {3}}));
  EXPECT_THROW(Mask::window(-1, 0), Error);
  EXPECT_THROW(Mask::window(0, -1), Error);
}

TEST(MaskBugs, BugCase26RingSlotsCarryPositions) {
  const Mask window = Mask::window(3, 0);
  EXPECT_EQ(rows(window, 6, 6), (Sets{{0}, {0, 1}, {0, 1, 2}, {0, 1, 2, 3}, {1, 2, 3, 4}, {2, 3, 4, 5}}));
  // Slots of the ring after six tokens; the next one, at position 6, goes over position 2.
  EXPECT_EQ(slots(window, 6, {4, 5, 2, 3}), (std::vector<int64_t>{0, 1, 3}));
  EXPECT_EQ(slots(window, 6, {4, 5, 6, 3}), (std::vector<int64_t>{0, 1, 2, 3}));
}

TEST(MaskBugs, BugCase27EveryRowOfAChunkHasItsOwnWindow) {
  EXPECT_EQ(rows(Mask::window(1, 0), 2, 2, Placement{0, 0}), (Sets{{0}, {0, 1}}));
  EXPECT_EQ(rows(Mask::window(1, 0), 2, 4, Placement{2, 0}), (Sets{{1, 2}, {2, 3}}));
}

TEST(MaskBugs, BugCase28AWindowCountsPositionsNotSlots) {
  // Cells A0 B0 A1 B1 A2 B2 A3 B3 as sequence A sees them: B's are not in its rows.
  EXPECT_EQ(slots(Mask::window(2, 0), 3, {0, -1, 1, -1, 2, -1, 3, -1}), (std::vector<int64_t>{2, 4, 6}));
}

TEST(MaskBugs, BugCase29OrderOfAndAndOr) {
  // An image at positions 1 to 4 whose tokens see each other, and a window of one to each side.
  const std::string image = "documents(0, 1, 1, 1, 1, 2)";
  const std::string block = "(" + image + " & ~prefix(1) & prefix(5))";
  EXPECT_EQ(rows(("(causal | " + block + ") & window(1, 1)").c_str(), 6),
            (Sets{{0}, {0, 1, 2}, {1, 2, 3}, {2, 3, 4}, {3, 4}, {4, 5}}));
  EXPECT_EQ(rows(("causal & window(1, 1) | " + block).c_str(), 6),
            (Sets{{0}, {0, 1, 2, 3, 4}, {1, 2, 3, 4}, {1, 2, 3, 4}, {1, 2, 3, 4}, {4, 5}}));
  EXPECT_EQ(rows("full & lengths(3)", 4), (Sets(4, {0, 1, 2})));
  EXPECT_EQ(rows("full | lengths(3)", 4), (Sets(4, {0, 1, 2, 3})));
}

TEST(MaskBugs, BugCase30PrefixLength) {
  EXPECT_EQ(rows("causal | prefix(3)", 5), (Sets{{0, 1, 2}, {0, 1, 2}, {0, 1, 2}, {0, 1, 2, 3}, {0, 1, 2, 3, 4}}));
  EXPECT_EQ(rows("causal | prefix(0)", 5), rows("causal", 5));
  EXPECT_EQ(rows("causal | prefix(1)", 5), rows("causal", 5));
  EXPECT_EQ(rows("causal | prefix(5)", 5), rows("full", 5));
}

TEST(MaskBugs, BugCase31ChunksCountFromTheFirstToken) {
  const Mask mask = Mask::causal() & Mask::chunk(3);
  const std::vector<int64_t> positions{-1, 0, 1, 2, 3, 4};  // one pad on the left
  const Sets right{{}, {1}, {1, 2}, {1, 2, 3}, {4}, {4, 5}};
  for (size_t i = 0; i < positions.size(); ++i) EXPECT_EQ(slots(mask, positions[i], positions), right[i]);
}

TEST(MaskBugs, BugCase32ANeutralMaskIsNeutral) {
  const Sets right{{0}, {0, 1}, {0, 1, 2}, {3}, {3, 4}};
  EXPECT_EQ(rows("causal & documents(0, 0, 0, 1, 1)", 5), right);
  EXPECT_EQ(rows("causal & documents(0, 0, 0, 1, 1) & full", 5), right);
  EXPECT_EQ(rows(Mask::parse("causal & documents(0, 0, 0, 1, 1)"), 5, 5, {}, {{5}, {}}), right);
}

TEST(MaskBugs, BugCase33DocumentsAreIsolated) {
  const Sets right{{0}, {0, 1}, {2}, {2, 3}, {2, 3, 4}};
  EXPECT_EQ(rows("causal & documents(7, 7, 9, 9, 9)", 5), right);
  const MaskList ids{0, 0, 1, 1, 1};
  EXPECT_EQ(rows(Mask::causal(), 5, 5, {}, {{}, DocumentLimit{ids, ids}}), right);
  // The limit stands outside: no | inside the expression gets around it.
  EXPECT_EQ(rows(Mask::causal() | Mask::full(), 5, 5, {}, {{}, DocumentLimit{ids, ids}}),
            (Sets{{0, 1}, {0, 1}, {2, 3, 4}, {2, 3, 4}, {2, 3, 4}}));
}

TEST(MaskBugs, BugCase34RowsAfterTheLastSequence) {
  // Eight slots, sequences of 3 and 2; the slack has positions of its own but no slot is written there.
  const std::vector<int64_t> positions{0, 1, 2, 3, 4, -1, -1, -1};
  const Mask mask = Mask::causal() & Mask::documents({0, 0, 0, 1, 1});
  const Sets right{{0}, {0, 1}, {0, 1, 2}, {3}, {3, 4}, {}, {}, {}};
  for (size_t i = 0; i < positions.size(); ++i) EXPECT_EQ(slots(mask, positions[i], positions), right[i]);
  EXPECT_THAT(error_of([&] { MaskView(mask, {1, 1, 8, 8, {}, {}}); }),
              HasSubstr("query position 7 of batch row 0 is beyond the end of documents"));
}

TEST(MaskBugs, BugCase35StridedIsLocalOrStride) {
  EXPECT_EQ(rows("causal & dilated(2)", 6), (Sets{{0}, {1}, {0, 2}, {1, 3}, {0, 2, 4}, {1, 3, 5}}));
  EXPECT_EQ(rows("causal & (window(1, 0) | dilated(2))", 6),
            (Sets{{0}, {0, 1}, {0, 1, 2}, {1, 2, 3}, {0, 2, 3, 4}, {1, 3, 4, 5}}));
  EXPECT_EQ(rows("causal & (window(2, 0) | dilated(3))", 8)[7], (std::vector<int64_t>{1, 4, 5, 6, 7}));
}

TEST(MaskBugs, BugCase36TreesHaveHolesBelowTheDiagonal) {
  const int64_t base = 60;  // the tree lies across the end of a word and of a tile
  const Mask mask = Mask::tree({base}, {-1, 0, 0, 1, 2});
  const MaskView view(mask, {1, 1, 5, base + 5, Placement{base, 0}, {}});
  const Sets nodes{{0}, {0, 1}, {0, 2}, {0, 1, 3}, {0, 2, 4}};
  for (int64_t i = 0; i < 5; ++i) {
    const std::vector<int64_t> seen = members(view.row(0, 0, base + i), 0);
    std::vector<int64_t> right;
    for (int64_t k = 0; k < base; ++k) right.push_back(k);
    for (int64_t node : nodes[static_cast<size_t>(i)]) right.push_back(base + node);
    EXPECT_EQ(seen, right);
  }
  const MaskPlan plan(mask, {}, 1, 1);
  EXPECT_EQ(plan.classify(0, 0, {64, 65}, {60, 64}), TileClass::kPartial);
  EXPECT_EQ(plan.classify(0, 0, {60, 65}, {0, 60}), TileClass::kFull);
  EXPECT_EQ(plan.classify(0, 0, {60, 65}, {65, 70}), TileClass::kEmpty);
}

TEST(MaskBugs, BugCase37UnwrittenSlotsOfAStaticCache) {
  EXPECT_EQ(slots(Mask::full(), 2, {0, 1, 2, -1, -1, -1}), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(rows(Mask::full(), 1, 6, Placement{2, 0}, {{3}, {}}), (Sets{{0, 1, 2}}));
}

TEST(MaskBugs, BugCase49OneMaskServesEveryLength) {
  const Mask causal = Mask::causal();
  EXPECT_EQ(rows(causal, 6, 6, Placement{0, 0})[5], (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(rows(causal, 2, 4, Placement{2, 0}), (Sets{{0, 1, 2}, {0, 1, 2, 3}}));
}

TEST(MaskBugs, BugCase50ShapesOfTablesAreChecked) {
  const std::vector<uint8_t> bits(400, 1);
  const auto take = [&](int64_t q, int64_t k) {
    return error_of([&] {
      BitTable::from_array(Polarity::kKeep, TensorView<const uint8_t>(bits.data(), {q, k}), {-1, -1, 10, 20});
    });
  };
  EXPECT_THAT(take(10, 15), AllOf(HasSubstr("[1, 1, 10, 15]"), HasSubstr("[any, any, 10, 20]")));
  EXPECT_THAT(take(20, 10), HasSubstr("[1, 1, 20, 10]"));
  EXPECT_THAT(take(10, 21 - 3), HasSubstr("[1, 1, 10, 18]"));
  EXPECT_EQ(take(10, 20), "no error");
  // Without a stated shape: fewer queries than asked is an error that names the table, keys beyond its end are not
  // seen.
  const Mask small =
      Mask::table("seen", BitTable::from_array(Polarity::kKeep, TensorView<const uint8_t>(bits.data(), {10, 15})));
  EXPECT_THAT(error_of([&] { MaskView(small, {1, 1, 11, 15, {}, {}}); }), HasSubstr("beyond the end of table(seen)"));
  EXPECT_EQ(MaskView(small, {1, 1, 10, 20, {}, {}}).count_row(0, 0, 9), 15);
}

TEST(MaskBugs, BugCase51LongSequences) {
  const MaskPlan plan(Mask::causal() & Mask::window(1, 0), {}, 1, 1);
  for (int64_t around : {int64_t{1} << 15, int64_t{1} << 16, int64_t{1} << 31, int64_t{1} << 32})
    for (int64_t q = around - 1; q <= around + 1; ++q) {
      EXPECT_EQ(plan.hull(0, 0, q), (Interval{q - 1, q + 1}));
      EXPECT_EQ(plan.classify(0, 0, {q, q + 1}, {q - 1, q + 1}), TileClass::kFull);
      EXPECT_EQ(plan.classify(0, 0, {q, q + 1}, {q - 3, q - 1}), TileClass::kEmpty);
      uint64_t words[2];
      const int64_t k = (q - 1) / 64 * 64;
      plan.fill_words(0, 0, q, k, 2, words);
      EXPECT_EQ(words[0] >> (q - 1 - k) & 1, 1u);
      EXPECT_EQ(std::popcount(words[0]) + std::popcount(words[1]), 2);
    }
  const MaskView view(Mask::parse("causal & window(1, 0)"), {1, 1, 65538, 65538, {}, {}});
  EXPECT_EQ(view.count(), 2 * 65538 - 1);
}

}  // namespace
}  // namespace regard
