// Graphs and tensor maps: what is pinned, and what ends it.

#include "integration/hooks/escaped_families.h"

#include <gmock/gmock.h>

#include "tests/integration/hooks/escape_fixture.h"

namespace spillway::integration {
namespace {

// ---- Graphs.

class GraphHookTest : public EscapeHookTest {
 protected:
  GraphHookTest() { driver().param_sizes = {8}; }
  static CUgraph Graph(uintptr_t n) { return reinterpret_cast<CUgraph>(0xb000 + 16 * n); }
  static CUgraphExec Exec(uintptr_t n) { return reinterpret_cast<CUgraphExec>(0xc000 + 16 * n); }
  static CUgraphNode Node(uintptr_t n) { return reinterpret_cast<CUgraphNode>(0xd000 + 16 * n); }
  int PinsOf(uint32_t index) const { return EscapeHookTest::PinsOf(index, PinReason::kGraph); }

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
  // A node of `graph` with a kernel on block `index`.
  void AddKernel(CUgraph graph, uint32_t index) {
    uint64_t pointer = Address(index);
    const CUDA_KERNEL_NODE_PARAMS_v2 node = Kernel(&pointer);
    CUgraphNode made = Node(9);
    driver().Hooked<Row::cuGraphAddKernelNode_v2>()(&made, graph, nullptr, 0, &node);
  }
  static CUgraphNodeParams Conditional(CUgraph* bodies, unsigned int count) {
    CUgraphNodeParams params = {};
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional.size = count;
    params.conditional.phGraph_out = bodies;
    return params;
  }
  void Instantiate(uintptr_t number, CUgraph graph) {
    CUgraphExec exec = Exec(number);
    driver().Hooked<Row::cuGraphInstantiateWithFlags>()(&exec, graph, 0);
  }

