// The models in the box (models/): training them again from their seed goes the way it went, to the bit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "../support/temp_dir.h"
#include "kernels/registry.h"
#include "regard/train.h"
#include "train/state_file.h"

namespace regard::train_test {
namespace {

using testing_support::TempDir;

std::string box(const std::string& name) { return std::string(REGARD_TEST_DATA) + "/../models/" + name; }
std::string excerpt(const std::string& name) { return std::string(REGARD_TEST_DATA) + "/golden/text/" + name; }

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

struct Boxed {
  const char* name;
  const char* excerpt;
  int64_t steps;
};
constexpr Boxed kBoxed[] = {{"shakespeare", "shakespeare.txt", 5}, {"poet", "tang.txt", 2}};

// "isa hash" by line: the parameters after the first steps on the excerpt.
std::map<std::string, std::string> recorded(const std::string& path) {
  std::map<std::string, std::string> all;
  std::istringstream lines(text_of(path));
  for (std::string isa, hash; lines >> isa >> hash;) all[isa] = hash;
  return all;
}

TEST(ModelsInTheBox, TrainTheSameWayAgain) {
  for (const Boxed& boxed : kBoxed) {
    const TempDir directory;
    TrainConfig config = parse_train_config(text_of(box(boxed.name) + "/train.json"), boxed.name);
    config.data.files = {excerpt(boxed.excerpt)};
    config.data.tokenizer = box(boxed.name) + "/tokenizer.json";
    config.run.steps = boxed.steps;
    config.run.evaluate_every = config.run.save_every = 0;
    config.run.save_as = TrainConfig::Run::SaveAs::kF32;
    TrainOptions options;
    options.directory = directory.path("run");
    const TrainResult result = train(config, options);
    ASSERT_EQ(result.step, boxed.steps);
    const std::string weights = text_of(directory.path("run") + "/latest/model.safetensors");
    const std::string hash = fmt::format("{:016x}", train_loop::hash_bytes(std::as_bytes(std::span(weights))));
    // avx512_bf16 is avx512 for all that is f32.
    std::string isa(isa_name(kernels::kernels().isa));
    if (isa == "avx512_bf16") isa = "avx512";
    const auto want = recorded(box(boxed.name) + "/first-steps.txt");
    ASSERT_TRUE(want.contains(isa)) << isa << " " << hash;
    EXPECT_EQ(hash, want.at(isa)) << boxed.name << " on " << isa;
  }
}

}  // namespace
}  // namespace regard::train_test
