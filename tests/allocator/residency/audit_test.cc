// Audit mode of the memory core: what is mapped while a launch runs, that every byte stays, with and without
// pressure, on several streams and threads, and what is found of a kernel that reaches further than its set.

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "allocator/residency/audit.h"
#include "tests/allocator/motion_helpers.h"

namespace spillway::allocator {
namespace {

class Found : public AuditObserver {
 public:
  void OnFault(const AuditedLaunch& launch) override { faults.push_back(launch); }
  void OnEarlierFault(int, uint64_t number, CUresult) override { earlier = number; }
  void OnCaptured(int, uint64_t) override { ++captured; }
  void OnPassed(int) override { ++passed; }

  std::vector<AuditedLaunch> faults;
  std::atomic<uint64_t> earlier{0}, captured{0}, passed{0};
};

class ResidencyAuditTest : public testing::Test {
 protected:
  // Bytes must outlive the time without a mapping.
  ResidencyAuditTest() { SetSimcuda("POISON", "recycle"); }

  static CoreSetup Setup(Found* found) {
    CoreSetup setup;
    setup.audit = found;
    return setup;
  }
  static bool IsUnmapped(CoreDevice& device, CUdeviceptr address) {
    const TableLock lock(device->core()->table);
    return device->core()->table.at(device.addresses().Find(address)).memory.unmapped;
  }
  static size_t Unmapped(CoreDevice& device) {
    return dynamic_cast<AuditedResidency&>(device.residency()).UnmappedBlocks();
  }
  static CUresult FillBlock(CoreDevice& device, CUstream stream, CUdeviceptr block, uint64_t version) {
    return device.Launch(stream, {block}, [version](const std::vector<CUdeviceptr>& addresses) {
      CoreDevice::Fill(addresses[0], kBlock, version);
    });
  }
  static uint64_t WrongWords(CoreDevice& device, CUstream stream, CUdeviceptr block, uint64_t version) {
    std::atomic<uint64_t> wrong{0};
    EXPECT_EQ(device.Launch(stream, {block},
                            [version, &wrong](const std::vector<CUdeviceptr>& addresses) {
                              wrong += CoreDevice::Differences(addresses[0], kBlock, version);
                            }),
              CUDA_SUCCESS);
    return wrong.load();  // the launch has ended
  }
};

TEST_F(ResidencyAuditTest, OnlyWhatALaunchNamesIsMappedWhileItRuns) {
  Found found;
  CoreDevice device(Setup(&found));
  const CUstream stream = device.NewStream();
  std::vector<CUdeviceptr> blocks;
  for (int i = 0; i < 5; ++i) blocks.push_back(device.MustAllocate(kBlock));
  for (int i = 0; i < 5; ++i) ASSERT_EQ(FillBlock(device, stream, blocks[i], i + 1), CUDA_SUCCESS);
  std::vector<bool> unmapped;
  ASSERT_EQ(device.Launch(stream, {blocks[1], blocks[3]},
                          [&](const std::vector<CUdeviceptr>&) {
                            for (CUdeviceptr block : blocks) unmapped.push_back(IsUnmapped(device, block));
                          }),
            CUDA_SUCCESS);
  EXPECT_EQ(unmapped, (std::vector<bool>{true, false, true, false, true}));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(WrongWords(device, stream, blocks[i], i + 1), 0u);
  EXPECT_EQ(found.passed.load(), 11u);
  EXPECT_TRUE(found.faults.empty());
  device->CheckInvariants();
}

TEST_F(ResidencyAuditTest, LaunchThatNamesNothingFindsNothingMapped) {
  Found found;
  CoreDevice device(Setup(&found));
  const CUstream stream = device.NewStream();
  const CUdeviceptr block = device.MustAllocate(kBlock);
  ASSERT_EQ(FillBlock(device, stream, block, 1), CUDA_SUCCESS);
  size_t unmapped = 0;
  ASSERT_EQ(device.Launch(stream, {}, [&](const std::vector<CUdeviceptr>&) { unmapped = Unmapped(device); }),
            CUDA_SUCCESS);
  EXPECT_EQ(unmapped, 1u);
  EXPECT_EQ(WrongWords(device, stream, block, 1), 0u);
}

TEST_F(ResidencyAuditTest, PinnedBlocksStayMapped) {
  for (const bool evict : {true, false}) {
    Found found;
    CoreSetup setup = Setup(&found);
    setup.evict = evict;
    CoreDevice device(setup);
    const CUstream stream = device.NewStream();
    const CUdeviceptr pinned = device.MustAllocate(kBlock);
    const CUdeviceptr other = device.MustAllocate(kBlock);
    ASSERT_EQ(FillBlock(device, stream, pinned, 1), CUDA_SUCCESS);
    ASSERT_EQ(FillBlock(device, stream, other, 2), CUDA_SUCCESS);
    ASSERT_TRUE(IsUnmapped(device, pinned));
    AccessSet set;
    device.addresses().Collect(pinned, &set);
    std::vector<PinnedBlock> pins;
    ASSERT_TRUE(device->Pin(set, PinReason::kPointerTable, &pins).ok());
    EXPECT_FALSE(IsUnmapped(device, pinned));
    uint64_t wrong = 1;
    ASSERT_EQ(device.Launch(stream, {other},
                            [&](const std::vector<CUdeviceptr>&) {
                              wrong = CoreDevice::Differences(pinned, kBlock, 1);
                            }),
              CUDA_SUCCESS);
    EXPECT_EQ(wrong, 0u);
    device->Unpin(pins, PinReason::kPointerTable, {});
    EXPECT_EQ(device->Stats().pinned_bytes, 0u);
    ASSERT_EQ(FillBlock(device, stream, other, 3), CUDA_SUCCESS);
    EXPECT_TRUE(IsUnmapped(device, pinned));
  }
}

TEST_F(ResidencyAuditTest, FreedBlocksAreReusedAndStripped) {
  Found found;
  CoreDevice device(Setup(&found));
  const CUstream stream = device.NewStream();
  const CUdeviceptr keeper = device.MustAllocate(kBlock, stream);
  for (int round = 0; round < 3; ++round) {
    const CUdeviceptr block = device.MustAllocate(kBlock, stream);
    ASSERT_EQ(FillBlock(device, stream, block, round), CUDA_SUCCESS);
    ASSERT_EQ(FillBlock(device, stream, keeper, round), CUDA_SUCCESS);
    ASSERT_TRUE(IsUnmapped(device, block));
    ASSERT_TRUE(device->Free(block).ok());
    if (round == 1) {
      ASSERT_TRUE(device->EmptyCache().ok());  // decommits an unmapped block
    }
    device->CheckInvariants();
  }
  EXPECT_EQ(WrongWords(device, stream, keeper, 2), 0u);
}

TEST_F(ResidencyAuditTest, EveryByteStaysUnderPressure) {
  Found found;
  CoreSetup setup = Setup(&found);
  setup.host_bytes = 2 << 20;
  CoreDevice device(setup);
  const CUstream stream = device.NewStream();
  std::vector<CUdeviceptr> blocks;
  for (int i = 0; i < 16; ++i) blocks.push_back(device.MustAllocate(kBlock));
  std::atomic<uint64_t> seen{0};
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 16; ++i) {
      if (round > 0) {
        ASSERT_EQ(WrongWords(device, stream, blocks[i], 100 * round + i), 0u);
      }
      const uint64_t version = 100 * (round + 1) + i;
      ASSERT_EQ(device.Launch(stream, {blocks[i]},
                              [&, version](const std::vector<CUdeviceptr>& addresses) {
                                CoreDevice::Fill(addresses[0], kBlock, version);
                                const TableLock lock(device->core()->table);
                                device->core()->table.ForEachLocked(lock, [&](Block* block) {
                                  const bool named = block->address == addresses[0];
                                  if (!named && block->has_chunks() && !block->memory.unmapped) ++seen;
                                });
                              }),
                CUDA_SUCCESS);
    }
  }
  EXPECT_EQ(seen.load(), 0u) << "blocks were mapped under a launch that does not name them";
  EXPECT_GT(device->Stats().evictions, 0u);
  EXPECT_TRUE(found.faults.empty());
  device->CheckInvariants();
}

