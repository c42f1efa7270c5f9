#include "allocator/residency/state/standstill.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/allocator/core_fixture.h"
#include "tests/fakes/wait_until.h"

namespace spillway::allocator {
namespace {

class StandstillTest : public testing::Test {
 protected:
  StandstillTest() : device_(WithHostMemory()) {}
  static CoreSetup WithHostMemory() {
    CoreSetup setup;
    setup.host_bytes = 1 << 20;
    return setup;
  }

  CoreDevice device_;
  os::Atomic<bool> stopped_{false};
  os::WaitList waits_;
};

TEST_F(StandstillTest, ALaunchWaitsUntilTheLastHasLeft) {
  Standstill standstill(true, &device_->core()->clock, &stopped_, &waits_);
  bool one = false, two = false;
  EXPECT_TRUE(standstill.Join(&one));
  EXPECT_TRUE(standstill.Join(&two));
  EXPECT_TRUE(standstill.Join(&two));  // asked again: joined once
  std::atomic<bool> inside{false};
  std::thread launch([&] {
    const Standstill::Section section(&standstill);
    inside = true;
  });
  EXPECT_TRUE(tests::WaitUntil(
      [&] { return waits_.Metrics()[static_cast<size_t>(os::WaitKind::kArrival)].now > 0; }));
  standstill.Leave(&one);
  standstill.Leave(&one);  // has left already
  EXPECT_FALSE(inside.load());
  standstill.Leave(&two);
  launch.join();
  EXPECT_TRUE(inside.load());
}

TEST_F(StandstillTest, ItBeginsWhenNoLaunchIsBeingMade) {
  Standstill standstill(true, &device_->core()->clock, &stopped_, &waits_);
  bool joined = false;
  {
    Standstill::Section section(&standstill);
    EXPECT_FALSE(standstill.Join(&joined));
    section.Leave();
    EXPECT_TRUE(standstill.Join(&joined));
  }
  standstill.Leave(&joined);
}

TEST_F(StandstillTest, ItBeginsWhenTheGpuIsDone) {
  const CUdeviceptr block = device_.MustAllocate(1 << 20);
  std::atomic<bool> ends{false};
  EXPECT_EQ(device_.Launch(nullptr, {block},
                           [&](const auto&) {
                             while (!ends.load()) std::this_thread::yield();
                           }),
            CUDA_SUCCESS);
  Standstill standstill(true, &device_->core()->clock, &stopped_, &waits_);
  bool joined = false;
  EXPECT_FALSE(standstill.Join(&joined));
  ends = true;
  EXPECT_TRUE(tests::WaitUntil([&] { return standstill.Join(&joined); }));
  standstill.Leave(&joined);
}

TEST_F(StandstillTest, ALaunchGoesOnWhenTheDeviceStops) {
  Standstill standstill(true, &device_->core()->clock, &stopped_, &waits_);
  bool joined = false;
  EXPECT_TRUE(standstill.Join(&joined));
  std::thread launch([&] { const Standstill::Section section(&standstill); });
  stopped_.store(true);
  standstill.EndWaits();
  launch.join();
}

TEST_F(StandstillTest, ThereIsNoneWhereThatIsOff) {
  Standstill standstill(false, &device_->core()->clock, &stopped_, &waits_);
  bool joined = false;
  standstill.Leave(&joined);
  const Standstill::Section section(&standstill);
  EXPECT_FALSE(standstill.on());
}

}  // namespace
}  // namespace spillway::allocator