 private:
  void* params_[1];
};

TEST_F(GraphHookTest, PinsLastAsLongAsTheGraphAndWhatWasMadeOfIt) {
  const CUgraph graph = Capture(1, 2);
  EXPECT_EQ(PinsOf(2), 1);
  Instantiate(1, graph);
  Instantiate(2, graph);
  driver().Hooked<Row::cuGraphDestroy>()(graph);
  driver().Hooked<Row::cuGraphLaunch>()(Exec(1), Stream(4));
  driver().Hooked<Row::cuGraphExecDestroy>()(Exec(1));
  EXPECT_EQ(PinsOf(2), 1);
  driver().Hooked<Row::cuGraphExecDestroy>()(Exec(2));
  EXPECT_EQ(PinsOf(2), 0);
  ASSERT_EQ(residency_[0].ends.back().users.streams.size(), 1u) << "the launch may still run";
  EXPECT_EQ(residency_[0].ends.back().users.streams[0].handle, Stream(4));
}

TEST_F(GraphHookTest, AFailedCapturePinsNothing) {
  Capture(1, 2, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(PinsOf(2), 0);
}

TEST_F(GraphHookTest, NodesChildrenAndClones) {
  CUgraphNode made = Node(1);
  AddKernel(Graph(1), 3);
  EXPECT_EQ(PinsOf(3), 1);
  driver().Hooked<Row::cuGraphAddChildGraphNode>()(&made, Graph(2), nullptr, 0, Graph(1));
  CUgraph clone = Graph(3);
  driver().Hooked<Row::cuGraphClone>()(&clone, Graph(2));
  driver().Hooked<Row::cuGraphDestroy>()(Graph(1));
  driver().Hooked<Row::cuGraphDestroy>()(Graph(2));
  EXPECT_EQ(PinsOf(3), 1);
  driver().Hooked<Row::cuGraphDestroy>()(Graph(3));
  EXPECT_EQ(PinsOf(3), 0);
}

TEST_F(GraphHookTest, AChildThatWasPutInTwiceEndsOnce) {
  const CUgraph child = Capture(1, 2);
  CUgraphNode made = Node(1);
  for (int i = 0; i < 2; ++i) {
    driver().Hooked<Row::cuGraphAddChildGraphNode>()(&made, Graph(2), nullptr, 0, child);
  }
  driver().Hooked<Row::cuGraphDestroy>()(child);
  EXPECT_EQ(PinsOf(2), 1);
  driver().Hooked<Row::cuGraphDestroy>()(Graph(2));
  EXPECT_EQ(PinsOf(2), 0);
}

TEST_F(GraphHookTest, OtherParametersOfANodeReplaceThoseBefore) {
  Instantiate(1, Capture(1, 2));
  for (uint32_t index = 3; index < 7; ++index) {
    uint64_t pointer = Address(index);
    const CUDA_KERNEL_NODE_PARAMS_v2 node = Kernel(&pointer);
    driver().Hooked<Row::cuGraphExecKernelNodeSetParams_v2>()(Exec(1), Node(1), &node);
    EXPECT_EQ(PinsOf(index), 1);
    EXPECT_EQ(PinsOf(index - 1), index == 3 ? 1 : 0);
  }
  driver().Hooked<Row::cuGraphExecDestroy>()(Exec(1));
  EXPECT_EQ(PinsOf(6), 0);
  EXPECT_EQ(PinsOf(2), 1) << "of the graph";
}

TEST_F(GraphHookTest, AnUpdateTakesTheNewGraphsBlocksForTheOld) {
  const CUgraph first = Capture(1, 2);
  Instantiate(1, first);
  driver().Hooked<Row::cuGraphDestroy>()(first);
  const CUgraph second = Capture(2, 3);
  driver().Hooked<Row::cuGraphExecUpdate_v2>()(Exec(1), second, nullptr);
  driver().Hooked<Row::cuGraphDestroy>()(second);
  EXPECT_EQ(PinsOf(2), 0);
  EXPECT_EQ(PinsOf(3), 1);
  driver().Hooked<Row::cuGraphExecDestroy>()(Exec(1));
  EXPECT_EQ(PinsOf(3), 0);
}

TEST_F(GraphHookTest, ParametersOfANodeWithoutItsGraphStay) {
  uint64_t pointer = Address(4);
  const CUDA_KERNEL_NODE_PARAMS_v2 node = Kernel(&pointer);
  driver().Hooked<Row::cuGraphKernelNodeSetParams_v2>()(Node(1), &node);
  driver().Hooked<Row::cuGraphDestroy>()(Graph(1));
  EXPECT_EQ(PinsOf(4), 1);
}

TEST_F(GraphHookTest, BodiesOfAConditionalNodeBelongToItsGraph) {
  CUgraph bodies[2] = {Graph(5), Graph(6)};
  CUgraphNodeParams params = Conditional(bodies, 2);
  CUgraphNode made = Node(1);
  driver().Hooked<Row::cuGraphAddNode_v3>()(&made, Graph(1), nullptr, nullptr, 0, &params);
  AddKernel(bodies[1], 3);
  Instantiate(1, Graph(1));
  driver().Hooked<Row::cuGraphDestroy>()(Graph(1));
  EXPECT_EQ(PinsOf(3), 1);
  driver().Hooked<Row::cuGraphExecDestroy>()(Exec(1));
  EXPECT_EQ(PinsOf(3), 0);
}

// The graph is made before there are blocks; its body is filled when there are.
TEST_F(GraphHookTest, BodiesMadeBeforeTheFirstBlockBelongToTheirGraph) {
  PublishHookContext(nullptr);
  CUgraph body = Graph(5);
  CUgraphNodeParams params = Conditional(&body, 1);
  CUgraphNode made = Node(1);
  driver().Hooked<Row::cuGraphAddNode_v2>()(&made, Graph(1), nullptr, nullptr, 0, &params);
  Publish();
  AddKernel(body, 3);
  Instantiate(1, Graph(1));
  driver().Hooked<Row::cuGraphDestroy>()(Graph(1));
  EXPECT_EQ(PinsOf(3), 1);
  driver().Hooked<Row::cuGraphExecDestroy>()(Exec(1));
  EXPECT_EQ(PinsOf(3), 0);
}

// The handle of a graph that ended inside another comes back for one of its own.
TEST_F(GraphHookTest, AGraphThatIsMadeIsNobodysInside) {
  CUgraph graph = Graph(5);
  driver().Hooked<Row::cuGraphChildGraphNodeGetGraph>()(Node(1), &graph);
  driver().Hooked<Row::cuGraphCreate>()(&graph, 0);
  AddKernel(graph, 3);
  EXPECT_EQ(PinsOf(3), 1);
  driver().Hooked<Row::cuGraphDestroy>()(graph);
  EXPECT_EQ(PinsOf(3), 0);
}

TEST_F(GraphHookTest, BodiesOfANodeThatIsGoneAreForgotten) {
  CUgraph body = Graph(5);
  CUgraphNodeParams params = Conditional(&body, 1);
  CUgraphNode made = Node(1);
  driver().Hooked<Row::cuGraphAddNode_v2>()(&made, Graph(1), nullptr, nullptr, 0, &params);
  driver().Hooked<Row::cuGraphDestroyNode>()(Node(1));
  EXPECT_EQ(Capture(5, 3), body) << "another graph of that handle";
  driver().Hooked<Row::cuGraphDestroy>()(Graph(1));
  EXPECT_EQ(PinsOf(3), 1);
  driver().Hooked<Row::cuGraphDestroy>()(body);
  EXPECT_EQ(PinsOf(3), 0);
}

TEST_F(GraphHookTest, ANodeInAGraphThatBelongsToANodePinsUntilTheBlockIsFreed) {
  CUgraph inner = Graph(5);
  driver().Hooked<Row::cuGraphChildGraphNodeGetGraph>()(Node(1), &inner);
  AddKernel(inner, 3);
  driver().Hooked<Row::cuGraphDestroy>()(Graph(1));
  EXPECT_EQ(PinsOf(3), 1);
  CUgraph body = Graph(6);
  CUgraphNodeParams params = Conditional(&body, 1);
  driver().Hooked<Row::cuGraphNodeGetParams>()(Node(3), &params);
  AddKernel(body, 4);
  driver().Hooked<Row::cuGraphDestroy>()(body);
  EXPECT_EQ(PinsOf(4), 1);
}

TEST_F(GraphHookTest, AnotherChildOfAnExecutableGraphReplacesTheOneBefore) {
  const CUgraph child = Capture(1, 2);
  CUgraphNodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_GRAPH;
  params.graph.graph = child;
  driver().Hooked<Row::cuGraphExecNodeSetParams>()(Exec(1), Node(1), &params);
  driver().Hooked<Row::cuGraphDestroy>()(child);
  EXPECT_EQ(PinsOf(2), 1);
  driver().Hooked<Row::cuGraphExecDestroy>()(Exec(1));
  EXPECT_EQ(PinsOf(2), 0);
  params.graph.graph = Capture(2, 3);
  driver().Hooked<Row::cuGraphNodeSetParams_v2>()(Node(1), &params);
  driver().Hooked<Row::cuGraphDestroy>()(Graph(2));
  EXPECT_EQ(PinsOf(3), 1) << "it is not known in which graph the node is";
}

TEST_F(GraphHookTest, ARecaptureIsACaptureAndReplacesTheGraphsBlocks) {
  const CUgraph graph = Capture(1, 2);
  driver().Hooked<Row::cuStreamBeginRecaptureToGraph>()(Stream(1), CU_STREAM_CAPTURE_MODE_GLOBAL, graph,
                                                        nullptr, nullptr);
  EXPECT_EQ(state()->captures.load(), 1);
  driver().capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  uint64_t pointer = Address(3);
  LaunchParam(&pointer);
  EXPECT_TRUE(residency_[0].launches.empty());
  CUgraph again = graph;
  driver().Hooked<Row::cuStreamEndCapture>()(Stream(1), &again);
  driver().capture = CU_STREAM_CAPTURE_STATUS_NONE;
  EXPECT_EQ(PinsOf(3), 1);
  driver().Hooked<Row::cuGraphDestroy>()(graph);
  EXPECT_EQ(PinsOf(3), 0);
}

TEST_F(GraphHookTest, WhatTheDriverDoesNotDestroyKeepsItsBlocks) {
  const CUgraph graph = Capture(1, 2);
  driver().results["cuGraphDestroy"] = {CUDA_ERROR_UNKNOWN};
  driver().Hooked<Row::cuGraphDestroy>()(graph);
  EXPECT_EQ(PinsOf(2), 1);
  Instantiate(1, Capture(2, 3));
  driver().results.erase("cuGraphDestroy");
  driver().Hooked<Row::cuGraphDestroy>()(Graph(2));
  driver().results["cuGraphExecDestroy"] = {CUDA_ERROR_UNKNOWN};
  driver().Hooked<Row::cuGraphExecDestroy>()(Exec(1));
  EXPECT_EQ(PinsOf(3), 1);
}

TEST_F(GraphHookTest, AGraphThatIsLaunchedInACaptureLivesOn) {
  Instantiate(1, Capture(1, 2));
  driver().Hooked<Row::cuGraphDestroy>()(Graph(1));
  driver().Hooked<Row::cuStreamBeginCapture_v2>()(Stream(1), CU_STREAM_CAPTURE_MODE_GLOBAL);
  driver().capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  driver().Hooked<Row::cuGraphLaunch>()(Exec(1), Stream(1));
  CUgraph outer = Graph(3);
  driver().Hooked<Row::cuStreamEndCapture>()(Stream(1), &outer);
  driver().capture = CU_STREAM_CAPTURE_STATUS_NONE;
  driver().Hooked<Row::cuGraphExecDestroy>()(Exec(1));
  EXPECT_EQ(PinsOf(2), 1);
  driver().Hooked<Row::cuGraphDestroy>()(outer);
  EXPECT_EQ(PinsOf(2), 0);
}

// A node of a type that our headers may not have, with its parameters as words.
CUgraphNodeParams NodeOf(int type, const std::vector<uint64_t>& words) {
  CUgraphNodeParams params = {};
  params.type = static_cast<CUgraphNodeType>(type);
  std::copy(words.begin(), words.end(), reinterpret_cast<uint64_t*>(&params.kernel));
  return params;
}

TEST_F(GraphHookTest, NodesOfCopiesInBatchesAndOverAFabric) {
  const auto add = driver().Hooked<Row::cuGraphAddNode_v3>();
  CUgraphNode made = Node(1);
  const CUdeviceptr destinations[] = {Address(1), kExternal};
  const CUdeviceptr sources[] = {kExternal, Address(2)};
  const size_t sizes[] = {64, 64};
  CUgraphNodeParams batch = NodeOf(14, {2, AddressOf(destinations), AddressOf(sources), AddressOf(sizes)});
  add(&made, Graph(1), nullptr, nullptr, 0, &batch);
  EXPECT_EQ(PinsOf(1), 1);
  EXPECT_EQ(PinsOf(2), 1);
  const uint64_t copy[8] = {1, Address(3), 0, 2, Address(4), 0, 64, 0};  // from a pointer to an endpoint
  CUgraphNodeParams fabric = NodeOf(18, {1, AddressOf(copy)});
  add(&made, Graph(1), nullptr, nullptr, 0, &fabric);
  EXPECT_EQ(PinsOf(3), 1);
  EXPECT_EQ(PinsOf(4), 0);
  EXPECT_EQ(switched_off(), "");
  CUgraphNodeParams unknown = NodeOf(40, {});
  add(&made, Graph(1), nullptr, nullptr, 0, &unknown);
  EXPECT_THAT(switched_off(), testing::HasSubstr("newer than this version"));
}

TEST_F(GraphHookTest, AStreamThatIsDestroyedIsNotAskedLater) {
  Instantiate(1, Capture(1, 2));
  driver().Hooked<Row::cuGraphLaunch>()(Exec(1), Stream(4));
  driver().Hooked<Row::cuStreamDestroy_v2>()(Stream(4));
  ASSERT_EQ(residency_[0].escaped_uses.size(), 1u);
  EXPECT_EQ(residency_[0].escaped_uses[0].held[0].id, Id(2));
  driver().Hooked<Row::cuGraphExecDestroy>()(Exec(1));
  driver().Hooked<Row::cuGraphDestroy>()(Graph(1));
  EXPECT_TRUE(residency_[0].ends.back().users.streams.empty());
}

TEST_F(GraphHookTest, ACapturedTableIsPinnedWithTheGraph) {
  driver().Hooked<Row::cuStreamBeginCapture_v2>()(Stream(1), CU_STREAM_CAPTURE_MODE_GLOBAL);
  driver().capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  Upload(kExternal, {5});
  CUgraph graph = Graph(1);
  driver().Hooked<Row::cuStreamEndCapture>()(Stream(1), &graph);
  driver().capture = CU_STREAM_CAPTURE_STATUS_NONE;
  EXPECT_EQ(PinsOf(5), 1);
  driver().Hooked<Row::cuGraphDestroy>()(graph);
  EXPECT_EQ(PinsOf(5), 0);
}

// ---- Tensor maps.

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

TEST_F(TensorMapHookTest, AMapOfAnotherClassLeadsWhereItLed) {
  driver().param_sizes = {sizeof(Struct)};
  Struct param;
  Fill(&param.map, 4);
  driver().overrides["cuTensorMapSetAllocationClass"] =
      reinterpret_cast<void*>(+[](CUtensorMap* map, int, int*) {
        Fill(map, 5);  // changed in place
        return CUDA_SUCCESS;
      });
  delete GetHookState();
  Install();
  Publish();
  Encode(&param.map, Address(2));
  driver().Hooked<Row::cuTensorMapSetAllocationClass>()(&param.map, {}, nullptr);
  LaunchParam(&param);
  EXPECT_EQ(OnlyLaunch().set, Ids{Id(2)});
}

TEST_F(TensorMapHookTest, MapsOverExternalMemoryCostNothing) {
  CUtensorMap map;
  Fill(&map, 7);
  Encode(&map, kExternal);
  EXPECT_FALSE(state()->tensor_maps.any());
}

TEST_F(TensorMapHookTest, AMapThatCannotBeRememberedPinsItsBlock) {
  // Far more than there are places for, all over a block in use.
  CUtensorMap map;
  for (uint64_t i = 0; i < 40'000 && residency_[0].pins.empty(); ++i) {
    Fill(&map, 0);
    std::memcpy(&map, &i, sizeof(i));
    Encode(&map, Address(2));
  }
  ExpectPinned(PinReason::kUnknownCall, {Id(2)});
}

}  // namespace
}  // namespace spillway::integration
