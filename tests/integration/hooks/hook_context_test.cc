#include "integration/hooks/hook_context.h"

#include "tests/integration/hooks/hook_fixture.h"

namespace spillway::integration {
namespace {

class HookContextTest : public HookTest {};

TEST_F(HookContextTest, NothingIsOursBeforePublicationAndAfterItsEnd) {
  EXPECT_EQ(ContextOwning(Address(1)), nullptr);
  Publish();
  EXPECT_EQ(ContextOwning(Address(1)), &context_);
  EXPECT_EQ(ContextOwning(0x1000), nullptr);
  PublishHookContext(nullptr);
  EXPECT_EQ(ContextOwning(Address(1)), nullptr);
  EXPECT_EQ(ContextOf(nullptr), nullptr);
}

TEST_F(HookContextTest, FindsTheBlockBehindAnAddress) {
  Publish();
  allocator::Residency::Range range;
  ASSERT_TRUE(FindOurs(&context_, Address(1) + 64, &range));
  EXPECT_EQ(range.base, Address(1));
  EXPECT_FALSE(FindOurs(&context_, Address(1) - kTestChunk, &range)) << "free space of the reservation";
}

TEST_F(HookContextTest, OnlyDevicesThatExistTakePart) {
  Publish();
  EXPECT_EQ(context_.Of(1), &residency_[1]);
  EXPECT_EQ(context_.Of(2), nullptr);
  EXPECT_EQ(context_.Of(-1), nullptr);
  EXPECT_EQ(context_.Of(allocator::kMaxDevices), nullptr);
  driver().device = 1;
  EXPECT_EQ(CurrentDevice(*GetHookState()), 1);
}

TEST_F(HookContextTest, KnowsWhatIsCaptured) {
  driver().capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  EXPECT_FALSE(IsCapturing(*GetHookState(), {Stream(1)})) << "nobody has begun: not even asked";
  GetHookState()->captures.store(1);
  EXPECT_TRUE(IsCapturing(*GetHookState(), {Stream(1)}));
  EXPECT_EQ(CaptureOf(*GetHookState(), {Stream(1)}), driver().capture_id);
  driver().capture = CU_STREAM_CAPTURE_STATUS_NONE;
  EXPECT_FALSE(IsCapturing(*GetHookState(), {Stream(1)}));
  EXPECT_EQ(CaptureOf(*GetHookState(), {Stream(1)}), 0u);
}

TEST_F(HookContextTest, EvictionIsSwitchedOffOnce) {
  SwitchEvictionOff(GetHookState(), "too early");
  EXPECT_EQ(switched_off(), "");
  Publish();
  SwitchEvictionOff(GetHookState(), "first");
  SwitchEvictionOff(GetHookState(), "second");
  EXPECT_EQ(switched_off(), "first;");
}

}  // namespace
}  // namespace spillway::integration
