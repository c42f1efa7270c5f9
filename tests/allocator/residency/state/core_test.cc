// Core: the rates of its copy queues, the sizes of copies, and how waits end.

#include "allocator/residency/state/core.h"

#include <gtest/gtest.h>

#include "tests/allocator/core_fixture.h"

namespace spillway::allocator {
namespace {

TEST(CopyQueueMeterTest, CountsBusyTimeOnly) {
  CopyQueueMeter meter;
  meter.Begin(0);
  meter.End(1 << 20, 1'000'000);
  EXPECT_EQ(meter.rate(), 0) << "too little to say";
  meter.Begin(1'000'000'000);  // nothing to do for a second
  meter.Begin(1'000'000'000);
  meter.End(2 << 20, 1'002'000'000);
  meter.End(1 << 20, 1'003'000'000);
  EXPECT_NEAR(meter.rate(), 4.0 * (1 << 20) / 0.004, 1);
}

TEST(CopyQueueMeterTest, FollowsAChange) {
  CopyQueueMeter meter;
  int64_t now = 0;
  for (int i = 0; i < 40; ++i) {
    const int64_t nanos = i < 10 ? 1'000'000 : 4'000'000;
    meter.Begin(now);
    meter.End(16 << 20, now += nanos);
  }
  EXPECT_NEAR(meter.rate(), 16.0 * (1 << 20) / 0.004, 0.01 * 16 * (1 << 20) / 0.004);
}

TEST(CoreTest, ACopyIsWholePagesAndItsLastChunkMayBeShort) {
  CoreDevice device({});
  Block block;
  block.chunks = 2;
  block.allocation.requested_bytes = CoreDevice::kChunk + 1;
  EXPECT_EQ(Core::BytesOfCopy(block), CoreDevice::kChunk + 4096);
  EXPECT_EQ(device->core()->BytesOfChunk(block, 0), CoreDevice::kChunk);
  EXPECT_EQ(device->core()->BytesOfChunk(block, 1), 4096u);
}

TEST(CoreTest, AfterTheEndNobodyIsServedAndEveryWaitEnds) {
  CoreDevice device({});
  Core* const core = device->core();
  EXPECT_TRUE(core->Serving().ok());
  device->Shutdown();
  EXPECT_EQ(core->Serving().code(), absl::StatusCode::kFailedPrecondition);
  const os::Wait wait(core->waits, os::WaitKind::kChunks, "a test");
  TableLock lock(core->table);
  EXPECT_TRUE(absl::IsCancelled(core->AwaitChangeLocked(&lock, wait)));
}

}  // namespace
}  // namespace spillway::allocator
