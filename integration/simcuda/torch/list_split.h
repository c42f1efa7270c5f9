// Splitting list ops (_foreach_*, _fused_adamw_ ...): CUDA never makes one launch of a long list, so each
// group of SIMCUDA_FOREACH_GROUP tensors (default 1) is one launch here. The bits are the same for every
// group size.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_TORCH_LIST_SPLIT_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_TORCH_LIST_SPLIT_H_

#include <ATen/core/stack.h>

#include "integration/simcuda/torch/op_facts.h"

namespace simcuda::ops {

// Like CallAsLaunch, with one launch per group of list elements. Lists of tensors and numbers that are as
// long as the first list of tensors are cut; an empty list is handed on whole.
void CallSplit(const OpFacts& facts, c10::Stack* stack);

}  // namespace simcuda::ops

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_TORCH_LIST_SPLIT_H_
