// Conditional nodes of graphs: the values that they decide by, and the graphs that they run. A node's bodies
// are graphs of its own (GraphNode::bodies); an executable graph keeps their operations as they were when it
// was made. Kernels set a value (simcuda_set_condition), and it is read when the stream gets there, so a
// body's operations run on a stream of their own while the node's stream waits. One lock over all values; any
// thread.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_GRAPHS_CONDITIONAL_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_GRAPHS_CONDITIONAL_H_

#include <cstdint>
#include <vector>

#include "integration/simcuda/driver/execution/operation.h"

namespace simcuda {

// Returns a new handle. With `assign`, each launch of the graph begins by setting it to `value`.
uint64_t MakeCondition(unsigned int value, bool assign);
bool IsCondition(uint64_t handle);
// Returns false for an unknown handle.
bool SetCondition(uint64_t handle, unsigned int value);

// The operation of the node in its graph, which names its condition. Never submitted.
class ConditionalOperation : public Operation {
 public:
  ConditionalOperation(uint64_t condition, CUgraphConditionalNodeType kind)
      : condition_(condition), kind_(kind) {}
  CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_CONDITIONAL; }
  CUresult Submit(Stream&) const override { return CUDA_ERROR_INVALID_VALUE; }
  uint64_t condition() const { return condition_; }
  CUgraphConditionalNodeType kind() const { return kind_; }

 private:
  const uint64_t condition_;
  const CUgraphConditionalNodeType kind_;
};

// Returns the operation with which a launch begins: each condition with a value of its own for launches gets
// it.
OperationPtr MakeConditionReset(std::vector<uint64_t> conditions);
// Returns the operation of an executable graph in its place, with the operations of each body in order.
OperationPtr MakeConditionalRun(const ConditionalOperation& node,
                                std::vector<std::vector<OperationPtr>> bodies);

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_GRAPHS_CONDITIONAL_H_
