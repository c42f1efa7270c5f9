// Numbers that PyTorch's kernels take by value beside their addresses: shapes, strides, divisors with their magic
// numbers, and which block of threads works on which part of which tensor. Whoever looks for addresses in parameters
// meets them as well.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_TORCH_NUMBER_WORDS_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_TORCH_NUMBER_WORDS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace simcuda::ops {

// The words of a kernel that works on `tensors`: PyTorch's OffsetCalculator and TensorInfo of them, and with `lists` what
// its multi-tensor kernels have. As many words for each call with the same `lists`.
std::vector<uint64_t> NumberWords(const std::vector<const c10::TensorImpl*>& tensors, bool lists);

}  // namespace simcuda::ops

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_TORCH_NUMBER_WORDS_H_
