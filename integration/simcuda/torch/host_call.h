// One call of an op on the stream thread: the input of a host form (host_forms.h), and the place for its
// results. Its tensors are CPU aliases of device memory, which are valid only while the op runs.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_TORCH_HOST_CALL_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_TORCH_HOST_CALL_H_

#include <ATen/core/Generator.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>

namespace simcuda::ops {

struct HostCall {
  const c10::OperatorHandle& op;
  c10::Stack* stack;                       // exactly the arguments; replaced by the returns
  std::optional<at::Generator> generator;  // of this call alone; set for ops that draw random numbers
  int generator_argument;                  // its place in the arguments, or -1
};

}  // namespace simcuda::ops

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_TORCH_HOST_CALL_H_
