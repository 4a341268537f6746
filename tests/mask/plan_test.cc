// Plans against brute force over every pair: classes, hulls, words, counts, limits, errors.
#include "mask/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "mask/node.h"
#include "mask/terms.h"
#include "regard/error.h"

namespace regard {
namespace {

using namespace mask_testing;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kPad = 8;  // positions beyond the lists are asked about too

struct Tile {
  Interval queries, keys;
};

// Full, empty, or partial, by looking at every pair.
TileClass brute_class(const Rule& rule, int64_t b, int64_t h, const Tile& tile) {
  bool some = false, others = false;
  for (int64_t q = tile.queries.begin; q < tile.queries.end; ++q)
    for (int64_t k = tile.keys.begin; k < tile.keys.end; ++k) (rule.sees({b, h, q, k}) ? some : others) = true;
  return !some ? TileClass::kEmpty : others ? TileClass::kPartial : TileClass::kFull;
}

std::vector<Tile> tiles_of(int64_t size, int64_t rows, int64_t columns) {
  std::vector<Tile> tiles;
  for (int64_t q = 0; q < size; q += rows)
    for (int64_t k = 0; k < size; k += columns)
      tiles.push_back({{q, std::min(q + rows, size)}, {k, std::min(k + columns, size)}});
  return tiles;
}

const std::pair<int64_t, int64_t> kTileSizes[] = {{1, 1}, {1, 5}, {5, 1}, {3, 7}, {8, 8}, {100, 100}};

RC_GTEST_PROP(MaskPlanLaws, AllowedFollowsTheDefinition, ()) {
  const int64_t size = pick(1, 24);
  const Rule rule = random_rule(size, Kinds::kAll);
  for (int64_t b = 0; b < kBatch; ++b)
    for (int64_t h = 0; h < kHeads; ++h)
      for (int64_t q = 0; q < size + kPad; ++q)
        for (int64_t k = 0; k < size + kPad; ++k) RC_ASSERT(rule.mask.allowed(b, h, q, k) == rule.sees({b, h, q, k}));
}

RC_GTEST_PROP(MaskPlanLaws, EmptyAndFullAreNeverWrong, ()) {
  const int64_t size = pick(1, 24);
  const Rule rule = random_rule(size, Kinds::kAll);
  const MaskPlan plan(rule.mask, {}, kBatch, kHeads);
  for (int64_t b = 0; b < kBatch; ++b)
    for (int64_t h = 0; h < kHeads; ++h)
      for (const auto& [rows, columns] : kTileSizes)
        for (const Tile& tile : tiles_of(size + kPad, rows, columns)) {
          const TileClass said = plan.classify(b, h, tile.queries, tile.keys);
          RC_ASSERT(said == TileClass::kPartial || said == brute_class(rule, b, h, tile));
        }
}

RC_GTEST_PROP(MaskPlanLaws, IntervalTermsAreClassifiedExactly, ()) {
  const int64_t size = pick(1, 24);
  const Rule rule = random_rule(size, Kinds::kIntervals);
  const MaskPlan plan(rule.mask, {}, kBatch, kHeads);
  for (int64_t b = 0; b < kBatch; ++b)
    for (const auto& [rows, columns] : kTileSizes)
      for (const Tile& tile : tiles_of(size + kPad, rows, columns))
        RC_ASSERT(plan.classify(b, 0, tile.queries, tile.keys) == brute_class(rule, b, 0, tile));
}

RC_GTEST_PROP(MaskPlanLaws, HullsHoldEveryVisibleKey, ()) {
  // No term changes its mind behind `far`: what a row sees of the last key there, it sees of all later ones.
  const int64_t size = pick(1, 24), end = size + kPad, far = 2 * end + 2;
  const bool only_intervals = pick(0, 2) == 0;
  const Rule rule = random_rule(size, only_intervals ? Kinds::kIntervals : Kinds::kAll);
  const MaskPlan plan(rule.mask, {}, kBatch, kHeads);
  for (int64_t b = 0; b < kBatch; ++b)
    for (int64_t h = 0; h < kHeads; ++h) {
      const Interval all = plan.hull(b, h, Interval{0, end});
      for (int64_t q = 0; q < end; ++q) {
        const Interval hull = plan.hull(b, h, q), pair = plan.hull(b, h, Interval{q, q + 2});
        Interval seen{0, 0};
        int64_t count = 0;
        for (int64_t k = 0; k < far; ++k)
          if (rule.sees({b, h, q, k})) {
            if (count++ == 0) seen.begin = k;
            seen.end = k + 1;
            RC_ASSERT(hull.begin <= k && k < hull.end && all.begin <= k && k < all.end);
            RC_ASSERT(pair.begin <= k && k < pair.end);
          }
        if (plan.rows_are_intervals()) RC_ASSERT(count == std::max<int64_t>(0, std::min(hull.end, far) - hull.begin));
        if (only_intervals && seen.end == far) seen.end = kUnlimited;
        if (only_intervals) RC_ASSERT(hull == seen);
      }
    }
}

RC_GTEST_PROP(MaskPlanLaws, WordsAreThePairs, ()) {
  const int64_t size = pick(1, 400);
  const Rule rule = random_rule(size, Kinds::kAll);
  const MaskPlan plan(rule.mask, {}, kBatch, kHeads);
  const int64_t b = pick(0, kBatch), h = pick(0, kHeads), k_begin = 64 * pick(0, 3);
  const int count = static_cast<int>(pick(1, 7));
  for (int64_t q = 0; q < size + kPad; q += pick(1, 40)) {
    std::vector<uint64_t> words(static_cast<size_t>(count), 0xA5A5A5A5A5A5A5A5u);
    plan.fill_words(b, h, q, k_begin, count, words.data());
    for (int64_t j = 0; j < 64 * count; ++j)
      RC_ASSERT((words[static_cast<size_t>(j / 64)] >> (j % 64) & 1) == uint64_t{rule.sees({b, h, q, k_begin + j})});
  }
}

RC_GTEST_PROP(MaskPlanLaws, WordsOfSeveralRowsAreThoseOfEach, ()) {
  const int64_t size = pick(1, 200);
  const Rule rule = pick(0, 2) == 0 ? random_table(size) : random_rule(size, Kinds::kAll, 1);
  const MaskPlan plan(rule.mask, {}, kBatch, kHeads);
  const int64_t b = pick(0, kBatch), h = pick(0, kHeads), k_begin = 64 * pick(0, 3), begin = pick(0, size), end = pick(begin, size + kPad);
  const int count = static_cast<int>(pick(1, 7));
  std::vector<uint64_t> words(static_cast<size_t>(count * (end - begin)), 0xA5A5A5A5A5A5A5A5u), row(static_cast<size_t>(count));
  plan.fill_words(b, h, {begin, end}, k_begin, count, words.data());
  for (int64_t q = begin; q < end; ++q) {
    plan.fill_words(b, h, q, k_begin, count, row.data());
    RC_ASSERT(std::equal(row.begin(), row.end(), words.begin() + count * (q - begin)));
  }
}

RC_GTEST_PROP(MaskPlanLaws, CountsAreExact, ()) {
  const int64_t size = pick(1, 100);
  const Rule rule = random_rule(size, pick(0, 2) == 0 ? Kinds::kIntervals : Kinds::kAll);
  const MaskPlan plan(rule.mask, {}, kBatch, kHeads);
  const Interval queries{pick(0, 10), size}, keys{pick(0, 10), size + kPad};
  int64_t total = 0;
  for (int64_t b = 0; b < kBatch; ++b)
    for (int64_t h = 0; h < kHeads; ++h)
      for (int64_t q = queries.begin; q < queries.end; ++q) {
        int64_t count = 0;
        for (int64_t k = keys.begin; k < keys.end; ++k) count += rule.sees({b, h, q, k});
        RC_ASSERT(plan.count_row(b, h, q, keys) == count);
        total += count;
      }
  RC_ASSERT(plan.count_total(queries, keys) == total);
}

// Long stretches, far from 0 and up to where positions end: the sum of the rows, which are compared with the pairs above.
RC_GTEST_PROP(MaskPlanLaws, StretchesAddUpToTheirRows, ()) {
  const int64_t size = pick(1, 400);
  const Rule rule = random_rule(size, Kinds::kIntervals);
  const MaskPlan plan(rule.mask, {}, kBatch, kHeads);
  const int64_t begins[] = {0, pick(0, size), int64_t{1} << 40, kUnlimited - 2 * size};
  const int64_t begin = begins[pick(0, 4)];
  const Interval queries{begin, begin + 2 * size}, keys{std::max<int64_t>(0, begin - pick(0, 500)), begin + pick(0, 2 * size)};
  int64_t total = 0;
  for (int64_t b = 0; b < kBatch; ++b)
    for (int64_t h = 0; h < kHeads; ++h)
      for (int64_t q = queries.begin; q < queries.end; ++q) total += plan.count_row(b, h, q, keys);
  RC_ASSERT(plan.count_total(queries, keys) == total);
}

TEST(MaskPlan, CountsOfManyRowsAreTheirFormulas) {
  const auto count = [](const char* text, int64_t q_len, int64_t kv_len, int64_t batch = 1) {
    return MaskPlan(Mask::parse(text), {}, batch, 1).count_total({0, q_len}, {0, kv_len});
  };
  const int64_t n = 10'000'000, w = 128, far = int64_t{1} << 31;
  const uint64_t before = mask_pair_evaluations;
  EXPECT_EQ(count("causal", n, n), n * (n + 1) / 2);
  EXPECT_EQ(count("causal & window(127, 0)", n, n), w * (w + 1) / 2 + (n - w) * w);
  EXPECT_EQ(count("causal & (window(127, 0) | sinks(4))", n, n), w * (w + 1) / 2 + (n - w) * w + 3 * 4 / 2 + 4 * (n - w - 3));
  EXPECT_EQ(count("~window(127, 127)", n, n), n * n - (n * (2 * w - 1) - w * (w - 1)));
  EXPECT_EQ(count("causal & chunk(1000000)", n, n), 10 * (int64_t{1000000} * 1000001 / 2));
  // Up to 2^63 - 1 pairs and not one more.
  EXPECT_EQ(count("causal", far, kUnlimited), far * (far + 1) / 2);
  EXPECT_EQ(count("full", 1, kUnlimited), kUnlimited);
  EXPECT_EQ(count("full", 7, kUnlimited / 7), kUnlimited);  // 2^63 - 1 is a multiple of 7
  EXPECT_EQ(count("full", kUnlimited, 1), kUnlimited);
  EXPECT_EQ(mask_pair_evaluations, before);
  const std::tuple<const char*, int64_t, int64_t, int64_t> beyond[] = {
      {"full", 2, kUnlimited, 1}, {"causal", kUnlimited, kUnlimited, 1}, {"full | prefix(3)", int64_t{1} << 32, int64_t{1} << 31, 1}, {"causal", int64_t{1} << 32, int64_t{1} << 32, 2}};
  for (const auto& [text, q_len, kv_len, batch] : beyond)
    try {
      ADD_FAILURE() << text << ": " << count(text, q_len, kv_len, batch);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kResourceExhausted) << error.what();
    }
}

// Beyond kMaxPieceAtoms terms rows are not cut into pieces: less is decided, nothing is wrong, counts stay exact.
RC_GTEST_PROP(MaskPlanLaws, ExpressionsOfManyTerms, ()) {
  const int64_t size = pick(1, 24), end = size + kPad;
  Rule rule = random_rule(size, Kinds::kAll);
  for (int i = 0; i < 40; ++i) rule = i % 2 == 0 ? (rule | none()) : (rule & full());
  rule = pick(0, 2) == 0 ? rule : ~rule;
  const MaskPlan plan(rule.mask, {}, kBatch, kHeads);
  const int64_t b = pick(0, kBatch), h = pick(0, kHeads);
  for (const Tile& tile : tiles_of(end, 3, 4)) {
    const TileClass said = plan.classify(b, h, tile.queries, tile.keys);
    RC_ASSERT(said == TileClass::kPartial || said == brute_class(rule, b, h, tile));
  }
  for (int64_t q = 0; q < end; ++q) {
    const Interval hull = plan.hull(b, h, q);
    int64_t count = 0;
    for (int64_t k = 0; k < end; ++k) {
      const bool sees = rule.sees({b, h, q, k});
      RC_ASSERT(!sees || (hull.begin <= k && k < hull.end));
      count += sees;
    }
    RC_ASSERT(plan.count_row(b, h, q, {0, end}) == count);
  }
}

RC_GTEST_PROP(MaskPlanLaws, LimitsAreAndedWithTheResult, ()) {
  const int64_t size = pick(1, 24);
  const Rule rule = random_rule(size, Kinds::kAll);
  MaskLimits limits;
  Rule limited = rule;
  if (pick(0, 2) == 0) {
    limits.key_lengths = {pick(0, size + 2), pick(0, size + 2)};
    limited = limited & lengths(limits.key_lengths);
  }
  if (pick(0, 2) == 0) {
    const Rows ids{packed_ids(size + kPad)};
    limits.documents = DocumentLimit{list_of(ids), list_of(ids)};
    limited = limited & documents(ids);
  }
  const MaskPlan plan(rule.mask, limits, kBatch, kHeads);
  for (int64_t b = 0; b < kBatch; ++b)
    for (int64_t h = 0; h < kHeads; ++h)
      for (int64_t q = 0; q < size + kPad; ++q) {
        uint64_t word = 0;
        plan.fill_words(b, h, q, 0, 1, &word);
        for (int64_t k = 0; k < size + kPad; ++k) RC_ASSERT((word >> k & 1) == uint64_t{limited.sees({b, h, q, k})});
      }
  for (const Tile& tile : tiles_of(size + kPad, 5, 6)) {
    const TileClass said = plan.classify(1, 2, tile.queries, tile.keys);
    RC_ASSERT(said == TileClass::kPartial || said == brute_class(limited, 1, 2, tile));
  }
}

// A call cut out of a longer one, its queries and keys placed where they stood, sees what it saw there.
RC_GTEST_PROP(MaskPlanLaws, AShiftOfWholePeriodsChangesNothing, ()) {
  const int64_t size = pick(1, 20), n = pick(1, 6);
  const Rule rule =
      *rc::gen::element(causal(), window(n, 1), window(kUnlimited, n), blocks(n), chunk(n), dilated(n)) & ~chunk(n);
  const int64_t shift = n * pick(0, int64_t{1} << 40);
  const MaskPlan plan(rule.mask, {}, 1, 1);
  for (int64_t q = 0; q < size; ++q)
    for (int64_t k = 0; k < size; ++k)
      RC_ASSERT(rule.mask.allowed(0, 0, q + shift, k + shift) == rule.sees({0, 0, q + n * size, k + n * size}));
}

TEST(MaskPlan, RowsAreIntervalsByConstruction) {
  const auto intervals = [](const Mask& mask) { return MaskPlan(mask, {}, 2, 3).rows_are_intervals(); };
  const Mask causal = Mask::causal(), window = Mask::window(5, 2), prefix = Mask::prefix(4), chunk = Mask::chunk(8);
  for (const Mask& mask :
       {Mask::full(), Mask::none(), causal, window, prefix, chunk, Mask::lengths({3, 5}), Mask::blocks(3)})
    EXPECT_TRUE(intervals(mask)) << mask.text();
  EXPECT_TRUE(intervals(causal & window & chunk));
  EXPECT_TRUE(intervals(causal | prefix));
  EXPECT_TRUE(intervals(causal | window));
  EXPECT_TRUE(intervals(~causal));
  EXPECT_TRUE(intervals(~(causal | prefix) & window));
  EXPECT_TRUE(intervals(Mask::documents({0, 0, 1, 1}) & causal));
  EXPECT_TRUE(intervals(Mask::per_head({causal, window, Mask::full()})));
  EXPECT_FALSE(intervals(prefix | window));
  EXPECT_FALSE(intervals(~window));
  EXPECT_FALSE(intervals(Mask::dilated(2)));
  EXPECT_FALSE(intervals(Mask::documents({0, 1, 0})));
  EXPECT_FALSE(intervals(Mask::per_head({causal, ~window, Mask::full()})));
}

TEST(MaskPlan, FarPositionsDoNotOverflow) {
  const int64_t far = int64_t{1} << 62;
  const MaskPlan plan(Mask::causal() & Mask::window(127, 0), {}, 1, 1);
  EXPECT_EQ(plan.hull(0, 0, far), (Interval{far - 127, far + 1}));
  EXPECT_EQ(plan.classify(0, 0, {far, far + 64}, {far - 64, far}), TileClass::kFull);
  EXPECT_EQ(plan.classify(0, 0, {far, far + 64}, {far - 256, far - 127}), TileClass::kEmpty);
  EXPECT_EQ(plan.classify(0, 0, {far, far + 64}, {far - 256, far - 126}), TileClass::kPartial);
  EXPECT_EQ(plan.count_row(0, 0, far, {0, far + 64}), 128);
  uint64_t word = 0;
  plan.fill_words(0, 0, far, far, 1, &word);
  EXPECT_EQ(word, 1u);
  const MaskPlan wide(Mask::window(kUnlimited - 1, kUnlimited - 1) & Mask::blocks(kUnlimited) & Mask::dilated(far), {},
                      1, 1);
  EXPECT_EQ(wide.classify(0, 0, {far, far + 1}, {0, 1}), TileClass::kFull);
  EXPECT_EQ(wide.classify(0, 0, {far, far + 1}, {1, far}), TileClass::kEmpty);
  EXPECT_EQ(wide.count_row(0, 0, 5, {0, 64}), 1);
}

TEST(MaskPlan, UnwrittenSlotsSeeNothingAndAreNotSeen) {
  const MaskPlan plan(~Mask::none(), {}, 1, 1);
  EXPECT_EQ(plan.classify(0, 0, {-1, 0}, {0, 4}), TileClass::kEmpty);
  EXPECT_EQ(plan.classify(0, 0, {-1, 1}, {0, 4}), TileClass::kPartial);
  EXPECT_TRUE(plan.hull(0, 0, -1).empty());
  EXPECT_EQ(plan.count_row(0, 0, -1, {0, 4}), 0);
  uint64_t word = ~0ull;
  plan.fill_words(0, 0, -1, 0, 1, &word);
  EXPECT_EQ(word, 0u);
  EXPECT_FALSE(Mask::full().allowed(0, 0, -1, 0));
  EXPECT_FALSE(Mask::full().allowed(0, 0, 0, -1));
}

// Planning: for each block of 64 rows the hull, then the classes of the tiles inside it.
struct Planned {
  int64_t empty = 0, full = 0, partial = 0;
};
Planned plan_tiles(const MaskPlan& plan, int64_t n) {
  Planned planned;
  for (int64_t q = 0; q < n; q += 64) {
    const Interval hull = plan.hull(0, 0, Interval{q, q + 64});
    for (int64_t k = hull.begin / 256 * 256; k < std::min(hull.end, n); k += 256) {
      switch (plan.classify(0, 0, {q, q + 64}, {k, k + 256})) {
        case TileClass::kEmpty: ++planned.empty; break;
        case TileClass::kFull: ++planned.full; break;
        case TileClass::kPartial: ++planned.partial; break;
      }
    }
  }
  return planned;
}

TEST(MaskPlan, PlanningEvaluatesNoPair) {
  const int64_t n = 64 * 1024;
  const uint64_t before = mask_pair_evaluations;
  const MaskPlan plan(Mask::causal() & Mask::window(1023, 0), {}, 1, 1);
  const Planned planned = plan_tiles(plan, n);
  plan.count_total({0, n}, {0, n});
  EXPECT_EQ(mask_pair_evaluations, before);
  EXPECT_EQ(planned.empty, 0);
  // Rows q .. q + 63 with q a multiple of 64: tiles wholly between q + 63 - 1023 and q are full. Of four row blocks
  // that share a key tile, the diagonal tile is partial, three before it are full for all, and the fourth is full for
  // none.
  EXPECT_EQ(planned.full, 3 * 1024 - 4 * 6);
  uint64_t word = 0;
  plan.fill_words(0, 0, 0, 0, 1, &word);
  EXPECT_EQ(mask_pair_evaluations, before + 64);
  EXPECT_EQ(word, 1u);
}

TEST(MaskPlan, HardExpressionsPlanAndRunOneRowOfTilesAt256k) {
  const int64_t n = 256 * 1024;
  std::vector<int64_t> parents(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) parents[static_cast<size_t>(i)] = (i - 1) / 2 - (i == 0 ? 1 : 0);
  parents[0] = -1;
  const uint64_t before = mask_pair_evaluations;
  const MaskPlan plan(Mask::causal() & (Mask::dilated(3) | ~Mask::tree(parents)), {}, 1, 1);
  const int64_t q = n - 64;
  EXPECT_EQ(plan.classify(0, 0, {0, 64}, {256, 512}), TileClass::kEmpty);
  EXPECT_EQ(mask_pair_evaluations, before);
  // The last row: all earlier keys but the ancestors of its node whose distance is not a multiple of 3.
  int64_t hidden = 0;
  for (int64_t node = n - 1; node >= 0; node = parents[static_cast<size_t>(node)]) hidden += (n - 1 - node) % 3 != 0;
  EXPECT_EQ(plan.count_row(0, 0, n - 1, {0, n}), n - hidden);
  EXPECT_NE(plan.classify(0, 0, {q, q + 64}, {0, 256}), TileClass::kEmpty);
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

TEST(MaskPlan, ErrorsNameTheTerm) {
  const auto plan = [](const Mask& mask, int64_t batch, int64_t heads) {
    return error_of([&] { MaskPlan(mask, {}, batch, heads); });
  };
  EXPECT_THAT(plan(Mask::causal() & Mask::lengths({1, 2, 3}), 2, 1),
              HasSubstr("lengths has 3 numbers for a batch of 2"));
  EXPECT_THAT(plan(Mask::documents(MaskList::per_row({{0}, {1}}).named("ids")), 3, 1),
              HasSubstr("documents(ids) has 2 lists for a batch of 3"));
  EXPECT_THAT(plan(Mask::tree({0, 1}, {-1}), 3, 1), HasSubstr("tree has 2 base numbers"));
  EXPECT_THAT(plan(Mask::per_head({Mask::full(), Mask::causal()}), 1, 3),
              HasSubstr("per_head has 2 masks for 3 query heads; give one for each (regard mask: --heads 2)"));
  const uint8_t bits[8] = {};
  const Mask table =
      Mask::table("seen", BitTable::from_array(Polarity::kKeep, TensorView<const uint8_t>(bits, {2, 2, 2, 1})));
  EXPECT_THAT(plan(table, 3, 2), AllOf(HasSubstr("table(seen)"), HasSubstr("[2, 2, 2, 1]"), HasSubstr("batch of 3")));
  EXPECT_THAT(plan(table, 2, 4), HasSubstr("4 query heads"));
  EXPECT_EQ(plan(table, 2, 2), "no error");
  EXPECT_THAT(error_of([] { MaskPlan(Mask::full(), {{-1}, {}}, 1, 1); }), HasSubstr("key length -1"));
  EXPECT_THAT(error_of([] { MaskPlan(Mask::full(), {{1, 2, 3}, {}}, 2, 1); }), HasSubstr("key lengths"));
}

TEST(MaskPlan, AQueryBeyondAListIsAnErrorThatNamesIt) {
  const MaskPlan plan(Mask::documents(MaskList{0, 0, 1}.named("ids")), {}, 1, 1);
  EXPECT_NO_THROW(plan.check_queries(0, Interval{0, 3}));
  EXPECT_THAT(error_of([&] { plan.check_queries(0, Interval{1, 4}); }),
              AllOf(HasSubstr("query position 3"), HasSubstr("documents(ids)"), HasSubstr("position 2")));
  const int64_t positions[] = {2, -1, 0};
  EXPECT_NO_THROW(plan.check_queries(0, positions, 3));
  const MaskPlan tree(Mask::tree({2, 5}, {-1, 0}), {}, 2, 1);
  EXPECT_NO_THROW(tree.check_queries(1, Interval{0, 7}));
  EXPECT_THAT(error_of([&] { tree.check_queries(0, Interval{0, 7}); }), HasSubstr("tree"));
  EXPECT_NO_THROW(MaskPlan(Mask::full(), {}, 1, 1).check_queries(0, Interval{0, int64_t{1} << 62}));
}

}  // namespace
}  // namespace regard
