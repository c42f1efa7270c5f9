// The gate, in the order of its ways: captured, rewriting, named, nothing named, denied.

#include "integration/hooks/launch_gate.h"

#include "tests/integration/hooks/escape_fixture.h"

namespace spillway::integration {
namespace {

class LaunchGateTest : public LaunchHookTest {};

TEST_F(LaunchGateTest, GoesThroughTheGateWithItsBlocksStreamAndTag) {
  Publish();
  residency_[0].inside_run = [] { EXPECT_EQ(driver().CountOf("cuLaunchKernel"), 0u); };
  EXPECT_EQ(Launch(2, Stream(1)), CUDA_SUCCESS);
  EXPECT_EQ(driver().CountOf("cuLaunchKernel"), 1u);
  const FakeResidency::Launch launch = OnlyLaunch();
  EXPECT_EQ(launch.set, (Ids{Id(2), Id(3)}));
  EXPECT_EQ(launch.stream.handle, Stream(1));
  EXPECT_FALSE(launch.stream.per_thread_default);
  EXPECT_FALSE(launch.pinned);
  EXPECT_EQ(launch.tag, HashName("test_kernel"));
}

CUresult CUDAAPI FakeCurrentContext(CUcontext* context) {
  *context = reinterpret_cast<CUcontext>(0x6000);
  return CUDA_SUCCESS;
}

TEST_F(LaunchGateTest, BesideOtherContextsADefaultStreamIsThatOfTheCurrentOne) {
  delete GetHookState();
  driver().overrides["cuCtxGetCurrent"] = reinterpret_cast<void*>(&FakeCurrentContext);
  Install();
  Publish();
  Launch(2, nullptr);
  EXPECT_EQ(residency_[0].launches.back().stream.context, nullptr) << "nobody asks in an ordinary job";
  CUcontext made = nullptr;
  EXPECT_EQ(driver().Hooked<Row::cuCtxCreate_v2>()(&made, 0, 0), CUDA_SUCCESS);
  Launch(2, nullptr);
  EXPECT_EQ(residency_[0].launches.back().stream.context, reinterpret_cast<CUcontext>(0x6000));
  EXPECT_EQ(switched_off(), "");
}

TEST_F(LaunchGateTest, ARefusedLaunchIsNotMade) {
  Publish();
  residency_[0].refuse = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_EQ(Launch(2, Stream(1)), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(driver().CountOf("cuLaunchKernel"), 0u);
}

TEST_F(LaunchGateTest, ACapturedLaunchNeedsNothingYet) {
  Publish();
  driver().Hooked<Row::cuStreamBeginCapture_v2>()(Stream(1), CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_EQ(residency_[0].captures_begun, std::vector<CUstream>{Stream(1)});
  driver().capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  Launch(2, Stream(1));
  EXPECT_TRUE(residency_[0].pins.empty());
  EXPECT_TRUE(residency_[0].launches.empty());
  CUgraph graph = nullptr;
  driver().Hooked<Row::cuStreamEndCapture>()(Stream(1), &graph);
  EXPECT_EQ(residency_[0].captures_ended, std::vector<CUstream>{Stream(1)});
  Launch(2, Stream(1));  // no capture in the process: not even asked
  EXPECT_EQ(residency_[0].launches.size(), 1u);
}

// ---- Rewriting.

class RewritingTest : public EscapeHookTest {};

TEST_F(RewritingTest, ANewTableEndsThePinsOfTheOldOne) {
  EXPECT_EQ(Upload(kExternal, {2, 3}), CUDA_SUCCESS);
  EXPECT_EQ(PinsOf(2), 1);
  EXPECT_EQ(PinsOf(3), 1);
  for (int step = 0; step < 10; ++step) EXPECT_EQ(Upload(kExternal, {3, 4}, Stream(2)), CUDA_SUCCESS);
  EXPECT_EQ(PinsOf(2), 0);
  EXPECT_EQ(PinsOf(3), 1);
  EXPECT_EQ(PinsOf(4), 1);
  EXPECT_EQ(state()->tables.entries(), 2u);
  // What still reads the old table was queued before the copy.
  ASSERT_FALSE(residency_[0].ends.empty());
  ASSERT_EQ(residency_[0].ends.back().users.streams.size(), 1u);
  EXPECT_EQ(residency_[0].ends.back().users.streams[0].handle, Stream(2));
}

TEST_F(RewritingTest, NewTargetsArePinnedBeforeOldPinsEnd) {
  Upload(kExternal, {2});
  residency_[0].ends.clear();
  Upload(kExternal, {2});
  EXPECT_EQ(PinsOf(2), 1);
  EXPECT_EQ(residency_[0].pins.size(), 2u);
}

TEST_F(RewritingTest, OverwritingPartOfATableEndsThatPart) {
  Upload(kExternal, {1, 2, 3, 4});
  driver().Hooked<Row::cuMemsetD8Async>()(kExternal + 12, 0, 8, Stream(1));  // words 1 and 2, each in part
  EXPECT_EQ(PinsOf(1), 1);
  EXPECT_EQ(PinsOf(2), 0);
  EXPECT_EQ(PinsOf(3), 0);
  EXPECT_EQ(PinsOf(4), 1);
  uint64_t data[2] = {};
  driver().Hooked<Row::cuMemcpyHtoD_v2>()(kExternal + 24, data, sizeof(data));
  EXPECT_EQ(PinsOf(4), 0);
}

TEST_F(RewritingTest, ACopyOfATableKeepsItsTargets) {
  Upload(kExternal, {1, 2});
  driver().Hooked<Row::cuMemcpyDtoDAsync_v2>()(kExternal + 0x1000, kExternal, 16, Stream(1));
  EXPECT_EQ(PinsOf(1), 1) << "one pin for all words that lead there";
  driver().Hooked<Row::cuMemsetD32Async>()(kExternal, 0, 4, Stream(1));
  EXPECT_EQ(PinsOf(1), 1) << "the copy still leads there";
  EXPECT_EQ(PinsOf(2), 1);
  driver().Hooked<Row::cuMemcpyDtoDAsync_v2>()(kExternal + 0x2000, kExternal + 0x1008, 8, Stream(1));
  driver().Hooked<Row::cuMemsetD32Async>()(kExternal + 0x1000, 0, 4, Stream(1));
  EXPECT_EQ(PinsOf(1), 0);
  EXPECT_EQ(PinsOf(2), 1) << "half of the copy was copied on";
}

TEST_F(RewritingTest, BatchesAndPitchedCopiesAreLookedThrough) {
  driver().results["cuPointerGetAttribute"] = std::vector<CUresult>(8, CUDA_ERROR_INVALID_VALUE);
  uint64_t one[2] = {7, Address(2)};
  uint64_t two[1] = {Address(3)};
  CUdeviceptr to[2] = {kExternal, kExternal + 0x100};
  CUdeviceptr from[2] = {reinterpret_cast<CUdeviceptr>(one), reinterpret_cast<CUdeviceptr>(two)};
  size_t sizes[2] = {sizeof(one), sizeof(two)};
  driver().Hooked<Row::cuMemcpyBatchAsync_v2>()(to, from, sizes, 2, nullptr, nullptr, 0, Stream(1));
  EXPECT_EQ(PinsOf(2), 1);
  EXPECT_EQ(PinsOf(3), 1);

  uint64_t rows[2][4] = {{Address(4)}, {Address(5)}};
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = rows;
  copy.srcPitch = sizeof(rows[0]);
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = kExternal + 0x200;
  copy.dstPitch = 64;
  copy.WidthInBytes = 8;
  copy.Height = 2;
  driver().Hooked<Row::cuMemcpy2DAsync_v2>()(&copy, Stream(1));
  EXPECT_EQ(PinsOf(4), 1);
  EXPECT_EQ(PinsOf(5), 1);
  driver().Hooked<Row::cuMemsetD2D8Async>()(kExternal + 0x240, 64, 0, 8, 1, Stream(1));
  EXPECT_EQ(PinsOf(4), 1);
  EXPECT_EQ(PinsOf(5), 0);
}

TEST_F(RewritingTest, ARefusedOrFailedCopyPinsNothing) {
  driver().results["cuMemcpyHtoDAsync_v2"] = {CUDA_ERROR_INVALID_VALUE};
  EXPECT_EQ(Upload(kExternal, {2}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(PinsOf(2), 0);
  residency_[0].pin_status = absl::ResourceExhaustedError("full");
  EXPECT_EQ(Upload(kExternal, {2}), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(driver().CountOf("cuMemcpyHtoDAsync_v2"), 1u);
  EXPECT_EQ(state()->tables.entries(), 0u);
}

TEST_F(RewritingTest, LargeCopiesAreData) {
  std::vector<uint64_t> data(64 * 1024 / 8 + 1, Address(2));
  driver().Hooked<Row::cuMemcpyHtoDAsync_v2>()(kExternal, data.data(), data.size() * 8, Stream(1));
  EXPECT_EQ(PinsOf(2), 0);
}

TEST_F(RewritingTest, StrictKeepsTargetsWhateverHappensToTheTable) {
  context_.strict = true;
  Upload(Address(1), {2});
  Upload(Address(1), {3});
  driver().Hooked<Row::cuMemFree_v2>()(Address(1));
  EXPECT_EQ(PinsOf(2), 1);
  EXPECT_EQ(PinsOf(3), 1);
}

TEST_F(RewritingTest, MoreAddressesThanAreFollowedStayPinned) {
  const std::vector<uint32_t> most(8192, 2);
  for (uint64_t at = 0; at < PointerTables::kMaxEntries / 8192; ++at) Upload(kExternal + at * 65536, most);
  EXPECT_EQ(state()->tables.entries(), PointerTables::kMaxEntries);
  Upload(0x100000000, {3});
  EXPECT_EQ(state()->tables.entries(), PointerTables::kMaxEntries);
  driver().Hooked<Row::cuMemsetD8Async>()(0x100000000, 0, 8, Stream(1));
  EXPECT_EQ(PinsOf(3), 1);
}

TEST_F(TensorMapHookTest, ACopiedMapPinsItsBlock) {
  alignas(64) char buffer[320] = {};
  CUtensorMap map;
  Fill(&map, 6);
  Encode(&map, Address(4));
  std::memcpy(buffer + 128, &map, sizeof(map));
  driver().Hooked<Row::cuMemcpyHtoDAsync_v2>()(kExternal, buffer, sizeof(buffer), Stream(1));
  EXPECT_EQ(PinsOf(4), 1);
  driver().Hooked<Row::cuMemsetD8Async>()(kExternal + 250, 0, 1, Stream(1));
  EXPECT_EQ(PinsOf(4), 0);
}

// ---- Named, or nothing named.

TEST_F(LaunchGateTest, SeveralDevicesAreTakenInAscendingOrder) {
  Publish();
  driver().param_sizes = {8, 8};
  uint64_t on_one = Address(2, 1);
  uint64_t on_zero = Address(3, 0);
  void* params[] = {&on_one, &on_zero};
  residency_[0].inside_run = [&] { EXPECT_TRUE(residency_[1].launches.empty()); };
  residency_[1].inside_run = [&] { EXPECT_EQ(driver().CountOf("cuLaunchKernel"), 0u); };
  driver().Hooked<Row::cuLaunchKernel>()(Function(), 1, 1, 1, 1, 1, 1, 0, Stream(1), params, nullptr);
  ASSERT_EQ(residency_[1].launches.size(), 1u);
  EXPECT_EQ(OnlyLaunch().set, Ids{Id(3, 0)});
  EXPECT_TRUE(OnlyLaunch().pinned);
  EXPECT_EQ(residency_[1].launches[0].set, (Ids{Id(2, 1)}));
  EXPECT_EQ(driver().CountOf("cuLaunchKernel"), 1u);
}

TEST_F(LaunchGateTest, ALaunchWithoutBlocksThatRunsOutIsRepeated) {
  Publish();
  driver().param_sizes = {};
  driver().results["cuLaunchKernel"] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS};
  residency_[0].helpful_attempt = 1;
  EXPECT_EQ(
      driver().Hooked<Row::cuLaunchKernel>()(Function(), 1, 1, 1, 1, 1, 1, 0, Stream(1), nullptr, nullptr),
      CUDA_SUCCESS);
  EXPECT_EQ(residency_[0].releases.size(), 2u);
  driver().results["cuLaunchKernel"] = {CUDA_ERROR_OUT_OF_MEMORY};
  residency_[0].helpful_attempt = -1;
  EXPECT_EQ(
      driver().Hooked<Row::cuLaunchKernel>()(Function(), 1, 1, 1, 1, 1, 1, 0, Stream(1), nullptr, nullptr),
      CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(driver().CountOf("cuLaunchKernel"), 3u);
}

// ---- Denied, and audit mode.

class DeniedTest : public HookTest {
 protected:
  DeniedTest() { driver().param_sizes = {8}; }
  ~DeniedTest() override { GetHookState()->functions.SetDenyList(nullptr); }

  void Deny(const std::string& lines) {
    ASSERT_TRUE(list_.Add(lines, "list").ok());
    GetHookState()->functions.SetDenyList(&list_);
    Publish();
  }
  CUresult Launch(uint64_t word, uintptr_t function = 0) {
    void* params[] = {&word};
    return driver().Hooked<Row::cuLaunchKernel>()(Function(function), 1, 1, 1, 1, 1, 1, 0, Stream(1), params,
                                                  nullptr);
  }

  DenyList list_;
};

TEST_F(DeniedTest, DeniedKernelPinsItsBlocksAndReachesAll) {
  Deny("test_*\n");
  EXPECT_EQ(Launch(Address(2)), CUDA_SUCCESS);
  EXPECT_EQ(residency_[0].launches_reaching_all, 1);
  EXPECT_EQ(OnlyLaunch().set, Ids{Id(2)});
  ExpectPinned(PinReason::kDenied, {Id(2)});
  EXPECT_EQ(driver().CountOf("cuLaunchKernel"), 1u);
}

TEST_F(DeniedTest, DeniedKernelThatNamesNothingReachesAll) {
  Deny("test_kernel\n");
  EXPECT_EQ(Launch(5), CUDA_SUCCESS);
  EXPECT_EQ(residency_[0].launches_reaching_all, 1);
  EXPECT_TRUE(residency_[0].pins.empty());
}

TEST_F(DeniedTest, DeniedKernelGoesOnWhenItCannotPinAndIsRefusedWhenAllDoNotFit) {
  Deny("test_kernel\n");
  residency_[0].pin_status = absl::ResourceExhaustedError("full");
  EXPECT_EQ(Launch(Address(2)), CUDA_SUCCESS);
  EXPECT_EQ(residency_[0].launches_reaching_all, 1);
  residency_[0].refuse = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_EQ(Launch(Address(2)), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(driver().CountOf("cuLaunchKernel"), 1u);
}

TEST_F(DeniedTest, OtherKernelsAreNotDenied) {
  Deny("another\ntest_kernel only_from_this.so\n");
  EXPECT_EQ(Launch(Address(2)), CUDA_SUCCESS);
  EXPECT_EQ(residency_[0].launches_reaching_all, 0);
  EXPECT_TRUE(residency_[0].pins.empty());
}

TEST_F(DeniedTest, DeniedKernelOnSeveralDevicesEndsEviction) {
  Deny("test_kernel\n");
  EXPECT_EQ(Launch(Address(1, 1)), CUDA_SUCCESS);
  EXPECT_EQ(residency_[0].launches_reaching_all, 1);  // as any call that is not followed
  EXPECT_EQ(residency_[1].launches_reaching_all, 1);
  EXPECT_NE(switched_off().find("test_kernel"), std::string::npos) << switched_off();
}

TEST_F(DeniedTest, DeniedKernelInACaptureEndsEviction) {
  Deny("test_kernel\n");
  GetHookState()->captures.store(1);
  driver().capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  EXPECT_EQ(Launch(Address(2)), CUDA_SUCCESS);
  EXPECT_EQ(residency_[0].launches_reaching_all, 0);
  EXPECT_NE(switched_off().find("test_kernel"), std::string::npos) << switched_off();
}

TEST_F(DeniedTest, ARefusedKernelIsNotLaunched) {
  Deny("test_kernel action=refuse\n");
  EXPECT_EQ(Launch(Address(2)), CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(Launch(5), CUDA_ERROR_NOT_PERMITTED);
  GetHookState()->captures.store(1);
  driver().capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  EXPECT_EQ(Launch(Address(2)), CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(driver().CountOf("cuLaunchKernel"), 0u);
  EXPECT_EQ(switched_off(), "");
}

// ---- NCCL's launches with works that no scan finds.

class NcclGateTest : public HookTest {
 protected:
  NcclGateTest() {
    driver().param_sizes = {8};  // of no version that is known
    driver().kernel_name = "ncclDevKernel_SendRecv";
    Publish();
  }
  CUresult Launch(uint64_t word) {
    void* params[] = {&word};
    return driver().Hooked<Row::cuLaunchKernel>()(Function(), 1, 1, 1, 1, 1, 1, 0, Stream(1), params,
                                                  nullptr);
  }
};

TEST_F(NcclGateTest, ReachesEverythingOfItsDeviceAndIsRefusedWhereThatDoesNotFit) {
  EXPECT_EQ(Launch(5), CUDA_SUCCESS);
  EXPECT_EQ(Launch(Address(2)), CUDA_SUCCESS);
  EXPECT_EQ(residency_[0].launches_reaching_all, 2);
  EXPECT_EQ(residency_[1].launches_reaching_all, 0);
  EXPECT_EQ(residency_[0].launches.back().set, Ids{Id(2)});
  residency_[0].refuse = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_EQ(Launch(5), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(driver().CountOf("cuLaunchKernel"), 2u);
  EXPECT_TRUE(residency_[0].pins.empty());
  EXPECT_EQ(switched_off(), "");
}

TEST_F(NcclGateTest, WithABlockOfAnotherDeviceItReachesEverythingOfAll) {
  EXPECT_EQ(Launch(Address(1, 1)), CUDA_SUCCESS);
  EXPECT_EQ(residency_[0].launches_reaching_all, 1);
  EXPECT_EQ(residency_[1].launches_reaching_all, 1);
  EXPECT_EQ(residency_[1].launches.back().set, (Ids{Id(1, 1)}));
  EXPECT_EQ(switched_off(), "");
}

TEST_F(NcclGateTest, InACaptureItEndsEviction) {
  GetHookState()->captures.store(1);
  driver().capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  EXPECT_EQ(Launch(Address(2)), CUDA_SUCCESS);
  EXPECT_EQ(residency_[0].launches_reaching_all, 0);
  EXPECT_NE(switched_off().find("ncclDevKernel_SendRecv"), std::string::npos) << switched_off();
}

// ---- Audit mode.

TEST_F(DeniedTest, InAuditModeLaunchesThatNameNothingAreAuditedToo) {
  Publish();
  EXPECT_EQ(Launch(5), CUDA_SUCCESS);
  EXPECT_TRUE(residency_[0].launches.empty());
  context_.gates_all = true;
  EXPECT_EQ(Launch(5), CUDA_SUCCESS);
  EXPECT_TRUE(OnlyLaunch().set.empty());
  EXPECT_EQ(OnlyLaunch().tag, HashName("test_kernel"));
  CUgraphExec exec = nullptr;
  EXPECT_EQ(driver().Hooked<Row::cuGraphLaunch>()(exec, Stream(2)), CUDA_SUCCESS);
  ASSERT_EQ(residency_[0].launches.size(), 2u);
  EXPECT_EQ(residency_[0].launches[1].stream.handle, Stream(2));
}

}  // namespace
}  // namespace spillway::integration
