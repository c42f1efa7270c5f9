// For tests that drive single evictions and fetches: stops at delay points (test_points.h), and steps of one
// block's way. The order of threads comes from these stops, never from sleeps alone.

#ifndef SPILLWAY_TESTS_ALLOCATOR_MOTION_HELPERS_H_
#define SPILLWAY_TESTS_ALLOCATOR_MOTION_HELPERS_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <vector>

#include "allocator/memory/test_points.h"
#include "allocator/residency/transfer/mapping.h"
#include "tests/allocator/core_fixture.h"

namespace spillway::allocator {

inline constexpr uint64_t kBlock = 512 << 10;  // 8 chunks; 7 blocks fit the default budget

// Stops the first thread that comes to a named point until Release.
class StopAt {
 public:
  explicit StopAt(const char* point) {
    wanted.store(point);
    reached.store(false);
    released.store(false);
    delay_function.store(&Arrive);
  }
  ~StopAt() {
    Release();
    delay_function.store(nullptr);
  }
  void WaitUntilReached() {
    while (!reached.load()) usleep(100);
  }
  void Release() { released.store(true); }

 private:
  static void Arrive(const char* point) {
    if (std::strcmp(point, wanted.load()) != 0 || reached.exchange(true)) return;
    while (!released.load()) usleep(100);
  }
  static inline std::atomic<const char*> wanted{""};
  static inline std::atomic<bool> reached{false}, released{false};
};

inline Block* BlockAt(CoreDevice& device, CUdeviceptr address) {
  return &device->core()->table.at(device.addresses().Find(address));
}

inline BlockState StateOf(CoreDevice& device, CUdeviceptr address) {
  const TableLock lock(device->core()->table);
  return BlockAt(device, address)->state;
}

inline void WaitForState(CoreDevice& device, CUdeviceptr address, BlockState state) {
  // A shared disk may keep a write for ten seconds (seen).
  for (int i = 0; i < 200'000 && StateOf(device, address) != state; ++i) usleep(200);
  ASSERT_EQ(StateOf(device, address), state);
}

inline void StartEviction(CoreDevice& device, CUdeviceptr address) {
  {
    const TableLock lock(device->core()->table);
    device->evictor()->StartLocked(lock, {BlockAt(device, address)});
  }
  device->thread()->Wake();
}

// As the plan would: chunks are taken, and nobody waits.
inline void StartPrefetch(CoreDevice& device, CUdeviceptr address) {
  ScopedContext scope(CoreDevice::Driver(), CoreDevice::Context());
  Block* const block = BlockAt(device, address);
  {
    TableLock lock(device->core()->table);
    std::vector<ChunkHandle> handles;
    ASSERT_TRUE(TakeChunksLocked(device->core(), device->charges(), &lock, {block->chunks}, &handles));
    device->faulter()->BeginLocked(lock, block, std::move(handles), /*prefetch=*/true);
  }
  ASSERT_TRUE(device->faulter()->Start(block).ok());
}

inline CUdeviceptr Filled(CoreDevice& device, uint64_t version) {
  const CUdeviceptr block = device.MustAllocate(kBlock);
  EXPECT_EQ(device.Launch(nullptr, {block}, [=](const auto& a) { CoreDevice::Fill(a[0], kBlock, version); }),
            CUDA_SUCCESS);
  device.Synchronize();
  return block;
}

inline uint64_t Wrong(CoreDevice& device, CUdeviceptr block, uint64_t version) {
  uint64_t wrong = 0;
  EXPECT_EQ(device.Launch(nullptr, {block},
                          [&](const auto& a) { wrong = CoreDevice::Differences(a[0], kBlock, version); }),
            CUDA_SUCCESS);
  device.Synchronize();
  return wrong;
}

// `count` blocks; block i is filled with the words of version i + 1.
inline std::vector<CUdeviceptr> AllocateFilled(CoreDevice& device, int count) {
  std::vector<CUdeviceptr> blocks;
  for (int i = 0; i < count; ++i) {
    blocks.push_back(device.MustAllocate(kBlock));
    EXPECT_EQ(device.Launch(nullptr, {blocks.back()},
                            [i](const auto& a) { CoreDevice::Fill(a[0], kBlock, i + 1); }),
              CUDA_SUCCESS);
  }
  return blocks;
}

// Reads them by kernels: each block has its words still.
inline void ExpectContents(CoreDevice& device, const std::vector<CUdeviceptr>& blocks) {
  std::atomic<uint64_t> wrong{0};
  for (size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_EQ(
        device.Launch(nullptr, {blocks[i]},
                      [i, &wrong](const auto& a) { wrong += CoreDevice::Differences(a[0], kBlock, i + 1); }),
        CUDA_SUCCESS);
  }
  device.Synchronize();
  EXPECT_EQ(wrong.load(), 0u);
  device->CheckInvariants();
}

}  // namespace spillway::allocator

#endif  // SPILLWAY_TESTS_ALLOCATOR_MOTION_HELPERS_H_
