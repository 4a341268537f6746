// State files: what is written comes back, and every damage is seen.
#include "train/state_file.h"

#include <gtest/gtest.h>

#include "../support/files.h"
#include "../support/temp_dir.h"
#include "format/file_source.h"

namespace regard::train_loop {
namespace {

using testing_support::TempDir;

std::vector<uint8_t> bytes_of(const std::string& path) {
  const FileBytes bytes = read_file(path).value_or_throw();
  const auto* begin = reinterpret_cast<const uint8_t*>(bytes.bytes().data());
  return {begin, begin + bytes.bytes().size()};
}

struct Saved {
  RunState state;
  RunIdentity identity{"{\"run\": {}}\n", 1, UINT64_MAX, 3};
  std::vector<float> values = {1, -2.5f, 3e-40f, -0.0f}, moments = {5, 6, 7, 8};

  Saved() {
    state.step = 17;
    state.updates = 16;
    state.tokens = int64_t{1} << 52;
    state.evaluated_step = 15;
    state.validation_loss = 1.0 / 3;
    state.best_step = 4;
    state.evaluations_since_best = 2;
    state.recent_losses = {0.1, 1e300};
    state.recent_norms = {5e-324};
  }
  std::vector<uint8_t> bytes() {
    const TempDir directory;
    write_state(directory.path("state"), state, identity, {values, moments}, system_file_layer()).value_or_throw();
    return bytes_of(directory.path("state"));
  }
};

bool is_read(std::span<const uint8_t> bytes) {
  const MemorySource source(bytes);
  const auto head = read_state_head(source, "state");
  if (!head) {
    EXPECT_EQ(head.failure().code, Code::kCorruptData) << head.failure().message;
    return false;
  }
  std::vector<float> a(4), b(4);
  return static_cast<bool>(read_state_spans(source, *head, {a, b}, "state"));
}

TEST(StateFile, ComesBackExactly) {
  Saved saved;
  const std::vector<uint8_t> bytes = saved.bytes();
  const MemorySource source(bytes);
  const StateHead head = read_state_head(source, "state").value_or_throw();
  EXPECT_EQ(head.state.step, 17);
  EXPECT_EQ(head.state.updates, 16);
  EXPECT_EQ(head.state.tokens, int64_t{1} << 52);
  EXPECT_EQ(head.state.evaluated_step, 15);
  EXPECT_EQ(head.state.validation_loss, 1.0 / 3);
  EXPECT_EQ(head.state.best_loss, std::nullopt);
  EXPECT_EQ(head.state.best_step, 4);
  EXPECT_EQ(head.state.evaluations_since_best, 2);
  EXPECT_EQ(head.state.recent_losses, saved.state.recent_losses);
  EXPECT_EQ(head.state.recent_norms, saved.state.recent_norms);
  EXPECT_EQ(head.identity.config, saved.identity.config);
  EXPECT_EQ(head.identity.data_hash, 1u);
  EXPECT_EQ(head.identity.tokenizer_hash, UINT64_MAX);
  EXPECT_EQ(head.identity.layout_hash, 3u);
  EXPECT_EQ(head.data_begin % 64, 0u);
  std::vector<float> values(4), moments(4);
  ASSERT_TRUE(read_state_spans(source, head, {values, moments}, "state"));
  EXPECT_EQ(std::memcmp(values.data(), saved.values.data(), 16), 0);
  EXPECT_EQ(moments, saved.moments);
  std::vector<float> more(5);
  EXPECT_FALSE(read_state_spans(source, head, {values}, "state"));
  EXPECT_FALSE(read_state_spans(source, head, {values, more}, "state"));
}

TEST(StateFile, EveryTruncationAndEveryBitIsNoticed) {
  Saved saved;
  std::vector<uint8_t> bytes = saved.bytes();
  ASSERT_TRUE(is_read(bytes));
  for (size_t n = 0; n < bytes.size(); ++n) EXPECT_FALSE(is_read(std::span(bytes).first(n))) << n;
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
    EXPECT_FALSE(is_read(bytes)) << bit;
    bytes[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
  }
  bytes.push_back(0);
  EXPECT_FALSE(is_read(bytes));
}

TEST(StateFile, TheLayoutHashSeesNamesShapesAndDecay) {
  std::vector<nn::Parameter> parameters = {{"a", {2, 3}, nn::WeightDecay::kApplied, 0, 6}, {"b", {4}, nn::WeightDecay::kNone, 16, 4}};
  const uint64_t hash = hash_layout(parameters);
  EXPECT_EQ(hash_layout(parameters), hash);
  auto other = parameters;
  other[0].shape = {3, 2};
  EXPECT_NE(hash_layout(other), hash);
  other = parameters;
  other[1].name = "c";
  EXPECT_NE(hash_layout(other), hash);
  other = parameters;
  other[1].decay = nn::WeightDecay::kApplied;
  EXPECT_NE(hash_layout(other), hash);
}

}  // namespace
}  // namespace regard::train_loop
