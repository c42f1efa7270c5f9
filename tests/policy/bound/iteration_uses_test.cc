#include "policy/bound/iteration_uses.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/policy/trace_helpers.h"

namespace spillway::policy {
namespace {

TEST(IterationUsesTest, NextUsesAndFreesGoOverTheEnd) {
  Trace trace;
  Append(&trace, {{1, {1, 2}}, {2, {2}}});
  trace.AddFree(2);
  Append(&trace, {{3, {3}}, {1, {1, 2}}});
  const IterationUses iteration = FindIterationUses(trace, 0, 3, {{1, 10}, {2, 20}});
  ASSERT_EQ(iteration.blocks.size(), 3u);
  EXPECT_EQ(iteration.blocks[1].bytes, 20u);
  EXPECT_EQ(iteration.blocks[2].bytes, 0u);  // its size is not known
  EXPECT_EQ(iteration.first_use, (std::vector<uint32_t>{0, 2, 3, 4}));
  EXPECT_EQ(iteration.uses[0].next_use, 3u);  // block 1
  EXPECT_EQ(iteration.uses[1].next_use, 1u);  // block 2
  EXPECT_EQ(iteration.uses[2].next_use, 3u);
  EXPECT_EQ(iteration.uses[2].gone_at, 2u);
  EXPECT_EQ(iteration.uses[1].gone_at, 0u);
}

}  // namespace
}  // namespace spillway::policy
