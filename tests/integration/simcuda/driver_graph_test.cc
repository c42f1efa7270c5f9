// Graphs: replay of captures, nodes made by hand, parameters, updates, clones and what becomes of parameters' owners.
#include <atomic>
#include <csignal>
#include <cstring>

#include "tests/integration/simcuda/driver_test_base.h"

namespace simcuda_test {
namespace {

class DriverGraphTest : public DriverTest {
 protected:
  void SetUp() override {
    ASSERT_EQ(cuMemAlloc(&memory_, kMiB), CUDA_SUCCESS);
    ASSERT_EQ(cuMemsetD8(memory_, 0, kMiB), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  }
  void TearDown() override {
    EXPECT_EQ(cuStreamDestroy(stream_), CUDA_SUCCESS);
    EXPECT_EQ(cuMemFree(memory_), CUDA_SUCCESS);
    DriverTest::TearDown();
  }
  // Captures what `calls` does on stream_.
  template <typename Calls>
  CUgraph Capture(const Calls& calls) {
    CUgraph graph = nullptr;
    EXPECT_EQ(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    calls();
    EXPECT_EQ(cuStreamEndCapture(stream_, &graph), CUDA_SUCCESS);
    return graph;
  }
  static CUgraphExec Instantiate(CUgraph graph) {
    CUgraphExec exec = nullptr;
    EXPECT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
    return exec;
  }
  void Run(CUgraphExec exec) {
    ASSERT_EQ(cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  }
  uint32_t* words() { return At<uint32_t>(memory_); }

  CUdeviceptr memory_ = 0;
  CUstream stream_ = nullptr;
  const Kernel add_{"graph_add", 2, [](uint64_t* a) { *At<uint32_t>(a[0]) += static_cast<uint32_t>(a[1]); }};
  const Kernel square_{"graph_square", 1, [](uint64_t* a) { *At<uint32_t>(a[0]) *= *At<uint32_t>(a[0]); }};
};

TEST_F(DriverGraphTest, ReplaysKernelsInOrderAsOftenAsLaunched) {
  const CUgraph graph = Capture([&] {
    add_.Launch(stream_, {memory_, 2});
    square_.Launch(stream_, {memory_});
    add_.Launch(stream_, {memory_, 1});
  });
  const CUgraphExec exec = Instantiate(graph);
  ASSERT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);  // the executable stands alone
  uint32_t expected = 0;
  const uint64_t launches = Stats().launches;
  for (int i = 0; i < 3; ++i) {
    Run(exec);
    expected = (expected + 2) * (expected + 2) + 1;
    EXPECT_EQ(words()[0], expected);
  }
  EXPECT_EQ(Stats().launches, launches + 9);
  EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  const HandlesAreAnswered answered;
  EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphLaunch(exec, stream_), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverGraphTest, CopiesMemsetsAndHostFunctionsAreNodes) {
  void* host = nullptr;
  ASSERT_EQ(cuMemAllocHost(&host, 4096), CUDA_SUCCESS);
  auto* in = static_cast<uint32_t*>(host);
  uint32_t* out = in + 16;
  uint32_t pageable = 5;  // read when it is replayed
  std::atomic<int> calls{0};
  const CUgraph graph = Capture([&] {
    EXPECT_EQ(cuMemsetD32Async(memory_, 3, 4, stream_), CUDA_SUCCESS);
    EXPECT_EQ(cuMemcpyHtoDAsync(memory_ + 4, in, 4, stream_), CUDA_SUCCESS);
    EXPECT_EQ(cuMemcpyHtoDAsync(memory_ + 8, &pageable, 4, stream_), CUDA_SUCCESS);
    EXPECT_EQ(cuMemcpyDtoDAsync(memory_ + 64, memory_, 16, stream_), CUDA_SUCCESS);
    EXPECT_EQ(cuMemcpyDtoHAsync(out, memory_ + 64, 16, stream_), CUDA_SUCCESS);
    EXPECT_EQ(cuLaunchHostFunc(
                  stream_, [](void* count) { ++*static_cast<std::atomic<int>*>(count); }, &calls),
              CUDA_SUCCESS);
  });
  CUgraphNode nodes[8] = {};
  size_t count = 8;
  ASSERT_EQ(cuGraphGetNodes(graph, nodes, &count), CUDA_SUCCESS);
  ASSERT_EQ(count, 6u);
  const CUgraphNodeType expected[] = {CU_GRAPH_NODE_TYPE_MEMSET, CU_GRAPH_NODE_TYPE_MEMCPY,
                                      CU_GRAPH_NODE_TYPE_MEMCPY, CU_GRAPH_NODE_TYPE_MEMCPY,
                                      CU_GRAPH_NODE_TYPE_MEMCPY, CU_GRAPH_NODE_TYPE_HOST};
  for (size_t i = 0; i < count; ++i) {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    EXPECT_EQ(cuGraphNodeGetType(nodes[i], &type), CUDA_SUCCESS);
    EXPECT_EQ(type, expected[i]);
  }
  CUDA_MEMCPY3D copy = {};
  ASSERT_EQ(cuGraphMemcpyNodeGetParams(nodes[3], &copy), CUDA_SUCCESS);
  EXPECT_EQ(copy.dstDevice, memory_ + 64);
  EXPECT_EQ(copy.WidthInBytes, 16u);
  const CUgraphExec exec = Instantiate(graph);
  for (uint32_t i = 1; i <= 2; ++i) {
    in[0] = 10 * i;
    pageable = 100 * i;
    Run(exec);
    EXPECT_EQ(out[0], 3u);
    EXPECT_EQ(out[1], 10 * i);
    EXPECT_EQ(out[2], 100 * i);
    EXPECT_EQ(out[3], 3u);
  }
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFreeHost(host), CUDA_SUCCESS);
}

TEST_F(DriverGraphTest, BranchesKeepTheirOrder) {
  TestStream side(CU_STREAM_NON_BLOCKING);
  TestEvent fork;
  TestEvent join;
  const CUgraph graph = Capture([&] {
    add_.Launch(stream_, {memory_, 3});
    EXPECT_EQ(cuEventRecord(fork, stream_), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamWaitEvent(side, fork, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuMemcpyDtoDAsync(memory_ + 128, memory_, 4, side), CUDA_SUCCESS);
    square_.Launch(side, {memory_ + 128});
    EXPECT_EQ(cuEventRecord(join, side), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamWaitEvent(stream_, join, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuMemcpyDtoDAsync(memory_, memory_ + 128, 4, stream_), CUDA_SUCCESS);
  });
  const CUgraphExec exec = Instantiate(graph);
  Run(exec);
  EXPECT_EQ(words()[0], 9u);
  Run(exec);
  EXPECT_EQ(words()[0], 144u);
  EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
}

// The parameters of add_ as graph calls take them.
struct AddParameters {
  AddParameters(const CUDA_KERNEL_NODE_PARAMS& like, uint64_t to, uint64_t what)
      : address(to), value(what), params(like) {
    pointers[0] = like.kernelParams[0];
    params.kernelParams = pointers;
  }
  AddParameters(const AddParameters&) = delete;
  AddParameters& operator=(const AddParameters&) = delete;
  uint64_t address;
  uint64_t value;
  void* pointers[3] = {nullptr, &address, &value};
  CUDA_KERNEL_NODE_PARAMS params;
};

TEST_F(DriverGraphTest, KernelParametersAreReadAndSet) {
  const CUgraph graph = Capture([&] { add_.Launch(stream_, {memory_, 7}); });
  CUgraphNode node = nullptr;
  size_t count = 1;
  ASSERT_EQ(cuGraphGetNodes(graph, &node, &count), CUDA_SUCCESS);
  CUDA_KERNEL_NODE_PARAMS params = {};
  ASSERT_EQ(cuGraphKernelNodeGetParams(node, &params), CUDA_SUCCESS);
  EXPECT_EQ(params.func, add_.function());
  EXPECT_EQ(params.gridDimX, 1u);
  EXPECT_EQ(*static_cast<uint64_t*>(params.kernelParams[1]), memory_);
  EXPECT_EQ(*static_cast<uint64_t*>(params.kernelParams[2]), 7u);
  const CUgraphExec exec = Instantiate(graph);
  const AddParameters in_exec(params, memory_ + 4, 20);
  ASSERT_EQ(cuGraphExecKernelNodeSetParams(exec, node, &in_exec.params), CUDA_SUCCESS);
  Run(exec);
  EXPECT_EQ(words()[0], 0u);
  EXPECT_EQ(words()[1], 20u);
  const AddParameters in_graph(params, memory_ + 8, 30);
  ASSERT_EQ(cuGraphKernelNodeSetParams(node, &in_graph.params), CUDA_SUCCESS);
  Run(exec);  // keeps its own
  EXPECT_EQ(words()[1], 40u);
  EXPECT_EQ(words()[2], 0u);
  CUgraphExecUpdateResultInfo info = {};
  ASSERT_EQ(cuGraphExecUpdate(exec, graph, &info), CUDA_SUCCESS);
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
  Run(exec);
  EXPECT_EQ(words()[2], 30u);
  ASSERT_EQ(cuGraphNodeSetEnabled(exec, node, 0), CUDA_SUCCESS);
  Run(exec);
  EXPECT_EQ(words()[2], 30u);
  EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(DriverGraphTest, UpdateWithAnotherFormFails) {
  const CUgraph one = Capture([&] { add_.Launch(stream_, {memory_, 7}); });
  const CUgraph two = Capture([&] {
    add_.Launch(stream_, {memory_, 7});
    add_.Launch(stream_, {memory_, 7});
  });
  const CUgraph fill = Capture([&] { EXPECT_EQ(cuMemsetD8Async(memory_, 0, 4, stream_), CUDA_SUCCESS); });
  const CUgraphExec exec = Instantiate(one);
  CUgraphExecUpdateResultInfo info = {};
  EXPECT_EQ(cuGraphExecUpdate(exec, two, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  EXPECT_EQ(cuGraphExecUpdate(exec, fill, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
  Run(exec);
  EXPECT_EQ(words()[0], 7u);
  EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  for (const CUgraph graph : {one, two, fill}) EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(DriverGraphTest, NodesByHandRunAfterTheirDependencies) {
  const CUgraph like = Capture([&] { add_.Launch(stream_, {memory_, 7}); });
  CUgraphNode node = nullptr;
  size_t count = 1;
  CUDA_KERNEL_NODE_PARAMS params = {};
  ASSERT_EQ(cuGraphGetNodes(like, &node, &count), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphKernelNodeGetParams(node, &params), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  ASSERT_EQ(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  // Made in the wrong order; the edge puts the memset first.
  CUgraphNode add = nullptr;
  CUgraphNode fill = nullptr;
  const AddParameters add_params(params, memory_, 5);
  ASSERT_EQ(cuGraphAddKernelNode(&add, graph, nullptr, 0, &add_params.params), CUDA_SUCCESS);
  const CUDA_MEMSET_NODE_PARAMS fill_params = {memory_, 0, 100, 4, 1, 1};
  ASSERT_EQ(cuGraphAddMemsetNode(&fill, graph, nullptr, 0, &fill_params, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphAddDependencies(graph, &fill, &add, nullptr, 1), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphAddDependencies(graph, &fill, &add, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
  CUgraph clone = nullptr;
  ASSERT_EQ(cuGraphClone(&clone, graph), CUDA_SUCCESS);
  CUgraphNode cloned = nullptr;
  EXPECT_EQ(cuGraphNodeFindInClone(&cloned, add, clone), CUDA_SUCCESS);
  EXPECT_NE(cloned, add);
  const CUgraphExec exec = Instantiate(clone);
  Run(exec);
  Run(exec);
  EXPECT_EQ(words()[0], 105u);
  // A circle cannot be instantiated.
  ASSERT_EQ(cuGraphAddDependencies(graph, &add, &fill, nullptr, 1), CUDA_SUCCESS);
  CUgraphExec none = nullptr;
  EXPECT_EQ(cuGraphInstantiate(&none, graph, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  for (const CUgraph done : {like, graph, clone}) EXPECT_EQ(cuGraphDestroy(done), CUDA_SUCCESS);
}

TEST_F(DriverGraphTest, GraphLaunchUnderCaptureIsAChild) {
  const CUgraph inner = Capture([&] { add_.Launch(stream_, {memory_, 1}); });
  const CUgraphExec inner_exec = Instantiate(inner);
  const CUgraph outer = Capture([&] {
    EXPECT_EQ(cuGraphLaunch(inner_exec, stream_), CUDA_SUCCESS);
    square_.Launch(stream_, {memory_});
  });
  const CUgraphExec exec = Instantiate(outer);
  words()[0] = 2;
  Run(exec);
  EXPECT_EQ(words()[0], 9u);
  for (const CUgraphExec done : {inner_exec, exec}) EXPECT_EQ(cuGraphExecDestroy(done), CUDA_SUCCESS);
  for (const CUgraph done : {inner, outer}) EXPECT_EQ(cuGraphDestroy(done), CUDA_SUCCESS);
}

TEST_F(DriverGraphTest, ParametersAreReleasedOnceAfterTheLastRun) {
  static std::atomic<int> runs{0};
  static std::atomic<int> releases{0};
  const simcuda_parameter parameter = {0, 8};
  const simcuda_kernel kernel = {"graph_owned", [](const simcuda_launch*, void**) { ++runs; }, nullptr,
                                 &parameter, 1};
  CUfunction function = nullptr;
  ASSERT_EQ(simcuda_register_kernel(&kernel, &function), 0);
  ASSERT_EQ(simcuda_set_release(function,
                                [](void** params) {
                                  uint64_t value = 0;
                                  std::memcpy(&value, params[0], sizeof(value));
                                  releases += static_cast<int>(value);
                                }),
            0);
  uint64_t one = 1;
  void* params[] = {&one};
  const auto launch = [&] { return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream_, params, nullptr); };
  ASSERT_EQ(launch(), CUDA_SUCCESS);
  ASSERT_EQ(launch(), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(releases, 2);
  runs = releases = 0;
  const CUgraph graph = Capture([&] { EXPECT_EQ(launch(), CUDA_SUCCESS); });
  const CUgraphExec exec = Instantiate(graph);
  ASSERT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  Run(exec);
  Run(exec);
  EXPECT_EQ(releases, 0);
  simcuda_hold_streams(1);
  ASSERT_EQ(cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(releases, 0);  // a queued launch holds them
  simcuda_hold_streams(0);
  ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(runs, 3);
  EXPECT_EQ(releases, 1);
}

TEST_F(DriverGraphTest, UserObjectsLiveAsLongAsTheirGraphs) {
  std::atomic<int> destroyed{0};
  CUuserObject object = nullptr;
  ASSERT_EQ(cuUserObjectCreate(
                &object, &destroyed, [](void* count) { ++*static_cast<std::atomic<int>*>(count); }, 1,
                CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
            CUDA_SUCCESS);
  const CUgraph graph = Capture([&] { add_.Launch(stream_, {memory_, 1}); });
  ASSERT_EQ(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE), CUDA_SUCCESS);
  const CUgraphExec exec = Instantiate(graph);
  ASSERT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(destroyed, 0);
  ASSERT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(destroyed, 1);
}

using DriverGraphDeathTest = DriverGraphTest;

TEST_F(DriverGraphDeathTest, UnmapUnderAQueuedGraphStops) {
  EXPECT_EXIT(
      {
        Range range(kChunk);
        Chunk chunk;
        chunk.MapAt(range.start);
        const CUgraphExec exec = Instantiate(Capture([&] { square_.Launch(stream_, {range.start + 64}); }));
        simcuda_hold_streams(1);
        cuGraphLaunch(exec, stream_);
        cuMemUnmap(range.start, kChunk);
      },
      ::testing::KilledBySignal(SIGABRT), "cuMemUnmap of .* graph_square on stream .* will touch it");
}

TEST_F(DriverGraphDeathTest, ReplayThatTouchesUnmappedMemoryIsNamed) {
  EXPECT_EXIT(
      {
        Range range(kChunk);
        const CUgraphExec exec = Instantiate(Capture([&] { square_.Launch(stream_, {range.start + 64}); }));
        cuGraphLaunch(exec, stream_);
        cuStreamSynchronize(stream_);
      },
      ::testing::KilledBySignal(SIGABRT), "was touched but is not mapped.*\n.*graph_square");
}

}  // namespace
}  // namespace simcuda_test
