#include "policy/bound/traffic_bound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "policy/bound/iteration_uses.h"
#include "tests/policy/trace_helpers.h"

namespace spillway::policy {
namespace {

IterationUses IterationOfLaunches(const std::vector<TestLaunch>& launches, const BlockSizes& sizes) {
  Trace trace;
  Append(&trace, launches);
  Append(&trace, launches);
  return FindIterationUses(trace, launches.size(), launches.size(), sizes);
}

TEST(BoundTest, NothingMovesWhenAllFits) {
  const IterationUses iteration = IterationOfLaunches({{1, {1}}, {2, {2}}}, {{1, 10}, {2, 5}});
  const IterationTraffic traffic = TrafficOf(iteration, 15);
  EXPECT_TRUE(traffic.possible);
  EXPECT_EQ(traffic.least_fetched_bytes, 0u);
  EXPECT_EQ(traffic.whole_block_fetched_bytes, 0u);
}

// Three blocks of 10 in a ring, of which two fit. At each launch 10 bytes are away. A byte that leaves after
// one use is away for the two launches up to its next: a block that leaves serves two launches, so 15 bytes
// an iteration.
TEST(BoundTest, ARingOfThreeOfWhichTwoFit) {
  const IterationUses iteration =
      IterationOfLaunches({{1, {1}}, {2, {2}}, {3, {3}}}, {{1, 10}, {2, 10}, {3, 10}});
  EXPECT_EQ(TrafficOf(iteration, 20).least_fetched_bytes, 15u);
  EXPECT_EQ(TrafficOf(iteration, 10).least_fetched_bytes, 30u);
  EXPECT_EQ(TrafficOf(iteration, 25).least_fetched_bytes, 7u);  // 7.5, rounded down
  EXPECT_EQ(TrafficOf(iteration, 20).whole_block_fetched_bytes, 15u);
  EXPECT_EQ(TrafficOf(iteration, 25).whole_block_fetched_bytes, 15u);
  EXPECT_EQ(TrafficOf(iteration, 15).whole_block_fetched_bytes, 30u);
  EXPECT_FALSE(TrafficOf(iteration, 9).possible);
  EXPECT_EQ(LargestSetOf(iteration), 10u);
}

// The same ring where 7 of each block's 10 bytes are copied when it moves. Whole blocks take 10 bytes of memory
// and bring back 7. The least counts memory by copied bytes, too, so it is that of a ring of three blocks of 7.
TEST(BoundTest, BytesThatAreNotCopiedCostNothing) {
  Trace trace;
  Append(&trace, {{1, {1}}, {2, {2}}, {3, {3}}});
  const IterationUses iteration =
      FindIterationUses(trace, 0, 3, {{1, 10}, {2, 10}, {3, 10}}, {{1, 7}, {2, 7}, {3, 7}});
  EXPECT_EQ(TrafficOf(iteration, 20).whole_block_fetched_bytes, 10u);  // 10.5, rounded down
  EXPECT_EQ(TrafficOf(iteration, 20).least_fetched_bytes, 1u);         // 1.5
  EXPECT_EQ(TrafficOf(iteration, 10).least_fetched_bytes, 16u);  // of 21 together, 11 away at each launch
  EXPECT_EQ(TrafficOf(iteration, 30).whole_block_fetched_bytes, 0u);
}

// A stack: up 1 2 3, down 3 2 1. The top is used twice in a row; with memory for two of 10, launch "3" needs
// one away, and block 1 is idle over all of it: it comes back once an iteration. Its turn at the bottom is
// back to back.
TEST(BoundTest, AStackBringsBackItsBottomOnce) {
  const std::vector<TestLaunch> launches = {{1, {1}}, {2, {2}}, {3, {3}}, {4, {3}}, {5, {2}}, {6, {1}}};
  const IterationUses iteration = IterationOfLaunches(launches, {{1, 10}, {2, 10}, {3, 10}});
  // Launches 3 and 4 lack 10 bytes: block 1 is away. Launches 1 and 6 (neighbors in the iteration), 2 and 5
  // lack 10, too: block 3 is idle from launch 4 to the next launch 3 and covers the others.
  EXPECT_EQ(TrafficOf(iteration, 20).least_fetched_bytes, 20u);
  EXPECT_EQ(TrafficOf(iteration, 20).whole_block_fetched_bytes, 20u);
  EXPECT_EQ(TrafficOf(iteration, 25).least_fetched_bytes, 10u);  // half a block each time
}

// A block that is freed before its next use never comes back.
TEST(BoundTest, TemporariesCostNothing) {
  Trace trace;
  for (int i = 0; i < 2; ++i) {
    for (TraceBlock block = 2; block < 5; ++block) {
      trace.AddAllocate(block, 10);
      const TraceBlock both[] = {1, block};
      trace.AddLaunch(block, both);
      trace.AddFree(block);
    }
  }
  const IterationUses iteration = FindIterationUses(trace, 3, 3, {{1, 10}, {2, 10}, {3, 10}, {4, 10}});
  EXPECT_EQ(TrafficOf(iteration, 20).least_fetched_bytes, 0u);
  EXPECT_FALSE(TrafficOf(iteration, 19).possible);
}

// The least cost over all schedules of whole blocks of size 1, by exhaustive search over sets of resident
// blocks: fetches of the cheapest closed walk of iterations, on the long average (walks of up to `iterations`
// iterations).
class Exhaustive {
 public:
  Exhaustive(const IterationUses& iteration, size_t blocks) : iteration_(iteration), blocks_(blocks) {}

