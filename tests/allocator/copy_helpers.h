// For tests of copies that are kept off the GPU: a device with a hash, and single ways of one block. On the
// test's thread; a step that is not done within its time fails the test.

#ifndef SPILLWAY_TESTS_ALLOCATOR_COPY_HELPERS_H_
#define SPILLWAY_TESTS_ALLOCATOR_COPY_HELPERS_H_

#include <gtest/gtest.h>

#include "tests/allocator/motion_helpers.h"

namespace spillway::allocator {

inline CoreSetup SetupWith(HashCode* code, uint64_t host_bytes = 4 << 20) {
  CoreSetup setup;
  setup.host_bytes = host_bytes;
  setup.hash_code = code;
  return setup;
}

// The hash is loaded by a thread of its own.
inline void AwaitHash(CoreDevice& device) {
  ASSERT_TRUE(tests::WaitUntil([&] { return device->hash()->Get() != nullptr; })) << "no hash is loaded";
}

inline void Evict(CoreDevice& device, CUdeviceptr block) {
  StartEviction(device, block);
  WaitForState(device, block, BlockState::kSpilled);
}

// Brings it back by a kernel that reads it; returns how many words were wrong.
inline uint64_t Read(CoreDevice& device, CUdeviceptr block, uint64_t version) {
  const uint64_t wrong = Wrong(device, block, version);
  WaitForState(device, block, BlockState::kResident);
  return wrong;
}

inline void Write(CoreDevice& device, CUdeviceptr block, uint64_t version) {
  EXPECT_EQ(device.Launch(nullptr, {block}, [=](const auto& a) { CoreDevice::Fill(a[0], kBlock, version); }),
            CUDA_SUCCESS);
  device.Synchronize();
}

inline bool HasCopy(CoreDevice& device, CUdeviceptr address) {
  Core* const core = device->core();
  const TableLock lock(core->table);
  return !BlockAt(device, address)->copies.copy_homes.empty();
}

inline void AwaitCopy(CoreDevice& device, CUdeviceptr address) {
  ASSERT_TRUE(tests::WaitUntil([&] { return HasCopy(device, address); })) << "no copy is kept";
}

// Waits until so many evictions, and early copies, have been taken back in all.
inline void AwaitTakenBack(CoreDevice& device, uint64_t count) {
  ASSERT_TRUE(tests::WaitUntil([&] { return device->Stats().evictions_cancelled >= count; }));
}

}  // namespace spillway::allocator

#endif  // SPILLWAY_TESTS_ALLOCATOR_COPY_HELPERS_H_
