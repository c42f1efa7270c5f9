#include "integration/engine/device_share.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/fakes/wait_until.h"
#include "tests/integration/hooks/fake_residency.h"

namespace spillway::integration {
namespace {

using allocator::PausedBy;
using allocator::PauseScope;
using allocator::PauseStats;
using allocator::ShareNeed;
using ::testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kDevice = 640 * kMiB;  // a step is 10 MiB
constexpr int64_t kSecond = 1'000'000'000;

class FixedClock : public os::Clock {
 public:
  int64_t NowNanos() const override { return now.load(); }
  std::atomic<int64_t> now{0};
};

// A job whose blocks are all on the GPU as far as its share goes.
class Blocks : public FakeResidency {
 public:
  uint64_t SetShare(uint64_t bytes) override {
    share = std::max(bytes, least_kept);
    return share;
  }
  ShareNeed GetShareNeed() const override {
    ShareNeed need;
    need.least_bytes = largest_launch;
    need.most_bytes = most;
    const uint64_t all = live;
    need.wanted_bytes = away || paused ? 0 : all;
    need.away_bytes = away ? all : 0;
    need.paused_bytes = away || paused ? all : 0;
    need.taken_bytes = away || paused ? pinned : std::min(all, share.load());
    need.wanted_bytes += fresh;
    need.taken_bytes += fresh;
    need.launches = launches_done;
    need.serving = serving;
    return need;
  }
  bool Quiet() override { return quiet; }
  absl::Status Pause(const PauseScope& scope, PauseStats*) override {
    if (!pause_status.ok()) return pause_status;
    EXPECT_EQ(scope.by, PausedBy::kIdle);
    away = true;
    if (inside_pause) inside_pause();
    return absl::OkStatus();
  }
  absl::Status Resume(const PauseScope& scope, bool) override {
    EXPECT_EQ(scope.by, PausedBy::kIdle);
    away = false;
    return absl::OkStatus();
  }

  std::atomic<uint64_t> live{0}, share{0}, launches_done{0};
  std::atomic<uint64_t> most{kDevice};
  std::atomic<uint64_t> fresh{0};  // of blocks that came while the others were away
  uint64_t largest_launch = 0, pinned = 0, least_kept = 0;
  std::atomic<bool> away{false}, paused{false}, quiet{true}, serving{true};
  absl::Status pause_status;
  std::function<void()> inside_pause;
};

class DeviceShareTest : public ::testing::Test {
 protected:
  struct Job {
    Blocks blocks;
    std::unique_ptr<DeviceShare> share;
    std::atomic<int> left{0}, back{0};  // times that the job gave its share up, and had it again
  };

  DeviceShareTest() {
    char name[] = "/tmp/device-share-XXXXXX";
    directory_ = mkdtemp(name);
    for (Job* job : {&a_, &b_}) {
      DeviceShare::Options options;
      options.directories = {directory_};
      options.account = "test";
      options.total_bytes = kDevice;
      options.reserve_bytes = 40 * kMiB;
      options.idle = std::chrono::seconds(30);
      options.free_bytes = [this] { return free_; };
      options.waits = &waits_;
      options.clock = &clock_;
      options.on_left = [job](int64_t, const PauseStats&) { ++job->left; };
      options.on_back = [job] { ++job->back; };
      job->share = std::make_unique<DeviceShare>(std::move(options));
      job->share->Bind(&job->blocks);
    }
  }
  ~DeviceShareTest() override { rmdir(directory_.c_str()); }

  static void Need(Job* job, uint64_t bytes) {
    job->blocks.live = bytes;
    job->share->Grow(bytes);
  }
  static absl::Status Await(Job* job, uint64_t bytes) {
    return job->share->Await(bytes, [] { return std::string("a launch"); });
  }
  void Poll(int64_t seconds = 0) {
    clock_.now += seconds * kSecond;
    a_.share->Poll();
    b_.share->Poll();
  }

