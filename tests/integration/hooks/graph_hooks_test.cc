// Tensor maps and graphs: what their launches name or hold, and what ends it.

#include <cstring>

#include "tests/integration/hooks/escape_fixture.h"

namespace spillway::integration {
namespace {

// ---- Tensor maps.

class TensorMapHookTest : public HiddenHookTest {
 protected:
  struct Struct {
    char before[64] = {};
    CUtensorMap map = {};
    char behind[32] = {};
  };
  // The fake driver encodes nothing: the bytes are the test's own, an address nowhere among them.
  static void Fill(CUtensorMap* map, int with) { std::memset(map, with, sizeof(*map)); }
  CUresult Encode(CUtensorMap* map, uint64_t address) {
    const cuuint64_t sizes[2] = {64, 16};
    const cuuint64_t strides[1] = {256};
    return driver().Hooked<Row::cuTensorMapEncodeTiled>()(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2,
                                                          reinterpret_cast<void*>(address), sizes, strides,
                                                          nullptr, nullptr, {}, {}, {}, {});
  }
};

TEST_F(TensorMapHookTest, AMapInAParameterNamesItsBlocks) {
  driver().param_sizes = {sizeof(Struct)};
  Struct param;
  Fill(&param.map, 1);
  LaunchParam(&param);
  EXPECT_TRUE(residency_[0].launches.empty());
  Encode(&param.map, Address(2));
  EXPECT_TRUE(residency_[0].holds.empty());
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

TEST_F(TensorMapHookTest, AReplacedAddressIsFollowed) {
  driver().param_sizes = {sizeof(Struct)};
  Struct param;
  Fill(&param.map, 4);
  Encode(&param.map, Address(2));
  Fill(&param.map, 5);
  driver().Hooked<Row::cuTensorMapReplaceAddress>()(&param.map, reinterpret_cast<void*>(Address(6)));
  LaunchParam(&param);
  EXPECT_EQ(OnlyLaunch().set, Ids{Id(6)});
}

TEST_F(TensorMapHookTest, ACopiedMapHoldsItsBlock) {
  alignas(64) char buffer[320] = {};
  CUtensorMap map;
  Fill(&map, 6);
  Encode(&map, Address(4));
  std::memcpy(buffer + 128, &map, sizeof(map));
  driver().Hooked<Row::cuMemcpyHtoDAsync_v2>()(kForeign, buffer, sizeof(buffer), Stream(1));
  EXPECT_EQ(Held(4), 1);
  driver().Hooked<Row::cuMemsetD8Async>()(kForeign + 250, 0, 1, Stream(1));
  EXPECT_EQ(Held(4), 0);
}

TEST_F(TensorMapHookTest, MapsOverOthersMemoryCostNothing) {
  CUtensorMap map;
  Fill(&map, 7);
  Encode(&map, kForeign);
  EXPECT_FALSE(state()->tensor_maps.any());
}

TEST_F(TensorMapHookTest, AMapThatCannotBeRememberedHoldsItsBlock) {
  // Far more than there is room for, all over a block in use.
  CUtensorMap map;
  for (uint64_t i = 0; i < 40'000 && residency_[0].holds.empty(); ++i) {
    Fill(&map, 0);
    std::memcpy(&map, &i, sizeof(i));
    Encode(&map, Address(2));
  }
  ExpectHeld(HoldReason::kUnknownCall, {Id(2)});
}

// ---- Graphs.

class GraphHookTest : public HiddenHookTest {
 protected:
  GraphHookTest() { driver().param_sizes = {8}; }
  static CUgraph Graph(uintptr_t n) { return reinterpret_cast<CUgraph>(0xb000 + 16 * n); }
  static CUgraphExec Exec(uintptr_t n) { return reinterpret_cast<CUgraphExec>(0xc000 + 16 * n); }
  static CUgraphNode Node(uintptr_t n) { return reinterpret_cast<CUgraphNode>(0xd000 + 16 * n); }
  int Held(uint32_t index) const { return HiddenHookTest::Held(index, HoldReason::kGraph); }

  // A graph that launches a kernel on block `index`, captured.
  CUgraph Capture(uintptr_t number, uint32_t index, CUresult end = CUDA_SUCCESS) {
    driver().Hooked<Row::cuStreamBeginCapture_v2>()(Stream(1), CU_STREAM_CAPTURE_MODE_GLOBAL);
    driver().capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    uint64_t pointer = Address(index);
    LaunchParam(&pointer);
    driver().results["cuStreamEndCapture"] = {end};
    CUgraph graph = end == CUDA_SUCCESS ? Graph(number) : nullptr;  // the fake leaves it as it is
    driver().Hooked<Row::cuStreamEndCapture>()(Stream(1), &graph);
    driver().capture = CU_STREAM_CAPTURE_STATUS_NONE;
    return graph;
  }
  CUDA_KERNEL_NODE_PARAMS_v2 Kernel(uint64_t* pointer) {
    params_[0] = pointer;
    CUDA_KERNEL_NODE_PARAMS_v2 node = {};
    node.func = Function();
    node.kernelParams = params_;
    return node;
  }
  void Instantiate(uintptr_t number, CUgraph graph) {
    CUgraphExec exec = Exec(number);
    driver().Hooked<Row::cuGraphInstantiateWithFlags>()(&exec, graph, 0);
  }

 private:
  void* params_[1];
};

TEST_F(GraphHookTest, HoldsLastAsLongAsTheGraphAndWhatWasMadeOfIt) {
  const CUgraph graph = Capture(1, 2);
  EXPECT_EQ(Held(2), 1);
  Instantiate(1, graph);
  Instantiate(2, graph);
  driver().Hooked<Row::cuGraphDestroy>()(graph);
  driver().Hooked<Row::cuGraphLaunch>()(Exec(1), Stream(4));
  driver().Hooked<Row::cuGraphExecDestroy>()(Exec(1));
  EXPECT_EQ(Held(2), 1);
  driver().Hooked<Row::cuGraphExecDestroy>()(Exec(2));
  EXPECT_EQ(Held(2), 0);
  ASSERT_EQ(residency_[0].ends.back().users.streams.size(), 1u) << "the launch may still run";
  EXPECT_EQ(residency_[0].ends.back().users.streams[0].handle, Stream(4));
}

TEST_F(GraphHookTest, ACaptureThatComesToNothingHoldsNothing) {
  Capture(1, 2, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(Held(2), 0);
}

TEST_F(GraphHookTest, NodesChildrenAndClones) {
  uint64_t pointer = Address(3);
  const CUDA_KERNEL_NODE_PARAMS_v2 node = Kernel(&pointer);
  CUgraphNode made = Node(1);
  driver().Hooked<Row::cuGraphAddKernelNode_v2>()(&made, Graph(1), nullptr, 0, &node);
  EXPECT_EQ(Held(3), 1);
  driver().Hooked<Row::cuGraphAddChildGraphNode>()(&made, Graph(2), nullptr, 0, Graph(1));
  CUgraph clone = Graph(3);
  driver().Hooked<Row::cuGraphClone>()(&clone, Graph(2));
  driver().Hooked<Row::cuGraphDestroy>()(Graph(1));
  driver().Hooked<Row::cuGraphDestroy>()(Graph(2));
  EXPECT_EQ(Held(3), 1);
  driver().Hooked<Row::cuGraphDestroy>()(Graph(3));
  EXPECT_EQ(Held(3), 0);
}

TEST_F(GraphHookTest, AChildThatWasPutInTwiceEndsOnce) {
  const CUgraph child = Capture(1, 2);
  CUgraphNode made = Node(1);
  for (int i = 0; i < 2; ++i) {
    driver().Hooked<Row::cuGraphAddChildGraphNode>()(&made, Graph(2), nullptr, 0, child);
  }
  driver().Hooked<Row::cuGraphDestroy>()(child);
  EXPECT_EQ(Held(2), 1);
  driver().Hooked<Row::cuGraphDestroy>()(Graph(2));
  EXPECT_EQ(Held(2), 0);
}

TEST_F(GraphHookTest, OtherParametersOfANodeReplaceThoseBefore) {
  Instantiate(1, Capture(1, 2));
  for (uint32_t index = 3; index < 7; ++index) {
    uint64_t pointer = Address(index);
    const CUDA_KERNEL_NODE_PARAMS_v2 node = Kernel(&pointer);
    driver().Hooked<Row::cuGraphExecKernelNodeSetParams_v2>()(Exec(1), Node(1), &node);
    EXPECT_EQ(Held(index), 1);
    EXPECT_EQ(Held(index - 1), index == 3 ? 1 : 0);
  }
  driver().Hooked<Row::cuGraphExecDestroy>()(Exec(1));
  EXPECT_EQ(Held(6), 0);
  EXPECT_EQ(Held(2), 1) << "of the graph";
}

TEST_F(GraphHookTest, AnUpdateTakesTheNewGraphsBlocksForTheOld) {
  const CUgraph first = Capture(1, 2);
  Instantiate(1, first);
  driver().Hooked<Row::cuGraphDestroy>()(first);
  const CUgraph second = Capture(2, 3);
  driver().Hooked<Row::cuGraphExecUpdate_v2>()(Exec(1), second, nullptr);
  driver().Hooked<Row::cuGraphDestroy>()(second);
  EXPECT_EQ(Held(2), 0);
  EXPECT_EQ(Held(3), 1);
  driver().Hooked<Row::cuGraphExecDestroy>()(Exec(1));
  EXPECT_EQ(Held(3), 0);
}

TEST_F(GraphHookTest, ParametersOfANodeWithoutItsGraphStay) {
  uint64_t pointer = Address(4);
  const CUDA_KERNEL_NODE_PARAMS_v2 node = Kernel(&pointer);
  driver().Hooked<Row::cuGraphKernelNodeSetParams_v2>()(Node(1), &node);
  driver().Hooked<Row::cuGraphDestroy>()(Graph(1));
  EXPECT_EQ(Held(4), 1);
}

TEST_F(GraphHookTest, AStreamThatIsDestroyedIsNotAskedLater) {
  Instantiate(1, Capture(1, 2));
  driver().Hooked<Row::cuGraphLaunch>()(Exec(1), Stream(4));
  driver().Hooked<Row::cuStreamDestroy_v2>()(Stream(4));
  ASSERT_EQ(residency_[0].hidden_uses.size(), 1u);
  EXPECT_EQ(residency_[0].hidden_uses[0].held[0].id, Id(2));
  driver().Hooked<Row::cuGraphExecDestroy>()(Exec(1));
  driver().Hooked<Row::cuGraphDestroy>()(Graph(1));
  EXPECT_TRUE(residency_[0].ends.back().users.streams.empty());
}

TEST_F(GraphHookTest, ACapturedTableIsHeldWithTheGraph) {
  driver().Hooked<Row::cuStreamBeginCapture_v2>()(Stream(1), CU_STREAM_CAPTURE_MODE_GLOBAL);
  driver().capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  Upload(kForeign, {5});
  CUgraph graph = Graph(1);
  driver().Hooked<Row::cuStreamEndCapture>()(Stream(1), &graph);
  driver().capture = CU_STREAM_CAPTURE_STATUS_NONE;
  EXPECT_EQ(Held(5), 1);
  driver().Hooked<Row::cuGraphDestroy>()(graph);
  EXPECT_EQ(Held(5), 0);
}

}  // namespace
}  // namespace spillway::integration
