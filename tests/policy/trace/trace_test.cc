#include "policy/trace/trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/policy/trace_helpers.h"

namespace spillway::policy {
namespace {

TEST(SignatureTest, DependsOnTagBlocksAndTheirOrder) {
  const std::vector<std::vector<TraceBlock>> sets = {{},     {0},    {0, 0},    {1}, {2},
                                                     {1, 2}, {2, 1}, {1, 2, 3}, {3}};
  std::set<uint64_t> seen;
  for (uint64_t tag = 0; tag < 4; ++tag) {
    for (const auto& set : sets) seen.insert(SignatureOf(tag, set));
  }
  EXPECT_EQ(seen.size(), 4 * sets.size());
  EXPECT_EQ(SignatureOf(1, sets[5]), SignatureOf(1, std::vector<TraceBlock>{1, 2}));
}

TEST(TraceTest, KeepsLaunchesAndEventsByIndex) {
  Trace trace;
  trace.AddAllocate(7, 64);
  Append(&trace, {{1, {7, 8}}, {2, {}}});
  trace.AddFree(7);
  Append(&trace, {{1, {7, 8}}, {1, {8, 7}}});
  EXPECT_EQ(trace.end(), 4u);
  EXPECT_EQ(trace.at(0).blocks.size(), 2u);
  EXPECT_EQ(trace.at(1).blocks.size(), 0u);
  EXPECT_EQ(trace.at(3).blocks[0], 8u);
  EXPECT_TRUE(trace.SameLaunch(0, 2));
  EXPECT_FALSE(trace.SameLaunch(0, 3));
  ASSERT_EQ(trace.events().size(), 2u);
  EXPECT_TRUE(trace.events()[0].allocated());
  EXPECT_EQ(trace.events()[1].before, 2u);
}

TEST(TraceTest, DropsOldLaunchesAndKeepsIndices) {
  Trace trace;
  for (uint64_t i = 0; i < 10; ++i) {
    trace.AddFree(i);
    trace.AddLaunch(i, std::vector<TraceBlock>{i, i + 1});
  }
  trace.DropBefore(6);
  EXPECT_EQ(trace.begin(), 6u);
  EXPECT_EQ(trace.end(), 10u);
  EXPECT_EQ(trace.at(7).tag, 7u);
  EXPECT_EQ(trace.at(7).blocks[1], 8u);
  EXPECT_EQ(trace.events().front().before, 6u);
  trace.DropBefore(3);  // gone already
  EXPECT_EQ(trace.begin(), 6u);
  trace.Restart(50);
  trace.AddLaunch(1, std::vector<TraceBlock>{2});
  EXPECT_EQ(trace.at(50).blocks[0], 2u);
}

TEST(TraceTest, ASliceHasItsLaunchesAndTheEventsBeforeThem) {
  Trace trace;
  Append(&trace, {{1, {1}}, {2, {1, 2}}});
  trace.AddAllocate(3, 64);
  Append(&trace, {{3, {3}}});
  trace.AddFree(3);
  Append(&trace, {{4, {}}});
  const Trace slice = trace.Slice(1, 3);
  EXPECT_EQ(slice.begin(), 1u);
  EXPECT_EQ(slice.end(), 3u);
  EXPECT_EQ(slice.at(1).blocks.size(), 2u);
  EXPECT_EQ(slice.at(2).signature, trace.at(2).signature);
  ASSERT_EQ(slice.events().size(), 1u);
  EXPECT_EQ(slice.events()[0].before, 2u);
  EXPECT_EQ(slice.events()[0].bytes, 64u);
}

}  // namespace
}  // namespace spillway::policy
