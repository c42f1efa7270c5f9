// VictimIndex against the choice by a look at all: the same victims, in the same order, whatever was used,
// added, taken away or planned anew in between.

#include "policy/planner/victim_index.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/policy/planner/full_scan.h"

namespace spillway::policy {
namespace {

struct Known {
  uint64_t idle_since = 0;
  Bytes bytes = 0;
  bool may_leave = true;
  LaunchIndex phase = 0;  // first use by the plan; kNever: none
};

// Blocks that a plan of `iteration_launches` launches uses once each, or not at all.
class World {
 public:
  explicit World(uint64_t seed) : random_(seed) {}

  uint64_t Pick(uint64_t below) { return random_() % below; }

  LaunchIndex NextUse(const Known& block) const {
    if (plan_ == 0 || block.phase == kNever) return kNever;
    const LaunchIndex behind = now_ > block.phase ? now_ - block.phase : 0;
    return block.phase + (behind + kIterationLaunches - 1) / kIterationLaunches * kIterationLaunches;
  }
  void Step() {
    const uint64_t what = Pick(10);
    if (what < 3 || blocks_.empty()) return Add();
    const auto at = std::next(blocks_.begin(), Pick(blocks_.size()));
    if (what < 4) {
      index_.Remove(at->first);
      blocks_.erase(at);
    } else if (what < 7) {
      at->second.idle_since = ++uses_;
      now_ += Pick(20);
    } else if (what < 8) {
      at->second.may_leave = !at->second.may_leave;
    } else if (Pick(40) == 0) {
      plan_ = Pick(3) == 0 ? 0 : ++plans_;
      for (auto& [key, block] : blocks_) block.phase = Phase();
    }
  }
  void Compare(Bytes needed) {
    std::vector<VictimCandidate> candidates;
    for (const auto& [key, block] : blocks_) {
      if (block.may_leave) candidates.push_back({key, block.bytes, block.idle_since, NextUse(block)});
    }
    std::vector<VictimIndex::Key> expected;
    for (const uint32_t at : SelectVictims(candidates, needed))
      expected.push_back(static_cast<VictimIndex::Key>(candidates[at].key));
    uint64_t asked = 0;
    const auto selected = index_.Select(
        needed, now_, plan_,
        [&](VictimIndex::Key key) {
          ++asked;
          return VictimIndex::Facts{blocks_.at(key).idle_since, NextUse(blocks_.at(key))};
        },
        [&](VictimIndex::Key key) { return blocks_.at(key).may_leave ? blocks_.at(key).bytes : 0; });
    ASSERT_EQ(selected, expected);
    asked_ = asked;
  }
  VictimIndex& index() { return index_; }
  uint64_t asked() const { return asked_; }
  void Add() {
    const auto key = static_cast<VictimIndex::Key>(Pick(500));
    if (blocks_.contains(key)) return;
    blocks_[key] = {++uses_, 1 + Pick(8), true, Phase()};
    index_.Add(key);
  }
  size_t size() const { return blocks_.size(); }

 private:
  static constexpr LaunchIndex kIterationLaunches = 1000;
  LaunchIndex Phase() { return Pick(4) == 0 ? kNever : Pick(kIterationLaunches); }

  std::mt19937_64 random_;
  std::map<VictimIndex::Key, Known> blocks_;
  VictimIndex index_;
  LaunchIndex now_ = 0;
  uint64_t uses_ = 0;
  uint64_t plan_ = 0;
  uint64_t plans_ = 0;
  uint64_t asked_ = 0;
};

TEST(VictimIndexTest, ChoosesWhatALookAtAllChooses) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    World world(seed);
    for (int step = 0; step < 3000; ++step) {
      world.Step();
      if (step % 7 == 0) world.Compare(1 + world.Pick(60));
      ASSERT_EQ(world.index().size(), world.size());
      if (testing::Test::HasFatalFailure()) FAIL() << "seed " << seed << ", step " << step;
    }
  }
}

TEST(VictimIndexTest, AsksForFewOfMany) {
  World world(5);
  while (world.size() < 400) world.Add();
  world.Compare(1);
  EXPECT_GE(world.asked(), 400u);  // all are new
  world.Compare(1);
  EXPECT_LE(world.asked(), 2u);
}

TEST(VictimIndexTest, RemovingWhatIsNotThereDoesNothing) {
  VictimIndex index;
  index.Remove(7);
  index.Add(7);
  index.Add(7);
  EXPECT_EQ(index.size(), 1u);
  index.Remove(7);
  EXPECT_FALSE(index.Contains(7));
  EXPECT_EQ(index.size(), 0u);
}

TEST(VictimTest, UnknownFirstByAgeThenFarthestNextUse) {
  const std::vector<VictimCandidate> candidates = {
      {1, 10, 90, 120}, {2, 10, 50, kNever}, {3, 10, 95, 300}, {4, 10, 20, kNever}, {5, 10, 10, 110}};
  EXPECT_EQ(SelectVictims(candidates, 1), (std::vector<uint32_t>{3}));
  EXPECT_EQ(SelectVictims(candidates, 25), (std::vector<uint32_t>{3, 1, 2}));
  EXPECT_EQ(SelectVictims(candidates, 1000), (std::vector<uint32_t>{3, 1, 2, 0, 4}));
  EXPECT_TRUE(SelectVictims(candidates, 0).empty());
  EXPECT_TRUE(SelectVictims({}, 5).empty());
}

}  // namespace
}  // namespace spillway::policy
