// The assertions of PyTorch's CUDA kernels about the values in their tensors (indices, targets,
// probabilities). On a GPU such an assert fails the device while the caller goes on; PyTorch's CPU kernel
// raises an exception instead. The values are therefore checked here, on the stream's thread, before the CPU
// kernel sees them. integration/simcuda/device-errors.md lists the operators, and the source of the list.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_TORCH_DEVICE_ASSERTS_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_TORCH_DEVICE_ASSERTS_H_

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>
#include <string>

namespace simcuda::ops {

// One assertion that did not hold.
struct BrokenAssert {
  std::string condition;  // in the form of a kernel's: "0 <= index && index < 6"
  std::string value;      // the offending value: "index 9 is out of bounds"
  int64_t position = 0;   // of the value in its tensor, in order of rows

  // Returns the line that a device prints, without its end.
  std::string Line(const std::string& op) const;
};

// Checks the arguments of one op (exactly the call's, CPU tensors). If an assertion does not hold, harmless
// values of the same shape take the place of the tensor that broke it, so that the op can still be run for
// its shapes.
using DeviceAssert = std::optional<BrokenAssert> (*)(const c10::OperatorHandle& op, c10::Stack* stack);

// Returns the assertions of the op's CUDA kernel, or null if it has none that depends on values.
DeviceAssert FindDeviceAssert(const c10::OperatorHandle& op);

// Returns whether PyTorch's CUDA code itself reads the values, waits for them and raises on the host:
// index_put_ that adds up or has to be deterministic.
bool RaisesOnTheHost(const c10::OperatorHandle& op, const c10::Stack& stack);

}  // namespace simcuda::ops

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_TORCH_DEVICE_ASSERTS_H_
