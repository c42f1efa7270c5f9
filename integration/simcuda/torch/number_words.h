// Numbers that PyTorch's kernels take by value beside their addresses: shapes, strides, divisors with their
// magic numbers, and which block of threads works on which part of which tensor. A scan of parameters for
// addresses meets them as well.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_TORCH_NUMBER_WORDS_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_TORCH_NUMBER_WORDS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace simcuda::ops {

// Returns the words of a kernel that works on `tensors`: PyTorch's OffsetCalculator and TensorInfo of them,
// and with `lists` those of its multi-tensor kernels. The number of words is equal for all calls with the
// same `lists`.
std::vector<uint64_t> NumberWords(const std::vector<const c10::TensorImpl*>& tensors, bool lists);

}  // namespace simcuda::ops

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_TORCH_NUMBER_WORDS_H_