  std::string directory_;
  std::optional<uint64_t> free_;  // the driver does not answer, but where a test says so
  FixedClock clock_;
  os::WaitList waits_;
  Job a_, b_;
};

TEST_F(DeviceShareTest, EachTakesWhatItNeedsInSteps) {
  EXPECT_EQ(a_.share->growable_bytes(), kDevice);
  Need(&a_, 301 * kMiB);
  Need(&b_, 100 * kMiB);
  EXPECT_EQ(a_.blocks.share, 310 * kMiB);
  EXPECT_EQ(b_.blocks.share, 100 * kMiB);
  Poll();
  EXPECT_EQ(b_.share->growable_bytes(), kDevice - 410 * kMiB);
}

TEST_F(DeviceShareTest, NothingIsTakenFromWhoRuns) {
  Need(&a_, 500 * kMiB);
  Need(&b_, 500 * kMiB);
  EXPECT_EQ(a_.blocks.share, 500 * kMiB);
  EXPECT_EQ(b_.blocks.share, kDevice - 500 * kMiB);
  for (int i = 0; i < 100; ++i) {
    ++a_.blocks.launches_done;
    Poll(10);
  }
  EXPECT_EQ(b_.blocks.share, kDevice - 500 * kMiB);
  EXPECT_FALSE(a_.blocks.away);
}

TEST_F(DeviceShareTest, WhatOthersThanJobsHoldIsNotThere) {
  free_ = 240 * kMiB;
  Need(&a_, 500 * kMiB);
  EXPECT_EQ(a_.blocks.share, 200 * kMiB) << "less the reserve";
}

TEST_F(DeviceShareTest, AnIdleJobGivesUpWhatAnotherWants) {
  Need(&a_, 500 * kMiB);
  Poll(3600);
  EXPECT_FALSE(a_.blocks.away) << "nobody wants it";
  Need(&b_, 500 * kMiB);
  ++b_.blocks.launches_done;
  Poll();
  Poll();
  EXPECT_TRUE(a_.blocks.away);
  EXPECT_EQ(a_.blocks.share, 0u);
  EXPECT_FALSE(b_.blocks.away);
  Poll();
  EXPECT_EQ(b_.blocks.share, 500 * kMiB);
}

TEST_F(DeviceShareTest, WhoIsIdleHimselfWantsNothing) {
  Need(&a_, 500 * kMiB);
  Need(&b_, 500 * kMiB);
  Poll(3600);
  Poll();
  EXPECT_FALSE(a_.blocks.away || b_.blocks.away);
}

TEST_F(DeviceShareTest, WhoComesBackWithNewBlocksIsNotAwayAnyMore) {
  Need(&a_, 500 * kMiB);
  Need(&b_, 500 * kMiB);
  Poll();
  ++b_.blocks.launches_done;
  Poll(30);
  ASSERT_TRUE(a_.blocks.away);
  ++a_.blocks.launches_done;  // none of them names what is away
  Poll();
  EXPECT_EQ(a_.back, 1);
  a_.blocks.fresh = 40 * kMiB;
  a_.share->Grow(40 * kMiB);
  EXPECT_EQ(a_.blocks.share, 40 * kMiB);
  b_.blocks.live = 630 * kMiB;
  Poll();
  ++b_.blocks.launches_done;
  Poll(30);
  EXPECT_EQ(a_.left, 2) << "it gives up what it has had since";
}

TEST_F(DeviceShareTest, WhoWaitsAndCannotMakeWayIsRefused) {
  Need(&a_, 500 * kMiB);
  Need(&b_, 100 * kMiB);
  a_.blocks.pause_status = absl::ResourceExhaustedError("there is no place for it");
  std::thread launch([&] {
    const absl::Status refused = Await(&a_, 600 * kMiB);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("there is no place for it"));
  });
  ASSERT_TRUE(tests::WaitUntil([&] { return !waits_.UnderWay().empty(); }));
  b_.share->Grow(300 * kMiB);
  b_.blocks.live = 300 * kMiB;
  Poll();
  ++b_.blocks.launches_done;
  Poll(30);
  launch.join();
}

TEST_F(DeviceShareTest, NotBeforeItsTimeNotWhileAKernelRunsAndNotInACapture) {
  Need(&a_, 500 * kMiB);
  Need(&b_, 500 * kMiB);
  Poll(29);
  ++b_.blocks.launches_done;
  Poll();
  EXPECT_FALSE(a_.blocks.away);
  a_.blocks.quiet = false;
  ++b_.blocks.launches_done;
  Poll(1);
  EXPECT_FALSE(a_.blocks.away);
  a_.blocks.quiet = true;
  a_.blocks.pause_status = absl::UnavailableError("a capture");
  Poll();
  EXPECT_FALSE(a_.blocks.away);
  a_.blocks.pause_status = absl::OkStatus();
  ++b_.blocks.launches_done;
  Poll(29);
  EXPECT_FALSE(a_.blocks.away) << "it is tried again after as long";
  Poll(1);
  EXPECT_TRUE(a_.blocks.away);
}

TEST_F(DeviceShareTest, WhatComesBackWaitsForWhoRunsUntilThatOneIsIdle) {
  a_.blocks.largest_launch = 300 * kMiB;
  Need(&a_, 500 * kMiB);
  Need(&b_, 500 * kMiB);
  Poll();
  ++b_.blocks.launches_done;
  Poll(30);  // a_ leaves
  Poll();    // b_ takes
  ASSERT_EQ(b_.blocks.share, 500 * kMiB);
  std::atomic<bool> back{false};
  std::thread launch([&] {
    EXPECT_TRUE(Await(&a_, 0).ok());
    back = true;
  });
  ASSERT_TRUE(tests::WaitUntil([&] { return !waits_.UnderWay().empty(); }));
  EXPECT_EQ(waits_.UnderWay().front().kind, os::WaitKind::kShare);
  Poll(29);
  EXPECT_FALSE(back);
  EXPECT_FALSE(b_.blocks.away);
  Poll(1);  // b_ is idle, and a_ wants
  EXPECT_TRUE(b_.blocks.away);
  launch.join();
  EXPECT_EQ(a_.left, 1);
  EXPECT_EQ(a_.back, 1);
  EXPECT_EQ(b_.left, 1);
  EXPECT_EQ(b_.back, 0);
  EXPECT_FALSE(a_.blocks.away);
  EXPECT_EQ(a_.blocks.share, 500 * kMiB);
}

TEST_F(DeviceShareTest, ALaunchDuringTheLeavingComesBackAtOnce) {
  Need(&a_, 500 * kMiB);
  Need(&b_, 500 * kMiB);
  Poll();
  a_.blocks.inside_pause = [&] { EXPECT_TRUE(Await(&a_, 0).ok()); };
  ++b_.blocks.launches_done;
  Poll(30);
  EXPECT_FALSE(a_.blocks.away);
  EXPECT_EQ(a_.left + a_.back, 0);
  EXPECT_EQ(a_.blocks.share, 500 * kMiB);
}

TEST_F(DeviceShareTest, APausedJobKeepsWhatItHolds) {
  Need(&a_, 500 * kMiB);
  a_.blocks.pinned = 35 * kMiB;
  a_.blocks.paused = true;
  a_.share->Shrink();
  EXPECT_EQ(a_.blocks.share, 36 * kMiB);
  EXPECT_EQ(a_.share->growable_bytes(), kDevice - 36 * kMiB);
  Need(&b_, 600 * kMiB);
  EXPECT_EQ(b_.blocks.share, 600 * kMiB);
  a_.blocks.paused = false;
  a_.share->Grow(500 * kMiB);
  EXPECT_EQ(a_.blocks.share, 40 * kMiB) << "what is left";
}

TEST_F(DeviceShareTest, WhatHasNoPlaceElsewhereStaysInTheShare) {
  Need(&a_, 500 * kMiB);
  a_.blocks.least_kept = 200 * kMiB;
  a_.blocks.paused = true;
  Poll();
  Need(&b_, 600 * kMiB);
  EXPECT_EQ(b_.blocks.share, 440 * kMiB);
}

TEST_F(DeviceShareTest, AJobTakesNoMoreThanItMayHave) {
  a_.blocks.most = 200 * kMiB;
  Need(&a_, 500 * kMiB);
  EXPECT_EQ(a_.blocks.share, 200 * kMiB);
  a_.blocks.live = 50 * kMiB;
  a_.blocks.most = 100 * kMiB;  // set_gpu_memory
  Poll();
  EXPECT_EQ(a_.blocks.share, 100 * kMiB);
  Need(&b_, 540 * kMiB);
  EXPECT_EQ(b_.blocks.share, 540 * kMiB);
}

TEST_F(DeviceShareTest, WhatNoJobCanMakeWayForIsRefused) {
  Need(&a_, 200 * kMiB);
  free_ = 240 * kMiB;  // 200 MiB are somebody else's
  const absl::Status refused = Await(&b_, 500 * kMiB);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      std::string(refused.message()),
      HasSubstr("500.00 MiB must be there at once, and the GPU has 400.00 MiB for all jobs that share it"));
}

