// CopyIn: extents of one block from both tiers, and its staging.

#include "allocator/residency/transfer/copy_in.h"

#include <gtest/gtest.h>

#include "tests/allocator/motion_helpers.h"

namespace spillway::allocator {
namespace {

TEST(CopyInTest, ABlockOfWhichHalfLiesOnDiskComesBackWholeAndGivesItsStagingBack) {
  CoreSetup setup;
  setup.host_bytes = 256 << 10;  // half of the block goes to the host, half to the disk
  CoreDevice device(setup);
  const size_t staging = device.host().Free(HostUse::kFaultStaging);
  const CUdeviceptr block = Filled(device, 8);
  StartEviction(device, block);
  WaitForState(device, block, BlockState::kSpilled);
  StartPrefetch(device, block);
  device->thread()->Wake();
  WaitForState(device, block, BlockState::kResident);
  const ResidencyStats stats = device->Stats();
  EXPECT_EQ(stats.host_fetched_bytes, 256u << 10);
  EXPECT_EQ(stats.disk_fetched_bytes, 256u << 10);
  EXPECT_EQ(Wrong(device, block, 8), 0u);
  EXPECT_EQ(device.host().Free(HostUse::kFaultStaging), staging);
}

}  // namespace
}  // namespace spillway::allocator
