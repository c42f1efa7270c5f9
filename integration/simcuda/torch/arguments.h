// The walk over an op's boxed arguments: once to describe the call (signature, device, misuse), once to build
// the stack that the stream thread runs (CPU aliases, cloned host tensors, CPU devices, no generators).
// cuda_operator.cc calls it on the caller's thread.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_TORCH_ARGUMENTS_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_TORCH_ARGUMENTS_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <optional>
#include <vector>

#include "integration/simcuda/torch/alias.h"
#include "integration/simcuda/torch/geometry.h"
#include "integration/simcuda/torch/op_facts.h"

namespace simcuda::ops {

struct CallDescription {
  SignatureKey key;
  std::optional<c10::DeviceIndex> device;  // of the CUDA tensors, otherwise of a Device argument
  bool has_mask = false;                   // a boolean or byte tensor stands in a list of optional tensors
};

// Describes the call whose arguments are the last ones on `stack`. Throws PyTorch's usual error if tensors
// lie on different devices.
void Describe(const OpFacts& facts, const c10::Stack& stack, CallDescription* description);

// Returns the CUDA tensors that the op writes, in the order of arguments and list elements.
std::vector<at::Tensor> WrittenTensors(const OpFacts& facts, const c10::Stack& stack);

// Returns the arguments for the stream thread. `written_aliases`, if not null, receives the aliases of
// WrittenTensors.
c10::Stack BuildHostStack(const OpFacts& facts, const c10::Stack& stack, AliasSet* aliases,
                          std::vector<at::Tensor>* written_aliases);

}  // namespace simcuda::ops

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_TORCH_ARGUMENTS_H_
