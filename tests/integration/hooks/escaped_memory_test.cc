// Kernels reach a block by an address that no launch names, after enough other work to have it evicted. Each way
// is also tried without its wrapper, where the stand-in must catch it.

#include "tests/integration/hooks/escaped_memory_fixture.h"

namespace spillway::integration {
namespace {

class EachWay : public EscapedMemoryTest, public testing::WithParamInterface<Way> {
 protected:
  // What becomes of the capture under way once a kernel in it reads the first word of the block.
  CUgraph EndCapture(CUdeviceptr block, CUstream stream) {
    const CUfunction kernel =
        Kernel("sum_one",
               [](const simcuda_launch*, void** params) {
                 SumTable(static_cast<const uint64_t*>(params[0]), 1, *static_cast<uint64_t**>(params[1]));
               },
               {8, 8});
    void* params[] = {&block, &out_};
    CUgraph graph = nullptr;
    EXPECT_EQ(Hooked<Row::cuLaunchKernel>(GetParam())(kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, nullptr),
              CUDA_SUCCESS);
    EXPECT_EQ(Hooked<Row::cuStreamEndCapture>()(stream, &graph), CUDA_SUCCESS);
    return graph;
  }
  // Twice, with other work before; the graph itself is gone by then.
  void ExpectReplays(CUgraph graph, CUstream stream) {
    const bool hooked = GetParam() == Way::kHooked;
    CUgraphExec exec = nullptr;
    ASSERT_EQ(Hooked<Row::cuGraphInstantiateWithFlags>()(&exec, graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(Hooked<Row::cuGraphDestroy>()(graph), CUDA_SUCCESS);
    for (int replay = 0; replay < 2; ++replay) {
      Press();
      EXPECT_EQ(Hooked<Row::cuGraphLaunch>()(exec, stream), CUDA_SUCCESS);
      const uint64_t sum = Result();
      EXPECT_EQ(hooked ? sum : 13, 13u);
    }
    ExpectMisses(GetParam());
    EXPECT_EQ(PinnedFor(PinReason::kGraph), 0u);
    EXPECT_EQ(Hooked<Row::cuGraphExecDestroy>()(exec), CUDA_SUCCESS);
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, EachWay, testing::Values(Way::kHooked, Way::kAround),
                         [](const auto& way) { return way.param == Way::kHooked ? "Hooked" : "Around"; });

TEST_P(EachWay, ATableCopiedFromTheHost) {
  const CUdeviceptr a = Target(5);
  const CUdeviceptr b = Target(7);
  Upload(external_, {a, b + 4096}, GetParam());
  Press();
  const uint64_t sum = SumOf(external_, 2);
  if (GetParam() == Way::kHooked) {
    EXPECT_EQ(sum, 12u);
    EXPECT_EQ(PinnedFor(PinReason::kPointerTable), 2 * kBlock);
  }
  ExpectMisses(GetParam());
}

TEST_P(EachWay, ATableCopiedOnOnTheDevice) {
  const CUdeviceptr a = Target(5);
  Upload(external_, {a});
  EXPECT_EQ(Hooked<Row::cuMemcpyDtoDAsync_v2>(GetParam())(external_ + 2048, external_, 8, nullptr),
            CUDA_SUCCESS);
  Upload(external_, {0});  // from here on the copy alone keeps it
  Press();
  const uint64_t sum = SumOf(external_ + 2048, 1);
  if (GetParam() == Way::kHooked) {
    EXPECT_EQ(sum, 5u);
  }
  ExpectMisses(GetParam());
}

TEST_P(EachWay, AGlobalOfAModule) {
  static const char* const kImage = SIMCUDA_IMAGE_MAGIC "\nsum_global\n.global table 64\n";
  Kernel("sum_global",
         [](const simcuda_launch* launch, void** params) {
           const auto find =
               reinterpret_cast<decltype(&simcuda_module_global)>(Symbol("simcuda_module_global"));
           SumTable(static_cast<const uint64_t*>(find(launch, "table", nullptr)), 1,
                    *static_cast<uint64_t**>(params[0]));
         },
         {8});
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CUdeviceptr global = 0;
  size_t bytes = 0;
  ASSERT_EQ(Hooked<Row::cuModuleLoadData>()(&module, kImage), CUDA_SUCCESS);
  ASSERT_EQ(Hooked<Row::cuModuleGetFunction>()(&function, module, "sum_global"), CUDA_SUCCESS);
  ASSERT_EQ(Hooked<Row::cuModuleGetGlobal_v2>()(&global, &bytes, module, "table"), CUDA_SUCCESS);
  Upload(global, {Target(9)}, GetParam());
  Press();
  EXPECT_EQ(Launch(function, {&out_}), CUDA_SUCCESS);
  const uint64_t sum = Result();
  if (GetParam() == Way::kHooked) {
    EXPECT_EQ(sum, 9u);
    EXPECT_EQ(PinnedFor(PinReason::kModuleGlobal), kBlock);
  }
  ExpectMisses(GetParam());
  EXPECT_EQ(Hooked<Row::cuModuleUnload>()(module), CUDA_SUCCESS);
  EXPECT_EQ(PinnedFor(PinReason::kModuleGlobal), 0u);
}

TEST_P(EachWay, ATensorMapInAParameter) {
  CUtensorMap map = {};
  const CUdeviceptr a = Target(11);
  const cuuint64_t sizes[2] = {64, 64};
  const cuuint64_t strides[1] = {256};
  const cuuint32_t box[2] = {16, 16};
  const cuuint32_t steps[2] = {1, 1};
  ASSERT_EQ(Hooked<Row::cuTensorMapEncodeTiled>(GetParam())(
                &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, reinterpret_cast<void*>(a), sizes, strides, box,
                steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
            CUDA_SUCCESS);
  Press();
  const CUfunction kernel = Kernel("read_map",
                                   [](const simcuda_launch*, void** params) {
                                     simcuda_tensor_map decoded = {};
                                     decoded.struct_bytes = sizeof(decoded);
                                     reinterpret_cast<decltype(&simcuda_decode_tensor_map)>(
                                         Symbol("simcuda_decode_tensor_map"))(params[0], &decoded);
                                     SumTable(&decoded.address, 1, *static_cast<uint64_t**>(params[1]));
                                   },
                                   {sizeof(map), 8});
  EXPECT_EQ(Launch(kernel, {&map, &out_}), CUDA_SUCCESS);
  const uint64_t sum = Result();
  if (GetParam() == Way::kHooked) {
    EXPECT_EQ(sum, 11u);
    EXPECT_EQ(device_->Stats().pinned_bytes, 0u) << "named by its launches, it need not stay";
  }
  ExpectMisses(GetParam());
}

TEST_P(EachWay, ALaunchThatWasCaptured) {
  const CUdeviceptr a = Target(13);
  CUstream stream = device_.NewStream();
  device_.Synchronize();
  ASSERT_EQ(Hooked<Row::cuStreamBeginCapture_v2>()(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
            CUDA_SUCCESS);
  ExpectReplays(EndCapture(a, stream), stream);
}

TEST_P(EachWay, ABodyOfAConditionalNode) {
  const CUdeviceptr a = Target(13);
  CUgraph graph = nullptr;
  CUgraphNodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  params.conditional.type = CU_GRAPH_COND_TYPE_IF;
  params.conditional.size = 1;
  ASSERT_EQ(Hooked<Row::cuGraphCreate>()(&graph, 0), CUDA_SUCCESS);
  reinterpret_cast<decltype(&cuGraphConditionalHandleCreate)>(Symbol("cuGraphConditionalHandleCreate"))(
      &params.conditional.handle, graph, nullptr, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
  CUgraphNode node = nullptr;
  ASSERT_EQ(Hooked<Row::cuGraphAddNode_v2>()(&node, graph, nullptr, nullptr, 0, &params), CUDA_SUCCESS);
  const CUgraph body = params.conditional.phGraph_out[0];
  CUstream stream = device_.NewStream();
  device_.Synchronize();
  ASSERT_EQ(Hooked<Row::cuStreamBeginCaptureToGraph>()(stream, body, nullptr, nullptr, 0,
                                                       CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
            CUDA_SUCCESS);
  ASSERT_EQ(EndCapture(a, stream), body);
  ExpectReplays(graph, stream);
}

TEST_P(EachWay, ATextureObject) {
  if (Symbol("simcuda_texture_memory") == nullptr) GTEST_SKIP() << "the stand-in has no textures";
  const CUdeviceptr a = Target(17);
  CUDA_RESOURCE_DESC resource = {};
  resource.resType = CU_RESOURCE_TYPE_LINEAR;
  resource.res.linear.devPtr = a;
  resource.res.linear.format = CU_AD_FORMAT_UNSIGNED_INT32;
  resource.res.linear.numChannels = 1;
  resource.res.linear.sizeInBytes = kBlock;
  CUDA_TEXTURE_DESC sampling = {};
  CUtexObject texture = 0;
  ASSERT_EQ(Hooked<Row::cuTexObjectCreate>(GetParam())(&texture, &resource, &sampling, nullptr),
            CUDA_SUCCESS);
  Press();
  const CUfunction kernel =
      Kernel("read_texture",
             [](const simcuda_launch*, void** params) {
               uint64_t address = 0;
               uint64_t bytes = 0;
               reinterpret_cast<int (*)(uint64_t, uint64_t*, uint64_t*)>(Symbol("simcuda_texture_memory"))(
                   *static_cast<uint64_t*>(params[0]), &address, &bytes);
               SumTable(&address, 1, *static_cast<uint64_t**>(params[1]));
             },
             {8, 8});
  EXPECT_EQ(Launch(kernel, {&texture, &out_}), CUDA_SUCCESS);
  const uint64_t sum = Result();
  if (GetParam() == Way::kHooked) {
    EXPECT_EQ(sum, 17u);
    EXPECT_EQ(PinnedFor(PinReason::kTexture), kBlock);
  }
  ExpectMisses(GetParam());
  EXPECT_EQ(Hooked<Row::cuTexObjectDestroy>()(texture), CUDA_SUCCESS);
  EXPECT_EQ(PinnedFor(PinReason::kTexture), 0u);
}

// Each iteration names two other blocks in its table. If they stayed pinned, they would soon fill the GPU.
TEST_F(EscapedMemoryTest, TablesOfEachIterationPinOnlyTheirOwn) {
  std::vector<CUdeviceptr> targets;
  for (uint32_t i = 0; i < 12; ++i) targets.push_back(Target(i));
  for (uint32_t iteration = 0; iteration < 24; ++iteration) {
    const uint32_t one = iteration % 12;
    const uint32_t two = (iteration + 5) % 12;
    const CUdeviceptr table = device_.MustAllocate(4096);
    Upload(iteration % 2 == 0 ? table : external_, {targets[one], targets[two]});
    for (int i = 0; i < 6; ++i) {
      ASSERT_EQ(Hooked<Row::cuMemsetD8Async>()(others_[(iteration + i) % kOthers], 1, kBlock, nullptr),
                CUDA_SUCCESS);
    }
    ASSERT_EQ(SumOf(iteration % 2 == 0 ? table : external_, 2), one + two) << iteration;
    ASSERT_EQ(Hooked<Row::cuMemFree_v2>()(table), CUDA_SUCCESS);
    EXPECT_LE(device_->Stats().pinned_bytes, 4 * kBlock);
  }
  EXPECT_EQ(Missed(), 0u);
}

// A library that would register the memory (NCCL) then goes its way for memory that cannot be registered.
TEST_F(EscapedMemoryTest, ABlockHasNoHandleToGive) {
  const CUdeviceptr a = Target(3);
  CUmemGenericAllocationHandle handle = 77;
  EXPECT_EQ(Hooked<Row::cuMemRetainAllocationHandle>()(&handle, reinterpret_cast<void*>(a)),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(handle, 77u);
  Press();
  EXPECT_EQ(PinnedFor(PinReason::kExport), 0u);
}

TEST_F(EscapedMemoryTest, ABlockThatAPeerMayReadStays) {
  const CUdeviceptr a = Target(4);
  CUmemAccessDesc access = {};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  ASSERT_EQ(Hooked<Row::cuMemSetAccess>()(a, kBlock, &access, 1), CUDA_SUCCESS);
  Press();
  EXPECT_EQ(PinnedFor(PinReason::kPeer), kBlock);
  EXPECT_EQ(Fetched<uint32_t>(a), 4u);
}

}  // namespace
}  // namespace spillway::integration
