#include "allocator/residency/pauser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/allocator/copy_helpers.h"
#include "tests/allocator/residency/pause_helpers.h"
#include "tests/fakes/faulty_engine.h"
#include "tests/fakes/gate.h"

namespace spillway::allocator {
namespace {

using ::testing::HasSubstr;

TEST(PauserTest, EverythingLeavesAndComesBackAtItsAddress) {
  CoreDevice device(WithHost());
  const std::vector<CUdeviceptr> blocks = AllocateFilled(device, 6);
  const PauseStats stats = Pause(device);
  EXPECT_EQ(stats.host_bytes, 6 * kBlock);
  EXPECT_EQ(stats.released_bytes, 6 * kBlock);
  EXPECT_EQ(stats.remaining_bytes, 0u);
  EXPECT_GT(stats.nanos, 0);
  EXPECT_EQ(device->Stats().chunk_bytes, 0u) << "the driver has it all";
  EXPECT_EQ(device->Stats().live_bytes, 6 * kBlock);
  Resume(device, kAll, /*wait=*/true);
  for (const CUdeviceptr block : blocks) EXPECT_EQ(StateOf(device, block), BlockState::kResident);
  ExpectContents(device, blocks);
}

TEST(PauserTest, ALaunchThatNamesAPausedBlockIsRefusedInWords) {
  CoreDevice device(WithHost());
  const std::vector<CUdeviceptr> blocks = AllocateFilled(device, 2);
  Pause(device);
  EXPECT_EQ(FillOne(device, blocks[0], 9), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_THAT(device->LastError(),
              HasSubstr("names memory that spillway.pause() has paused. To do: call spillway.resume()"));
  char byte = 0;
  EXPECT_EQ(device.CopyOut(nullptr, &byte, blocks[1], 1), CUDA_ERROR_ILLEGAL_STATE);
  Resume(device);
  ExpectContents(device, blocks);
}

TEST(PauserTest, ABlockThatComesAfterwardsIsNotPaused) {
  CoreDevice device(WithHost());
  AllocateFilled(device, 7);
  Pause(device);
  const std::vector<CUdeviceptr> others = AllocateFilled(device, 7);
  ExpectContents(device, others);
  EXPECT_EQ(device->Stats().resident_bytes, 7 * kBlock);
}

TEST(PauserTest, TheBlocksOfOneRegionLeaveAlone) {
  CoreDevice device(WithHost());
  const CUdeviceptr weights = FilledIn(device, {1, true}, 1);
  const CUdeviceptr cache = FilledIn(device, {2, true}, 2);
  const PauseStats stats = Pause(device, {PausedBy::kJob, 2});
  EXPECT_EQ(stats.host_bytes, kBlock);
  EXPECT_EQ(StateOf(device, cache), BlockState::kSpilled);
  EXPECT_EQ(Wrong(device, weights, 1), 0u);
  Pause(device, {PausedBy::kJob, 1});
  Resume(device, {PausedBy::kJob, 2});
  EXPECT_EQ(Wrong(device, cache, 2), 0u);
  EXPECT_EQ(FillOne(device, weights, 3), CUDA_ERROR_ILLEGAL_STATE);
  Resume(device, {PausedBy::kJob, 1});
  EXPECT_EQ(Wrong(device, weights, 1), 0u);
}

TEST(PauserTest, ARegionMayDropItsBytes) {
  CoreSetup setup = WithHost(0);
  setup.disk = false;
  CoreDevice device(setup);
  const CUdeviceptr cache = FilledIn(device, {1, false}, 1);
  const PauseStats stats = Pause(device);
  EXPECT_EQ(stats.dropped_bytes, kBlock);
  EXPECT_EQ(stats.host_bytes + stats.disk_bytes, 0u);
  EXPECT_EQ(StateOf(device, cache), BlockState::kEmpty);
  EXPECT_EQ(FillOne(device, cache, 2), CUDA_ERROR_ILLEGAL_STATE);
  Resume(device);
  EXPECT_EQ(FillOne(device, cache, 2), CUDA_SUCCESS);
  EXPECT_EQ(Wrong(device, cache, 2), 0u);
}

TEST(PauserTest, DroppedBytesThatAreAwayAlreadyGiveTheirPlaceUp) {
  CoreDevice device(WithHost());
  const CUdeviceptr cache = FilledIn(device, {1, false}, 1);
  StartEviction(device, cache);
  WaitForState(device, cache, BlockState::kSpilled);
  Pause(device);
  EXPECT_EQ(StateOf(device, cache), BlockState::kEmpty);
  EXPECT_EQ(device.host().storage_in_use(), 0u);
  Resume(device);
  EXPECT_EQ(FillOne(device, cache, 2), CUDA_SUCCESS);
  EXPECT_EQ(Wrong(device, cache, 2), 0u);
}

// The fetch is taken back when the pause begins, and the bytes are off the GPU again.
TEST(PauserTest, DroppedBytesThatAreOnTheirWayBackGiveTheirPlaceUp) {
  CoreSetup setup = WithHost(0);
  setup.wrap_engine = [](std::unique_ptr<io::IoEngine> engine, size_t) -> std::unique_ptr<io::IoEngine> {
    io::FaultPlan slow;
    slow.faults.push_back({.kind = io::FaultKind::kDelay,
                           .op = io::IoOp::kRead,
                           .count = 1'000'000,
                           .delay = std::chrono::milliseconds(50)});
    return io::MakeFaultyEngine(std::move(engine), slow);
  };
  CoreDevice device(setup);
  const CUdeviceptr cache = FilledIn(device, {1, false}, 1);
  Evict(device, cache);
  StartPrefetch(device, cache);
  AwaitPolls(device, 1);  // the device's thread has it
  const PauseStats stats = Pause(device);
  EXPECT_EQ(stats.dropped_bytes, kBlock);
  EXPECT_EQ(stats.host_bytes + stats.disk_bytes, 0u);
  EXPECT_EQ(StateOf(device, cache), BlockState::kEmpty);
  EXPECT_EQ(device.disk()->stats().slots_in_use, 0u);
}

TEST(PauserTest, WhatHasNotChangedIsNotCopiedAgain) {
  FixedHashCode code;
  CoreSetup setup = WithHost();
  setup.hash_code = &code;
  CoreDevice device(setup);
  AwaitHash(device);
  const std::vector<CUdeviceptr> blocks = AllocateFilled(device, 6);
  EXPECT_EQ(Pause(device).host_bytes, 6 * kBlock);
  Resume(device, kAll, /*wait=*/true);
  ExpectContents(device, blocks);  // launches that only read
  ASSERT_EQ(FillOne(device, blocks[0], 1), CUDA_SUCCESS);
  ASSERT_EQ(FillOne(device, blocks[1], 7), CUDA_SUCCESS);
  const PauseStats again = Pause(device);
  EXPECT_EQ(again.clean_bytes, 5 * kBlock);
  EXPECT_EQ(again.host_bytes, kBlock) << "what was written with other words";
  Resume(device);
  EXPECT_EQ(Wrong(device, blocks[1], 7), 0u);
}

TEST(PauserTest, ABlockThatIsPinnedStays) {
  CoreDevice device(WithHost());
  const std::vector<CUdeviceptr> blocks = AllocateFilled(device, 3);
  device.Synchronize();
  AccessSet set;
  set.Add(device.addresses().Find(blocks[1]));
  std::vector<PinnedBlock> pinned;
  ASSERT_TRUE(device->Pin(set, PinReason::kGraph, &pinned).ok());
  const PauseStats stats = Pause(device);
  EXPECT_EQ(stats.pinned_bytes, kBlock);
  EXPECT_EQ(stats.host_bytes, 2 * kBlock);
  EXPECT_EQ(stats.remaining_bytes, kBlock);
  EXPECT_EQ(FillOne(device, blocks[1], 9), CUDA_ERROR_ILLEGAL_STATE) << "paused all the same";
  device->Unpin(pinned, PinReason::kGraph, {});
  Resume(device);
  ExpectContents(device, blocks);
}

// What pins it may use its bytes in the pause and afterwards.
TEST(PauserTest, WhatIsPinnedIsNotDropped) {
  CoreDevice device(WithHost());
  const CUdeviceptr cache = FilledIn(device, {1, false}, 1);
  AccessSet set;
  set.Add(device.addresses().Find(cache));
  std::vector<PinnedBlock> pinned;
  ASSERT_TRUE(device->Pin(set, PinReason::kGraph, &pinned).ok());
  EXPECT_EQ(Pause(device).pinned_bytes, kBlock);
  Resume(device);
  device->Unpin(pinned, PinReason::kGraph, {});
  Evict(device, cache);
  EXPECT_EQ(Wrong(device, cache, 1), 0u);
}

TEST(PauserTest, NothingIsPausedWhereItHasNoPlace) {
  CoreSetup setup = WithHost(1 << 20);
  setup.disk = false;
  CoreDevice device(setup);
  const std::vector<CUdeviceptr> blocks = AllocateFilled(device, 6);
  PauseStats stats;
  const absl::Status status = device->Pause(kAll, &stats);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("host memory and disk have no place for"));
  ExpectContents(device, blocks);
}

TEST(PauserTest, NothingIsPausedWhereItHasAPlaceInPart) {
  CoreSetup setup = WithHost(4 * kBlock);
  setup.disk = false;
  CoreDevice device(setup);
  const std::vector<CUdeviceptr> blocks = AllocateFilled(device, 6);
  PauseStats stats;
  EXPECT_THAT(std::string(device->Pause(kAll, &stats).message()),
              HasSubstr("have no place for 1.00 MiB of the 3.00 MiB that are to be paused"));
  ExpectContents(device, blocks);
}

TEST(PauserTest, NothingIsPausedWhereNothingMayLeave) {
  CoreDevice device(WithHost());
  const std::vector<CUdeviceptr> blocks = AllocateFilled(device, 1);
  ASSERT_TRUE(device->StopEvicting().ok());
  PauseStats stats;
  EXPECT_TRUE(absl::IsFailedPrecondition(device->Pause(kAll, &stats)));
  ExpectContents(device, blocks);
}

TEST(PauserTest, NothingIsPausedDuringACapture) {
  CoreDevice device(WithHost());
  const std::vector<CUdeviceptr> blocks = AllocateFilled(device, 1);
  device->OnCaptureBegin(nullptr);
  PauseStats stats;
  EXPECT_THAT(std::string(device->Pause(kAll, &stats).message()), HasSubstr("while a stream is captured"));
  device->OnCaptureEnd(nullptr);
  ExpectContents(device, blocks);
}

TEST(PauserTest, WhatCannotBeCopiedStaysAndIsReported) {
  CoreSetup setup = WithHost(0);
  setup.wrap_engine = [](std::unique_ptr<io::IoEngine> engine, size_t) -> std::unique_ptr<io::IoEngine> {
    io::FaultPlan plan;
    plan.faults.push_back(
        {.kind = io::FaultKind::kErrno, .op = io::IoOp::kWrite, .count = 1'000'000, .error = ENOSPC});
    return io::MakeFaultyEngine(std::move(engine), plan);
  };
  CoreDevice device(setup);
  const std::vector<CUdeviceptr> blocks = AllocateFilled(device, 2);
  const PauseStats stats = Pause(device);
  EXPECT_EQ(stats.failed_bytes, 2 * kBlock);
  EXPECT_EQ(stats.remaining_bytes, 2 * kBlock);
  EXPECT_FALSE(stats.failure.empty());
  Resume(device);
  ExpectContents(device, blocks);
}

TEST(PauserTest, PausedBytesInHostMemoryCanBeRead) {
  CoreDevice device(WithHost());
  const CUdeviceptr block = FilledIn(device, {}, 5);
  std::vector<std::byte> bytes(kBlock);
  EXPECT_TRUE(absl::IsNotFound(device->ReadPaused(block, bytes.data(), kBlock))) << "it is not paused";
  Pause(device);
  ASSERT_TRUE(device->ReadPaused(block, bytes.data(), kBlock).ok());
  EXPECT_TRUE(absl::IsNotFound(device->ReadPaused(block + kChunk, bytes.data(), kChunk)));
  EXPECT_TRUE(absl::IsNotFound(device->ReadPaused(block, bytes.data(), kBlock + 1)));
  Resume(device, kAll, /*wait=*/true);
  std::vector<std::byte> on_gpu(kBlock);
  ASSERT_EQ(device.CopyOut(nullptr, on_gpu.data(), block, kBlock), CUDA_SUCCESS);
  device.Synchronize();
  EXPECT_EQ(bytes, on_gpu);
}

TEST(PauserTest, PausedBytesOnTheDiskAreNotReadSo) {
  CoreDevice device(WithHost(0));
  const CUdeviceptr block = FilledIn(device, {}, 5);
  Pause(device);
  std::byte byte;
  EXPECT_TRUE(absl::IsNotFound(device->ReadPaused(block, &byte, 1)));
}

TEST(PauserTest, AFreedBlockNeedsNoResume) {
  CoreDevice device(WithHost());
  const std::vector<CUdeviceptr> blocks = AllocateFilled(device, 2);
  Pause(device);
  ASSERT_TRUE(device->Free(blocks[0]).ok());
  const CUdeviceptr next = device.MustAllocate(kBlock);
  EXPECT_EQ(next, blocks[0]);
  EXPECT_EQ(FillOne(device, next, 5), CUDA_SUCCESS);
  EXPECT_EQ(Wrong(device, next, 5), 0u);
  device->CheckInvariants();
}

TEST(PauserTest, ALaunchThatWasOnItsWayEndsFirst) {
  CoreDevice device(WithHost());
  const std::vector<CUdeviceptr> blocks = AllocateFilled(device, 2);
  device.Synchronize();
  StopAt stop("launch.inside_section");
  std::thread launch = Launching(device, blocks[0], 8, CUDA_SUCCESS);
  stop.WaitUntilReached();
  PauseStats stats;
  std::thread pause([&] { EXPECT_TRUE(device->Pause(kAll, &stats).ok()); });
  ASSERT_TRUE(tests::WaitUntil([&] {
    const TableLock lock(device->core()->table);
    return BlockAt(device, blocks[0])->paused();
  }));
  stop.Release();
  launch.join();
  pause.join();
  EXPECT_EQ(stats.host_bytes, 2 * kBlock);
  Resume(device);
  EXPECT_EQ(Wrong(device, blocks[0], 8), 0u);
}

// The GPU still uses the block when the pause begins. It is freed before it can leave, and its memory is handed
// out again.
TEST(PauserTest, WhatIsFreedAndHandedOutMeanwhileLeavesTooIfThePauseIsFromOutside) {
  CoreDevice device(WithHost());
  const CUdeviceptr block = FilledIn(device, {}, 1);
  const tests::Gate work;
  ASSERT_EQ(device.Launch(nullptr, {block}, [wait = work.Wait()](const auto&) { wait(); }), CUDA_SUCCESS);
  PauseStats stats;
  std::thread pause([&] { EXPECT_TRUE(device->Pause(kFromOutside, &stats).ok()); });
  EXPECT_TRUE(tests::WaitUntil([&] {
    const TableLock lock(device->core()->table);
    return BlockAt(device, block)->paused();
  }));
  EXPECT_TRUE(device->Free(block).ok());
  EXPECT_EQ(device.MustAllocate(kBlock), block);
  work.Open();
  pause.join();
  EXPECT_EQ(stats.remaining_bytes, 0u);
  Resume(device, kFromOutside);
  EXPECT_EQ(FillOne(device, block, 2), CUDA_SUCCESS);
  EXPECT_EQ(Wrong(device, block, 2), 0u);
}

// The bytes of the dropped block were wanted by a launch that had passed its gate: it runs, and then they go.
TEST(PauserTest, ADroppedBlockIsDroppedAfterTheLaunchThatHadPassedItsGate) {
  CoreDevice device(WithHost());
  const CUdeviceptr cache = FilledIn(device, {1, false}, 1);
  StopAt stop("launch.inside_section");
  std::thread launch = Launching(device, cache, 8, CUDA_SUCCESS);
  stop.WaitUntilReached();
  PauseStats stats;
  std::thread pause([&] { EXPECT_TRUE(device->Pause(kAll, &stats).ok()); });
  ASSERT_TRUE(tests::WaitUntil([&] {
    const TableLock lock(device->core()->table);
    return BlockAt(device, cache)->paused();
  }));
  stop.Release();
  launch.join();
  pause.join();
  EXPECT_EQ(stats.dropped_bytes, kBlock);
  EXPECT_EQ(stats.host_bytes, 0u);
}

// A launch waits behind another one, and its block is paused meanwhile.
TEST(PauserTest, ALaunchThatWaitsInTheQueueLooksAgain) {
  CoreDevice device(WithHost());
  const CUdeviceptr first = FilledIn(device, {}, 1);
  const CUdeviceptr second = FilledIn(device, {1, true}, 2);
  Pause(device);
  Resume(device, kAll);
  ASSERT_TRUE(tests::WaitUntil([&] { return StateOf(device, second) == BlockState::kResident; }));
  Pause(device);
  const std::vector<CUdeviceptr> others = AllocateFilled(device, 7);
  device.Synchronize();
  PauseStreams(true);
  for (const CUdeviceptr block : others) ASSERT_EQ(FillOne(device, block, 3), CUDA_SUCCESS);  // in use by now
  {
    const TableLock lock(device->core()->table);  // nothing comes back before it is named
    device->core()->table.ResumeLocked(lock, BlockAt(device, first), PausedBy::kJob);
    device->core()->table.ResumeLocked(lock, BlockAt(device, second), PausedBy::kJob);
  }
  std::thread granted = Launching(device, first, 8, CUDA_SUCCESS);
  AwaitClaim(device);
  std::thread refused = Launching(device, second, 9, CUDA_ERROR_ILLEGAL_STATE);
  ASSERT_TRUE(tests::WaitUntil([&] { return Waiting(device, os::WaitKind::kChunks) == 2; }));
  Pause(device, {PausedBy::kJob, 1});
  PauseStreams(false);
  granted.join();
  refused.join();
  EXPECT_EQ(Wrong(device, first, 8), 0u);
  Resume(device);
  EXPECT_EQ(Wrong(device, second, 2), 0u);
}

// What is handed out during a pause has to fit beside what comes back: after the resume each launch gets its
// blocks in.
TEST(PauserTest, WhatIsAllocatedMeanwhileIsChargedAsAfterTheResume) {
  CoreSetup setup = WithHost(6 * kBlock);
  setup.disk = false;
  setup.budget_bytes -= kBlock / 4;  // what is lent does not make it 8 blocks
  CoreDevice device(setup);
  const std::vector<CUdeviceptr> blocks = AllocateFilled(device, 6);
  Pause(device);
  std::vector<CUdeviceptr> others;
  for (;;) {
    const absl::StatusOr<CUdeviceptr> block = device->Allocate(kBlock, {});
    if (!block.ok()) break;
    others.push_back(*block);
    ASSERT_EQ(FillOne(device, *block, others.size()), CUDA_SUCCESS);
  }
  EXPECT_GE(others.size(), 5u) << "13 blocks have a place, and two are exchanged";
  Resume(device);
  for (int round = 0; round < 2; ++round) {
    ExpectContents(device, blocks);
    ExpectContents(device, others);
  }
}

// Others have the GPU's memory by now: what fits comes back, and the rest when launches name it.
TEST(PauserTest, ResumedBlocksComeBackAsFarAsThereIsSpace) {
  CoreDevice device(WithHost());
  const std::vector<CUdeviceptr> blocks = AllocateFilled(device, 6);
  Pause(device);
  const std::vector<CUdeviceptr> others = AllocateFilled(device, 4);
  device.Synchronize();
  Resume(device, kAll, /*wait=*/true);
  EXPECT_EQ(StateOf(device, blocks[0]), BlockState::kResident) << "used longest ago: needed first";
  EXPECT_EQ(StateOf(device, blocks[5]), BlockState::kSpilled);
  ExpectContents(device, blocks);
  ExpectContents(device, others);
}

TEST(PauserTest, AProcessThatEndsEndsThePause) {
  CoreDevice device(WithHost());
  AllocateFilled(device, 2);
  device.Synchronize();
  StopAt stop("evictor.committed");
  PauseStats stats;
  std::thread pause([&] { EXPECT_FALSE(device->Pause(kAll, &stats).ok()); });
  stop.WaitUntilReached();
  std::thread end([&] { device->Shutdown(); });
  ASSERT_TRUE(tests::WaitUntil([&] { return device->core()->stopped.load(); }));
  pause.join();
  stop.Release();
  end.join();
  EXPECT_FALSE(device->Pause(kAll, &stats).ok());
}

}  // namespace
}  // namespace spillway::allocator
