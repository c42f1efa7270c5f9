// copy_ under the CUDA key. Copies that a driver can do (contiguous, same dtype, to and from the host) go through
// PyTorch's own code and so through the driver's copy functions; strided and converting copies on the device are
// launches like any op.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_TORCH_COPY_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_TORCH_COPY_H_

#include <ATen/core/stack.h>

#include "integration/simcuda/torch/op_facts.h"

namespace simcuda::ops {

// Runs copy_(self, src, non_blocking) whose arguments are the last three on the stack; leaves self there.
void CallCopy(const OpFacts& facts, c10::Stack* stack);

}  // namespace simcuda::ops

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_TORCH_COPY_H_
