// What happens at the limits: budgets that fall, launches that cannot fit, tiers that are full, chunks that
// the driver refuses, the bound on run-ahead, and many threads at once.

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "tests/allocator/motion_helpers.h"

namespace spillway::allocator {
namespace {

TEST(LimitsTest, ARefusedLaunchDoesNotKeepLaterAllocationsOut) {
  CoreDevice device({});
  const std::vector<CUdeviceptr> blocks = Allocate(device, 9);
  EXPECT_EQ(device.Launch(nullptr, blocks, [](const auto&) {}), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_LE(device->Stats().largest_set_bytes, 7 * kBlock);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(FillOne(device, device.MustAllocate(kBlock), i), CUDA_SUCCESS);
}

TEST(LimitsTest, ABudgetThatFallsBelowASetRefusesItUntilItRises) {
  CoreDevice device({});
  const std::vector<CUdeviceptr> blocks = Allocate(device, 6);
  EXPECT_EQ(device.Launch(nullptr, blocks, [](const auto&) {}), CUDA_SUCCESS);
  device.Synchronize();
  device->OnExternalBytes(2 << 20);
  EXPECT_TRUE(tests::WaitUntil([&] { return device->Stats().chunk_bytes <= (2 << 20); }));
  EXPECT_EQ(device.Launch(nullptr, blocks, [](const auto&) {}), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_NE(device->LastError().find("the budget leaves 2 MiB"), std::string::npos) << device->LastError();
  device->OnExternalBytes(-(2 << 20));
  EXPECT_EQ(device.Launch(nullptr, blocks, [](const auto&) {}), CUDA_SUCCESS);
}

TEST(LimitsTest, WhenEvictionsEndAndNotEverythingFitsACallThatReachesAllIsRefused) {
  CoreDevice device({});
  const std::vector<CUdeviceptr> blocks = Allocate(device, 9);
  for (size_t i = 0; i < blocks.size(); ++i) ASSERT_EQ(FillOne(device, blocks[i], i + 1), CUDA_SUCCESS);
  EXPECT_FALSE(device->StopEvicting().ok());
  bool ran = false;
  const auto call = [&ran] {
    ran = true;
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(device->RunReachingAll({}, {}, 0, call), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_FALSE(ran);
  ASSERT_TRUE(device->Free(blocks[7]).ok());
  ASSERT_TRUE(device->Free(blocks[8]).ok());
  EXPECT_EQ(device->RunReachingAll({}, {}, 0, call), CUDA_SUCCESS);
  EXPECT_TRUE(ran);
  for (size_t i = 0; i < 7; ++i) EXPECT_EQ(Wrong(device, blocks[i], i + 1), 0u);
}

TEST(LimitsTest, ABudgetThatFallsWhileALaunchWaitsRefusesIt) {
  CoreSetup setup;
  setup.run_ahead_bytes = 64 << 20;  // not to wait for the bound instead
  CoreDevice device(setup);
  const std::vector<CUdeviceptr> blocks = Allocate(device, 12);
  for (CUdeviceptr block : blocks) ASSERT_EQ(FillOne(device, block, 1), CUDA_SUCCESS);
  device.Synchronize();
  PauseStreams(true);
  ASSERT_EQ(device.Launch(nullptr, {blocks[11]}, [](const auto&) {}), CUDA_SUCCESS);
  std::thread waiting([&] {
    CoreDevice::Driver()->cuCtxSetCurrent(CoreDevice::Context());
    EXPECT_EQ(device.Launch(nullptr, {blocks.begin(), blocks.begin() + 7}, [](const auto&) {}),
              CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_NE(device->LastError().find("the budget leaves"), std::string::npos) << device->LastError();
  });
  AwaitClaim(device);
  device->OnExternalBytes(1 << 20);
  waiting.join();
  PauseStreams(false);
  device->OnExternalBytes(-(1 << 20));
  EXPECT_EQ(Wrong(device, blocks[3], 1), 0u);
}

TEST(LimitsTest, FullTiersRefuseWithWordsAndFreesLetTheJobGoOn) {
  CoreSetup setup;
  setup.disk_cap_bytes = 16 << 20;  // 8 slots, although more is promised to charging
  setup.host_bytes = 0;
  CoreDevice device(setup);
  std::vector<CUdeviceptr> blocks;
  CUresult result = CUDA_SUCCESS;
  while (result == CUDA_SUCCESS && blocks.size() < 20) {
    blocks.push_back(device.MustAllocate(kBlock));
    result = FillOne(device, blocks.back(), blocks.size());
  }
  EXPECT_EQ(result, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_NE(device->LastError().find("nothing more can be moved off the GPU"), std::string::npos)
      << device->LastError();
  EXPECT_EQ(blocks.size(), 10u) << "eight on the GPU with what is lent, one on disk, and one too many";
  for (size_t i = 0; i + 1 < blocks.size(); i += 2) ASSERT_TRUE(device->Free(blocks[i]).ok());
  EXPECT_EQ(FillOne(device, blocks.back(), 77), CUDA_SUCCESS);
  EXPECT_EQ(Wrong(device, blocks.back(), 77), 0u);
  for (size_t i = 1; i + 1 < blocks.size(); i += 2) EXPECT_EQ(Wrong(device, blocks[i], i + 1), 0u);
  device->CheckInvariants();
}

TEST(LimitsTest, PinningMoreThanLeavesHeadroomIsRefused) {
  CoreDevice device({});
  device->OnExternalBytes(kChunk);  // its share is in use
  const std::vector<CUdeviceptr> blocks = Allocate(device, 12);
  const auto pin = [&](size_t at) {
    AccessSet set;
    device.addresses().Collect(blocks[at], &set);
    return device->Pin(set, PinReason::kGraph).code();
  };
  EXPECT_EQ(device.Launch(nullptr, {blocks.begin() + 8, blocks.end()}, [](const auto&) {}), CUDA_SUCCESS);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(pin(i), absl::StatusCode::kOk);
  // 32 chunks pinned and 32 for the largest launch, of 63.
  EXPECT_EQ(pin(3), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(device->Stats().pinned_bytes, 3 * kBlock);
  // What is pinned and named counts once.
  EXPECT_EQ(pin(8), absl::StatusCode::kOk);
  EXPECT_EQ(pin(3), absl::StatusCode::kResourceExhausted);
  device->CheckInvariants();
}

TEST(LimitsTest, AnEndedPinLetsTheBlockGoOnceItsEscapedUsersAreDone) {
  CoreDevice device({});
  const std::vector<CUdeviceptr> blocks = Allocate(device, 15);
  AccessSet set;
  device.addresses().Collect(blocks[0], &set);
  std::vector<PinnedBlock> first;
  std::vector<PinnedBlock> second;
  ASSERT_TRUE(device->Pin(set, PinReason::kPointerTable, &first).ok());
  ASSERT_TRUE(device->Pin(set, PinReason::kPointerTable, &second).ok());
  ASSERT_EQ(first.size(), 1u);
  // Written by work that never names it: it must count as used, or it would go without a copy.
  CoreDevice::Fill(blocks[0], kBlock, 7);
  for (int i = 1; i < 15; ++i) ASSERT_EQ(FillOne(device, blocks[i], i), CUDA_SUCCESS);
  EXPECT_EQ(CoreDevice::Differences(blocks[0], kBlock, 7), 0u) << "pinned blocks stay";
  device->Unpin(first, PinReason::kPointerTable, {});
  EXPECT_EQ(device->Stats().pinned_bytes, kBlock) << "another pin is left";
  EXPECT_EQ(device->Stats().pinned_bytes_by_reason[static_cast<int>(PinReason::kPointerTable)], kBlock);
  device->Unpin(second, PinReason::kPointerTable, {{{nullptr, false}}, {}});
  EXPECT_EQ(device->Stats().pinned_bytes, 0u);
  const uint64_t spilled = device->Stats().evictions;
  for (int i = 1; i < 15; ++i) EXPECT_EQ(Wrong(device, blocks[i], i), 0u);
  EXPECT_GT(device->Stats().evictions, spilled);
  EXPECT_EQ(Wrong(device, blocks[0], 7), 0u);
  device->CheckInvariants();
}

TEST(LimitsTest, PinnedBlocksStayWhereNothingIsEvicted) {
  CoreSetup setup;
  setup.evict = false;
  CoreDevice device(setup);
  const std::vector<CUdeviceptr> blocks = Allocate(device, 7);
  AccessSet set;
  device.addresses().Collect(blocks[0], &set);
  ASSERT_TRUE(device->Pin(set, PinReason::kGraph).ok());
  CoreDevice::Fill(blocks[0], kBlock, 7);  // by a graph
  for (int i = 1; i < 6; ++i) ASSERT_EQ(FillOne(device, blocks[i], i), CUDA_SUCCESS);
  device->OnExternalBytes(1 << 20);
  EXPECT_EQ(FillOne(device, blocks[6], 6), CUDA_ERROR_OUT_OF_MEMORY) << "nothing may go for it";
  EXPECT_EQ(CoreDevice::Differences(blocks[0], kBlock, 7), 0u);
  device->CheckInvariants();
}

TEST(LimitsTest, EndingAPinOfAFreedBlockLeavesItsSuccessorAlone) {
  CoreDevice device({});
  const CUdeviceptr block = device.MustAllocate(kBlock);
  AccessSet set;
  device.addresses().Collect(block, &set);
  std::vector<PinnedBlock> old;
  ASSERT_TRUE(device->Pin(set, PinReason::kTexture, &old).ok());
  ASSERT_TRUE(device->Free(block).ok());
  EXPECT_EQ(device->Stats().pinned_bytes, 0u);
  ASSERT_EQ(device.MustAllocate(kBlock), block);
  ASSERT_TRUE(device->Pin(set, PinReason::kTexture).ok());
  device->Unpin(old, PinReason::kTexture, {});
  EXPECT_EQ(device->Stats().pinned_bytes, kBlock);
}

TEST(LimitsTest, UncompletedLaunchesKeepToTheRunAheadBound) {
  CoreSetup setup;
  setup.run_ahead_bytes = 2 * kBlock;
  CoreDevice device(setup);
  const std::vector<CUdeviceptr> blocks = Allocate(device, 12);
  for (CUdeviceptr block : blocks) ASSERT_EQ(FillOne(device, block, 1), CUDA_SUCCESS);
  device.Synchronize();
  ASSERT_TRUE(device->core()->pressure.load());
  device->core()->clock.CoverAll();
  device.Synchronize();
  device->core()->clock.Poll();
  PauseStreams(true);
  std::atomic<int> launched{0};
  std::thread job([&] {
    CoreDevice::Driver()->cuCtxSetCurrent(CoreDevice::Context());
    for (int i = 0; i < 8; ++i) {
      EXPECT_EQ(device.Launch(nullptr, {blocks[11]}, [](const auto&) {}), CUDA_SUCCESS);
      ++launched;
    }
  });
  EXPECT_TRUE(tests::WaitUntil([&] { return Waiting(device, os::WaitKind::kRunAhead) > 0; }));
  EXPECT_EQ(launched.load(), 2);
  EXPECT_EQ(device->core()->clock.UncompletedBytes(), 2 * kBlock);
  PauseStreams(false);
  job.join();
  EXPECT_GT(device->Stats().throttled_nanos, 0u);
}

// Allocations and frees of four threads, with launches, while others give chunks away and take the budget.
TEST(LimitsTest, ThreadsAllocateFreeAndGiveBackAtOnce) {
  CoreSetup setup;
  setup.host_bytes = 32 << 20;
  CoreDevice device(setup);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> wrong{0}, freed{0};
  std::vector<std::thread> threads;
  for (int who = 0; who < 4; ++who) {
    threads.emplace_back([&, who] {
      CoreDevice::Driver()->cuCtxSetCurrent(CoreDevice::Context());
      std::mt19937 random(who);
      const CUstream stream = device.NewStream();
      for (int i = 0; i < 600; ++i) {
        const uint64_t bytes = (1 + random() % 12) * kChunk;
        absl::StatusOr<CUdeviceptr> block = device->Allocate(bytes, {stream, false});
        ASSERT_TRUE(block.ok()) << block.status();
        const uint64_t version = who * 1000 + i;
        if (random() % 4 != 0) {
          device.Launch(stream, {*block}, [=](const auto& a) { CoreDevice::Fill(a[0], bytes, version); });
          device.Launch(stream, {*block}, [=, &wrong](const auto& a) {
            wrong += CoreDevice::Differences(a[0], bytes, version);
          });
        }
        ASSERT_TRUE(device->Free(*block).ok());
        ++freed;
      }
    });
  }
  std::thread others([&] {
    CoreDevice::Driver()->cuCtxSetCurrent(CoreDevice::Context());
    while (!stop.load()) {
      device->OnExternalBytes(kBlock);
      device->GiveBack(0, kBlock);
      EXPECT_TRUE(device->EmptyCache().ok());
      device->OnExternalBytes(-static_cast<int64_t>(kBlock));
      device->CheckInvariants();
      EXPECT_TRUE(tests::WaitUntil([&, before = freed.load()] { return stop || freed >= before + 8; }));
    }
  });
  for (std::thread& thread : threads) thread.join();
  stop.store(true);
  others.join();
  device.Synchronize();
  EXPECT_EQ(wrong.load(), 0u);
  EXPECT_EQ(device->Stats().live_bytes, 0u);
  ASSERT_TRUE(device->EmptyCache().ok());
  EXPECT_EQ(device->Stats().chunk_bytes, 0u);
  device->CheckInvariants();
}

}  // namespace
}  // namespace spillway::allocator
