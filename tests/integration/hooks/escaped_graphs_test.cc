// Graphs: what their launches name, and what is pinned where they do not show it.

#include "integration/hooks/escaped_families.h"

#include <gmock/gmock.h>

#include <optional>

#include "integration/hooks/launch_reports.h"
#include "tests/integration/hooks/escape_fixture.h"

namespace spillway::integration {
namespace {

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
    driver().results["cuStreamEndCapture"] = {end};
    CUgraph graph = end == CUDA_SUCCESS ? Graph(number) : nullptr;  // the fake leaves it as it is
    CaptureInto(&graph, index);
    return graph;
  }
  // The rest of a capture that has begun.
  void CaptureInto(CUgraph* graph, uint32_t index) {
    driver().capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    uint64_t pointer = Address(index);
    LaunchParam(&pointer);
    driver().Hooked<Row::cuStreamEndCapture>()(Stream(1), graph);
    driver().capture = CU_STREAM_CAPTURE_STATUS_NONE;
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
  void Create(uintptr_t number) {
    CUgraph graph = Graph(number);
    driver().Hooked<Row::cuGraphCreate>()(&graph, 0);
  }
  // What the launch of an executable graph names; none: everything is needed.
  std::optional<Ids> Launched(uintptr_t number) {
    const int before = residency_[0].launches_reaching_all;
    const size_t launches = residency_[0].launches.size();
    EXPECT_EQ(driver().Hooked<Row::cuGraphLaunch>()(Exec(number), Stream(4)), CUDA_SUCCESS);
    if (residency_[0].launches_reaching_all != before) return std::nullopt;
    return residency_[0].launches.size() == launches ? Ids{} : residency_[0].launches.back().set;
  }
  void Instantiate(uintptr_t number, CUgraph graph) {
    CUgraphExec exec = Exec(number);
    driver().Hooked<Row::cuGraphInstantiateWithFlags>()(&exec, graph, 0);
  }

 private:
  void* params_[1];
};

TEST_F(GraphHookTest, TheLaunchNamesWhatWasCaptured) {
  const CUgraph graph = Capture(1, 2);
  Instantiate(1, graph);
  driver().Hooked<Row::cuGraphDestroy>()(graph);
  EXPECT_EQ(Launched(1), Ids{Id(2)});
  EXPECT_EQ(residency_[0].launches.back().stream.handle, Stream(4));
  EXPECT_TRUE(residency_[0].pins.empty()) << "between launches the block may leave";
  Instantiate(2, Capture(2, 3));
  EXPECT_EQ(Launched(2), Ids{Id(3)});
  EXPECT_NE(residency_[0].launches[0].tag, residency_[0].launches[1].tag);
  EXPECT_EQ(CallOfTag(residency_[0].launches[1].tag), "cuGraphLaunch");
}

TEST_F(GraphHookTest, ALaunchThatIsRefusedIsNotMade) {
  Instantiate(1, Capture(1, 2));
  residency_[0].refuse = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_EQ(driver().Hooked<Row::cuGraphLaunch>()(Exec(1), Stream(4)), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(driver().CountOf("cuGraphLaunch"), 0u);
}

TEST_F(GraphHookTest, AFailedCaptureNamesNothing) {
  Capture(1, 2, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  Instantiate(1, Capture(1, 3));  // with the same id
  EXPECT_EQ(Launched(1), Ids{Id(3)});
}

// A graph, or an executable graph, that came past the hooks.
TEST_F(GraphHookTest, OfUnknownNodesEverythingIsNeeded) {
  EXPECT_EQ(Launched(1), std::nullopt);
  Instantiate(2, Graph(7));
  EXPECT_EQ(Launched(2), std::nullopt);
  EXPECT_EQ(residency_[0].launches_reaching_all, 2);
  EXPECT_EQ(switched_off(), "");
}

TEST_F(GraphHookTest, NodesChildrenAndClones) {
  CUgraphNode made = Node(1);
  Create(1);
  Create(2);
  AddKernel(Graph(1), 3);
  driver().Hooked<Row::cuGraphAddChildGraphNode>()(&made, Graph(2), nullptr, 0, Graph(1));
  driver().Hooked<Row::cuGraphAddChildGraphNode>()(&made, Graph(2), nullptr, 0, Graph(1));
  CUgraph clone = Graph(3);
  driver().Hooked<Row::cuGraphClone>()(&clone, Graph(2));
  driver().Hooked<Row::cuGraphDestroy>()(Graph(1));
  driver().Hooked<Row::cuGraphDestroy>()(Graph(2));
  Instantiate(1, Graph(3));
  EXPECT_EQ(Launched(1), Ids{Id(3)});
  EXPECT_TRUE(residency_[0].pins.empty());
}

TEST_F(GraphHookTest, OtherParametersOfANodeReplaceThoseBefore) {
  Instantiate(1, Capture(1, 2));
  for (uint32_t index = 3; index < 7; ++index) {
    uint64_t pointer = Address(index);
    const CUDA_KERNEL_NODE_PARAMS_v2 node = Kernel(&pointer);
    driver().Hooked<Row::cuGraphExecKernelNodeSetParams_v2>()(Exec(1), Node(1), &node);
    EXPECT_EQ(Launched(1), (Ids{Id(2), Id(index)}));
  }
  driver().Hooked<Row::cuGraphExecDestroy>()(Exec(1));
  EXPECT_EQ(Launched(1), std::nullopt);
}

TEST_F(GraphHookTest, AnUpdateTakesTheNewGraphsBlocksForTheOld) {
  const CUgraph first = Capture(1, 2);
  Instantiate(1, first);
  driver().Hooked<Row::cuGraphDestroy>()(first);
  const CUgraph second = Capture(2, 3);
  driver().results["cuGraphExecUpdate_v2"] = {CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE};
  driver().Hooked<Row::cuGraphExecUpdate_v2>()(Exec(1), second, nullptr);
  EXPECT_EQ(Launched(1), Ids{Id(2)});
  driver().results.erase("cuGraphExecUpdate_v2");
  driver().Hooked<Row::cuGraphExecUpdate_v2>()(Exec(1), second, nullptr);
  driver().Hooked<Row::cuGraphDestroy>()(second);
  EXPECT_EQ(Launched(1), Ids{Id(3)});
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
  Create(1);
  driver().Hooked<Row::cuGraphAddNode_v3>()(&made, Graph(1), nullptr, nullptr, 0, &params);
  AddKernel(bodies[1], 3);
  Instantiate(1, Graph(1));
  driver().Hooked<Row::cuGraphDestroy>()(Graph(1));
  EXPECT_EQ(Launched(1), Ids{Id(3)});
}

// The graph is made before there are blocks; its body is filled when there are.
TEST_F(GraphHookTest, BodiesMadeBeforeTheFirstBlockBelongToTheirGraph) {
  PublishHookContext(nullptr);
  CUgraph body = Graph(5);
  CUgraphNodeParams params = Conditional(&body, 1);
  CUgraphNode made = Node(1);
  Create(1);
  driver().Hooked<Row::cuGraphAddNode_v2>()(&made, Graph(1), nullptr, nullptr, 0, &params);
  Publish();
  AddKernel(body, 3);
  Instantiate(1, Graph(1));
  EXPECT_EQ(Launched(1), Ids{Id(3)});
}

// The handle of a graph that ended inside another comes back for one of its own.
TEST_F(GraphHookTest, AGraphThatIsMadeIsNobodysInside) {
  CUgraph graph = Graph(5);
  driver().Hooked<Row::cuGraphChildGraphNodeGetGraph>()(Node(1), &graph);
  driver().Hooked<Row::cuGraphCreate>()(&graph, 0);
  AddKernel(graph, 3);
  EXPECT_EQ(PinsOf(3), 0);
  Instantiate(1, graph);
  EXPECT_EQ(Launched(1), Ids{Id(3)});
}

TEST_F(GraphHookTest, BodiesOfANodeThatIsGoneAreForgotten) {
  CUgraph body = Graph(5);
  CUgraphNodeParams params = Conditional(&body, 1);
  CUgraphNode made = Node(1);
  Create(1);
  driver().Hooked<Row::cuGraphAddNode_v2>()(&made, Graph(1), nullptr, nullptr, 0, &params);
  driver().Hooked<Row::cuGraphDestroyNode>()(Node(1));
  EXPECT_EQ(Capture(5, 3), body) << "another graph of that handle";
  driver().Hooked<Row::cuGraphDestroy>()(Graph(1));
  Instantiate(1, body);
  EXPECT_EQ(Launched(1), Ids{Id(3)});
}

TEST_F(GraphHookTest, WhatIsAddedToTheGraphOfAnUnknownNodeStays) {
  CUgraph inner = Graph(5);
  driver().Hooked<Row::cuGraphChildGraphNodeGetGraph>()(Node(1), &inner);
  AddKernel(inner, 3);
  EXPECT_EQ(PinsOf(3), 1);
  CUgraph body = Graph(6);
  CUgraphNodeParams params = Conditional(&body, 1);
  driver().Hooked<Row::cuGraphNodeGetParams>()(Node(3), &params);
  AddKernel(body, 4);
  EXPECT_EQ(PinsOf(4), 1);
  CUgraphNode made = Node(1);
  driver().Hooked<Row::cuGraphAddChildGraphNode>()(&made, body, nullptr, 0, Capture(1, 5));
  EXPECT_EQ(PinsOf(5), 1);
  driver().capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  driver().Hooked<Row::cuStreamBeginCaptureToGraph>()(Stream(1), inner, nullptr, nullptr, 0,
                                                      CU_STREAM_CAPTURE_MODE_GLOBAL);
  CaptureInto(&inner, 6);
  EXPECT_EQ(PinsOf(6), 1);
}

TEST_F(GraphHookTest, AnotherChildOfAnExecutableGraphReplacesTheOneBefore) {
  CUgraphNodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_GRAPH;
  Instantiate(1, Capture(1, 1));
  for (const uint32_t index : {2u, 4u}) {
    params.graph.graph = Capture(2, index);
    driver().Hooked<Row::cuGraphExecNodeSetParams>()(Exec(1), Node(1), &params);
    driver().Hooked<Row::cuGraphDestroy>()(Graph(2));
    EXPECT_EQ(Launched(1), (Ids{Id(1), Id(index)}));
  }
  params.graph.graph = Capture(2, 3);
  EXPECT_EQ(PinsOf(3), 0);
  driver().Hooked<Row::cuGraphNodeSetParams_v2>()(Node(1), &params);
  EXPECT_EQ(PinsOf(3), 1) << "it is not known in which graph the node is";
}

TEST_F(GraphHookTest, ARecaptureIsACaptureAndReplacesTheGraphsBlocks) {
  CUgraph graph = Capture(1, 2);
  driver().capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  driver().Hooked<Row::cuStreamBeginRecaptureToGraph>()(Stream(1), CU_STREAM_CAPTURE_MODE_GLOBAL, graph,
                                                        nullptr, nullptr);
  EXPECT_EQ(state()->captures.load(), 1);
  CaptureInto(&graph, 3);
  EXPECT_TRUE(residency_[0].launches.empty());
  Instantiate(1, graph);
  EXPECT_EQ(Launched(1), Ids{Id(3)});
}

TEST_F(GraphHookTest, OfWhatTheDriverDoesNotDestroyNothingIsKnown) {
  const CUgraph graph = Capture(1, 2);
  driver().results["cuGraphDestroy"] = {CUDA_ERROR_UNKNOWN};
  driver().Hooked<Row::cuGraphDestroy>()(graph);
  Instantiate(1, graph);
  EXPECT_EQ(Launched(1), std::nullopt);
  driver().results["cuGraphExecDestroy"] = {CUDA_ERROR_UNKNOWN};
  Instantiate(2, Capture(2, 3));
  driver().Hooked<Row::cuGraphExecDestroy>()(Exec(2));
  EXPECT_EQ(Launched(2), std::nullopt);
}

TEST_F(GraphHookTest, AGraphThatIsLaunchedInACaptureLivesOn) {
  Instantiate(1, Capture(1, 2));
  driver().Hooked<Row::cuStreamBeginCapture_v2>()(Stream(1), CU_STREAM_CAPTURE_MODE_GLOBAL);
  driver().capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  driver().Hooked<Row::cuGraphLaunch>()(Exec(1), Stream(1));
  CUgraph outer = Graph(3);
  driver().Hooked<Row::cuStreamEndCapture>()(Stream(1), &outer);
  driver().capture = CU_STREAM_CAPTURE_STATUS_NONE;
  driver().Hooked<Row::cuGraphExecDestroy>()(Exec(1));
  EXPECT_TRUE(residency_[0].launches.empty());
  Instantiate(2, outer);
  EXPECT_EQ(Launched(2), Ids{Id(2)});
}

TEST_F(GraphHookTest, WhatKernelsMayLaunchStays) {
  CUgraphExec exec = Exec(1);
  driver().Hooked<Row::cuGraphInstantiateWithFlags>()(&exec, Capture(1, 2),
                                                      CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH);
  EXPECT_EQ(PinsOf(2), 1);
  uint64_t pointer = Address(3);
  const CUDA_KERNEL_NODE_PARAMS_v2 node = Kernel(&pointer);
  driver().Hooked<Row::cuGraphExecKernelNodeSetParams_v2>()(exec, Node(1), &node);
  EXPECT_EQ(PinsOf(3), 1);
  driver().Hooked<Row::cuGraphExecUpdate_v2>()(exec, Capture(2, 4), nullptr);
  EXPECT_EQ(PinsOf(4), 1);
  driver().Hooked<Row::cuGraphExecChildGraphNodeSetParams>()(exec, Node(1), Capture(3, 5));
  EXPECT_EQ(PinsOf(5), 1);
  CUDA_GRAPH_INSTANTIATE_PARAMS params = {};
  params.flags = CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
  exec = Exec(2);
  driver().Hooked<Row::cuGraphInstantiateWithParams>()(&exec, Capture(4, 6), &params);
  EXPECT_EQ(PinsOf(6), 1);
  EXPECT_EQ(switched_off(), "");
  driver().Hooked<Row::cuGraphInstantiateWithParams>()(&exec, Graph(7), &params);
  EXPECT_THAT(switched_off(), testing::HasSubstr("a graph of unknown nodes"));
}

TEST_F(GraphHookTest, ACommandListIsLaunchedUnseen) {
  driver().capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  driver().Hooked<Row::cuStreamBeginCaptureToCig>()(Stream(1), nullptr);
  uint64_t pointer = Address(3);
  LaunchParam(&pointer);
  driver().Hooked<Row::cuStreamEndCaptureToCig>()(Stream(1));
  driver().capture = CU_STREAM_CAPTURE_STATUS_NONE;
  EXPECT_EQ(PinsOf(3), 1);
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
  Create(1);
  add(&made, Graph(1), nullptr, nullptr, 0, &batch);
  const uint64_t copy[8] = {1, Address(3), 0, 2, Address(4), 0, 64, 0};  // from a pointer to an endpoint
  CUgraphNodeParams fabric = NodeOf(18, {1, AddressOf(copy)});
  add(&made, Graph(1), nullptr, nullptr, 0, &fabric);
  Instantiate(1, Graph(1));
  EXPECT_EQ(Launched(1), (Ids{Id(1), Id(2), Id(3)}));
  EXPECT_EQ(switched_off(), "");
  CUgraphNodeParams unknown = NodeOf(40, {});
  add(&made, Graph(1), nullptr, nullptr, 0, &unknown);
  EXPECT_THAT(switched_off(), testing::HasSubstr("newer than this version"));
}

// Kernels outside of the graph may follow what its copies have put into memory.
TEST_F(GraphHookTest, TargetsOfACapturedTableStay) {
  driver().Hooked<Row::cuStreamBeginCapture_v2>()(Stream(1), CU_STREAM_CAPTURE_MODE_GLOBAL);
  driver().capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  Upload(kExternal, {5});
  CUgraph graph = Graph(1);
  driver().Hooked<Row::cuStreamEndCapture>()(Stream(1), &graph);
  driver().capture = CU_STREAM_CAPTURE_STATUS_NONE;
  EXPECT_EQ(PinsOf(5), 1);
  driver().Hooked<Row::cuGraphDestroy>()(graph);
  EXPECT_EQ(PinsOf(5), 1);
}

}  // namespace
}  // namespace spillway::integration
