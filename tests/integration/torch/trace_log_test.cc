#include "integration/torch/trace_log.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace spillway::integration {
namespace {

using Entry = TraceLog::Entry;
using RecordContext = TraceLog::RecordContext;

TraceLog::Context NoStack() { return std::make_shared<c10::GatheredContext>(); }

class TraceLogTest : public ::testing::Test {
 protected:
  void Keep(size_t most, const std::vector<std::string>& skipped = {}) {
    log_.Configure(true, &NoStack, most, RecordContext::ALL, false, skipped);
  }
  void Record(Entry::Action action, size_t address, int device = 0) {
    log_.Record(action, static_cast<c10::DeviceIndex>(device), address, 512, nullptr, nullptr, "note");
  }
  std::vector<std::vector<Entry>> Events() {
    std::vector<std::vector<Entry>> traces;
    log_.MergeInto(&traces);
    return traces;
  }

  TraceLog log_;
};

TEST_F(TraceLogTest, KeepsTheLatestEventsOfEachDevice) {
  Record(Entry::ALLOC, 1);
  EXPECT_FALSE(log_.active());
  EXPECT_TRUE(Events().empty()) << "history is off";
  Keep(2);
  for (size_t address = 1; address <= 3; ++address) Record(Entry::ALLOC, address);
  Record(Entry::ALLOC, 9, 1);
  const auto events = Events();
  ASSERT_EQ(events.size(), 2u);
  ASSERT_EQ(events[0].size(), 2u);
  EXPECT_EQ(events[0][0].addr_, 2u);
  EXPECT_EQ(events[0][1].addr_, 3u);
  EXPECT_LE(events[0][0].time_.t_, events[0][1].time_.t_);
  EXPECT_EQ(events[1].size(), 1u);
  log_.Configure(false, nullptr, 2, RecordContext::NEVER, false, {});
  EXPECT_TRUE(Events().empty());
}

TEST_F(TraceLogTest, LeavesOutWhatIsSkippedButTellsTrackers) {
  std::vector<size_t> told;
  log_.AddTracker([&told](const Entry& entry) { told.push_back(entry.addr_); });
  EXPECT_TRUE(log_.active());
  Keep(10, {"free_requested"});
  Record(Entry::ALLOC, 1);
  Record(Entry::FREE_REQUESTED, 2);
  EXPECT_EQ(told, (std::vector<size_t>{1, 2}));
  ASSERT_EQ(Events().size(), 1u);
  ASSERT_EQ(Events()[0].size(), 1u);
  EXPECT_EQ(Events()[0][0].addr_, 1u);
}

TEST_F(TraceLogTest, StacksAreGatheredByLevel) {
  EXPECT_EQ(log_.Gather(RecordContext::STATE), nullptr);
  log_.Configure(true, &NoStack, 10, RecordContext::STATE, false, {});
  EXPECT_NE(log_.Gather(RecordContext::STATE), nullptr);
  EXPECT_EQ(log_.Gather(RecordContext::ALL), nullptr);
}

TEST_F(TraceLogTest, EventsCarryTheCompiledRegionThatTheThreadIsIn) {
  Keep(10);
  log_.PushCompileContext("outer");
  log_.PushCompileContext("inner");
  Record(Entry::ALLOC, 1);
  log_.PopCompileContext();
  Record(Entry::ALLOC, 2);
  log_.PopCompileContext();
  log_.PopCompileContext();  // one too many does nothing
  Record(Entry::ALLOC, 3);
  const auto events = Events();
  ASSERT_EQ(events[0].size(), 3u);
  EXPECT_EQ(events[0][0].compile_context_, "inner");
  EXPECT_EQ(events[0][1].compile_context_, "outer");
  EXPECT_EQ(events[0][2].compile_context_, "N/A");
  EXPECT_EQ(events[0][2].user_metadata_, "note");
}

}  // namespace
}  // namespace spillway::integration
