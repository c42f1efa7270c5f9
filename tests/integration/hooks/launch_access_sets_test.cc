// Launches: the blocks that their parameters name.

#include "integration/hooks/launch_access_sets.h"

#include <algorithm>

#include "tests/integration/hooks/escape_fixture.h"

namespace spillway::integration {
namespace {

class LaunchAccessSetsTest : public LaunchHookTest {};

TEST_F(LaunchAccessSetsTest, AllFormsOfLaunches) {
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
  ExpectPinned(PinReason::kUnknownCall, expected);
}

TEST_F(LaunchAccessSetsTest, AnAccessPolicyWindowNamesItsBlock) {
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

TEST_F(LaunchAccessSetsTest, LaunchesThatMayOverlapAreRecorded) {
  Publish();
  uint64_t pointer = Address(0);
  void* params[] = {&pointer};
  driver().param_sizes = {8};
  CUlaunchAttribute attribute = {};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  CUlaunchConfig config = {};
  config.hStream = Stream(3);
  config.attrs = &attribute;
  config.numAttrs = 1;
  const auto launch = [&] { driver().Hooked<Row::cuLaunchKernelEx>()(&config, Function(), params, nullptr); };
  launch();
  EXPECT_EQ(residency_[0].overlaps, std::vector<CUstream>{}) << "the attribute is there, and off";
  attribute.value.programmaticStreamSerializationAllowed = 1;
  launch();
  EXPECT_EQ(residency_[0].overlaps, std::vector<CUstream>{Stream(3)});
  attribute.value.programmaticStreamSerializationAllowed = 0;
  launch();
  EXPECT_EQ(residency_[0].overlaps.size(), 1u) << "the next launch begins anew";
  EXPECT_EQ(residency_[0].launches.size(), 3u);
}

TEST_F(LaunchAccessSetsTest, AKernelWithoutALayoutReachesEverythingUntilThereIsOne) {
  Publish();
  driver().layouts = false;
  Launch(2, Stream(1));
  Launch(2, Stream(1));
  EXPECT_EQ(residency_[0].launches_reaching_all, 2);
  driver().layouts = true;
  Launch(2, Stream(1));
  EXPECT_EQ(residency_[0].launches_reaching_all, 2);
  EXPECT_EQ(switched_off(), "");
  EXPECT_EQ(driver().CountOf("cuLaunchKernel"), 3u);
}

// The graph's launches would not ask again.
TEST_F(LaunchAccessSetsTest, AKernelWithoutALayoutInAGraphEndsEvictions) {
  Publish();
  driver().Hooked<Row::cuStreamBeginCapture_v2>()(Stream(1), CU_STREAM_CAPTURE_MODE_GLOBAL);
  driver().capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  driver().layouts = false;
  Launch(2, Stream(1));
  EXPECT_NE(switched_off(), "");
}

// ---- Kernels of unknown origin.

TEST_F(LaunchAccessSetsTest, AHandleThatNobodyGaveOutReachesEverythingAndEvictionsGoOn) {
  Publish();
  uint64_t pointer = Address(0);
  void* params[] = {&pointer};
  const auto unseen = reinterpret_cast<CUfunction>(0xf000);
  const auto launch = [&] {
    return driver().Hooked<Row::cuLaunchKernel>()(unseen, 1, 1, 1, 1, 1, 1, 0, Stream(1), params, nullptr);
  };
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_EQ(residency_[0].launches_reaching_all, 2);
  EXPECT_EQ(residency_[1].launches_reaching_all, 2);
  EXPECT_EQ(GetHookState()->unknown_launches, 2u);
  EXPECT_EQ(switched_off(), "");
  GiveOut(unseen);
  driver().param_sizes = {8};
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_EQ(residency_[0].launches_reaching_all, 2);
  EXPECT_EQ(residency_[0].launches.back().set, Ids{Id(0)});
  EXPECT_EQ(GetHookState()->unknown_launches, 2u);
}

TEST_F(LaunchAccessSetsTest, AnUnseenHandleWithItsParametersInOneBufferReachesEverythingToo) {
  Publish();
  uint64_t buffer[2] = {7, Address(5)};
  size_t size = sizeof(buffer);
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  driver().Hooked<Row::cuLaunchKernel>()(reinterpret_cast<CUfunction>(0xf000), 1, 1, 1, 1, 1, 1, 0, Stream(1),
                                         nullptr, extra);
  EXPECT_EQ(residency_[0].launches.back().set, Ids{Id(5)});
  EXPECT_EQ(residency_[0].launches_reaching_all, 1) << "its name may be on the deny list";
  EXPECT_EQ(GetHookState()->unknown_launches, 1u);
}

TEST_F(LaunchAccessSetsTest, InAGraphAnUnseenHandleEndsEvictions) {
  Publish();
  driver().capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  GetHookState()->captures = 1;
  uint64_t pointer = Address(0);
  void* params[] = {&pointer};
  driver().Hooked<Row::cuLaunchKernel>()(reinterpret_cast<CUfunction>(0xf000), 1, 1, 1, 1, 1, 1, 0, Stream(1),
                                         params, nullptr);
  EXPECT_NE(switched_off().find("unknown origin"), std::string::npos);
}

// ---- NCCL's kernels.

class NcclAccessSetsTest : public HookTest {
 protected:
  NcclAccessSetsTest() {
    driver().param_sizes = {4096};
    driver().kernel_name = "_Z40ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE";
    UseVersion(22809);
    Publish();
    words_[2] = uint64_t{0xffffffff} << 32;  // storage type 0: in the arguments
    words_[8] = Address(2);
    words_[9] = Address(5);
  }
  static void UseVersion(int version) {
    GetHookState()->functions.SetNcclVersions([version] { return std::vector<int>{version}; });
  }
  // As NCCL launches: the bytes that it has filled, and no more.
  CUresult Launch(uintptr_t function = 0) {
    size_t size = sizeof(words_);
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, words_, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    CUlaunchConfig config = {};
    config.hStream = Stream(1);
    return driver().Hooked<Row::cuLaunchKernelEx>()(&config, Function(function), nullptr, extra);
  }

  uint64_t words_[12] = {};
};

TEST_F(NcclAccessSetsTest, WorksInTheArgumentsNameTheirBuffersAlone) {
  EXPECT_EQ(Launch(), CUDA_SUCCESS);
  EXPECT_EQ(OnlyLaunch().set, (Ids{Id(2), Id(5)}));
  EXPECT_EQ(residency_[0].launches_reaching_all, 0);
  EXPECT_TRUE(residency_[0].pins.empty());
}

TEST_F(NcclAccessSetsTest, WorksElsewhereReachEverything) {
  for (const uint64_t storage : {1, 2}) {
    words_[2] = storage;
    EXPECT_EQ(Launch(), CUDA_SUCCESS);
  }
  EXPECT_EQ(residency_[0].launches_reaching_all, 2);
  EXPECT_TRUE(residency_[0].pins.empty());
  EXPECT_EQ(switched_off(), "");
  words_[2] = uint64_t{0xffffffff} << 32;
  EXPECT_EQ(Launch(), CUDA_SUCCESS);
  EXPECT_EQ(residency_[0].launches_reaching_all, 2) << "each launch says by itself";
}

TEST_F(NcclAccessSetsTest, AnUnknownVersionReachesEverything) {
  UseVersion(23100);
  EXPECT_EQ(Launch(), CUDA_SUCCESS);
  EXPECT_EQ(residency_[0].launches_reaching_all, 1);
  UseVersion(23007);
  EXPECT_EQ(Launch(1), CUDA_SUCCESS);
  EXPECT_EQ(residency_[0].launches_reaching_all, 1);
}

TEST_F(NcclAccessSetsTest, AnotherParameterSizeReachesEverything) {
  driver().param_sizes = {4096, 8};
  EXPECT_EQ(Launch(1), CUDA_SUCCESS);
  driver().param_sizes = {2048};
  EXPECT_EQ(Launch(2), CUDA_SUCCESS);
  driver().param_sizes = {4};
  EXPECT_EQ(Launch(3), CUDA_SUCCESS);
  EXPECT_EQ(residency_[0].launches_reaching_all, 3);
}

TEST_F(NcclAccessSetsTest, TheArgumentsAsAParameterAreReadToo) {
  uint64_t arguments[512] = {};
  std::copy(std::begin(words_), std::end(words_), arguments);
  void* params[] = {arguments};
  const auto launch = [&] {
    return driver().Hooked<Row::cuLaunchKernel>()(Function(), 1, 1, 1, 1, 1, 1, 0, Stream(1), params,
                                                  nullptr);
  };
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_EQ(OnlyLaunch().set, (Ids{Id(2), Id(5)}));
  arguments[2] = 1;
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_EQ(residency_[0].launches_reaching_all, 1);
}

// ---- Tensor maps.

TEST_F(TensorMapHookTest, AMapInAParameterNamesItsBlocks) {
  driver().param_sizes = {sizeof(Struct)};
  Struct param;
  Fill(&param.map, 1);
  LaunchParam(&param);
  EXPECT_TRUE(residency_[0].launches.empty());
  Encode(&param.map, Address(2));
  EXPECT_TRUE(residency_[0].pins.empty());
  LaunchParam(&param);
  EXPECT_EQ(OnlyLaunch().set, Ids{Id(2)});
  Fill(&param.map, 2);
  LaunchParam(&param);
  EXPECT_EQ(residency_[0].launches.size(), 1u) << "another map";
}

TEST_F(TensorMapHookTest, ARangeOverSeveralBlocksNamesThemAll) {
  driver().param_sizes = {sizeof(Struct)};
  Struct param;
  Fill(&param.map, 3);
  const cuuint64_t sizes[2] = {8, 2};
  const cuuint64_t strides[1] = {Address(3) - Address(2)};
  driver().Hooked<Row::cuTensorMapEncodeTiled>()(&param.map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2,
                                                 reinterpret_cast<void*>(Address(2)), sizes, strides, nullptr,
                                                 nullptr, {}, {}, {}, {});
  LaunchParam(&param);
  EXPECT_EQ(OnlyLaunch().set, (Ids{Id(2), Id(3)}));
}

// ---- Strict trust.

TEST_F(EscapeHookTest, StrictLetsABlockGoOnceItsKernelsHaveRunBefore) {
  BlockTrust trust;
  context_.trust = &trust;
  context_.strict = true;
  driver().param_sizes = {8, 72};
  struct Large {
    uint64_t words[9] = {};
  } large;
  large.words[8] = Address(3);
  uint64_t pointer = Address(2);
  void* params[] = {&pointer, &large};
  const auto launch = [&](uintptr_t function) {
    driver().Hooked<Row::cuLaunchKernel>()(Function(function), 1, 1, 1, 1, 1, 1, 0, Stream(1), params,
                                           nullptr);
  };
  EXPECT_TRUE(trust.MayLeave(Id(2)));
  launch(0);
  EXPECT_FALSE(trust.MayLeave(Id(2)));
  EXPECT_TRUE(trust.MayLeave(Id(5)));
  launch(0);
  EXPECT_TRUE(trust.MayLeave(Id(2)));
  EXPECT_FALSE(trust.MayLeave(Id(3))) << "named inside a struct";
  residency_[0].range = {Address(3), kTestBlockBytes};
  driver().Hooked<Row::cuMemFree_v2>()(Address(3));
  EXPECT_TRUE(trust.MayLeave(Id(3)));
}

}  // namespace
}  // namespace spillway::integration
