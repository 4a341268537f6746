// Views against brute force, the formulas and pictures of docs/masks.md against the library, imported arrays, rasters.
#include "regard/mask_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "mask/node.h"
#include "mask/plan.h"
#include "mask/terms.h"
#include "regard/error.h"

namespace regard {
namespace {

using namespace mask_testing;
using ::testing::HasSubstr;

RC_GTEST_PROP(MaskView, RowsColumnsAndCountsAreThePairs, ()) {
  const int64_t size = pick(1, 140);
  const Rule rule = random_rule(size, Kinds::kAll);
  const Placement at{pick(0, size), pick(0, 100)};
  // Queries stay within the lists; a list may end before the first one, then any query is refused.
  int64_t q_len = 0, kv_len = pick(0, 2 * size);
  const MaskPlan plan(rule.mask, {}, kBatch, kHeads);
  const auto fits = [&](int64_t n) {
    try {
      for (int64_t b = 0; b < kBatch; ++b) plan.check_queries(b, Interval{at.q_begin, at.q_begin + n});
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  while (q_len < size && fits(q_len + 1)) ++q_len;
  const MaskView view(rule.mask, {kBatch, kHeads, q_len, kv_len, at, {}});
  const int64_t b = pick(0, kBatch), h = pick(0, kHeads);
  const auto in = [](const std::vector<Interval>& runs, int64_t x) {
    return std::any_of(runs.begin(), runs.end(), [&](Interval run) { return run.begin <= x && x < run.end; });
  };
  int64_t total = 0;
  for (int64_t q = view.queries().begin; q < view.queries().end; ++q) {
    const auto runs = view.row(b, h, q);
    for (size_t i = 1; i < runs.size(); ++i) RC_ASSERT(runs[i - 1].end < runs[i].begin);  // apart and rising
    for (int64_t k = view.keys().begin; k < view.keys().end; ++k) RC_ASSERT(in(runs, k) == rule.sees({b, h, q, k}));
    for (int64_t bb = 0; bb < kBatch; ++bb)
      for (int64_t hh = 0; hh < kHeads; ++hh)
        for (int64_t k = view.keys().begin; k < view.keys().end; ++k) total += rule.sees({bb, hh, q, k});
  }
  RC_ASSERT(view.count() == total);
  for (int64_t k = view.keys().begin; k < view.keys().end; k += 7) {
    const auto runs = view.column(b, h, k);
    for (int64_t q = view.queries().begin; q < view.queries().end; ++q)
      RC_ASSERT(in(runs, q) == rule.sees({b, h, q, k}));
  }
}

// The formulas of docs/masks.md, term by term, for every row of several lengths.
TEST(MaskView, RowsSeeAsManyKeysAsTheManualSays) {
  const auto counts = [](const Mask& mask, int64_t n, auto formula) {
    const MaskView view(mask, {1, 1, n, n, {}, {}});
    for (int64_t i = 0; i < n; ++i)
      EXPECT_EQ(view.count_row(0, 0, i), formula(i)) << mask.text() << ", row " << i << " of " << n;
  };
  for (int64_t n : {1, 2, 6, 63, 64, 65, 200}) {
    counts(Mask::full(), n, [&](int64_t) { return n; });
    counts(Mask::none(), n, [&](int64_t) { return 0; });
    counts(Mask::causal(), n, [&](int64_t i) { return i + 1; });
    for (int64_t w : {0, 1, 5, 300}) {
      counts(Mask::window(w, 2), n, [&](int64_t i) { return std::min(i, w) + 1 + std::min<int64_t>(n - 1 - i, 2); });
      counts(Mask::prefix(w), n, [&](int64_t) { return std::min(w, n); });
      counts(Mask::lengths({w}), n, [&](int64_t) { return std::min(w, n); });
    }
    for (int64_t m : {1, 2, 7, 64, 500}) {
      counts(Mask::blocks(m), n, [&](int64_t i) { return std::min(n, (i / m + 1) * m); });
      counts(Mask::chunk(m), n, [&](int64_t i) { return std::min(m, n - i / m * m); });
      counts(Mask::dilated(m), n, [&](int64_t i) { return i / m + 1 + (n - 1 - i) / m; });
    }
    std::vector<int64_t> ids, chain;
    for (int64_t i = 0; i < n; ++i) ids.push_back(i * i % 5), chain.push_back(i - 1);
    counts(Mask::documents(ids), n,
           [&](int64_t i) { return std::count(ids.begin(), ids.end(), ids[static_cast<size_t>(i)]); });
    counts(Mask::tree(chain), n, [&](int64_t i) { return i + 1; });
  }
}

TEST(MaskView, LargeMasksCostTheirIntervals) {
  const int64_t n = int64_t{1} << 40;
  const uint64_t before = mask_pair_evaluations;
  const MaskView view(Mask::parse("causal & (window(127, 0) | sinks(4))"), {1, 1, 100, n, Placement{n - 100, 0}, {}});
  EXPECT_EQ(view.count(), 100 * 132);
  EXPECT_EQ(view.row(0, 0, n - 1), (std::vector<Interval>{{0, 4}, {n - 128, n}}));
  EXPECT_EQ(view.column(0, 0, n - 50), (std::vector<Interval>{{n - 50, n}}));
  EXPECT_LT(mask_pair_evaluations - before, 1000u);
  const MaskView square(Mask::causal(), {1, 1, n, n, {}, {}});
  EXPECT_THAT(draw_text(square), HasSubstr("each cell: "));
  EXPECT_LE(draw_image(square).width, 1024);
}

TEST(MaskView, ErrorsSayWhatIsThere) {
  const MaskView view(Mask::full(), {1, 2, 3, 4, Placement{5, 0}, {}});
  const auto message = [](auto call) {
    try {
      call();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(message([&] { view.count_row(1, 0, 5); }), HasSubstr("batch row 1 and head 0 asked; there are 1 and 2"));
  EXPECT_THAT(message([&] { view.row(0, 0, 4); }), HasSubstr("query position 4 asked; expected 5 to 7"));
  EXPECT_THAT(message([&] { view.column(0, 1, 4); }), HasSubstr("key position 4 asked; expected 0 to 3"));
  EXPECT_THAT(message([&] { MaskView(Mask::full(), {1, 1, -1, 4, {}, {}}); }), HasSubstr("q_len -1"));
  EXPECT_THAT(message([&] { MaskView(Mask::full(), {1, 1, 1, 4, Placement{-1, 0}, {}}); }), HasSubstr("q_begin -1"));
  EXPECT_THAT(
      message([&] { MaskView(Mask::full(), {4, 1, kUnlimited / 2, kUnlimited / 2, {}, {}}).count_row(0, 0, 0); }),
      HasSubstr("no error"));
  EXPECT_THAT(message([&] { MaskView(Mask::causal(), {1, 1, kUnlimited, 4, Placement{1, 0}, {}}); }),
              HasSubstr("positions end"));
}

TEST(BitTable, TakesEveryLayout) {
  // [batch 2, heads 3, q 2, k 70], strides of a transposed array: keys are the slowest axis.
  std::vector<uint8_t> bytes(2 * 3 * 2 * 70);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = i % 3 == 0 || i % 7 == 0;
  TensorView<const uint8_t> view(bytes.data(), {2, 3, 2, 70});
  view.strides = {1, 2, 6, 12};
  for (Polarity polarity : {Polarity::kKeep, Polarity::kDrop}) {
    const Mask mask = Mask::from_array(polarity, view);
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t h = 0; h < 3; ++h)
        for (int64_t q = 0; q < 2; ++q)
          for (int64_t k = 0; k < 80; ++k) {
            const bool keep =
                k < 70 && (*view.at(b, h, q, std::min<int64_t>(k, 69)) != 0) == (polarity == Polarity::kKeep);
            EXPECT_EQ(mask.allowed(b, h, q, k), keep);
          }
  }
  const bool small[] = {true, false, false, true, true, true};
  const BitTable heads = BitTable::from_array(Polarity::kKeep, TensorView<const bool>(small, {3, 1, 2}));
  EXPECT_EQ((std::vector<int64_t>{heads.batch(), heads.heads(), heads.q_len(), heads.kv_len()}),
            (std::vector<int64_t>{1, 3, 1, 2}));
  EXPECT_THROW(BitTable::from_array(Polarity::kKeep, TensorView<const bool>(small, {6})), Error);
  TensorView<const bool> one(small, {1, 1});
  one.strides = {0, 0};
  one.shape = {4, 5, 1, 1};  // broadcast by strides
  EXPECT_EQ(MaskView(Mask::from_array(Polarity::kKeep, one), {1, 1, 4, 5, {}, {}}).count(), 20);
  one.shape = {int64_t{1} << 40, int64_t{1} << 40, 1, 1};
  EXPECT_THROW(BitTable::from_array(Polarity::kKeep, one), Error);
}

TEST(MaskView, PicturesInBothStyles) {
  const MaskView view(Mask::parse("causal & ~window(0, 0)"), {1, 1, 2, 3, Placement{1, 0}, {}});
  TextPicture options;
  EXPECT_EQ(draw_text(view, options), "    0 1 2\n1   \u25a0 \u00b7 \u00b7\n2   \u25a0 \u25a0 \u00b7\n");
  options.style = PictureStyle::kAscii;
  options.counts = RowCounts::kShow;
  EXPECT_EQ(draw_text(view, options), "    0 1 2\n1   # . .    1\n2   # # .    2\n");
  const MaskView nothing(Mask::causal(), {1, 1, 0, 0, {}, {}});
  EXPECT_EQ(draw_text(nothing), "   \n");
  EXPECT_EQ(draw_image(nothing).width, 0);
}

TEST(MaskView, BlocksOfALargePictureAreVisibleHiddenOrMixed) {
  const MaskView view(Mask::parse("blocks(100)"), {1, 1, 400, 400, {}, {}});
  TextPicture options;
  options.style = PictureStyle::kAscii;
  options.max_rows = 4;
  const std::string picture = draw_text(view, options);
  std::istringstream lines(picture);
  std::string line;
  std::getline(lines, line);
  for (int row = 0; row < 4; ++row) {
    std::getline(lines, line);
    const auto visible = std::count(line.begin(), line.end(), '#'), hidden = std::count(line.begin(), line.end(), '.');
    EXPECT_NEAR(static_cast<double>(visible) / static_cast<double>(visible + hidden), 0.25 * (row + 1), 0.03) << line;
    EXPECT_LE(line.size(), 80u);
  }
  // A random-looking table is mixed everywhere, an empty one hidden everywhere: undecided blocks are counted.
  std::vector<uint8_t> bits(400 * 400);
  const auto drawn = [&] {
    const Mask mask = Mask::from_array(Polarity::kKeep, TensorView<const uint8_t>(bits.data(), {400, 400}));
    return draw_text(MaskView(mask, {1, 1, 400, 400, {}, {}}), options);
  };
  EXPECT_EQ(drawn().substr(0, drawn().find("each")).find_first_of("#+"), std::string::npos);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = i % 3 == 0;
  EXPECT_EQ(drawn().substr(0, drawn().find("each")).find_first_of("#."), std::string::npos);
}

TEST(MaskView, RastersHaveTheirCellsInPlace) {
  const MaskView view(Mask::causal(), {1, 1, 6, 6, {}, {}});
  const Raster raster = draw_image(view);
  EXPECT_EQ(raster.width, 6 * 16 + 1);
  EXPECT_EQ(raster.height, 6 * 16 + 1);
  ASSERT_EQ(raster.rgb.size(), static_cast<size_t>(raster.width * raster.height * 3));
  const auto red = [&](int row, int column) {  // the middle of a cell
    return raster.rgb[static_cast<size_t>(((row * 16 + 8) * raster.width + column * 16 + 8) * 3)];
  };
  for (int q = 0; q < 6; ++q)
    for (int k = 0; k < 6; ++k) EXPECT_EQ(red(q, k) < 128, k <= q);
  ImagePicture small;
  small.max_pixels = 100;
  const Raster large = draw_image(MaskView(Mask::causal(), {1, 1, 5000, 100, Placement{0, 0}, {}}), small);
  EXPECT_EQ(large.width, 100);
  EXPECT_EQ(large.height, 100);
}

// Every picture and error of the manual is what the library draws or says.
TEST(MaskManual, IsWhatTheLibraryDraws) {
  std::ifstream file(std::string(REGARD_TEST_DATA) + "/../docs/masks.md");
  ASSERT_TRUE(file.is_open());
  const uint8_t ring[36] = {1, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0,
                            0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 1, 0, 1, 0, 0, 0, 1, 1};
  Bindings bindings;
  bindings.tables.emplace("seen", BitTable::from_array(Polarity::kKeep, TensorView<const uint8_t>(ring, {6, 6})));
  std::vector<MaskOp> drawn;
  int errors = 0;
  std::string line;
  while (std::getline(file, line)) {
    if (line == "```mask") {
      std::string expression, blank, picture;
      std::getline(file, expression);
      std::getline(file, blank);
      while (std::getline(file, line) && line != "```") picture += line + "\n";
      TextPicture options;
      options.style = PictureStyle::kAscii;
      options.counts = RowCounts::kShow;
      MaskExtent extent{1, 1, 6, 6, {}, {}};
      if (expression.rfind("head ", 0) == 0) {
        options.head = expression[5] - '0';
        extent.num_q_heads = 2;
        expression = expression.substr(8);
      }
      const Mask mask = Mask::parse(expression, bindings);
      drawn.push_back(mask.node().op);
      EXPECT_EQ(draw_text(MaskView(mask, extent), options), picture) << expression;
    } else if (line == "```error") {
      std::string text;
      while (std::getline(file, line) && line != "```") text += line + "\n";
      try {
        Mask::parse("causal & windw(3, 0)");
      } catch (const Error& error) {
        EXPECT_EQ(error.what() + std::string("\n"), text);
        ++errors;
      }
    }
  }
  EXPECT_EQ(errors, 1);
  for (int op = 0; op <= static_cast<int>(MaskOp::kPerHead); ++op)
    EXPECT_NE(std::find(drawn.begin(), drawn.end(), static_cast<MaskOp>(op)), drawn.end())
        << mask_op_name(static_cast<MaskOp>(op));
}

}  // namespace
}  // namespace regard
