// The gate's slots: who waits for whom, and that threads give them back.

#include "allocator/residency/state/read_side_sections.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace spillway::allocator {
namespace {

TEST(GateSlotsTest, WaitsForThoseInsideAndNoOthers) {
  GateSlots gates;
  os::WaitList waits;
  gates.WaitForAll(&waits);
  std::atomic<int> step{0};
  std::thread inside([&] {
    GateSlots::Slot* const slot = GateSlots::ForThisThread();
    slot->Enter(gates.fence());
    step.store(1);
    usleep(20'000);
    step.store(2);
    slot->Leave();
  });
  while (step.load() == 0) usleep(100);
  gates.WaitForAll(&waits);
  EXPECT_EQ(step.load(), 2);
  inside.join();
  gates.WaitForAll(&waits);
}

TEST(GateSlotsTest, AThreadThatEndsGivesItsSlotBack) {
  for (int i = 0; i < 2 * GateSlots::kSlots; ++i) {
    GateSlots::Slot* slot = nullptr;
    std::thread([&] { slot = GateSlots::ForThisThread(); }).join();
    ASSERT_NE(slot, nullptr);
  }
}

}  // namespace
}  // namespace spillway::allocator
