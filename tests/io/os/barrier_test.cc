#include "io/os/barrier.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace spillway::os {
namespace {

// Two threads store and then look at the other's store, one behind the light and one behind the heavy
// barrier: at least one of them sees the other.
TEST(BarrierTest, OneOfBothSidesSeesTheOther) {
  if (!RegisterAsymmetricBarrier()) GTEST_SKIP() << "this kernel has no membarrier";
  constexpr int kRounds = 2000;
  for (int round = 0; round < kRounds; ++round) {
    std::atomic<int> light{0}, heavy{0}, at_start{0};
    bool light_saw = false;
    bool heavy_saw = false;
    const auto start = [&at_start] {
      ++at_start;
      for (int spins = 0; at_start.load() < 2; ++spins) SpinPause(spins);
    };
    std::thread other([&] {
      start();
      light.store(1, std::memory_order_relaxed);
      LightBarrier();
      light_saw = heavy.load(std::memory_order_relaxed) == 1;
    });
    start();
    heavy.store(1, std::memory_order_relaxed);
    while (!HeavyBarrier()) {
    }
    heavy_saw = light.load(std::memory_order_relaxed) == 1;
    other.join();
    ASSERT_TRUE(light_saw || heavy_saw) << "round " << round;
  }
}

TEST(BarrierTest, ALongSpinSleeps) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 50; ++i) SpinPause(1'000'000);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::microseconds(50 * 20));
}

}  // namespace
}  // namespace spillway::os
