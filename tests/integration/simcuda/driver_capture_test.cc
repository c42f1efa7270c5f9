// Stream capture: what becomes nodes, forks and joins over events, and every way to spoil a capture.
#include <algorithm>
#include <thread>

#include "tests/integration/simcuda/driver_test_base.h"

// cuda.h declares it for the driver's own use.
extern "C" CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                              CUgraph* graph, const CUgraphNode** dependencies,
                                              size_t* count);

namespace simcuda_test {
namespace {

constexpr CUstreamCaptureMode kGlobal = CU_STREAM_CAPTURE_MODE_GLOBAL;
constexpr CUstreamCaptureMode kRelaxed = CU_STREAM_CAPTURE_MODE_RELAXED;

class DriverCaptureTest : public DriverTest {
 protected:
  static CUresult Begin(CUstream stream, CUstreamCaptureMode mode = kGlobal) {
    return cuStreamBeginCapture(stream, mode);
  }
  // Ends the capture and gives the number of nodes and edges; the result of the end.
  static CUresult End(CUstream stream, size_t* nodes = nullptr, size_t* edges = nullptr) {
    CUgraph graph = nullptr;
    const CUresult result = cuStreamEndCapture(stream, &graph);
    EXPECT_EQ(graph != nullptr, result == CUDA_SUCCESS);
    if (graph == nullptr) return result;
    size_t count = 0;
    EXPECT_EQ(cuGraphGetNodes(graph, nullptr, &count), CUDA_SUCCESS);
    if (nodes != nullptr) *nodes = count;
    EXPECT_EQ(cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &count), CUDA_SUCCESS);
    if (edges != nullptr) *edges = count;
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
    return result;
  }
  static CUstreamCaptureStatus Status(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    EXPECT_EQ(cuStreamIsCapturing(stream, &status), CUDA_SUCCESS);
    return status;
  }
  // The call must give `expected` and spoil the capture on `stream`, which is begun and ended here.
  template <typename Call>
  static void Spoils(CUstream stream, CUresult expected, const Call& call) {
    ASSERT_EQ(Begin(stream), CUDA_SUCCESS);
    EXPECT_EQ(call(), expected);
    EXPECT_EQ(Status(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    EXPECT_EQ(End(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(Status(stream), CU_STREAM_CAPTURE_STATUS_NONE);
  }

  const Kernel touch_{"capture_touch", 1, [](uint64_t*) { ++runs; }};
  static inline std::atomic<int> runs{0};
};

TEST_F(DriverCaptureTest, NothingRunsWhileCaptured) {
  TestStream stream(CU_STREAM_NON_BLOCKING);
  runs = 0;
  ASSERT_EQ(Begin(stream), CUDA_SUCCESS);
  EXPECT_EQ(Status(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  ASSERT_EQ(touch_.Launch(stream, {0}), CUDA_SUCCESS);
  ASSERT_EQ(touch_.Launch(stream, {0}), CUDA_SUCCESS);
  size_t nodes = 0;
  size_t edges = 0;
  ASSERT_EQ(End(stream, &nodes, &edges), CUDA_SUCCESS);
  EXPECT_EQ(nodes, 2u);
  EXPECT_EQ(edges, 1u);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(runs, 0);
}

TEST_F(DriverCaptureTest, InfoNamesTheGraphAndTheLastNodes) {
  TestStream stream(CU_STREAM_NON_BLOCKING);
  TestStream other(CU_STREAM_NON_BLOCKING);
  ASSERT_EQ(Begin(stream), CUDA_SUCCESS);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* dependencies = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t count = 9;
  ASSERT_EQ(cuStreamGetCaptureInfo(stream, &status, &id, &graph, &dependencies, &edges, &count),
            CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_NE(id, 0u);
  EXPECT_NE(graph, nullptr);
  EXPECT_EQ(count, 0u);
  ASSERT_EQ(touch_.Launch(stream, {0}), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &dependencies, &edges, &count),
            CUDA_SUCCESS);
  ASSERT_EQ(count, 1u);
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  EXPECT_EQ(cuGraphNodeGetType(dependencies[0], &type), CUDA_SUCCESS);
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_KERNEL);
  EXPECT_EQ(edges[0].type, 0);
  ASSERT_EQ(cuStreamGetCaptureInfo(other, &status, &id, nullptr, nullptr, nullptr, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
  ASSERT_EQ(End(stream), CUDA_SUCCESS);
}

// Launches that overlap give such edges. cuda.h: what would leave their data out is refused.
TEST_F(DriverCaptureTest, InfoWithoutTheDataOfEdgesIsRefusedWhereThereIsSome) {
  TestStream stream(CU_STREAM_NON_BLOCKING);
  ASSERT_EQ(Begin(stream), CUDA_SUCCESS);
  ASSERT_EQ(touch_.Launch(stream, {0}), CUDA_SUCCESS);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  const CUgraphNode* dependencies = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t count = 0;
  ASSERT_EQ(cuStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &dependencies, &edges, &count),
            CUDA_SUCCESS);
  ASSERT_EQ(count, 1u);
  CUgraphNode node = dependencies[0];
  CUgraphEdgeData programmatic{};
  programmatic.from_port = 1;
  programmatic.type = 1;
  ASSERT_EQ(
      cuStreamUpdateCaptureDependencies(stream, &node, &programmatic, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES),
      CUDA_SUCCESS);
  EXPECT_EQ(cuStreamGetCaptureInfo_v2(stream, &status, &id, nullptr, nullptr, nullptr),
            CUDA_ERROR_LOSSY_QUERY);
  EXPECT_EQ(cuStreamGetCaptureInfo(stream, &status, &id, nullptr, &dependencies, nullptr, &count),
            CUDA_ERROR_LOSSY_QUERY);
  EXPECT_EQ(cuStreamGetCaptureInfo(stream, &status, &id, nullptr, nullptr, &edges, &count),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamGetCaptureInfo(stream, &status, &id, nullptr, nullptr, nullptr, nullptr), CUDA_SUCCESS);
  EXPECT_NE(id, 0u);
  ASSERT_EQ(cuStreamGetCaptureInfo(stream, &status, &id, nullptr, &dependencies, &edges, &count),
            CUDA_SUCCESS);
  ASSERT_EQ(count, 1u);
  EXPECT_EQ(edges[0].type, 1);
  ASSERT_EQ(touch_.Launch(stream, {0}), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamGetCaptureInfo_v2(stream, &status, &id, nullptr, nullptr, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(End(stream), CUDA_SUCCESS);
}

TEST_F(DriverCaptureTest, ForkAndJoinOverEvents) {
  TestStream origin(CU_STREAM_NON_BLOCKING);
  TestStream side(CU_STREAM_NON_BLOCKING);
  TestEvent fork;
  TestEvent join;
  ASSERT_EQ(Begin(origin), CUDA_SUCCESS);
  ASSERT_EQ(touch_.Launch(origin, {0}), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(fork, origin), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamWaitEvent(side, fork, 0), CUDA_SUCCESS);
  EXPECT_EQ(Status(side), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  ASSERT_EQ(touch_.Launch(side, {0}), CUDA_SUCCESS);
  ASSERT_EQ(touch_.Launch(origin, {0}), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(join, side), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamWaitEvent(origin, join, 0), CUDA_SUCCESS);
  ASSERT_EQ(touch_.Launch(origin, {0}), CUDA_SUCCESS);
  size_t nodes = 0;
  size_t edges = 0;
  ASSERT_EQ(End(origin, &nodes, &edges), CUDA_SUCCESS);
  EXPECT_EQ(nodes, 4u);
  EXPECT_EQ(edges, 4u);
  EXPECT_EQ(Status(side), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(cuEventQuery(join), CUDA_ERROR_CAPTURED_EVENT);
  EXPECT_EQ(cuStreamWaitEvent(side, join, 0), CUDA_ERROR_CAPTURED_EVENT);
  ASSERT_EQ(cuEventRecord(join, side), CUDA_SUCCESS);  // an ordinary event again
  EXPECT_EQ(cuEventSynchronize(join), CUDA_SUCCESS);
}

TEST_F(DriverCaptureTest, UnjoinedForkFails) {
  TestStream origin(CU_STREAM_NON_BLOCKING);
  TestStream side(CU_STREAM_NON_BLOCKING);
  TestEvent fork;
  ASSERT_EQ(Begin(origin), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(fork, origin), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamWaitEvent(side, fork, 0), CUDA_SUCCESS);
  ASSERT_EQ(touch_.Launch(side, {0}), CUDA_SUCCESS);
  EXPECT_EQ(End(origin), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  EXPECT_EQ(Status(side), CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_F(DriverCaptureTest, SynchronisationSpoils) {
  TestStream stream(CU_STREAM_NON_BLOCKING);
  TestStream other(CU_STREAM_NON_BLOCKING);
  TestEvent event;
  const CUresult unsupported = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  Spoils(stream, unsupported, [&] { return cuStreamSynchronize(stream); });
  Spoils(stream, unsupported, [&] { return cuStreamQuery(stream); });
  Spoils(stream, unsupported, [&] { return cuCtxSynchronize(); });
  Spoils(stream, unsupported, [&] { return cuEventQuery(event); });  // not captured, but unsafe
  Spoils(stream, unsupported, [&] { return cuStreamSynchronize(other); });
  Spoils(stream, CUDA_ERROR_CAPTURED_EVENT, [&] {
    EXPECT_EQ(cuEventRecord(event, stream), CUDA_SUCCESS);
    return cuEventSynchronize(event);
  });
}

TEST_F(DriverCaptureTest, UnsafeCallsFollowTheModes) {
  TestStream stream(CU_STREAM_NON_BLOCKING);
  CUdeviceptr pointer = 0;
  Spoils(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, [&] { return cuMemAlloc(&pointer, 4096); });
  char host[8] = {};
  Spoils(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
         [&] { return cuMemcpyHtoD(CUdeviceptr{4096}, host, sizeof(host)); });
  // The thread lets itself off.
  CUstreamCaptureMode mode = kRelaxed;
  ASSERT_EQ(Begin(stream), CUDA_SUCCESS);
  ASSERT_EQ(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(mode, kGlobal);
  EXPECT_EQ(cuMemAlloc(&pointer, 4096), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(pointer), CUDA_SUCCESS);
  ASSERT_EQ(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(mode, kRelaxed);
  EXPECT_EQ(End(stream), CUDA_SUCCESS);
  // A relaxed capture binds nobody.
  ASSERT_EQ(Begin(stream, kRelaxed), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAlloc(&pointer, 4096), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(pointer), CUDA_SUCCESS);
  EXPECT_EQ(End(stream), CUDA_SUCCESS);
}

TEST_F(DriverCaptureTest, OtherThreadsAreBoundByGlobalModeOnly) {
  TestStream stream(CU_STREAM_NON_BLOCKING);
  CUcontext context = nullptr;
  ASSERT_EQ(cuCtxGetCurrent(&context), CUDA_SUCCESS);
  const auto allocate_elsewhere = [&] {
    CUresult result = CUDA_SUCCESS;
    std::thread([&] {
      CUdeviceptr pointer = 0;
      cuCtxSetCurrent(context);
      result = cuMemAlloc(&pointer, 4096);
      if (result == CUDA_SUCCESS) cuMemFree(pointer);
    }).join();
    return result;
  };
  Spoils(stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, allocate_elsewhere);
  ASSERT_EQ(Begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  EXPECT_EQ(allocate_elsewhere(), CUDA_SUCCESS);
  EXPECT_EQ(End(stream), CUDA_SUCCESS);
}

TEST_F(DriverCaptureTest, LegacyStreamAndBlockingCaptures) {
  TestStream blocking(CU_STREAM_DEFAULT);
  TestStream stream(CU_STREAM_NON_BLOCKING);
  Spoils(blocking, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, [&] { return touch_.Launch(nullptr, {0}); });
  EXPECT_EQ(Begin(nullptr), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  // Asking does no harm.
  ASSERT_EQ(Begin(blocking), CUDA_SUCCESS);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  EXPECT_EQ(cuStreamIsCapturing(nullptr, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(End(blocking), CUDA_SUCCESS);
  ASSERT_EQ(Begin(stream), CUDA_SUCCESS);
  EXPECT_EQ(touch_.Launch(nullptr, {0}), CUDA_SUCCESS);
  EXPECT_EQ(End(stream), CUDA_SUCCESS);
}

TEST_F(DriverCaptureTest, EventsOfOutsideAndOfOtherCaptures) {
  TestStream stream(CU_STREAM_NON_BLOCKING);
  TestStream other(CU_STREAM_NON_BLOCKING);
  TestEvent outside;
  TestEvent never;
  TestEvent of_other;
  ASSERT_EQ(cuEventRecord(outside, other), CUDA_SUCCESS);
  Spoils(stream, CUDA_ERROR_STREAM_CAPTURE_ISOLATION, [&] { return cuStreamWaitEvent(stream, outside, 0); });
  ASSERT_EQ(Begin(stream), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamWaitEvent(stream, never, 0), CUDA_SUCCESS);
  ASSERT_EQ(Begin(other), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(of_other, other), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamWaitEvent(stream, of_other, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
  EXPECT_EQ(End(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(End(other), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(DriverCaptureTest, EndsWhereItBegan) {
  TestStream stream(CU_STREAM_NON_BLOCKING);
  TestStream side(CU_STREAM_NON_BLOCKING);
  TestEvent fork;
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
  ASSERT_EQ(Begin(stream), CUDA_SUCCESS);
  EXPECT_EQ(Begin(stream), CUDA_ERROR_ILLEGAL_STATE);
  ASSERT_EQ(cuEventRecord(fork, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamWaitEvent(side, fork, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamEndCapture(side, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  EXPECT_EQ(End(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CUcontext context = nullptr;
  ASSERT_EQ(cuCtxGetCurrent(&context), CUDA_SUCCESS);
  const auto end_elsewhere = [&] {
    CUresult result = CUDA_SUCCESS;
    std::thread([&] {
      cuCtxSetCurrent(context);
      result = End(stream);
    }).join();
    return result;
  };
  Spoils(stream, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, end_elsewhere);
  ASSERT_EQ(Begin(stream, kRelaxed), CUDA_SUCCESS);
  EXPECT_EQ(end_elsewhere(), CUDA_SUCCESS);
}

TEST_F(DriverCaptureTest, DestroyingTheStreamDropsTheCapture) {
  CUdeviceptr pointer = 0;
  {
    TestStream stream(CU_STREAM_NON_BLOCKING);
    ASSERT_EQ(Begin(stream), CUDA_SUCCESS);
    ASSERT_EQ(touch_.Launch(stream, {0}), CUDA_SUCCESS);
  }
  EXPECT_EQ(cuMemAlloc(&pointer, 4096), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(pointer), CUDA_SUCCESS);
}

TEST_F(DriverCaptureTest, IntoAGivenGraphWithGivenDependencies) {
  TestStream stream(CU_STREAM_NON_BLOCKING);
  CUgraph graph = nullptr;
  CUgraphNode first = nullptr;
  ASSERT_EQ(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphAddEmptyNode(&first, graph, nullptr, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamBeginCaptureToGraph(stream, graph, &first, nullptr, 1, kGlobal), CUDA_SUCCESS);
  ASSERT_EQ(touch_.Launch(stream, {0}), CUDA_SUCCESS);
  CUgraph ended = nullptr;
  ASSERT_EQ(cuStreamEndCapture(stream, &ended), CUDA_SUCCESS);
  EXPECT_EQ(ended, graph);
  size_t edges = 1;
  CUgraphNode from = nullptr;
  CUgraphNode to = nullptr;
  CUgraphEdgeData data = {};
  ASSERT_EQ(cuGraphGetEdges(graph, &from, &to, &data, &edges), CUDA_SUCCESS);
  EXPECT_EQ(edges, 1u);
  EXPECT_EQ(from, first);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
}

}  // namespace
}  // namespace simcuda_test
