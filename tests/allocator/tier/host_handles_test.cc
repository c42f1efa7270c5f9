#include "allocator/tier/host_handles.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <vector>

#include "allocator/tier/host_pool.h"
#include "tests/allocator/core_fixture.h"

namespace spillway::allocator {
namespace {

class HostHandlesTest : public testing::Test {
 protected:
  void TearDown() override { SetSimcuda("HOST_HANDLES", "on"); }
  const HostReach reach_{.node = 0, .devices = {0}};
};

TEST_F(HostHandlesTest, DevicesThatCanAreFoundAndItWorks) {
  const auto reach = FindHostReach(CoreDevice::Driver(), 1);
  ASSERT_TRUE(reach.ok()) << reach.status();
  EXPECT_EQ(reach->devices, std::vector<int>{0});
  EXPECT_EQ(reach->node, 0);
  const absl::Status tried = TryHostReach(CoreDevice::Driver(), CoreDevice::Context(), *reach, kChunk);
  EXPECT_TRUE(tried.ok()) << tried;
}

TEST_F(HostHandlesTest, ADeviceThatCannotReachesNone) {
  SetSimcuda("HOST_HANDLES", "off");
  const auto reach = FindHostReach(CoreDevice::Driver(), 1);
  ASSERT_TRUE(reach.ok());
  EXPECT_TRUE(reach->devices.empty());
  EXPECT_FALSE(TryHostReach(CoreDevice::Driver(), CoreDevice::Context(), reach_, kChunk).ok());
}

// As an emulated link or a driver of a virtual machine might (docs/limits.md, WSL2).
TEST_F(HostHandlesTest, CopiesThatCopyNothingAreNoticed) {
  CudaDriver driver = *CoreDevice::Driver();
  driver.cuMemcpyHtoDAsync_v2 = [](CUdeviceptr, const void*, size_t, CUstream) { return CUDA_SUCCESS; };
  const absl::Status tried = TryHostReach(&driver, CoreDevice::Context(), reach_, kChunk);
  EXPECT_EQ(tried.code(), absl::StatusCode::kInternal) << tried;
}

TEST_F(HostHandlesTest, WhatHasBeenMadeGoesBackOnFailure) {
  CudaDriver driver = *CoreDevice::Driver();
  static std::atomic<int> created, released, reserved;
  created = released = reserved = 0;
  driver.cuMemCreate = [](CUmemGenericAllocationHandle* handle, size_t size,
                          const CUmemAllocationProp* properties, unsigned long long flags) {
    if (created == 3) return CUDA_ERROR_OUT_OF_MEMORY;
    ++created;
    return CoreDevice::Driver()->cuMemCreate(handle, size, properties, flags);
  };
  driver.cuMemRelease = [](CUmemGenericAllocationHandle handle) {
    ++released;
    return CoreDevice::Driver()->cuMemRelease(handle);
  };
  driver.cuMemAddressReserve = [](CUdeviceptr* pointer, size_t size, size_t alignment, CUdeviceptr hint,
                                  unsigned long long flags) {
    ++reserved;
    return CoreDevice::Driver()->cuMemAddressReserve(pointer, size, alignment, hint, flags);
  };
  driver.cuMemAddressFree = [](CUdeviceptr pointer, size_t size) {
    --reserved;
    return CoreDevice::Driver()->cuMemAddressFree(pointer, size);
  };
  const auto slab = MakeHandleSlab(&driver, CoreDevice::Context(), reach_, kChunk, 8);
  EXPECT_TRUE(absl::IsResourceExhausted(slab.status())) << slab.status();
  EXPECT_EQ(created, 3);
  EXPECT_EQ(released, 3);
  EXPECT_EQ(reserved, 0);
}

TEST_F(HostHandlesTest, APoolOfHandlesHasOneForEachHostBufferAndNoneForStaging) {
  HostPool::Options options;
  options.buffer_bytes = kChunk;
  options.storage_bytes = 12 * kChunk;
  options.slab_bytes = 4 * kChunk;
  options.evict_staging_buffers = options.fault_staging_buffers = 2;
  options.reach = reach_;
  auto pool = HostPool::Create(CoreDevice::Driver(), CoreDevice::Context(), options);
  ASSERT_TRUE(pool.ok());
  EXPECT_TRUE((*pool)->reachable());
  ASSERT_TRUE((*pool)->GrowStorageTo(12 * kChunk).ok());
  std::vector<PinnedBuffer> buffers, staging;
  ASSERT_EQ((*pool)->Take(HostUse::kStorage, 12, &buffers), 12u);
  for (size_t i = 0; i < buffers.size(); ++i) {
    EXPECT_NE(buffers[i].handle, 0u);
    for (size_t j = 0; j < i; ++j) EXPECT_NE(buffers[i].handle, buffers[j].handle);
    std::memset(buffers[i].data, static_cast<int>(i), kChunk);
  }
  ASSERT_EQ((*pool)->Take(HostUse::kEvictStaging, 2, &staging), 2u);
  EXPECT_EQ(staging[0].handle, 0u);
  // The handle is that of the buffer: mapped elsewhere it has the same bytes.
  CUdeviceptr there = 0;
  const CudaDriver& driver = *CoreDevice::Driver();
  ASSERT_EQ(driver.cuMemAddressReserve(&there, 2 << 20, 0, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(driver.cuMemMap(there, kChunk, 0, buffers[7].handle, 0), CUDA_SUCCESS);
  CUmemAccessDesc access = {};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  ASSERT_EQ(driver.cuMemSetAccess(there, kChunk, &access, 1), CUDA_SUCCESS);
  EXPECT_EQ(*reinterpret_cast<const char*>(there + kChunk - 1), 7);
  ASSERT_EQ(driver.cuMemUnmap(there, kChunk), CUDA_SUCCESS);
  ASSERT_EQ(driver.cuMemAddressFree(there, 2 << 20), CUDA_SUCCESS);
}

}  // namespace
}  // namespace spillway::allocator
