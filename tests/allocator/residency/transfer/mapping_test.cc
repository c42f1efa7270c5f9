// Mapping of blocks: taken away and given back while the chunks keep the bytes.

#include "allocator/residency/transfer/mapping.h"

#include <gtest/gtest.h>

#include "tests/allocator/motion_helpers.h"

namespace spillway::allocator {
namespace {

TEST(MappingTest, AHiddenBlockKeepsItsBytes) {
  CoreDevice device({});
  const CUdeviceptr address = Filled(device, 4);
  Block* const block = BlockAt(device, address);
  ScopedContext scope(CoreDevice::Driver(), CoreDevice::Context());
  {
    const TableLock lock(device->core()->table);
    block->memory.mapping = true;
  }
  ASSERT_TRUE(UnmapForAudit(device->core(), block).ok());
  EXPECT_TRUE(block->memory.unmapped);
  EXPECT_FALSE(block->memory.mapping);
  ASSERT_TRUE(Remap(device->core(), block).ok());
  EXPECT_FALSE(block->memory.unmapped);
  EXPECT_EQ(Wrong(device, address, 4), 0u);
  EXPECT_TRUE(Remap(device->core(), block).ok()) << "nothing to do";
}

}  // namespace
}  // namespace spillway::allocator