TEST_F(DeviceShareTest, TwoThatWaitForEachOtherAreIdle) {
  Need(&a_, 320 * kMiB);
  Need(&b_, 320 * kMiB);
  std::atomic<int> served{0};
  std::vector<std::thread> launches;
  for (Job* job : {&a_, &b_}) {
    launches.emplace_back([&, job] {
      EXPECT_TRUE(Await(job, 500 * kMiB).ok());
      ++served;
    });
  }
  ASSERT_TRUE(tests::WaitUntil([&] { return waits_.UnderWay().size() == 2; }));
  ASSERT_TRUE(tests::WaitUntil([&] {
    Poll(30);
    return served == 2;
  }));
  for (std::thread& launch : launches) launch.join();
}

TEST_F(DeviceShareTest, AWaitEndsAtTheUsersLimitAndWithTheDevice) {
  Need(&a_, 500 * kMiB);
  os::WaitList limited(os::Clock::System(), nullptr, std::chrono::milliseconds(1));
  DeviceShare::Options options;
  options.directories = {directory_};
  options.account = "test";
  options.total_bytes = kDevice;
  options.free_bytes = [] { return std::nullopt; };
  options.waits = &limited;
  DeviceShare share(std::move(options));
  Blocks blocks;
  share.Bind(&blocks);
  const absl::Status refused = share.Await(300 * kMiB, [] { return std::string("a launch"); });
  EXPECT_EQ(refused.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("for device memory that other jobs have: a launch"));
  blocks.serving = false;
  EXPECT_TRUE(share.Await(300 * kMiB, [] { return std::string("a launch"); }).ok());
}

}  // namespace
}  // namespace spillway::integration
