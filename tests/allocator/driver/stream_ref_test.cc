// StreamRef: which stream a launch means. TimelineValue: packing into one word.

#include "allocator/driver/stream_ref.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace spillway::allocator {
namespace {

CUstream SomeStream() {
  static char stream = 0;
  return reinterpret_cast<CUstream>(&stream);
}

TEST(StreamRefTest, ANullHandleMeansTheStreamOfTheEntryPoint) {
  const StreamRef legacy{nullptr, false};
  EXPECT_TRUE(legacy.IsDefault());
  EXPECT_FALSE(legacy.IsPerThread());
  EXPECT_EQ(legacy.Explicit(), CU_STREAM_LEGACY);
  const StreamRef per_thread{nullptr, true};
  EXPECT_TRUE(per_thread.IsDefault());
  EXPECT_TRUE(per_thread.IsPerThread());
  EXPECT_EQ(per_thread.Explicit(), CU_STREAM_PER_THREAD);
}

TEST(StreamRefTest, NamedDefaultStreamsNeedNoEntryPoint) {
  for (const bool per_thread_default : {false, true}) {
    const StreamRef legacy{CU_STREAM_LEGACY, per_thread_default};
    EXPECT_TRUE(legacy.IsDefault());
    EXPECT_FALSE(legacy.IsPerThread());
    EXPECT_EQ(legacy.Explicit(), CU_STREAM_LEGACY);
    const StreamRef per_thread{CU_STREAM_PER_THREAD, per_thread_default};
    EXPECT_TRUE(per_thread.IsDefault());
    EXPECT_TRUE(per_thread.IsPerThread());
    EXPECT_EQ(per_thread.Explicit(), CU_STREAM_PER_THREAD);
  }
}

TEST(StreamRefTest, AnyOtherHandleIsTheStream) {
  for (const bool per_thread_default : {false, true}) {
    const StreamRef stream{SomeStream(), per_thread_default};
    EXPECT_FALSE(stream.IsDefault());
    EXPECT_FALSE(stream.IsPerThread());
    EXPECT_EQ(stream.Explicit(), SomeStream());
  }
}

TEST(TimelineValueTest, IsTheSameAfterPacking) {
  constexpr uint64_t kLargest = (uint64_t{1} << 48) - 1;
  for (const TimelineValue value :
       {TimelineValue{1, 1}, TimelineValue{1023, kLargest}, TimelineValue{7, 0}}) {
    const TimelineValue read = TimelineValue::Unpack(value.Packed());
    EXPECT_EQ(read.stream, value.stream);
    EXPECT_EQ(read.number, value.number);
  }
}

TEST(TimelineValueTest, ZeroIsNoValue) {
  EXPECT_EQ(TimelineValue().Packed(), 0u);
  EXPECT_EQ(TimelineValue::Unpack(0).stream, kNoStream);
  EXPECT_NE((TimelineValue{1, 0}).Packed(), 0u);
}

}  // namespace
}  // namespace spillway::allocator
