// The boxed function that stands for an op under the CUDA dispatch key: describes the call, finds or learns
// the geometry of its results, allocates them and enqueues one launch. Lists are split in list_split.h before
// this.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_TORCH_CUDA_OPERATOR_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_TORCH_CUDA_OPERATOR_H_

#include <ATen/core/stack.h>

#include "integration/simcuda/torch/op_facts.h"

namespace simcuda::ops {

// Runs one call as one launch on the current stream of its device: takes the arguments off the stack and puts
// the returns on it. Does not wait if the signature is known. Throws PyTorch's errors. Thread-safe.
void CallAsLaunch(const OpFacts& facts, c10::Stack* stack);

}  // namespace simcuda::ops

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_TORCH_CUDA_OPERATOR_H_
