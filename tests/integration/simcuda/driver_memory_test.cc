// The stand-in driver's memory: virtual memory management, allocations, host memory, capacity, poison.
#include <cstring>

#include "tests/integration/simcuda/driver_test_base.h"
#include "tests/integration/simcuda/driver_waiting.h"

namespace simcuda_test {
namespace {

class DriverMemoryTest : public DriverTest {};

TEST_F(DriverMemoryTest, HandleKeepsItsContentAtAnotherAddress) {
  Range range(4 * kChunk);
  Chunk chunk;
  chunk.MapAt(range.start);
  std::memset(At<char>(range.start), 'x', kChunk);
  ASSERT_EQ(cuMemUnmap(range.start, kChunk), CUDA_SUCCESS);
  chunk.MapAt(range.start + 3 * kChunk);
  for (size_t i = 0; i < kChunk; i += 4096) ASSERT_EQ(At<char>(range.start + 3 * kChunk)[i], 'x') << i;
  ASSERT_EQ(cuMemUnmap(range.start + 3 * kChunk, kChunk), CUDA_SUCCESS);
}

TEST_F(DriverMemoryTest, NewMemoryIsPoisoned) {
  Range range(kChunk);
  Chunk chunk;
  chunk.MapAt(range.start);
  EXPECT_EQ(*At<uint64_t>(range.start), 0xfffefffefffefffeu);
  EXPECT_EQ(*At<uint64_t>(range.start + kChunk - 8), 0xfffefffefffefffeu);
  float as_float;
  std::memcpy(&as_float, At<char>(range.start), sizeof(as_float));
  EXPECT_NE(as_float, as_float) << "the pattern is no number";
  ASSERT_EQ(cuMemUnmap(range.start, kChunk), CUDA_SUCCESS);
  CUdeviceptr pointer = 0;
  ASSERT_EQ(cuMemAlloc(&pointer, 100), CUDA_SUCCESS);
  EXPECT_EQ(*At<uint64_t>(pointer), 0xfffefffefffefffeu);
  ASSERT_EQ(cuMemFree(pointer), CUDA_SUCCESS);
}

TEST_F(DriverMemoryTest, PoisonUnmapForgetsTheContent) {
  ASSERT_EQ(simcuda_set("POISON", "unmap"), 0);
  Range range(kChunk);
  Chunk chunk;
  chunk.MapAt(range.start);
  std::memset(At<char>(range.start), 'x', kChunk);
  ASSERT_EQ(cuMemUnmap(range.start, kChunk), CUDA_SUCCESS);
  chunk.MapAt(range.start);
  EXPECT_EQ(*At<uint64_t>(range.start + 4096), 0xfffefffefffefffeu);
  ASSERT_EQ(cuMemUnmap(range.start, kChunk), CUDA_SUCCESS);
}

TEST_F(DriverMemoryTest, PoisonCanBeSwitchedOff) {
  ASSERT_EQ(simcuda_set("POISON", "off"), 0);
  Range range(kChunk);
  Chunk chunk;
  chunk.MapAt(range.start);
  EXPECT_EQ(*At<uint64_t>(range.start), 0u);
  ASSERT_EQ(cuMemUnmap(range.start, kChunk), CUDA_SUCCESS);
}

TEST_F(DriverMemoryTest, UnmapTakesWholeMappingsOnly) {
  Range range(8 * kChunk);
  Chunk first(2 * kChunk), second(kChunk);
  first.MapAt(range.start);
  second.MapAt(range.start + 2 * kChunk);
  EXPECT_EQ(cuMemUnmap(range.start, kChunk), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemUnmap(range.start + kChunk, kChunk), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemUnmap(range.start + kChunk, 2 * kChunk), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemUnmap(range.start, 4 * kChunk), CUDA_ERROR_INVALID_VALUE) << "a gap at the end";
  EXPECT_EQ(cuMemUnmap(range.start, 0), CUDA_ERROR_INVALID_VALUE);
  *At<int>(range.start) = 7;  // nothing has changed
  EXPECT_EQ(cuMemUnmap(range.start, 3 * kChunk), CUDA_SUCCESS) << "several whole mappings at once";
  EXPECT_EQ(cuMemUnmap(range.start, 3 * kChunk), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverMemoryTest, MapRefusesWhatCudaRefuses) {
  Range range(4 * kChunk);
  Chunk first, second;
  const auto map = [&](uint64_t at, uint64_t size, uint64_t offset, uint64_t handle) {
    return cuMemMap(range.start + at, size, offset, handle, 0);
  };
  {
    const HandlesAreAnswered answered;
    EXPECT_EQ(map(0, kChunk, 0, 999999), CUDA_ERROR_INVALID_VALUE) << "no such handle";
  }
  EXPECT_EQ(map(0, kChunk, kChunk, first.handle), CUDA_ERROR_INVALID_VALUE) << "offset";
  EXPECT_EQ(map(4096, kChunk, 0, first.handle), CUDA_ERROR_INVALID_VALUE) << "alignment";
  EXPECT_EQ(map(0, 2 * kChunk, 0, first.handle), CUDA_ERROR_INVALID_VALUE) << "larger than the handle";
  EXPECT_EQ(map(4 * kChunk, kChunk, 0, first.handle), CUDA_ERROR_INVALID_VALUE) << "outside the reservation";
  ASSERT_EQ(map(kChunk, kChunk, 0, first.handle), CUDA_SUCCESS);
  EXPECT_EQ(map(kChunk, kChunk, 0, second.handle), CUDA_ERROR_INVALID_VALUE) << "over a mapping";
  EXPECT_EQ(map(0, kChunk, 0, first.handle), CUDA_ERROR_NOT_SUPPORTED) << "one handle, two mappings";
  EXPECT_EQ(cuMemAddressFree(range.start, range.size), CUDA_ERROR_INVALID_VALUE) << "still mapped";
  EXPECT_EQ(cuMemUnmap(range.start + kChunk, kChunk), CUDA_SUCCESS) << "never made accessible";
}

TEST_F(DriverMemoryTest, AccessNeedsWholeMappingsAndIsReported) {
  Range range(2 * kChunk);
  Chunk chunk;
  EXPECT_EQ(AllowAccess(range.start, kChunk), CUDA_ERROR_INVALID_VALUE) << "nothing is mapped";
  ASSERT_EQ(cuMemMap(range.start, kChunk, 0, chunk.handle, 0), CUDA_SUCCESS);
  EXPECT_EQ(AllowAccess(range.start, 2 * kChunk), CUDA_ERROR_INVALID_VALUE) << "half is not mapped";
  CUmemLocation location = {};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  unsigned long long flags = 99;
  ASSERT_EQ(cuMemGetAccess(&flags, &location, range.start), CUDA_SUCCESS);
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  ASSERT_EQ(AllowAccess(range.start, kChunk), CUDA_SUCCESS);
  ASSERT_EQ(cuMemGetAccess(&flags, &location, range.start), CUDA_SUCCESS);
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  ASSERT_EQ(cuMemUnmap(range.start, kChunk), CUDA_SUCCESS);
}

TEST_F(DriverMemoryTest, ReleasedHandleLivesAsLongAsItsMapping) {
  const uint64_t before = Stats().physical_bytes[0];
  Range range(kChunk);
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp properties = DeviceMemory();
  ASSERT_EQ(cuMemCreate(&handle, kChunk, &properties, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemMap(range.start, kChunk, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(AllowAccess(range.start, kChunk), CUDA_SUCCESS);
  ASSERT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  {
    const HandlesAreAnswered answered;
    EXPECT_EQ(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
  }
  *At<int>(range.start) = 5;
  CUmemGenericAllocationHandle again = 0;
  ASSERT_EQ(cuMemRetainAllocationHandle(&again, At<void>(range.start)), CUDA_SUCCESS);
  EXPECT_EQ(again, handle);
  ASSERT_EQ(cuMemRelease(again), CUDA_SUCCESS);
  EXPECT_EQ(Stats().physical_bytes[0], before + kChunk);
  ASSERT_EQ(cuMemUnmap(range.start, kChunk), CUDA_SUCCESS);
  EXPECT_EQ(Stats().physical_bytes[0], before);
}

TEST_F(DriverMemoryTest, CapacityCountsHandlesAndAllocations) {
  size_t free_before = 0, total = 0;
  ASSERT_EQ(cuMemGetInfo(&free_before, &total), CUDA_SUCCESS);
  EXPECT_EQ(total, kCapacity);
  simcuda_reset_stats();
  {
    Chunk chunk(kCapacity / 2);
    size_t free_now = 0;
    ASSERT_EQ(cuMemGetInfo(&free_now, &total), CUDA_SUCCESS);
    EXPECT_EQ(free_now, free_before - kCapacity / 2);
    CUdeviceptr pointer = 0;
    EXPECT_EQ(cuMemAlloc(&pointer, free_now + 1), CUDA_ERROR_OUT_OF_MEMORY);
    ASSERT_EQ(cuMemAlloc(&pointer, free_now), CUDA_SUCCESS);
    CUmemGenericAllocationHandle handle = 0;
    const CUmemAllocationProp properties = DeviceMemory();
    EXPECT_EQ(cuMemCreate(&handle, kChunk, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
    const CUmemAllocationProp other = DeviceMemory(1);
    ASSERT_EQ(cuMemCreate(&handle, kChunk, &other, 0), CUDA_SUCCESS) << "devices have their own memory";
    ASSERT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
    ASSERT_EQ(cuMemFree(pointer), CUDA_SUCCESS);
  }
  size_t free_after = 0;
  ASSERT_EQ(cuMemGetInfo(&free_after, &total), CUDA_SUCCESS);
  EXPECT_EQ(free_after, free_before);
  EXPECT_EQ(Stats().peak_physical_bytes[0], kCapacity);
  EXPECT_EQ(Stats().peak_physical_bytes[1], kChunk);
}

TEST_F(DriverMemoryTest, CapacityCanShrink) {
  simcuda_set_memory(0, 4 * kMiB);
  CUdeviceptr pointer = 0;
  EXPECT_EQ(cuMemAlloc(&pointer, 8 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(cuMemAlloc(&pointer, 4 * kMiB), CUDA_SUCCESS);
  ASSERT_EQ(cuMemFree(pointer), CUDA_SUCCESS);
}

TEST_F(DriverMemoryTest, FreeRefusesWhatIsNoAllocation) {
  CUdeviceptr pointer = 0;
  ASSERT_EQ(cuMemAlloc(&pointer, kMiB), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(pointer + 512), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFree(0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemFree(pointer), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(pointer), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverMemoryTest, FreeWaitsForTheWorkOfTheContext) {
  CUdeviceptr pointer = 0;
  ASSERT_EQ(cuMemAlloc(&pointer, kMiB), CUDA_SUCCESS);
  TestStream stream(CU_STREAM_NON_BLOCKING);
  std::atomic<bool> done{false};
  HostCall host;
  const Kernel slow("slow_writer", 1, [&](uint64_t* addresses) {
    host.UntilItWaits();
    *At<int>(addresses[0]) = 1;
    done = true;
  });
  ASSERT_EQ(slow.Launch(stream, {pointer}), CUDA_SUCCESS);
  host.Run([&] {
    EXPECT_EQ(cuMemFree(pointer), CUDA_SUCCESS);
    EXPECT_TRUE(done);
  });
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
}

TEST_F(DriverMemoryTest, PointersAreDescribed) {
  CUdeviceptr pointer = 0;
  ASSERT_EQ(cuMemAlloc(&pointer, kMiB), CUDA_SUCCESS);
  CUdeviceptr base = 0;
  size_t size = 0;
  ASSERT_EQ(cuMemGetAddressRange(&base, &size, pointer + 1000), CUDA_SUCCESS);
  EXPECT_EQ(base, pointer);
  EXPECT_EQ(size, kMiB);
  CUmemorytype type{};
  ASSERT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer + 4), CUDA_SUCCESS);
  EXPECT_EQ(type, CU_MEMORYTYPE_DEVICE);
  void* host = nullptr;
  ASSERT_EQ(cuMemHostAlloc(&host, 5000, CU_MEMHOSTALLOC_PORTABLE), CUDA_SUCCESS);
  ASSERT_EQ(
      cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(host)),
      CUDA_SUCCESS);
  EXPECT_EQ(type, CU_MEMORYTYPE_HOST);
  int plain = 0;
  EXPECT_EQ(
      cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(&plain)),
      CUDA_ERROR_INVALID_VALUE);
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  unsigned int memory_type = 99;
  size_t range_size = 99;
  void* values[] = {&memory_type, &range_size};
  ASSERT_EQ(cuPointerGetAttributes(2, attributes, values, reinterpret_cast<CUdeviceptr>(&plain)),
            CUDA_SUCCESS);
  EXPECT_EQ(memory_type, 0u);
  EXPECT_EQ(range_size, 0u);
  ASSERT_EQ(cuMemFreeHost(host), CUDA_SUCCESS);
  ASSERT_EQ(cuMemFree(pointer), CUDA_SUCCESS);
  EXPECT_EQ(cuMemGetAddressRange(&base, &size, pointer), CUDA_ERROR_NOT_FOUND);
}

TEST_F(DriverMemoryTest, HostMemoryIsRegisteredOnce) {
  std::vector<char> memory(1 << 16);
  ASSERT_EQ(cuMemHostRegister(memory.data(), memory.size(), 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemHostRegister(memory.data() + 100, 50, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  CUdeviceptr device = 0;
  ASSERT_EQ(cuMemHostGetDevicePointer(&device, memory.data() + 8, 0), CUDA_SUCCESS);
  EXPECT_EQ(device, reinterpret_cast<CUdeviceptr>(memory.data() + 8));
  EXPECT_EQ(cuMemFreeHost(memory.data()), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuMemHostUnregister(memory.data()), CUDA_SUCCESS);
  EXPECT_EQ(cuMemHostUnregister(memory.data()), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  void* host = nullptr;
  ASSERT_EQ(cuMemAllocHost(&host, 10), CUDA_SUCCESS);
  unsigned flags = 0;
  ASSERT_EQ(cuMemHostGetFlags(&flags, host), CUDA_SUCCESS);
  EXPECT_NE(flags & CU_MEMHOSTALLOC_DEVICEMAP, 0u);
  ASSERT_EQ(cuMemFreeHost(host), CUDA_SUCCESS);
}

TEST_F(DriverMemoryTest, HostPhysicalMemoryCanLieAtADeviceAddress) {
  const uint64_t before = Stats().physical_bytes[0];
  Range range(kChunk);
  CUmemAllocationProp properties = DeviceMemory();
  properties.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_EQ(cuMemCreate(&handle, kChunk, &properties, 0), CUDA_SUCCESS);
  EXPECT_EQ(Stats().physical_bytes[0], before) << "not the device's memory";
  ASSERT_EQ(cuMemMap(range.start, kChunk, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(AllowAccess(range.start, kChunk), CUDA_SUCCESS);
  ASSERT_EQ(cuMemsetD8(range.start, 3, kChunk), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(At<char>(range.start)[kChunk - 1], 3);
  ASSERT_EQ(cuMemUnmap(range.start, kChunk), CUDA_SUCCESS);
  ASSERT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
}

CUmemAllocationProp HostMemoryOfNode(int node) {
  CUmemAllocationProp properties = DeviceMemory();
  properties.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
  properties.location.id = node;
  return properties;
}

TEST_F(DriverMemoryTest, HostPhysicalMemoryLiesAtSeveralAddressesAtOnce) {
  Range here(kChunk), there(kChunk);
  const CUmemAllocationProp properties = HostMemoryOfNode(0);
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_EQ(cuMemCreate(&handle, kChunk, &properties, 0), CUDA_SUCCESS);
  for (const CUdeviceptr start : {here.start, there.start})
    ASSERT_EQ(cuMemMap(start, kChunk, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(AllowHost(here.start, kChunk), CUDA_SUCCESS);
  ASSERT_EQ(AllowAccess(there.start, kChunk), CUDA_SUCCESS);
  At<char>(here.start)[7] = 42;
  EXPECT_EQ(At<char>(there.start)[7], 42);
  // The device's mapping goes and comes back: the bytes are those of the handle, whatever a device's would be.
  ASSERT_EQ(simcuda_set("POISON", "unmap"), 0);
  ASSERT_EQ(cuMemUnmap(there.start, kChunk), CUDA_SUCCESS);
  EXPECT_EQ(At<char>(here.start)[7], 42);
  ASSERT_EQ(cuMemMap(there.start, kChunk, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(AllowAccess(there.start, kChunk), CUDA_SUCCESS);
  ASSERT_EQ(cuMemsetD8(there.start, 3, kChunk), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(At<char>(here.start)[7], 3);
  ASSERT_EQ(cuMemRelease(handle), CUDA_SUCCESS) << "it lives on behind its mappings";
  ASSERT_EQ(cuMemUnmap(here.start, kChunk), CUDA_SUCCESS);
  EXPECT_EQ(At<char>(there.start)[7], 3);
  ASSERT_EQ(cuMemUnmap(there.start, kChunk), CUDA_SUCCESS);
  ASSERT_EQ(simcuda_set("POISON", "recycle"), 0);
}

TEST_F(DriverMemoryTest, HostPhysicalMemoryNeedsARealNodeAndADeviceThatCan) {
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp elsewhere = HostMemoryOfNode(1);
  EXPECT_EQ(cuMemCreate(&handle, kChunk, &elsewhere, 0), CUDA_ERROR_INVALID_VALUE);
  CUmemAllocationProp current = HostMemoryOfNode(0);
  current.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
  EXPECT_EQ(cuMemCreate(&handle, kChunk, &current, 0), CUDA_ERROR_INVALID_VALUE);
  int can = 0, node = -1;
  constexpr auto kCan = CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
  ASSERT_EQ(cuDeviceGetAttribute(&can, kCan, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0), CUDA_SUCCESS);
  EXPECT_EQ(can, 1);
  EXPECT_EQ(node, 0);
  ASSERT_EQ(simcuda_set("HOST_HANDLES", "off"), 0);
  ASSERT_EQ(cuDeviceGetAttribute(&can, kCan, 0), CUDA_SUCCESS);
  EXPECT_EQ(can, 0);
  const CUmemAllocationProp properties = HostMemoryOfNode(0);
  EXPECT_EQ(cuMemCreate(&handle, kChunk, &properties, 0), CUDA_ERROR_NOT_SUPPORTED);
  ASSERT_EQ(simcuda_set("HOST_HANDLES", "on"), 0);
}

TEST_F(DriverMemoryTest, GranularityAndReservations) {
  const CUmemAllocationProp properties = DeviceMemory();
  size_t granularity = 0;
  ASSERT_EQ(cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
            CUDA_SUCCESS);
  EXPECT_EQ(granularity, kChunk);
  CUdeviceptr start = 0;
  EXPECT_EQ(cuMemAddressReserve(&start, kChunk + 4096, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuMemAddressReserve(&start, uint64_t{16} << 30, uint64_t{1} << 30, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(start % (uint64_t{1} << 30), 0u);
  EXPECT_EQ(simcuda_is_device_address(start + 5), 1);
  CUdeviceptr hinted = 0;
  ASSERT_EQ(cuMemAddressReserve(&hinted, kChunk, 0, start, 0), CUDA_SUCCESS)
      << "a hint that is taken is only a hint";
  EXPECT_NE(hinted, start);
  ASSERT_EQ(cuMemAddressFree(hinted, kChunk), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAddressFree(start, kChunk), CUDA_ERROR_INVALID_VALUE) << "not the whole reservation";
  ASSERT_EQ(cuMemAddressFree(start, uint64_t{16} << 30), CUDA_SUCCESS);
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(cuMemCreate(&handle, 4096, &properties, 0), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace simcuda_test
