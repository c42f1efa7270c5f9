// Allocations: what is handed out again, what a free does, and memory that goes back to the driver.

#include "allocator/residency/allocations.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/allocator/motion_helpers.h"
#include "tests/fakes/gate.h"

namespace spillway::allocator {
namespace {

TEST(AllocationsTest, FreedBlocksMoveNoBytes) {
  CoreDevice device({});
  for (int i = 0; i < 100; ++i) {
    const CUdeviceptr block = device.MustAllocate(kBlock);
    ASSERT_EQ(device.Launch(nullptr, {block}, [](const auto& a) { CoreDevice::Fill(a[0], kBlock, 7); }),
              CUDA_SUCCESS);
    ASSERT_TRUE(device->Free(block).ok());
  }
  EXPECT_EQ(device->Stats().spilled_bytes, 0u);
  EXPECT_EQ(device->Stats().live_bytes, 0u);
}

// The host tier is pinned ahead: it may have become as large as it can between the promise that failed and the
// look at whether it can grow.
TEST(AllocationsTest, ATierThatHasGrownMeanwhileIsPromised) {
  CoreSetup setup;
  setup.budget_bytes = 3 * kBlock;
  setup.host_bytes = 4 * kBlock;
  setup.disk = setup.grow_at_once = setup.grow_ahead = false;
  CoreDevice device(setup);
  for (int i = 0; i < 2; ++i) device.MustAllocate(kBlock);  // these two need no place off the GPU
  StopAt stop("charges.promised");
  absl::Status status;
  std::thread allocation([&] { status = device->Allocate(kBlock, {}).status(); });
  stop.WaitUntilReached();
  EXPECT_EQ(device.host().storage_capacity_bytes(), 0u);
  EXPECT_TRUE(device.host().GrowStorageTo(setup.host_bytes).ok());
  stop.Release();
  allocation.join();
  EXPECT_TRUE(status.ok()) << status;
}

TEST(AllocationsTest, TheLargestLiveBlocksKnowTheirLastLaunch) {
  CoreDevice device({});
  EXPECT_TRUE(device->LargestBlocks(5).empty());
  const CUdeviceptr small = device.MustAllocate(kBlock);
  const CUdeviceptr large = device.MustAllocate(3 * kBlock);
  const CUdeviceptr unused = device.MustAllocate(2 * kBlock);
  for (const CUdeviceptr block : {small, large, small}) {
    ASSERT_EQ(device.Launch(nullptr, {block}, [](const auto& a) { CoreDevice::Fill(a[0], 64, 1); }),
              CUDA_SUCCESS);
  }
  const std::vector<LargeBlock> blocks = device->LargestBlocks(5);
  ASSERT_EQ(blocks.size(), 3u);
  EXPECT_EQ(blocks[0].requested_bytes, 3 * kBlock);
  EXPECT_EQ(blocks[0].last_launch, 1u);
  EXPECT_TRUE(blocks[0].resident);
  EXPECT_EQ(blocks[1].requested_bytes, 2 * kBlock);
  EXPECT_FALSE(blocks[1].last_launch.has_value());
  EXPECT_FALSE(blocks[1].resident) << "it has no memory before its first use";
  EXPECT_EQ(blocks[2].last_launch, 2u);
  EXPECT_EQ(device->LargestBlocks(1).size(), 1u);
  EXPECT_TRUE(device->Free(large).ok());
  EXPECT_EQ(device->LargestBlocks(5).size(), 2u) << "a freed block is none";
  EXPECT_TRUE(device->Free(unused).ok());
}

TEST(AllocationsTest, SameSequenceOfCallsGivesSameAddresses) {
  CoreDevice device({});
  const auto step = [&device] {
    std::vector<CUdeviceptr> blocks;
    for (int i = 0; i < 20; ++i) {
      blocks.push_back(device.MustAllocate((1 + i % 3) * kBlock));
      device.Launch(nullptr, {blocks.back()}, [](const auto& a) { CoreDevice::Fill(a[0], 64, 1); });
    }
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(device->Free(blocks[(i * 7) % 20]).ok());
    return blocks;
  };
  const auto first = step();
  EXPECT_EQ(step(), first);
  EXPECT_EQ(step(), first);
}

TEST(AllocationsTest, FreeOfWhatIsNotABlockIsAnError) {
  CoreDevice device({});
  const CUdeviceptr block = device.MustAllocate(kBlock);
  EXPECT_FALSE(device->Free(block + 4096).ok());
  EXPECT_FALSE(device->Free(0x1000).ok());
  EXPECT_TRUE(device->Free(block).ok());
  EXPECT_FALSE(device->Free(block).ok());
}

TEST(AllocationsTest, EmptyCacheGivesChunksBack) {
  CoreDevice device({});
  auto blocks = AllocateFilled(device, 5);
  for (CUdeviceptr block : blocks) ASSERT_TRUE(device->Free(block).ok());
  ASSERT_TRUE(device->EmptyCache().ok());
  EXPECT_EQ(device->Stats().chunk_bytes, 0u);
  device->CheckInvariants();
}

TEST(AllocationsTest, OthersMemoryShrinksOurs) {
  CoreDevice device({});
  const auto blocks = AllocateFilled(device, 7);
  device->OnExternalBytes(2 << 20);
  ExpectContents(device, blocks);
  EXPECT_TRUE(tests::WaitUntil([&] { return device->Stats().chunk_bytes <= (2 << 20); }));
  device->OnExternalBytes(-(2 << 20));
  ExpectContents(device, blocks);
}

TEST(AllocationsTest, RecordedStreamKeepsAFreedBlock) {
  CoreDevice device({});
  const CUstream side = device.NewStream();
  const CUdeviceptr block = device.MustAllocate(kBlock);
  tests::Gate go;
  std::atomic<uint64_t> wrong{0};
  ASSERT_EQ(device.Launch(nullptr, {block}, [](const auto& a) { CoreDevice::Fill(a[0], kBlock, 5); }),
            CUDA_SUCCESS);
  device.Synchronize();
  ASSERT_EQ(device.Launch(side, {block},
                          [&, wait = go.Wait()](const auto& a) {
                            wait();
                            wrong += CoreDevice::Differences(a[0], kBlock, 5);
                          }),
            CUDA_SUCCESS);
  ASSERT_TRUE(device->RecordStream(block, side).ok());
  ASSERT_TRUE(device->Free(block).ok());
  EXPECT_NE(device.MustAllocate(kBlock), block);
  go.Open();
  device.Synchronize();
  EXPECT_EQ(wrong.load(), 0u);
}

// A job that records a stream when it hands a block over, and gives the stream the work that uses it afterwards.
TEST(AllocationsTest, RecordedStreamKeepsAFreedBlockForWorkThatCameAfterTheRecord) {
  CoreDevice device({});
  const CUstream side = device.NewStream();
  const CUdeviceptr block = device.MustAllocate(kBlock);
  const CUdeviceptr before = device.MustAllocate(kBlock);
  ASSERT_EQ(device.Launch(nullptr, {block, before}, [](const auto& a) { CoreDevice::Fill(a[0], kBlock, 5); }),
            CUDA_SUCCESS);
  device.Synchronize();
  ASSERT_TRUE(device->RecordStream(block, side).ok());
  ASSERT_TRUE(device->RecordStream(before, side).ok());
  ASSERT_TRUE(device->Free(before).ok());
  // Handed out again, so the GPU is known to have done what the stream had been given by then.
  std::vector<CUdeviceptr> others;
  do others.push_back(device.MustAllocate(kBlock));
  while (others.back() != before && others.size() < 5);
  ASSERT_TRUE(tests::WaitUntil([&] {
    if (others.back() == before) return true;
    EXPECT_TRUE(device->Free(others.back()).ok());
    others.back() = device.MustAllocate(kBlock);
    return false;
  }));
  tests::Gate go;
  std::atomic<uint64_t> wrong{0};
  ASSERT_EQ(device.Launch(side, {block},
                          [&, wait = go.Wait()](const auto& a) {
                            wait();
                            wrong += CoreDevice::Differences(a[0], kBlock, 5);
                          }),
            CUDA_SUCCESS);
  ASSERT_TRUE(device->Free(block).ok());
  AwaitPolls(device, 5);
  const CUdeviceptr next = device.MustAllocate(kBlock);
  EXPECT_NE(next, block);
  go.Open();
  device.Synchronize();
  EXPECT_EQ(wrong.load(), 0u);
}

// The stream that a block was allocated on, and one that was recorded, may be gone when it is freed.
TEST(AllocationsTest, StreamsOfABlockMayBeDestroyedBeforeItIsFreed) {
  CoreDevice device({});
  const CUstream owner = device.NewStream();
  const CUstream side = device.NewStream();
  const auto block = device->Allocate(kBlock, {owner, false});
  ASSERT_TRUE(block.ok());
  tests::Gate go;
  for (CUstream stream : {owner, side}) {
    ASSERT_EQ(device.Launch(stream, {*block}, [wait = go.Wait()](const auto&) { wait(); }), CUDA_SUCCESS);
  }
  ASSERT_TRUE(device->RecordStream(*block, side).ok());
  AccessSet set;
  device.addresses().Collect(*block, &set);
  ASSERT_TRUE(device->Pin(set, PinReason::kGraph).ok());
  for (CUstream stream : {owner, side}) {
    device->OnStreamDestroy(stream);
    ASSERT_EQ(CoreDevice::Driver()->cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  }
  ASSERT_TRUE(device->Free(*block).ok());
  ASSERT_TRUE(device->EmptyCache().ok());
  EXPECT_GT(device->Stats().chunk_bytes, 0u) << "its work is not over";
  go.Open();
  EXPECT_TRUE(tests::WaitUntil([&] {
    EXPECT_TRUE(device->EmptyCache().ok());
    return device->Stats().chunk_bytes == 0;
  }));
}

// A release on the device's thread, the first while another thread waits for memory, lasts until that one has looked
// again, or does not wait.
std::thread::id thread_that_waits;
std::atomic<bool> waits_for_external{false}, holds_release{false};
std::atomic<int> releases_under_way{0}, looks_for_external{0}, held_releases{0};
CUresult HeldRelease(CUmemGenericAllocationHandle handle) {
  ++releases_under_way;
  if (waits_for_external && std::this_thread::get_id() != thread_that_waits &&
      holds_release.exchange(false)) {
    ++held_releases;
    const int looks = looks_for_external + 1;  // one may have begun before
    EXPECT_TRUE(tests::WaitUntil([&] { return looks_for_external > looks || !waits_for_external; }));
  }
  const CUresult result = CoreDevice::Driver()->cuMemRelease(handle);
  --releases_under_way;
  return result;
}
void CountScansForExternal(const char* point) {
  looks_for_external += std::strcmp(point, "external.looks") == 0;
}

// An external allocation may begin when there is memory for it, whichever thread gives that back.
TEST(AllocationsTest, ExternalMemoryWaitsForWhatIsOnItsWayToTheDriver) {
  CudaDriver driver = *CoreDevice::Driver();
  driver.cuMemRelease = &HeldRelease;
  CoreSetup setup;
  setup.driver = &driver;
  CoreDevice device(setup);
  thread_that_waits = std::this_thread::get_id();
  delay_function.store(&CountScansForExternal);
  for (int round = 0; round < 20; ++round) {
    std::vector<CUdeviceptr> blocks;
    for (int i = 0; i < 6; ++i) blocks.push_back(Filled(device, i + 1));
    for (CUdeviceptr block : blocks) ASSERT_TRUE(device->Free(block).ok());
    const auto begin = std::chrono::steady_clock::now();
    holds_release = true;
    waits_for_external = true;
    device->BeginExternalAllocation(2 << 20);
    const int under_way = releases_under_way.load();
    // It waits for 100 ms at least, and on a busy machine the release may take longer.
    const bool waited = std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(100);
    EXPECT_TRUE(under_way == 0 || waited) << under_way << " releases are under way";
    waits_for_external = false;
    device->EndExternalAllocation(2 << 20, /*failed=*/true);
  }
  delay_function.store(nullptr);
  EXPECT_GT(held_releases.load(), 0);
}

}  // namespace
}  // namespace spillway::allocator
