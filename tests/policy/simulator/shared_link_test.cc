// Rates of copies over a link whose directions slow each other down: when they change, and what gives way.

#include "policy/simulator/shared_link.h"

#include <gtest/gtest.h>

#include "policy/simulator/copy_queues.h"
#include "tests/policy/workload_helpers.h"

namespace spillway::policy {
namespace {

constexpr Bytes kUnit = 10 * kMega;

// 1 GB/s alone, 0.6 in and 0.8 out together, in units of 10 MB: 10 ms at the full rate.
class SharedLinkTest : public ::testing::Test {
 protected:
  SharedLinkTest() { machine_.pcie_both = {0.6e9, 0.8e9}; }

  Machine machine_ = PieceMachine(1, 1);
  CopyQueues queues_{machine_};
  SharedLink link_{machine_, queues_.tiers()};
  const SharedLink::Queue out_ = CopyQueues::kHostOut, in_ = queues_.HostIn();
};

TEST_F(SharedLinkTest, AloneACopyHasAllOfItsRate) {
  ASSERT_TRUE(link_.MayBegin(in_, 1e9, 0));
  link_.Begin(in_, 1e9, 3 * kUnit, 5 * kMilli, 0);
  link_.Arrange(0);
  EXPECT_EQ(link_.end(in_), 35 * kMilli);
  const SharedLink::Segment segment = link_.EndSegment(in_, 35 * kMilli);
  EXPECT_TRUE(segment.ends_copy);
  EXPECT_EQ(segment.last, 3 * kUnit);
}

TEST_F(SharedLinkTest, ACopyThatIsGivenUpEndsWithItsUnit) {
  link_.Begin(in_, 1e9, 5 * kUnit, 0, 0);
  link_.Arrange(0);
  link_.Shorten(in_, 12 * kMilli);
  EXPECT_EQ(link_.end(in_), 20 * kMilli);
  const SharedLink::Segment segment = link_.EndSegment(in_, 20 * kMilli);
  EXPECT_TRUE(segment.ends_copy);
  EXPECT_EQ(segment.last, 2 * kUnit);
}

// The copy in gives way at the end of its second unit, and is fast again at the end of the first unit after
// the copy out.
TEST_F(SharedLinkTest, RatesChangeAtTheEndsOfUnits) {
  link_.Begin(in_, 1e9, 5 * kUnit, 0, 0);
  link_.ForgetWanted();
  EXPECT_FALSE(link_.MayBegin(out_, 1e9, 12 * kMilli));
  link_.Arrange(12 * kMilli);
  ASSERT_EQ(link_.end(in_), 20 * kMilli);
  SharedLink::Segment segment = link_.EndSegment(in_, 20 * kMilli);
  EXPECT_FALSE(segment.ends_copy);
  EXPECT_EQ(segment.first, 0u);
  EXPECT_EQ(segment.last, 2 * kUnit);

  link_.ForgetWanted();
  ASSERT_TRUE(link_.MayBegin(out_, 1e9, 20 * kMilli));
  link_.Begin(out_, 1e9, kUnit, 0, 20 * kMilli);
  link_.Arrange(20 * kMilli);
  const Nanos out_ends = 20 * kMilli + 12'500'000;
  EXPECT_EQ(link_.end(out_), out_ends);
  EXPECT_EQ(link_.end(in_), 70 * kMilli);  // 30 MB at 0.6 GB/s
  EXPECT_TRUE(link_.EndSegment(out_, out_ends).ends_copy);

  link_.ForgetWanted();
  link_.Arrange(out_ends);
  EXPECT_EQ(link_.end(in_), 20 * kMilli + ToTicks(1e7 / 0.6));  // its unit
  segment = link_.EndSegment(in_, link_.end(in_));
  EXPECT_EQ(segment.last, 3 * kUnit);
  link_.Arrange(segment.end);
  EXPECT_EQ(link_.end(in_), segment.end + 20 * kMilli);
}

TEST_F(SharedLinkTest, WhoStartsAtTheSameTimeNeedsNotWait) {
  link_.Begin(in_, 1e9, kUnit, 0, 0);
  ASSERT_TRUE(link_.MayBegin(out_, 1e9, 0));
  link_.Begin(out_, 1e9, kUnit, 0, 0);
  link_.Arrange(0);
  EXPECT_EQ(link_.end(in_), ToTicks(1e7 / 0.6));
  EXPECT_EQ(link_.end(out_), 12'500'000);
}

// In an end where nobody wants to begin any more, nothing changes.
TEST_F(SharedLinkTest, AWishThatIsGoneIsForgotten) {
  link_.Begin(in_, 1e9, 5 * kUnit, 0, 0);
  EXPECT_FALSE(link_.MayBegin(out_, 1e9, 12 * kMilli));
  link_.Arrange(12 * kMilli);
  EXPECT_EQ(link_.end(in_), 20 * kMilli);
  link_.ForgetWanted();
  link_.Arrange(15 * kMilli);
  EXPECT_EQ(link_.end(in_), 50 * kMilli);
}

// The drive keeps its rate, the host gives way.
TEST_F(SharedLinkTest, TheHostGivesWayBeforeTheDrive) {
  const SharedLink::Queue drive = queues_.Back(CopyQueues::DriveOut(0));
  link_.Begin(drive, 0.2e9, kUnit, 0, 0);
  link_.Begin(in_, 0.8e9, kUnit, 0, 0);
  ASSERT_TRUE(link_.MayBegin(out_, 1e9, 0));
  link_.Begin(out_, 1e9, kUnit, 0, 0);
  EXPECT_EQ(link_.end(drive), 50 * kMilli);
  EXPECT_EQ(link_.end(in_), 25 * kMilli);  // 0.4 GB/s
  EXPECT_EQ(link_.end(out_), 12'500'000);
}

}  // namespace
}  // namespace spillway::policy
