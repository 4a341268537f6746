// Arenas keep what they have and are aligned; measuring and carving agree.
#include "runtime/workspace.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

namespace regard {
namespace {

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % kBufferAlignment == 0; }

TEST(Workspace, GrowsAndNeverShrinks) {
  Workspace workspace;
  workspace.reserve(2, 1000);
  std::byte* const first = workspace.arena(0);
  EXPECT_TRUE(aligned(first) && aligned(workspace.arena(1)));
  EXPECT_NE(first, workspace.arena(1));
  workspace.reserve(1, 10);
  EXPECT_EQ(workspace.arena(0), first);
  EXPECT_EQ(workspace.arena_bytes(1), 1000u);
  workspace.reserve(3, 2000);
  EXPECT_EQ(workspace.total_bytes(), 6000u);
  EXPECT_THROW(workspace.reserve(1, SIZE_MAX), Error);
}

TEST(Carver, MeasuresWhatItCarves) {
  const auto layout = [](Carver& carver) {
    float* a = carver.take<float>(3);
    double* b = carver.take<double>(9);
    return std::pair(a, b);
  };
  Carver measure(nullptr);
  EXPECT_EQ(layout(measure).first, nullptr);
  EXPECT_EQ(measure.used(), 64u + 128u);
  Workspace workspace;
  workspace.reserve(1, measure.used());
  Carver carve(workspace.arena(0));
  const auto [a, b] = layout(carve);
  EXPECT_EQ(static_cast<void*>(a), workspace.arena(0));
  EXPECT_EQ(static_cast<void*>(b), workspace.arena(0) + 64);
  EXPECT_TRUE(aligned(b));
  EXPECT_THROW(carve.take<double>(SIZE_MAX / 4), Error);
}

}  // namespace
}  // namespace regard
