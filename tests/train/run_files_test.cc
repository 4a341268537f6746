// The directory of a run, its log and its pictures.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "../support/temp_dir.h"
#include "train/digits.h"
#include "train/loss_picture.h"
#include "train/run_directory.h"

namespace regard::train_loop {
namespace {

namespace fs = std::filesystem;
using testing_support::TempDir;
using IsBest = RunDirectory::IsBest;

Result<Done> write_one(const std::string& directory) { return write_file(directory + "/x", {}); }

std::vector<std::string> names(const std::string& directory) {
  std::vector<std::string> all;
  for (const auto& entry : fs::directory_iterator(directory)) all.push_back(entry.path().filename().string());
  std::sort(all.begin(), all.end());
  return all;
}

TEST(RunDirectory, KeepsTheNewestAndTheBest) {
  const TempDir root;
  auto directory = RunDirectory::open(root.path("run")).value_or_throw();
  EXPECT_EQ(directory.latest(), std::nullopt);
  for (const int64_t step : {10, 20, 30, 40, 1000000000}) {
    ASSERT_TRUE(directory.save(step, step == 20 ? IsBest::kYes : IsBest::kNo, 2, write_one));
    EXPECT_EQ(directory.latest(), step);
  }
  EXPECT_EQ(directory.best(), 20);
  EXPECT_EQ(names(root.path("run")),
            (std::vector<std::string>{"best", "latest", "lock", "step-000000020", "step-000000040", "step-1000000000"}));
  EXPECT_EQ(directory.checkpoint(1000000000), root.path("run/step-1000000000"));
}

TEST(RunDirectory, CleansTemporaryNamesAloneAndOnlyOnceItBegins) {
  const TempDir root;
  {
    auto directory = RunDirectory::open(root.path("run")).value_or_throw();
    ASSERT_TRUE(directory.begin());
    ASSERT_TRUE(directory.save(10, IsBest::kNo, 2, write_one));
  }
  fs::create_directories(root.path("run/step-000000020"));  // complete, but nothing had pointed at it yet
  fs::create_directories(root.path("run/.step-000000030.tmp/inside"));
  root.write("run/.log.jsonl.0123456789abcdef.tmp", std::string("x"));
  root.write("run/.mine.tmp", std::string("x"));
  root.write("run/step-notes.txt", std::string("x"));
  fs::create_symlink("step-000000020", root.path("run/.latest.tmp"));
  const auto before = names(root.path("run"));
  auto directory = RunDirectory::open(root.path("run"), TrainStart::kResume).value_or_throw();
  EXPECT_EQ(names(root.path("run")), before);
  ASSERT_TRUE(directory.begin(10, directory.checkpoint(10)));
  EXPECT_EQ(names(root.path("run")), (std::vector<std::string>{".mine.tmp", "latest", "lock", "step-000000010", "step-000000020", "step-notes.txt"}));
  EXPECT_EQ(directory.latest(), 10);
  ASSERT_TRUE(directory.save(15, IsBest::kNo, 1, write_one));  // the later one is not counted
  EXPECT_EQ(names(root.path("run")), (std::vector<std::string>{".mine.tmp", "latest", "lock", "step-000000015", "step-000000020", "step-notes.txt"}));
  ASSERT_TRUE(directory.save(20, IsBest::kNo, 1, write_one));
  EXPECT_TRUE(fs::exists(root.path("run/step-000000020/x")));
}

TEST(RunDirectory, AFailedSaveLeavesEverythingAsItWas) {
  const TempDir root;
  auto directory = RunDirectory::open(root.path("run")).value_or_throw();
  ASSERT_TRUE(directory.save(10, IsBest::kYes, 2, write_one));
  const auto before = names(root.path("run"));
  const auto result = directory.save(20, IsBest::kYes, 1, [](const std::string&) -> Result<Done> { return failure(Code::kIo, "no"); });
  EXPECT_FALSE(result);
  EXPECT_EQ(names(root.path("run")), before);
  EXPECT_EQ(directory.latest(), 10);
}

TEST(RunDirectory, IsOneProcesss) {
  const TempDir root;
  {
    const auto first = RunDirectory::open(root.path("run"));
    ASSERT_TRUE(first);
    const auto second = RunDirectory::open(root.path("run"));
    ASSERT_FALSE(second);
    EXPECT_EQ(second.failure().code, Code::kUnavailable);
  }
  EXPECT_TRUE(RunDirectory::open(root.path("run")));
  root.write("file", std::string("x"));
  EXPECT_EQ(RunDirectory::open(root.path("file")).failure().code, Code::kInvalidArgument);
  EXPECT_EQ(RunDirectory::open(root.path("no/run")).failure().code, Code::kNotFound);
  EXPECT_EQ(RunDirectory::open("").failure().code, Code::kInvalidArgument);
}

TEST(RunLog, GoesOnBehindTheStepOfTheCheckpoint) {
  const TempDir root;
  {
    auto log = RunLog::open(root.path("log.jsonl"), 0).value_or_throw();
    for (int64_t step = 1; step <= 5; ++step) ASSERT_TRUE(log.step({step, 1.0 / static_cast<double>(step), 0.1, 2, 3, 4, step == 2}));
    ASSERT_TRUE(log.evaluation({5, 0.5, 0.25, 100, 0, 0, true}));
  }
  std::ofstream(root.path("log.jsonl"), std::ios::app) << "{\"step\": 6, \"lo";  // what a power cut leaves
  {
    auto log = RunLog::open(root.path("log.jsonl"), 3).value_or_throw();
    ASSERT_TRUE(log.step({4, 7, 0.1, 2, 3, 4, false}));
  }
  const LossCurves curves = read_loss_curves(root.path("log.jsonl")).value_or_throw();
  ASSERT_EQ(curves.training.size(), 4u);
  EXPECT_EQ(curves.training[1].loss, 0.5);
  EXPECT_EQ(curves.training[3].step, 4);
  EXPECT_EQ(curves.training[3].loss, 7);
  EXPECT_TRUE(curves.validation.empty());
  root.write("bad.jsonl", std::string("{\"step\": 1}\nnonsense\n"));
  const auto bad = read_loss_curves(root.path("bad.jsonl"));
  ASSERT_FALSE(bad);
  EXPECT_NE(bad.failure().message.find("bad.jsonl:2"), std::string::npos) << bad.failure().message;
}

TEST(LossPicture, AxesHaveRoundTicksAroundTheValues) {
  for (const auto& [low, high] : {std::pair{0.0, 1.0}, {1.47, 4.2}, {0.0, 12345.0}, {2.0, 2.0}, {1.500, 1.501}, {-3.0, 7.0}}) {
    const Axis axis = make_axis(low, high, 8);
    EXPECT_LE(axis.low, low + 1e-9);
    EXPECT_GE(axis.high, high - 1e-9);
    EXPECT_GE(axis.ticks.size(), 2u);
    EXPECT_LE(axis.ticks.size(), 8u);
    const double step = axis.ticks[1] - axis.ticks[0], decade = std::pow(10, std::floor(std::log10(step) + 1e-9));
    const double lead = step / decade;
    EXPECT_TRUE(std::abs(lead - 1) < 1e-6 || std::abs(lead - 2) < 1e-6 || std::abs(lead - 5) < 1e-6) << step;
  }
  const Axis axis = make_axis(1.3, 4.1, 8);
  EXPECT_EQ(axis.ticks.size(), 8u);  // 1.0 1.5 ... 4.5
}

TEST(LossPicture, TextShowsWhereTheLossesLie) {
  LossCurves curves;
  for (int64_t step = 0; step <= 100; step += 10) curves.training.push_back({step, 5 - static_cast<double>(step) * 0.04});
  curves.validation = {{100, 1}};
  const std::string text = loss_text(curves, 60, 12);
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) lines.push_back(text.substr(at, text.find('\n', at) - at));
  ASSERT_EQ(lines.size(), 12u);
  EXPECT_NE(lines[0].find("|."), std::string::npos) << text;  // step 0 has the highest loss
  EXPECT_EQ(lines[10].back(), 'o') << text;                   // step 100 the lowest
  EXPECT_EQ(lines[10].find('.'), std::string::npos) << text;
  for (const std::string& line : lines) EXPECT_LE(line.size(), 60u);
  EXPECT_EQ(loss_text({}, 60, 12), "");
}

TEST(LossPicture, SvgHasEveryPoint) {
  LossCurves curves;
  curves.training = {{1, 3}, {2, 2}, {3, 1}};
  curves.validation = {{2, 2.5}, {3, 1.5}};
  const std::string svg = loss_svg(curves);
  size_t points = 0;
  for (size_t at = svg.find("points=\""); at != std::string::npos; at = svg.find("points=\"", at + 1)) {
    const std::string list = svg.substr(at + 8, svg.find('"', at + 8) - at - 8);
    points += static_cast<size_t>(std::count(list.begin(), list.end(), ','));
  }
  EXPECT_EQ(points, 5u);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

TEST(Digits, AreDrawnAsDots) {
  Raster raster;
  raster.width = 8, raster.height = 10;
  raster.rgb.assign(240, 0);
  draw_digits(raster, 0, 0, "7", {255, 255, 255});
  std::string drawn;
  for (int64_t y = 0; y < 10; y += 2) {
    for (int64_t x = 0; x < 6; x += 2) drawn += raster.rgb[static_cast<size_t>(3 * (y * 8 + x))] != 0 ? '#' : ' ';
    drawn += '\n';
  }
  EXPECT_EQ(drawn, "###\n  #\n  #\n  #\n  #\n");
  draw_digits(raster, -3, -3, "888888", {255, 255, 255});  // outside is left out
}

}  // namespace
}  // namespace regard::train_loop
