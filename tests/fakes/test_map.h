// An AddressMap without a driver, with blocks at known addresses. For tests of what looks up addresses.
// Nothing is reserved, and nothing may be read at an address.

#ifndef SPILLWAY_TESTS_FAKES_TEST_MAP_H_
#define SPILLWAY_TESTS_FAKES_TEST_MAP_H_

#include <cstdint>
#include <memory>

#include "allocator/memory/address_map.h"

namespace spillway::integration {

inline constexpr uint64_t kTestBase = 0x700000000000;
inline constexpr uint64_t kTestChunk = 2 << 20;

// The map lies at `base`, whatever its users would like.
inline std::unique_ptr<allocator::AddressMap> MakeTestMap(int devices = 1,
                                                          uint64_t bytes_per_device = 1ull << 32,
                                                          uint64_t base = kTestBase) {
  static const allocator::CudaDriver driver = [] {
    allocator::CudaDriver fake;
    fake.cuMemAddressReserve = [](CUdeviceptr* start, size_t, size_t, CUdeviceptr hint, unsigned long long) {
      *start = hint;
      return CUDA_SUCCESS;
    };
    return fake;
  }();
  return allocator::AddressMap::Reserve(&driver, devices, bytes_per_device, kTestChunk, {&base, 1}).value();
}

// Where block `index` of `device` lies in a map with PlaceBlocks: 3 chunks, then a guard chunk.
inline uint64_t BlockAddress(const allocator::AddressMap& map, int device, uint32_t index) {
  return map.device_base(device) + (4 * uint64_t{index} + 1) * kTestChunk;
}
inline constexpr uint64_t kTestBlockBytes = 3 * kTestChunk;

inline void PlaceBlocks(allocator::AddressMap* map, int device, uint32_t count) {
  for (uint32_t index = 0; index < count; ++index) {
    map->Assign(BlockAddress(*map, device, index), kTestBlockBytes, allocator::BlockId(device, index + 1));
  }
}

}  // namespace spillway::integration

#endif  // SPILLWAY_TESTS_FAKES_TEST_MAP_H_
