// ReadSections: which threads are waited for, and that threads give their sections back.

#include "allocator/residency/state/read_side_sections.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>

#include "tests/fakes/wait_until.h"

namespace spillway::allocator {
namespace {

TEST(ReadSectionsTest, WaitsForThoseInsideAlone) {
  ReadSections gates;
  os::WaitList waits;
  gates.WaitForAll(&waits);
  std::latch entered(1);
  std::atomic<bool> left{false}, returned{false};
  const auto waited_for = [&] {
    return waits.Metrics()[static_cast<size_t>(os::WaitKind::kReadSections)].now > 0;
  };
  std::thread inside([&] {
    ReadSections::Section* const section = ReadSections::ForThisThread();
    section->Enter(gates.fence());
    entered.count_down();
    EXPECT_TRUE(tests::WaitUntil([&] { return returned || waited_for(); }));
    left = true;
    section->Leave();
  });
  entered.wait();
  gates.WaitForAll(&waits);
  EXPECT_TRUE(left.load());
  returned = true;
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
