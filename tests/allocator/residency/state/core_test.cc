// Core: the sizes of copies, how waits end, and what is reported of moves and waits.

#include "allocator/residency/state/core.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <vector>

#include "tests/allocator/core_fixture.h"
#include "tests/allocator/motion_helpers.h"

namespace spillway::allocator {
namespace {

TEST(CoreTest, ACopyIsWholePagesAndItsLastChunkMayBeShort) {
  CoreDevice device({});
  Block block;
  block.chunks = 2;
  block.allocation.requested_bytes = CoreDevice::kChunk + 1;
  EXPECT_EQ(Core::BytesOfCopy(block), CoreDevice::kChunk + 4096);
  EXPECT_EQ(device->core()->BytesOfExtent(block, 0), CoreDevice::kChunk);
  EXPECT_EQ(device->core()->BytesOfExtent(block, 1), 4096u);
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

// Sums of what is reported, as the counters have them.
class Sums : public MotionObserver {
 public:
  void OnMove(const EndedMove& move) override {
    EXPECT_GE(move.ended, move.began);
    EXPECT_GT(move.began, 0);
    EXPECT_TRUE(move.block.valid());
    bytes[static_cast<size_t>(move.kind)] += move.bytes;
  }
  void OnStall(const Stall& stall) override {
    const auto cause = static_cast<size_t>(stall.cause);
    nanos[cause] += stall.nanos;
    lost[cause] += stall.lost_nanos;
    if (stall.tag == kTag) ++with_tag;
    if (stall.block.valid()) ++with_block;
  }
  void OnReach(uint64_t, uint64_t) override {}
  uint64_t Bytes(MoveKind kind) const { return bytes[static_cast<size_t>(kind)]; }
  uint64_t Nanos(StallCause cause) const { return nanos[static_cast<size_t>(cause)]; }
  uint64_t Lost(StallCause cause) const { return lost[static_cast<size_t>(cause)]; }

  static constexpr uint64_t kTag = 77;
  std::array<std::atomic<uint64_t>, static_cast<size_t>(MoveKind::kCount)> bytes{};
  std::array<std::atomic<uint64_t>, static_cast<size_t>(StallCause::kCount)> nanos{}, lost{};
  std::atomic<int> with_tag{0}, with_block{0};
};

TEST(CoreTest, WhatMovesAndWaitsIsReportedAsItIsCounted) {
  Sums sums;
  CoreSetup setup;
  setup.motion = &sums;
  CoreDevice device(setup);
  const std::vector<CUdeviceptr> blocks = AllocateFilled(device, 14);  // half of them fit
  for (int round = 0; round < 4; ++round) {
    for (const CUdeviceptr block : blocks) {
      device.Launch(
          nullptr, {block}, [](const auto& a) { CoreDevice::Fill(a[0], 64, 1); }, Sums::kTag);
    }
    device.Synchronize();
  }
  device->Shutdown();
  const ResidencyStats stats = device->Stats();
  EXPECT_GT(stats.host_spilled_bytes, 0u);
  EXPECT_GT(stats.disk_fetched_bytes, 0u);
  EXPECT_EQ(sums.Bytes(MoveKind::kGpuToHost), stats.host_spilled_bytes);
  EXPECT_EQ(sums.Bytes(MoveKind::kGpuToDisk), stats.disk_spilled_bytes);
  EXPECT_EQ(sums.Bytes(MoveKind::kHostToGpu), stats.host_fetched_bytes);
  EXPECT_EQ(sums.Bytes(MoveKind::kDiskToGpu), stats.disk_fetched_bytes);
  EXPECT_GT(stats.stall_chunks_nanos, 0u);
  EXPECT_EQ(sums.Nanos(StallCause::kChunks), stats.stall_chunks_nanos);
  EXPECT_EQ(sums.Nanos(StallCause::kArrival), stats.stall_arrival_nanos);
  EXPECT_EQ(sums.Lost(StallCause::kChunks), stats.lost_chunks_nanos);
  EXPECT_EQ(sums.Lost(StallCause::kArrival) + sums.Lost(StallCause::kGpuArrival), stats.lost_arrival_nanos);
  EXPECT_EQ(sums.Lost(StallCause::kRunAhead), stats.lost_run_ahead_nanos);
  EXPECT_GT(sums.with_tag, 0) << "the launch that waited is named";
  EXPECT_GT(sums.with_block, 0);
}

// The fast path, and the bound on launches under way behind a GPU that has work.
TEST(CoreTest, NothingIsReportedWhereAllIsResident) {
  Sums sums;
  CoreSetup setup;
  setup.motion = &sums;
  CoreDevice device(setup);
  const std::vector<CUdeviceptr> blocks = AllocateFilled(device, 4);
  device.Synchronize();
  for (auto& nanos : sums.nanos) nanos = 0;  // a first use may wait for its chunks
  for (int round = 0; round < 100; ++round) {
    for (const CUdeviceptr block : blocks) {
      device.Launch(
          nullptr, {block}, [](const auto& a) { CoreDevice::Fill(a[0], 64, 1); }, Sums::kTag);
    }
  }
  device.Synchronize();
  for (const auto& bytes : sums.bytes) EXPECT_EQ(bytes, 0u);
  for (const auto& nanos : sums.nanos) EXPECT_EQ(nanos, 0u);
}

TEST(CountersTest, CountersKeepTheirNamesAndTiersAreAddedUp) {
  Counters counters;
  counters.host_spilled_bytes = 1;
  counters.disk_spilled_bytes = 2;
  counters.host_fetched_bytes = 4;
  counters.disk_fetched_bytes = 8;
  counters.clean_drops = 16;
  counters.hash_mismatches = 32;
  counters.lost_run_ahead_nanos = 64;
  ResidencyStats stats;
  stats.live_bytes = 5;
  AddCounters(counters, &stats);
  EXPECT_EQ(stats.spilled_bytes, 3u);
  EXPECT_EQ(stats.fetched_bytes, 12u);
  EXPECT_EQ(stats.clean_drops, 16u);
  EXPECT_EQ(stats.hash_mismatches, 32u);
  EXPECT_EQ(stats.lost_run_ahead_nanos, 64u);
  EXPECT_EQ(stats.live_bytes, 5u) << "not a counter: as it was";
}

}  // namespace
}  // namespace spillway::allocator
