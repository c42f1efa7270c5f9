// Core: the rates of its copy queues and its link, the sizes of copies, and how waits end.

#include "allocator/residency/state/core.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <vector>

#include "tests/allocator/core_fixture.h"
#include "tests/allocator/motion_helpers.h"

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

// ---- What the meter of a link says of transfers, before and after the link was measured.

constexpr auto kIn = LinkDirection::kIn;
constexpr auto kOut = LinkDirection::kOut;
constexpr uint64_t kMiB = 1 << 20;

TEST(LinkMeterTest, CountsBusyTimeOnly) {
  LinkMeter meter;
  meter.Begin(kOut, 0);
  meter.End(kOut, kMiB, 1'000'000);
  EXPECT_EQ(meter.Rate(kOut), 0) << "too little to say";
  meter.Begin(kOut, 1'000'000'000);  // nothing to do for a second
  meter.Begin(kOut, 1'000'000'000);
  meter.End(kOut, 2 * kMiB, 1'002'000'000);
  meter.End(kOut, kMiB, 1'003'000'000);
  EXPECT_NEAR(meter.Rate(kOut), 4.0 * kMiB / 0.004, 1);
  EXPECT_EQ(meter.Rate(kIn), 0);
  EXPECT_EQ(meter.RateTogether(kOut), 0) << "not measured";
  EXPECT_FALSE(meter.measured());
}

// Transfers at 10e9 alone and 6e9 beside the other direction: whatever part of the time both run, the meter
// that knows the loss says 10e9 and 6e9; the one that does not says something between.
TEST(LinkMeterTest, TheOtherDirectionIsTakenOut) {
  for (const int beside : {0, 3, 10}) {  // tenths of the time during which both run
    LinkMeter knows, blind;
    knows.SetMeasured({20e9, 20e9}, {12e9, 15e9});
    int64_t now = 0;
    for (int i = 0; i < 60; ++i) {
      const int64_t both = 1'000'000 * beside, alone = 10'000'000 - both;
      const uint64_t bytes = static_cast<uint64_t>(both * 6 + alone * 10);
      for (LinkMeter* meter : {&knows, &blind}) {
        meter->Begin(kIn, now);
        if (beside > 0) meter->Begin(kOut, now);
        if (beside > 0) meter->End(kOut, 0, now + both);
        meter->End(kIn, bytes, now + both + alone);
      }
      now += 20'000'000;
    }
    EXPECT_NEAR(knows.Rate(kIn), 10e9, 0.01e9) << beside;
    EXPECT_NEAR(knows.RateTogether(kIn), 6e9, 0.01e9) << beside;
    EXPECT_NEAR(blind.Rate(kIn), 10e9 - 0.4e9 * beside, 0.01e9) << beside;
  }
}

TEST(LinkMeterTest, BeforeAnythingMovedTheMeasurementSpeaks) {
  LinkMeter meter;
  meter.SetMeasured({25e9, 24e9}, {12e9, 23e9});
  EXPECT_DOUBLE_EQ(meter.Rate(kIn), 25e9);
  EXPECT_DOUBLE_EQ(meter.RateTogether(kIn), 12e9);
  EXPECT_DOUBLE_EQ(meter.RateTogether(kOut), 23e9);
  EXPECT_EQ(meter.OwnRate(kIn), 0);
  EXPECT_FALSE(meter.busy(kIn));
  meter.Begin(kIn, 5);
  EXPECT_TRUE(meter.busy(kIn));
}

// The thread that looks for ends does other things meanwhile: of 16 copies that took 40 ms it sees all ends at
// once.
TEST(LinkMeterTest, EndsThatAreSeenInBurstsAreNoFasterForThat) {
  LinkMeter meter;
  int64_t now = 0;
  for (int burst = 0; burst < 20; ++burst) {
    for (int i = 0; i < 16; ++i) meter.Begin(kIn, now += 1000);
    now += 40'000'000;
    for (int i = 0; i < 16; ++i) meter.End(kIn, 4 * kMiB, now += 1000);
    if (burst == 0) continue;
    EXPECT_NEAR(meter.Rate(kIn), 64.0 * kMiB / 0.04, 0.05 * 64 * kMiB / 0.04) << burst;
  }
}

TEST(LinkMeterTest, FollowsAChange) {
  LinkMeter meter;
  int64_t now = 0;
  for (int i = 0; i < 40; ++i) {
    const int64_t nanos = i < 10 ? 1'000'000 : 4'000'000;
    meter.Begin(kIn, now);
    meter.End(kIn, 16 * kMiB, now += nanos);
  }
  EXPECT_NEAR(meter.Rate(kIn), 16.0 * kMiB / 0.004, 0.01 * 16 * kMiB / 0.004);
}

// ---- The core.

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
  EXPECT_GT(stats.stall_chunk_nanos, 0u);
  EXPECT_EQ(sums.Nanos(StallCause::kChunks), stats.stall_chunk_nanos);
  EXPECT_EQ(sums.Nanos(StallCause::kArrival), stats.stall_disk_nanos);
  EXPECT_EQ(sums.Lost(StallCause::kChunks), stats.lost_chunk_nanos);
  EXPECT_EQ(sums.Lost(StallCause::kArrival) + sums.Lost(StallCause::kGpuArrival), stats.lost_read_nanos);
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
  counters.changed_copies = 32;
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
