// For tests that drive single evictions and fetches: stops at delay points (test_points.h), waits for polls
// of the device's thread and for threads that wait, and steps of one block's way. The order of threads comes
// from these.

#ifndef SPILLWAY_TESTS_ALLOCATOR_MOTION_HELPERS_H_
#define SPILLWAY_TESTS_ALLOCATOR_MOTION_HELPERS_H_

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <vector>

#include "allocator/memory/test_points.h"
#include "allocator/residency/transfer/mapping.h"
#include "tests/allocator/core_fixture.h"
#include "tests/fakes/wait_until.h"

namespace spillway::allocator {

inline constexpr uint64_t kBlock = 512 << 10;  // 8 chunks; 7 blocks fit the default budget

// Stops the first thread that comes to a named point until Release. One at a time.
class StopAt {
 public:
  explicit StopAt(const char* point) {
    wanted.store(point);
    reached.store(false);
    released.store(false);
    left.store(false);
    EXPECT_EQ(delay_function.exchange(&Arrive), nullptr) << "another stop is there";
  }
  ~StopAt() {
    Release();
    delay_function.store(nullptr);
    if (reached.load()) left.wait(false);  // else it might take the next stop for its own
  }
  void WaitUntilReached() {
    ASSERT_TRUE(tests::WaitUntil([] { return reached.load(); })) << "nobody comes to " << wanted.load();
  }
  void Release() {
    released.store(true);
    released.notify_all();
  }

 private:
  static void Arrive(const char* point) {
    if (std::strcmp(point, wanted.load()) != 0 || reached.exchange(true)) return;
    released.wait(false);
    left.store(true);
    left.notify_all();
  }
  static inline std::atomic<const char*> wanted{""};
  static inline std::atomic<bool> reached{false}, released{false}, left{false};
};

// Waits until the device's thread has done all its background work so many times more, from now on. Where
// nothing may happen, this is how long a test looks.
inline void AwaitPolls(DeviceThread* thread, int polls) {
  for (int i = 0; i <= polls; ++i) {  // the first one may have begun before
    const uint64_t before = TallyOf(Tally::kPoll);
    thread->Wake();
    ASSERT_TRUE(tests::WaitUntil([before] { return TallyOf(Tally::kPoll) > before; }))
        << "the device's thread stands still";
  }
}
inline void AwaitPolls(CoreDevice& device, int polls) { AwaitPolls(device->thread(), polls); }

// How many threads wait for that.
inline uint64_t Waiting(CoreDevice& device, os::WaitKind kind) {
  return device->core()->waits->Metrics()[static_cast<size_t>(kind)].now;
}

// Waits until a launch waits for chunks, and the device's thread is to free some for it.
inline void AwaitClaim(CoreDevice& device) {
  ASSERT_TRUE(tests::WaitUntil([&] {
    const TableLock lock(device->core()->table);
    return device->claims()->WantedLocked(lock) > 0;
  })) << "no launch waits";
}

inline Block* BlockAt(CoreDevice& device, CUdeviceptr address) {
  return &device->core()->table.at(device.addresses().Find(address));
}

inline BlockState StateOf(CoreDevice& device, CUdeviceptr address) {
  const TableLock lock(device->core()->table);
  return BlockAt(device, address)->state;
}

inline void WaitForState(CoreDevice& device, CUdeviceptr address, BlockState state) {
  ASSERT_TRUE(tests::WaitUntil([&] { return StateOf(device, address) == state; }))
      << "it is " << NameOf(StateOf(device, address)) << " and not " << NameOf(state);
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

// Launches a kernel that fills all of a block.
inline CUresult FillBlock(CoreDevice& device, CUdeviceptr block, uint64_t bytes, uint64_t version) {
  return device.Launch(nullptr, {block}, [=](const auto& a) { CoreDevice::Fill(a[0], bytes, version); });
}
inline CUresult FillOne(CoreDevice& device, CUdeviceptr block, uint64_t version) {
  return FillBlock(device, block, kBlock, version);
}

inline std::vector<CUdeviceptr> Allocate(CoreDevice& device, int count) {
  std::vector<CUdeviceptr> blocks;
  for (int i = 0; i < count; ++i) blocks.push_back(device.MustAllocate(kBlock));
  return blocks;
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

// Whether DriverThatMayRefuseHandles says that the device has no memory for another handle. False at each
// call here.
inline std::atomic<bool>& RefusesHandles() {
  static std::atomic<bool> refuses;
  refuses = false;
  return refuses;
}

inline const CudaDriver* DriverThatMayRefuseHandles() {
  static std::atomic<bool>& refuses = RefusesHandles();
  static CudaDriver driver = [] {
    CudaDriver own = *CoreDevice::Driver();
    own.cuMemCreate = [](CUmemGenericAllocationHandle* handle, size_t bytes,
                         const CUmemAllocationProp* properties, unsigned long long flags) {
      return refuses ? CUDA_ERROR_OUT_OF_MEMORY
                     : CoreDevice::Driver()->cuMemCreate(handle, bytes, properties, flags);
    };
    return own;
  }();
  return &driver;
}

}  // namespace spillway::allocator

#endif  // SPILLWAY_TESTS_ALLOCATOR_MOTION_HELPERS_H_
