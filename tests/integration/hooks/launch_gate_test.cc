// Launches and copies: what goes through the gate, on which stream, with which blocks.

#include <thread>

#include "tests/integration/hooks/hook_fixture.h"

namespace spillway::integration {
namespace {

using allocator::HoldReason;

class LaunchHookTest : public HookTest {
 protected:
  LaunchHookTest() { driver().param_sizes = {8, 4, 24}; }

  // A launch with a pointer to block `index`, a number, and a struct that points into block `index` + 1.
  CUresult Launch(uint32_t index, CUstream stream) {
    uint64_t pointer = Address(index);
    int number = 3;
    uint64_t value[3] = {1, Address(index + 1) + 100, 2};
    void* params[] = {&pointer, &number, value};
    return driver().Hooked<Row::cuLaunchKernel>()(Function(), 1, 1, 1, 1, 1, 1, 0, stream, params, nullptr);
  }
};

TEST_F(LaunchHookTest, GoesThroughTheGateWithItsBlocksStreamAndTag) {
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

TEST_F(LaunchHookTest, ARefusedLaunchIsNotMade) {
  Publish();
  residency_[0].refuse = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_EQ(Launch(2, Stream(1)), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(driver().CountOf("cuLaunchKernel"), 0u);
}

TEST_F(LaunchHookTest, BeforeThereAreBlocksNothingIsAsked) {
  EXPECT_EQ(Launch(2, Stream(1)), CUDA_SUCCESS);
  EXPECT_TRUE(residency_[0].launches.empty());
}

TEST_F(LaunchHookTest, AllFormsOfLaunches) {
  Publish();
  uint64_t pointer = Address(0);
  int number = 0;
  uint64_t value[3] = {};
  void* params[] = {&pointer, &number, value};
  const Ids expected{Id(0)};
  driver().Hooked<Row::cuLaunchKernel_ptsz>()(Function(), 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr);
  EXPECT_TRUE(residency_[0].launches.back().stream.per_thread_default);
  driver().Hooked<Row::cuLaunchCooperativeKernel>()(Function(), 1, 1, 1, 1, 1, 1, 0, Stream(2), params);
  EXPECT_EQ(residency_[0].launches.back().stream.handle, Stream(2));
  CUlaunchConfig config = {};
  config.hStream = Stream(3);
  driver().Hooked<Row::cuLaunchKernelEx>()(&config, Function(), params, nullptr);
  EXPECT_EQ(residency_[0].launches.back().stream.handle, Stream(3));
  driver().Hooked<Row::cuLaunchKernelEx_ptsz>()(&config, Function(), params, nullptr);
  ASSERT_EQ(residency_[0].launches.size(), 4u);
  for (const auto& launch : residency_[0].launches) EXPECT_EQ(launch.set, expected);

  uint64_t buffer[2] = {7, Address(5)};
  size_t size = sizeof(buffer);
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  driver().Hooked<Row::cuLaunchKernel>()(Function(), 1, 1, 1, 1, 1, 1, 0, Stream(1), nullptr, extra);
  EXPECT_EQ(residency_[0].launches.back().set, Ids{Id(5)});

  CUDA_LAUNCH_PARAMS launches[1] = {};
  launches[0].function = Function();
  launches[0].kernelParams = params;
  driver().Hooked<Row::cuLaunchCooperativeKernelMultiDevice>()(launches, 1, 0);
  ExpectHeld(HoldReason::kUnknownCall, expected);
}

TEST_F(LaunchHookTest, AnAccessPolicyWindowNamesItsBlock) {
  Publish();
  driver().param_sizes = {};
  CUlaunchAttribute attribute = {};
  attribute.id = CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW;
  attribute.value.accessPolicyWindow.base_ptr = reinterpret_cast<void*>(Address(4));
  attribute.value.accessPolicyWindow.num_bytes = 4096;
  CUlaunchConfig config = {};
  config.attrs = &attribute;
  config.numAttrs = 1;
  driver().Hooked<Row::cuLaunchKernelEx>()(&config, Function(), nullptr, nullptr);
  EXPECT_EQ(OnlyLaunch().set, Ids{Id(4)});
}

TEST_F(LaunchHookTest, SeveralDevicesAreTakenInAscendingOrder) {
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

TEST_F(LaunchHookTest, CallsFromInsideAHookedCallPassThrough) {
  Publish();
  residency_[0].inside_run = [&] {
    if (residency_[0].launches.size() == 1) Launch(5, Stream(2));
  };
  Launch(2, Stream(1));
  EXPECT_EQ(residency_[0].launches.size(), 1u);
  EXPECT_EQ(driver().CountOf("cuLaunchKernel"), 2u);
  Launch(2, Stream(1));  // and the guard is off again
  EXPECT_EQ(residency_[0].launches.size(), 2u);
}

TEST_F(LaunchHookTest, AThreadThatEndsCanStillLaunch) {
  Publish();
  struct AtExit {
    std::function<void()> call;
    ~AtExit() { call(); }
  };
  std::thread([&] {
    // Made before the hooks' own thread-local, so destroyed after it.
    thread_local AtExit at_exit;
    at_exit.call = [&] { Launch(1, Stream(1)); };
    Launch(2, Stream(1));
  }).join();
  EXPECT_EQ(residency_[0].launches.size(), 2u);
}

TEST_F(LaunchHookTest, AKernelWithoutALayoutSwitchesEvictionOffOnce) {
  Publish();
  driver().layouts = false;
  Launch(2, Stream(1));
  Launch(2, Stream(1));
  EXPECT_EQ(switched_off(), "test_kernel;");
  EXPECT_EQ(driver().CountOf("cuLaunchKernel"), 2u);
}

TEST_F(LaunchHookTest, LaunchesOfTheFirstInterfaceSwitchEvictionOff) {
  Publish();
  driver().Hooked<Row::cuParamSeti>()(Function(), 0, 7);
  driver().Hooked<Row::cuLaunch>()(Function());
  EXPECT_EQ(switched_off(), "cuParamSeti;");
}

TEST_F(LaunchHookTest, ACapturedLaunchHoldsItsBlocks) {
  Publish();
  driver().Hooked<Row::cuStreamBeginCapture_v2>()(Stream(1), CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_EQ(residency_[0].captures_begun, std::vector<CUstream>{Stream(1)});
  driver().capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  Launch(2, Stream(1));
  ExpectHeld(HoldReason::kGraph, {Id(2), Id(3)});
  EXPECT_TRUE(residency_[0].launches.empty());
  CUgraph graph = nullptr;
  driver().Hooked<Row::cuStreamEndCapture>()(Stream(1), &graph);
  EXPECT_EQ(residency_[0].captures_ended, std::vector<CUstream>{Stream(1)});
  Launch(2, Stream(1));  // no capture in the process: not even asked
  EXPECT_EQ(residency_[0].launches.size(), 1u);
}

TEST_F(LaunchHookTest, AFailedCaptureBeginIsNotCounted) {
  Publish();
  driver().results["cuStreamBeginCapture_v2"] = {CUDA_ERROR_ILLEGAL_STATE};
  driver().Hooked<Row::cuStreamBeginCapture_v2>()(Stream(1), CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_EQ(GetHookState()->captures, 0);
  EXPECT_EQ(residency_[0].captures_ended.size(), 1u);
}

TEST_F(LaunchHookTest, ALaunchOfOthersThatRunsOutIsRepeatedOnce) {
  Publish();
  driver().param_sizes = {};
  driver().results["cuLaunchKernel"] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS};
  residency_[0].release_helps = true;
  EXPECT_EQ(
      driver().Hooked<Row::cuLaunchKernel>()(Function(), 1, 1, 1, 1, 1, 1, 0, Stream(1), nullptr, nullptr),
      CUDA_SUCCESS);
  EXPECT_EQ(residency_[0].releases.size(), 1u);
  driver().results["cuLaunchKernel"] = {CUDA_ERROR_OUT_OF_MEMORY};
  residency_[0].release_helps = false;
  EXPECT_EQ(
      driver().Hooked<Row::cuLaunchKernel>()(Function(), 1, 1, 1, 1, 1, 1, 0, Stream(1), nullptr, nullptr),
      CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(driver().CountOf("cuLaunchKernel"), 3u);
}

TEST_F(LaunchHookTest, CopiesNameSourceAndDestination) {
  Publish();
  driver().Hooked<Row::cuMemcpyDtoDAsync_v2>()(Address(1), Address(2) + 5, 4096, Stream(4));
  EXPECT_EQ(OnlyLaunch().set, (Ids{Id(1), Id(2)}));
  EXPECT_EQ(OnlyLaunch().stream.handle, Stream(4));
  EXPECT_FALSE(OnlyLaunch().pinned);
  EXPECT_EQ(OnlyLaunch().tag, HashName("cuMemcpyDtoDAsync"));
  driver().Hooked<Row::cuMemcpyDtoD_v2_ptds>()(Address(1), Address(2), 4096);
  EXPECT_TRUE(residency_[0].launches[1].stream.per_thread_default);
  EXPECT_TRUE(residency_[0].launches[1].pinned);  // may wait for the GPU
  char host[64];
  driver().Hooked<Row::cuMemcpyDtoHAsync_v2>()(host, Address(3), sizeof(host), Stream(4));
  EXPECT_EQ(residency_[0].launches[2].set, Ids{Id(3)});
  EXPECT_TRUE(residency_[0].launches[2].pinned);
  driver().Hooked<Row::cuMemcpyPeerAsync>()(Address(4), nullptr, Address(5), nullptr, 100, Stream(1));
  EXPECT_EQ(residency_[0].launches[3].set, (Ids{Id(4), Id(5)}));
  driver().Hooked<Row::cuMemcpyDtoD_v2>()(Address(1), Address(2), 0);  // nothing is copied
  driver().Hooked<Row::cuMemcpyAtoD_v2>()(Address(6), nullptr, 0, 64);
  EXPECT_EQ(residency_[0].launches.size(), 5u);
  EXPECT_EQ(residency_[0].launches[4].set, Ids{Id(6)});
}

TEST_F(LaunchHookTest, PitchedCopiesReachTheirLastRow) {
  Publish();
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcDevice = Address(1);
  copy.srcY = 2;
  copy.srcPitch = 512;
  copy.dstDevice = Address(2);
  copy.dstPitch = 512;
  copy.WidthInBytes = 512;
  copy.Height = 10;
  driver().Hooked<Row::cuMemcpy2DAsync_v2>()(&copy, Stream(1));
  EXPECT_EQ(OnlyLaunch().set, (Ids{Id(1), Id(2)}));
  // An offset that leads from the guard in front of a block into it.
  CUDA_MEMCPY3D deep = {};
  deep.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  deep.srcDevice = Address(3) - kTestChunk;
  deep.srcPitch = 1024;
  deep.srcHeight = 1024;
  deep.srcZ = 2;  // 2 MiB
  deep.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  deep.dstDevice = Address(6);  // ignored
  deep.WidthInBytes = 1024;
  deep.Height = 1024;
  deep.Depth = 3;
  driver().Hooked<Row::cuMemcpy3DAsync_v2>()(&deep, Stream(1));
  EXPECT_EQ(residency_[0].launches[1].set, Ids{Id(3)});
  deep.Height = 0;
  driver().Hooked<Row::cuMemcpy3DAsync_v2>()(&deep, Stream(1));
  EXPECT_EQ(residency_[0].launches.size(), 2u);
}

TEST_F(LaunchHookTest, BatchesNameAllTheirRanges) {
  Publish();
  CUdeviceptr destinations[] = {Address(1), 64};
  CUdeviceptr sources[] = {Address(2), Address(3)};
  size_t sizes[] = {128, 100000};
  driver().Hooked<Row::cuMemcpyBatchAsync_v2>()(destinations, sources, sizes, 2, nullptr, nullptr, 0,
                                                Stream(2));
  EXPECT_EQ(OnlyLaunch().set, (Ids{Id(1), Id(2), Id(3)}));
  size_t fail = 0;
  driver().Hooked<Row::cuMemcpyBatchAsync>()(destinations, sources, sizes, 1, nullptr, nullptr, 0, &fail,
                                             Stream(2));
  EXPECT_EQ(residency_[0].launches[1].set, (Ids{Id(1), Id(2)}));
  CUDA_MEMCPY3D_BATCH_OP op = {};
  op.src.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  op.src.op.ptr.ptr = Address(4);
  op.dst.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
  op.extent = {1, 1, 1};
  driver().Hooked<Row::cuMemcpy3DBatchAsync_v2>()(1, &op, 0, Stream(2));
  EXPECT_EQ(residency_[0].launches[2].set, Ids{Id(4)});
}

TEST_F(LaunchHookTest, MemsetsPrefetchesAndStreamWords) {
  Publish();
  driver().Hooked<Row::cuMemsetD32Async>()(Address(1), 0, 16, Stream(1));
  driver().Hooked<Row::cuMemsetD2D16Async>()(Address(2), 4096, 0, 8, 4, Stream(1));
  driver().Hooked<Row::cuStreamWriteValue32_v2>()(Stream(1), Address(3) + 4, 1, 0);
  CUstreamBatchMemOpParams ops[2] = {};
  ops[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
  ops[1].waitValue.address = Address(4);
  driver().Hooked<Row::cuStreamBatchMemOp_v2>()(Stream(1), 2, ops, 0);
  CUdeviceptr ranges[] = {Address(5)};
  size_t sizes[] = {4096};
  driver().Hooked<Row::cuMemDiscardBatchAsync>()(ranges, sizes, 1, 0, Stream(1));
  ASSERT_EQ(residency_[0].launches.size(), 5u);
  for (uint32_t i = 0; i < 5; ++i) {
    EXPECT_EQ(residency_[0].launches[i].set, Ids{Id(i + 1)});
    EXPECT_EQ(residency_[0].launches[i].stream.handle, Stream(1));
  }
}

TEST_F(LaunchHookTest, AddressesInSmallHostSourcesAreHeld) {
  Publish();
  const uint64_t foreign = 0x1000;
  uint64_t table[4] = {1, Address(2), Address(3) + 64, 0};
  driver().Hooked<Row::cuMemcpyHtoDAsync_v2>()(foreign, table, sizeof(table), Stream(1));
  ExpectHeld(HoldReason::kPointerTable, {Id(2), Id(3)});
  EXPECT_TRUE(residency_[0].launches.empty());
  residency_[0].holds.clear();
  // Of unknown kind: read only when the driver says that it is host memory, or does not know it.
  const auto source = reinterpret_cast<CUdeviceptr>(table);
  driver().Hooked<Row::cuMemcpyAsync>()(foreign, source, sizeof(table), Stream(1));
  EXPECT_EQ(residency_[0].holds.size(), 0u);  // the fake says: neither
  driver().results["cuPointerGetAttribute"] = {CUDA_ERROR_INVALID_VALUE};
  driver().Hooked<Row::cuMemcpyAsync>()(foreign, source, sizeof(table), Stream(1));
  ExpectHeld(HoldReason::kPointerTable, {Id(2), Id(3)});
  residency_[0].hold_status = absl::ResourceExhaustedError("full");
  EXPECT_EQ(driver().Hooked<Row::cuMemcpyHtoD_v2>()(foreign, table, sizeof(table)), CUDA_ERROR_OUT_OF_MEMORY);
}

}  // namespace
}  // namespace spillway::integration