  // Least fetches of so many iterations that end as they began, divided by their number.
  double Least(int iterations) {
    double best = 1e9;
    for (uint32_t begin = 0; begin < (1u << iteration_.blocks.size()); ++begin) {
      if (static_cast<size_t>(__builtin_popcount(begin)) > blocks_) continue;
      std::map<uint32_t, int> costs = {{begin, 0}};
      for (int i = 0; i < iterations; ++i) {
        for (uint32_t position = 0; position < iteration_.launches; ++position)
          costs = After(costs, position);
      }
      const auto end = costs.find(begin);
      if (end != costs.end()) best = std::min(best, static_cast<double>(end->second) / iterations);
    }
    return best;
  }

 private:
  std::map<uint32_t, int> After(const std::map<uint32_t, int>& costs, uint32_t position) const {
    uint32_t needed = 0;
    for (uint32_t i = iteration_.first_use[position]; i < iteration_.first_use[position + 1]; ++i) {
      needed |= 1u << iteration_.uses[i].block;
    }
    std::map<uint32_t, int> after;
    for (const auto& [resident, cost] : costs) {
      const int fetches = __builtin_popcount(needed & ~resident);
      const uint32_t all = resident | needed;
      for (uint32_t kept = all;; kept = (kept - 1) & all) {  // every subset that has the launch's blocks
        if ((kept & needed) == needed && static_cast<size_t>(__builtin_popcount(kept)) <= blocks_) {
          const auto [it, is_new] = after.try_emplace(kept, cost + fetches);
          if (!is_new) it->second = std::min(it->second, cost + fetches);
        }
        if (kept == 0) break;
      }
    }
    return after;
  }

  const IterationUses& iteration_;
  const size_t blocks_;
};

TEST(BoundTest, NoScheduleOfSmallRingsBeatsItAndSomeReachIt) {
  std::mt19937_64 random(7);
  int reached = 0;
  for (int round = 0; round < 40; ++round) {
    std::vector<TestLaunch> launches(3 + random() % 5);
    BlockSizes sizes;
    for (size_t i = 0; i < launches.size(); ++i) {
      launches[i].tag = i;
      for (TraceBlock block = 1; block <= 4; ++block) {
        if (random() % 3 == 0) launches[i].blocks.push_back(block);
      }
      if (launches[i].blocks.empty()) launches[i].blocks.push_back(1 + random() % 4);
    }
    for (TraceBlock block = 1; block <= 4; ++block) sizes[block] = 1000;
    const IterationUses iteration = IterationOfLaunches(launches, sizes);
    for (size_t blocks = 1; blocks <= 4; ++blocks) {
      const IterationTraffic traffic = TrafficOf(iteration, blocks * 1000);
      if (!traffic.possible) continue;
      double least = 1e9;
      for (int iterations = 1; iterations <= 3; ++iterations)
        least = std::min(least, 1000 * Exhaustive(iteration, blocks).Least(iterations));
      EXPECT_LE(static_cast<double>(traffic.least_fetched_bytes), least + 1e-6)
          << round << " blocks " << blocks;
      reached += least > 0 && static_cast<double>(traffic.least_fetched_bytes) >= least - 1;
    }
  }
  EXPECT_GT(reached, 20);  // else the bound would say little
}

TEST(BoundTest, IsNeverAboveWhatWholeBlocksCost) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 300; ++round) {
    const RandomJob job = MakeRandomJob(&random);
    Trace trace;
    for (int i = 0; i < 2; ++i) job.AppendIterationTo(&trace);
    const uint32_t iteration_launches = static_cast<uint32_t>(job.launches.size());
    const IterationUses iteration =
        FindIterationUses(trace, iteration_launches, iteration_launches, job.sizes);
    Bytes total = 0;
    for (const IterationUses::Block& block : iteration.blocks) total += block.bytes;
    Bytes before = ~Bytes{0};
    for (Bytes budget = LargestSetOf(iteration); budget <= total; budget += 1 + total / 7) {
      const IterationTraffic traffic = TrafficOf(iteration, budget);
      ASSERT_TRUE(traffic.possible);
      EXPECT_LE(traffic.least_fetched_bytes, traffic.whole_block_fetched_bytes);
      EXPECT_LE(traffic.least_fetched_bytes, before) << "more memory, more traffic";
      before = traffic.least_fetched_bytes;
    }
    EXPECT_EQ(TrafficOf(iteration, total).least_fetched_bytes, 0u);
  }
}

}  // namespace
}  // namespace spillway::policy
