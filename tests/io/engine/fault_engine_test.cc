// Drives that fail by a schedule: what their requests get, and when they are well again.

#include "io/engine/fault_engine.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <utility>

#include "io/engine/aligned_buffer.h"
#include "io/os/clock.h"
#include "tests/fakes/memory_engine.h"

namespace spillway::io {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

class SetClock : public os::Clock {
 public:
  int64_t NowNanos() const override { return now_.load(); }
  void Set(int64_t now) { now_ = now; }

 private:
  std::atomic<int64_t> now_{kSecond};
};

class FaultEngineTest : public ::testing::Test {
 protected:
  void Make(std::vector<DriveFault> faults, size_t directory = 0) {
    engine_ = MakeFaultEngine(MakeMemoryEngine({}), faults, directory, &clock_);
  }
  void Submit(IoOp op) {
    const IoRequest request{.op = op, .length = kPageBytes, .buffer = page_.data(), .tag = ++tag_};
    engine_->Submit({&request, 1});
  }
  // The one result; 0 when there is none.
  int32_t Result() {
    std::array<IoResult, 4> results;
    const size_t count = engine_->Poll(results, std::chrono::milliseconds(20));
    EXPECT_LE(count, 1u);
    return count == 0 ? 0 : results[0].result;
  }
  int32_t Ask(IoOp op) {
    Submit(op);
    return Result();
  }

  SetClock clock_;
  AlignedBuffer page_{kPageBytes};
  uint64_t tag_ = 0;
  std::unique_ptr<IoEngine> engine_;
};

TEST_F(FaultEngineTest, AnErrorLastsForItsTimeAfterTheFirstRequest) {
  Make({{.reads = true, .error = EIO, .from_nanos = 3 * kSecond, .for_nanos = kSecond}});
  constexpr int32_t kWell = kPageBytes;
  EXPECT_EQ(Ask(IoOp::kWrite), kWell);
  EXPECT_EQ(Ask(IoOp::kRead), kWell);
  clock_.Set(kSecond + 3 * kSecond - 1);
  EXPECT_EQ(Ask(IoOp::kRead), kWell);
  clock_.Set(kSecond + 3 * kSecond);
  EXPECT_EQ(Ask(IoOp::kRead), -EIO);
  EXPECT_EQ(Ask(IoOp::kWrite), kWell);
  clock_.Set(kSecond + 4 * kSecond);
  EXPECT_EQ(Ask(IoOp::kRead), kWell);
}

TEST_F(FaultEngineTest, SilenceHoldsRequestsUntilTheDriveIsBack) {
  Make({{.reads = true, .writes = true, .for_nanos = kSecond}});
  EXPECT_EQ(Ask(IoOp::kWrite), 0);
  EXPECT_EQ(Result(), 0);
  clock_.Set(2 * kSecond);
  EXPECT_EQ(Result(), static_cast<int32_t>(kPageBytes));
}

TEST_F(FaultEngineTest, OtherDirectoriesAreAsTheyAre) {
  const std::vector<DriveFault> faults = {
      {.directory = 1, .writes = true, .error = ENOSPC, .for_nanos = kSecond}};
  auto inner = MakeMemoryEngine({});
  const IoEngine* const same = inner.get();
  EXPECT_EQ(MakeFaultEngine(std::move(inner), faults, 0).get(), same);
  Make(faults, 1);
  EXPECT_EQ(Ask(IoOp::kWrite), -ENOSPC);
}

TEST(DescribeFaultsTest, SaysEachInWords) {
  EXPECT_EQ(
      DescribeFaults({{.reads = true, .error = EIO, .from_nanos = 3 * kSecond, .for_nanos = 30'000'000},
                      {.directory = 1, .reads = true, .writes = true, .for_nanos = kSecond}}),
      "reads of each directory get EIO from 3000 ms on for 30 ms; all requests of directory 1 get no answer "
      "from 0 ms on for 1000 ms");
}

}  // namespace
}  // namespace spillway::io
