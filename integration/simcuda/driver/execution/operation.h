// One thing that a stream can do, kept so that it can be done again: a capture records it and a graph's node
// owns it. It is constant once made, so nodes, clones and executable graphs share it; new parameters are a
// new operation.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_EXECUTION_OPERATION_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_EXECUTION_OPERATION_H_

#include <memory>

#include "integration/simcuda/driver/core/driver_api.h"
#include "integration/simcuda/driver/execution/stream.h"

namespace simcuda {

// Created and submitted on any thread. It keeps copies of the call's arguments: the caller's structs are gone
// when it runs.
class Operation : public std::enable_shared_from_this<Operation> {
 public:
  virtual ~Operation() = default;
  virtual CUgraphNodeType type() const = 0;
  // Queues it on the stream once, as the call that it stands for would, and never waits.
  virtual CUresult Submit(Stream& stream) const = 0;
};

using OperationPtr = std::shared_ptr<const Operation>;

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_EXECUTION_OPERATION_H_
