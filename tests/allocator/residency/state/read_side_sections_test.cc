// ReadSections: which threads are waited for, and that threads give their sections back.

#include "allocator/residency/state/read_side_sections.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace spillway::allocator {
namespace {

TEST(ReadSectionsTest, WaitsForThoseInsideAlone) {
  ReadSections gates;
  os::WaitList waits;
  gates.WaitForAll(&waits);
  std::atomic<int> step{0};
  std::thread inside([&] {
    ReadSections::Section* const section = ReadSections::ForThisThread();
    section->Enter(gates.fence());
    step.store(1);
    usleep(20'000);
    step.store(2);
    section->Leave();
  });
  while (step.load() == 0) usleep(100);
  gates.WaitForAll(&waits);
  EXPECT_EQ(step.load(), 2);
  inside.join();
  gates.WaitForAll(&waits);
}

TEST(ReadSectionsTest, AThreadThatEndsGivesItsSectionBack) {
  for (int i = 0; i < 2 * ReadSections::kSections; ++i) {
    ReadSections::Section* section = nullptr;
    std::thread([&] { section = ReadSections::ForThisThread(); }).join();
    ASSERT_NE(section, nullptr);
  }
}

}  // namespace
}  // namespace spillway::allocator
