// CopyStreams: copies run in order on streams of ours, and a mark completes behind them.

#include "allocator/residency/transfer/copy_streams.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/allocator/motion_helpers.h"

namespace spillway::allocator {
namespace {

TEST(CopyStreamsTest, AMarkCompletesWhenWhatLiesBeforeItHas) {
  CoreDevice device({});
  const CUdeviceptr block = Filled(device, 6);
  ScopedContext scope(CoreDevice::Driver(), CoreDevice::Context());
  Core* const core = device->core();
  auto streams = CopyStreams::Create(CoreDevice::Driver(), &core->clock, &core->error, core->waits);
  ASSERT_TRUE(streams.ok()) << streams.status();
  std::vector<char> bytes(kBlock);
  ASSERT_TRUE((*streams)->Out(bytes.data(), block, kBlock).ok());
  absl::StatusOr<CUevent> mark = (*streams)->MarkOut();
  ASSERT_TRUE(mark.ok()) << mark.status();
  EXPECT_TRUE(tests::WaitUntil([&] { return (*streams)->Done(*mark); }));
  core->clock.GiveEvent(*mark);
  EXPECT_EQ(CoreDevice::Differences(reinterpret_cast<CUdeviceptr>(bytes.data()), kBlock, 6), 0u);
}

}  // namespace
}  // namespace spillway::allocator
