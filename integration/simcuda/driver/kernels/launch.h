// Launches: the geometry of one, and a launch kept for a graph with its parameters' bytes. The calls that
// make and change nodes (graph_node_api.cc) and captures use it, on the thread of the call.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_KERNELS_LAUNCH_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_KERNELS_LAUNCH_H_

#include <memory>
#include <vector>

#include "integration/simcuda/driver/core/driver_api.h"
#include "integration/simcuda/driver/execution/operation.h"
#include "integration/simcuda/driver/kernels/kernel.h"

namespace simcuda {

// Grid and block in x, y, z, as the call gave them. Blocks are not run in parallel here: a kernel's host
// function gets the shape and does the work of all of them.
struct LaunchShape {
  unsigned int grid[3];
  unsigned int block[3];
  unsigned int shared_bytes;
};

// One launch as a graph keeps it. Its parameters' release (simcuda_set_release) is called when nothing can
// run it any more.
class KernelOperation : public Operation {
 public:
  // Copies the parameters. Returns the result of cuLaunchKernel for bad arguments.
  static CUresult Make(CUfunction handle, const LaunchShape& shape, void** parameters, void** extra,
                       std::shared_ptr<KernelOperation>* made);
  ~KernelOperation() override;

  CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_KERNEL; }
  CUresult Submit(Stream& stream) const override;

  CUfunction function() const { return handle_; }
  const LaunchShape& shape() const { return shape_; }
  // Returns pointers to the parameters' bytes, as cuGraphKernelNodeGetParams gives them.
  void** parameters() const { return parameters_.data(); }
  const char* buffer() const { return buffer_.data(); }

 private:
  KernelOperation(CUfunction handle, const FunctionHandle& function, const LaunchShape& shape);

  const CUfunction handle_;
  const FunctionHandle& function_;
  const LaunchShape shape_;
  std::vector<char> buffer_;
  mutable std::vector<void*> parameters_;
  bool owns_parameters_ = false;  // they were copied, so they are ours to release
};

// Returns a host function as a graph's node (host_function.cc).
OperationPtr MakeHostOperation(CUhostFn function, void* data);
// Returns its parameters; false if it is no host function.
bool GetHostOperation(const Operation& operation, CUDA_HOST_NODE_PARAMS* parameters);

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_KERNELS_LAUNCH_H_