TEST_F(ResidencyAuditTest, ThreadsAndStreamsTakeTurns) {
  Found found;
  CoreSetup setup = Setup(&found);
  setup.host_bytes = 4 << 20;
  CoreDevice device(setup);
  constexpr int kThreads = 3;
  std::atomic<uint64_t> wrong{0};
  std::atomic<int> running{0}, together{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      CoreDevice::Driver()->cuCtxSetCurrent(CoreDevice::Context());
      const CUstream stream = device.NewStream();
      std::vector<CUdeviceptr> blocks;
      for (int i = 0; i < 4; ++i) blocks.push_back(device.MustAllocate(kBlock, stream));
      for (uint64_t round = 0; round < 6; ++round) {
        for (CUdeviceptr block : blocks) {
          const auto body = [&, round, t](const std::vector<CUdeviceptr>& addresses) {
            if (running.fetch_add(1) != 0) ++together;
            if (round > 0) wrong += CoreDevice::Differences(addresses[0], kBlock, 10 * round + t);
            CoreDevice::Fill(addresses[0], kBlock, 10 * (round + 1) + t);
            --running;
          };
          const auto way = round % 2 == 0 ? CoreDevice::Way::kGate : CoreDevice::Way::kPins;
          if (device.Launch(stream, {block}, body, 1, way) != CUDA_SUCCESS) ++wrong;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0u);
  EXPECT_EQ(together.load(), 0);
  EXPECT_EQ(found.passed.load(), kThreads * 4u * 6u);
  device->CheckInvariants();
}

TEST_F(ResidencyAuditTest, LaunchThatReachesAllFindsAllMapped) {
  Found found;
  CoreSetup setup = Setup(&found);
  CoreDevice device(setup);
  const CUstream stream = device.NewStream();
  std::vector<CUdeviceptr> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(device.MustAllocate(kBlock));
  for (int i = 0; i < 5; ++i) ASSERT_EQ(FillBlock(device, stream, blocks[i], i + 1), CUDA_SUCCESS);
  uint64_t wrong = 1;
  size_t unmapped = 1;
  const auto body = [&](const std::vector<CUdeviceptr>&) {
    wrong = 0;
    for (int i = 0; i < 5; ++i) wrong += CoreDevice::Differences(blocks[i], kBlock, i + 1);
    CoreDevice::Fill(blocks[5], kBlock, 6);  // a block that no launch ever named
    unmapped = Unmapped(device);
  };
  ASSERT_EQ(device.Launch(stream, {blocks[0]}, body, 1, CoreDevice::Way::kReachingAll), CUDA_SUCCESS);
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(unmapped, 0u);
  EXPECT_EQ(WrongWords(device, stream, blocks[5], 6), 0u);
}

TEST_F(ResidencyAuditTest, AuditEndsWhenEvictionIsSwitchedOff) {
  Found found;
  CoreDevice device(Setup(&found));
  const CUstream stream = device.NewStream();
  const CUdeviceptr first = device.MustAllocate(kBlock);
  const CUdeviceptr second = device.MustAllocate(kBlock);
  ASSERT_EQ(FillBlock(device, stream, first, 1), CUDA_SUCCESS);
  ASSERT_EQ(FillBlock(device, stream, second, 2), CUDA_SUCCESS);
  ASSERT_EQ(Unmapped(device), 1u);
  EXPECT_TRUE(device->StopEvicting().ok());
  EXPECT_EQ(Unmapped(device), 0u);
  EXPECT_EQ(WrongWords(device, stream, first, 1), 0u);
  device.Synchronize();
  EXPECT_EQ(Unmapped(device), 0u);
}

// Without audit: everything comes back for a launch that may reach all, and it is refused when that cannot
// be.
TEST(ReachingAllTest, BringsEverythingBackOrRefuses) {
  CoreSetup setup;
  setup.host_bytes = 8 << 20;
  CoreDevice device(setup);
  const CUstream stream = device.NewStream();
  std::vector<CUdeviceptr> blocks;
  for (int i = 0; i < 10; ++i) {
    blocks.push_back(device.MustAllocate(kBlock));
    ASSERT_EQ(device.Launch(stream, {blocks[i]},
                            [i](const std::vector<CUdeviceptr>& addresses) {
                              CoreDevice::Fill(addresses[0], kBlock, i + 1);
                            }),
              CUDA_SUCCESS);
  }
  int ran = 0;
  EXPECT_EQ(device.Launch(
                stream, {blocks[9]}, [&](const std::vector<CUdeviceptr>&) { ++ran; }, 1,
                CoreDevice::Way::kReachingAll),
            CUDA_ERROR_OUT_OF_MEMORY);
  device.Synchronize();
  EXPECT_EQ(ran, 0);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(device->Free(blocks[9 - i]).ok());
  uint64_t wrong = 1;
  ASSERT_EQ(device.Launch(
                stream, {},
                [&](const std::vector<CUdeviceptr>&) {
                  wrong = 0;
                  for (int i = 0; i < 6; ++i) wrong += CoreDevice::Differences(blocks[i], kBlock, i + 1);
                },
                1, CoreDevice::Way::kReachingAll),
            CUDA_SUCCESS);
  device.Synchronize();
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(device->Stats().faults, 0u);
  device->CheckInvariants();
}

}  // namespace
}  // namespace spillway::allocator
