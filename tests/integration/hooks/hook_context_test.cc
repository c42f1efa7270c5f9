#include "integration/hooks/hook_context.h"

#include "tests/integration/hooks/escape_fixture.h"

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

// ---- Ends of pins.

class PinEndsTest : public EscapeHookTest {};

TEST_F(PinEndsTest, ATableInABlockOfOursEndsWithIt) {
  Upload(Address(1), {2, 3});
  EXPECT_EQ(PinsOf(2), 1);
  EXPECT_EQ(driver().Hooked<Row::cuMemFree_v2>()(Address(1)), CUDA_SUCCESS);
  EXPECT_EQ(PinsOf(2), 0);
  EXPECT_EQ(PinsOf(3), 0);
  EXPECT_EQ(residency_[0].ends.back().users.pointer_block, Id(1)) << "its users may still read the table";
}

TEST_F(PinEndsTest, ATableInExternalMemoryEndsWithIt) {
  CUdeviceptr memory = kExternal;  // the fake leaves it as it is
  ASSERT_EQ(driver().Hooked<Row::cuMemAlloc_v2>()(&memory, 4096), CUDA_SUCCESS);
  Upload(kExternal + 128, {2});
  driver().Hooked<Row::cuMemFreeAsync>()(kExternal, Stream(3));
  EXPECT_EQ(PinsOf(2), 0);
  ASSERT_EQ(residency_[0].ends.back().users.streams.size(), 1u);
  EXPECT_EQ(residency_[0].ends.back().users.streams[0].handle, Stream(3));
}

TEST_F(PinEndsTest, AddressesInAGlobalArePinnedUntilItIsOverwrittenOrUnloaded) {
  const auto module = reinterpret_cast<CUmodule>(0x3000);
  CUdeviceptr global = kExternal + 0x800;
  size_t bytes = 64;
  driver().Hooked<Row::cuModuleGetGlobal_v2>()(&global, &bytes, module, "table");
  Upload(global + 8, {2, 3});
  EXPECT_EQ(PinsOf(2, PinReason::kModuleGlobal), 1);
  EXPECT_EQ(PinsOf(2), 0);
  Upload(global + 8, {4});
  EXPECT_EQ(PinsOf(2, PinReason::kModuleGlobal), 0);
  EXPECT_EQ(PinsOf(3, PinReason::kModuleGlobal), 1);
  driver().Hooked<Row::cuModuleUnload>()(reinterpret_cast<CUmodule>(0x4000));
  driver().results["cuModuleUnload"] = {CUDA_ERROR_UNKNOWN};
  driver().Hooked<Row::cuModuleUnload>()(module);
  EXPECT_EQ(PinsOf(3, PinReason::kModuleGlobal), 1) << "the driver has not unloaded it";
  driver().Hooked<Row::cuModuleUnload>()(module);
  EXPECT_EQ(PinsOf(3, PinReason::kModuleGlobal), 0);
  EXPECT_EQ(PinsOf(4, PinReason::kModuleGlobal), 0);
}

}  // namespace
}  // namespace spillway::integration
