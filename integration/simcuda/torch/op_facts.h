// The facts of the operator library about one aten op before it is called: read once from its schema and from
// the short lists in op_facts.cc (ops left as they are, ops added, ops that wait). Immutable afterwards,
// except for two caches: learned geometries and registered launch functions.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_TORCH_OP_FACTS_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_TORCH_OP_FACTS_H_

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>
#include <vector>

#include "integration/simcuda/torch/device_asserts.h"
#include "integration/simcuda/torch/geometry.h"
#include "integration/simcuda/torch/host_forms.h"
#include "integration/simcuda/torch/launch.h"

namespace simcuda::ops {

// Marks "no such argument" in the indices below.
inline constexpr int kNone = -1;

struct ArgumentFacts {
  bool written = false;    // the schema has Tensor(a!) or Tensor(a!)[]
  bool is_number = false;  // schema type Scalar: its value decides no shape, its kind decides the dtype
};

struct OpFacts {
  explicit OpFacts(const c10::OperatorHandle& op);

  c10::OperatorHandle handle;
  std::string name;  // "aten::add.Tensor"
  std::vector<ArgumentFacts> arguments;
  std::vector<int> returned_argument;  // per return: the argument that it is (in-place, out=), or kNone
  int generator_argument = kNone;
  bool random = false;              // draws random numbers
  bool values_shape_it = false;     // no tensor except out=: the numbers decide the shape (arange, linspace)
  bool always_waits = false;        // the result's shape or a returned value depends on data
  bool waits_for_masks = false;     // index.Tensor: only boolean masks make its shape depend on data
  bool takes_host_tensors = false;  // CUDA, too, accepts CPU tensors of any size among its arguments
  bool splits_lists = false;        // one launch per tensor of its lists
  HostForm host_form = nullptr;     // how it is computed; nullptr: no CPU form exists
  DeviceAssert device_assert = nullptr;  // the assertions of its CUDA kernel about values; nullptr: none

  mutable GeometryCache geometries;
  mutable LaunchFunctions functions;
};

// Returns whether the op gets no launch of ours: views, allocation, copies to the host, and ops that work on
// them alone.
bool IsLeftAsItIs(const c10::OperatorHandle& op);

// Returns whether the op gets one although CUDA has no kernel of its own for it.
bool IsAdded(const c10::OperatorName& name);

}  // namespace simcuda::ops

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_TORCH_OP_FACTS_H_
