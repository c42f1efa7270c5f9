// Conditional nodes: which body runs, by the value that an earlier kernel has set; bodies filled by hand and by capture.
#include <cstring>

#include "tests/integration/simcuda/driver_test_base.h"

namespace simcuda_test {
namespace {

class DriverConditionalTest : public DriverTest {
 protected:
  void SetUp() override {
    ASSERT_EQ(cuMemAlloc(&memory_, kMiB), CUDA_SUCCESS);
    ASSERT_EQ(cuMemsetD8(memory_, 0, kMiB), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphCreate(&graph_, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);  // the memset, which stream_ does not wait for
  }
  void TearDown() override {
    EXPECT_EQ(cuGraphDestroy(graph_), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamDestroy(stream_), CUDA_SUCCESS);
    EXPECT_EQ(cuMemFree(memory_), CUDA_SUCCESS);
    DriverTest::TearDown();
  }
  CUgraphConditionalHandle Condition(unsigned int value, unsigned int flags = CU_GRAPH_COND_ASSIGN_DEFAULT) {
    CUgraphConditionalHandle handle = 0;
    EXPECT_EQ(cuGraphConditionalHandleCreate(&handle, graph_, nullptr, value, flags), CUDA_SUCCESS);
    return handle;
  }
  // Adds a conditional node to `graph`, after `before` if that is not null. Its bodies.
  CUgraph* AddConditional(CUgraph graph, CUgraphConditionalHandle handle, CUgraphConditionalNodeType kind,
                          unsigned int size, CUgraphNode before = nullptr) {
    CUgraphNodeParams params = {};
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional.handle = handle;
    params.conditional.type = kind;
    params.conditional.size = size;
    CUgraphNode node = nullptr;
    EXPECT_EQ(cuGraphAddNode(&node, graph, &before, nullptr, before == nullptr ? 0 : 1, &params),
              CUDA_SUCCESS);
    return params.conditional.phGraph_out;
  }
  // Captures what `calls` does on stream_ into a graph.
  template <typename Calls>
  void CaptureTo(CUgraph graph, const Calls& calls) {
    EXPECT_EQ(
        cuStreamBeginCaptureToGraph(stream_, graph, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_RELAXED),
        CUDA_SUCCESS);
    calls();
    CUgraph ended = nullptr;
    EXPECT_EQ(cuStreamEndCapture(stream_, &ended), CUDA_SUCCESS);
    EXPECT_EQ(ended, graph);
  }
  void Run(CUgraph graph, int times = 1) {
    CUgraphExec exec = nullptr;
    ASSERT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
    for (int i = 0; i < times; ++i) ASSERT_EQ(cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  }
  uint32_t* words() { return At<uint32_t>(memory_); }

  CUdeviceptr memory_ = 0;
  CUstream stream_ = nullptr;
  CUgraph graph_ = nullptr;
  const Kernel add_{"conditional_add", 2,
                    [](uint64_t* a) { *At<uint32_t>(a[0]) += static_cast<uint32_t>(a[1]); }};
  // Counts down, and goes on while the word is not 0.
  const Kernel down_{"conditional_down", 2,
                     [](uint64_t* a) { simcuda_set_condition(a[1], --*At<uint32_t>(a[0])); }};
};

TEST_F(DriverConditionalTest, IfRunsTheBodyOfItsValue) {
  for (const unsigned int value : {0u, 1u, 7u}) {
    CUgraph* const bodies = AddConditional(graph_, Condition(value), CU_GRAPH_COND_TYPE_IF, 2);
    CaptureTo(bodies[0], [&] { add_.Launch(stream_, {memory_, 100}); });
    CaptureTo(bodies[1], [&] { add_.Launch(stream_, {memory_, 1}); });
  }
  Run(graph_, 2);
  EXPECT_EQ(words()[0], 402u);
}

TEST_F(DriverConditionalTest, SwitchRunsOneOrNone) {
  for (const unsigned int value : {0u, 2u, 3u}) {
    CUgraph* const bodies = AddConditional(graph_, Condition(value), CU_GRAPH_COND_TYPE_SWITCH, 3);
    for (uint64_t i = 0; i < 3; ++i) {
      CaptureTo(bodies[i], [&] { add_.Launch(stream_, {memory_, i + 1}); });
    }
  }
  Run(graph_);
  EXPECT_EQ(words()[0], 4u);
}

TEST_F(DriverConditionalTest, WhileRunsUntilAKernelEndsItAtEachLaunch) {
  const CUgraphConditionalHandle handle = Condition(1);
  CUgraphNode fill = nullptr;
  const CUDA_MEMSET_NODE_PARAMS five = {memory_, 0, 5, 4, 1, 1};
  ASSERT_EQ(cuGraphAddMemsetNode(&fill, graph_, nullptr, 0, &five, nullptr), CUDA_SUCCESS);
  CUgraph* const bodies = AddConditional(graph_, handle, CU_GRAPH_COND_TYPE_WHILE, 1, fill);
  CaptureTo(bodies[0], [&] {
    add_.Launch(stream_, {memory_ + 4, 1});
    down_.Launch(stream_, {memory_, handle});
  });
  Run(graph_, 3);
  EXPECT_EQ(words()[0], 0u);
  EXPECT_EQ(words()[1], 15u);
}

TEST_F(DriverConditionalTest, BodiesMayHaveConditionsAndAreCloned) {
  CUgraph* const outer = AddConditional(graph_, Condition(1), CU_GRAPH_COND_TYPE_IF, 1);
  CUgraph* const inner = AddConditional(outer[0], Condition(1), CU_GRAPH_COND_TYPE_IF, 1);
  CaptureTo(inner[0], [&] { add_.Launch(stream_, {memory_, 1}); });
  CUgraph clone = nullptr;
  ASSERT_EQ(cuGraphClone(&clone, graph_), CUDA_SUCCESS);
  CaptureTo(inner[0], [&] { add_.Launch(stream_, {memory_, 10}); });  // after the clone
  Run(clone);
  EXPECT_EQ(words()[0], 1u);
  Run(graph_);
  EXPECT_EQ(words()[0], 12u);
  EXPECT_EQ(cuGraphDestroy(clone), CUDA_SUCCESS);
}

TEST_F(DriverConditionalTest, WithoutAValueOfItsOwnAConditionKeepsTheLastOne) {
  const CUgraphConditionalHandle handle = Condition(1, 0);
  CUgraph* const bodies = AddConditional(graph_, handle, CU_GRAPH_COND_TYPE_IF, 1);
  CaptureTo(bodies[0], [&] { add_.Launch(stream_, {memory_, 1}); });
  Run(graph_);
  EXPECT_EQ(words()[0], 0u);
  EXPECT_EQ(simcuda_set_condition(handle, 1), CUDA_SUCCESS);
  Run(graph_, 2);
  EXPECT_EQ(words()[0], 2u);
}

TEST_F(DriverConditionalTest, WrongUseIsRefused) {
  CUgraphNodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  params.conditional.handle = Condition(1);
  params.conditional.type = CU_GRAPH_COND_TYPE_WHILE;
  params.conditional.size = 2;
  CUgraphNode node = nullptr;
  EXPECT_EQ(cuGraphAddNode(&node, graph_, nullptr, nullptr, 0, &params), CUDA_ERROR_INVALID_VALUE);
  params.conditional.size = 1;
  params.conditional.handle = 999999;
  EXPECT_EQ(cuGraphAddNode(&node, graph_, nullptr, nullptr, 0, &params), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(simcuda_set_condition(999999, 1), CUDA_ERROR_INVALID_VALUE);
  CUgraph* const bodies = AddConditional(graph_, Condition(1), CU_GRAPH_COND_TYPE_IF, 1);
  EXPECT_EQ(cuGraphDestroy(bodies[0]), CUDA_ERROR_INVALID_VALUE) << "its node owns it";
  const CUDA_HOST_NODE_PARAMS host = {[](void*) {}, nullptr};
  ASSERT_EQ(cuGraphAddHostNode(&node, bodies[0], nullptr, 0, &host), CUDA_SUCCESS);
  CUgraphExec exec = nullptr;
  EXPECT_EQ(cuGraphInstantiate(&exec, graph_, 0), CUDA_ERROR_INVALID_VALUE) << "a body has no host functions";
}

}  // namespace
}  // namespace simcuda_test
