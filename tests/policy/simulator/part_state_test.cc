#include "policy/simulator/part_state.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/policy/workload_helpers.h"

namespace spillway::policy {
namespace {

TEST(PartStateTest, CutsWhereEvictionsDoAndToTheLargestMove) {
  const Workload workload = MountainWorkload();
  const PartState state(workload, 10 * kMega, 30 * kMega, {{5, 2}, {}});
  std::vector<std::pair<uint32_t, uint32_t>> pieces;
  for (uint32_t p = 0; p < state.tensors[0].last_part; ++p)
    pieces.emplace_back(state.parts[p].first_piece, state.parts[p].last_piece);
  EXPECT_EQ(pieces, (std::vector<std::pair<uint32_t, uint32_t>>{{0, 2}, {2, 5}, {5, 8}, {8, 10}}));
  EXPECT_EQ(state.tensors[1].last_part - state.tensors[1].first_part, 4u);
}

TEST(PartStateTest, KeepsAccountOfEachPlace) {
  const Workload workload = MountainWorkload();
  PartState state(workload, 0, 64 << 20, {{}, {}});
  const WorkloadKernel& maker = workload.kernels[0];
  const WorkloadKernel& reader = workload.kernels[11];
  EXPECT_EQ(state.SpaceFor(maker), 100 * kMega);
  state.tensors[0].live = true;
  state.TakeAllOnGpu(0);
  EXPECT_EQ(state.used[0], 100 * kMega);
  EXPECT_FALSE(state.InputsReady(reader));
  state.ValidateAllOnGpu(0);
  EXPECT_TRUE(state.InputsReady(reader));
  state.Put(0, Place::kHost);
  EXPECT_TRUE(PartState::ElsewhereValid(state.parts[0]));
  state.Free(0, Place::kGpu);
  state.Free(0, Place::kGpu);  // gone already
  EXPECT_EQ(state.used[0], 0u);
  EXPECT_EQ(state.used[1], 100 * kMega);
  EXPECT_EQ(state.MissingFor(reader), 100 * kMega);
  state.FreeAll(0, Place::kHost);
  EXPECT_EQ(state.used[1], 0u);
  EXPECT_EQ(state.peak[0], 100 * kMega);
  EXPECT_EQ(state.peak[1], 100 * kMega);
}

}  // namespace
}  // namespace spillway::policy
