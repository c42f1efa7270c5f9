// The number of times that a kernel passes over the memory that it names, judged by its name. It decides
// which blocks are reached in host memory when a launch does not fit the GPU (allocator::KernelPasses). Names
// are those that libraries give their kernels; an unknown one counts as one pass, as for most kernels of
// PyTorch's. Pure; thread-safe.

#ifndef SPILLWAY_INTEGRATION_ENGINE_KERNEL_PASSES_H_
#define SPILLWAY_INTEGRATION_ENGINE_KERNEL_PASSES_H_

#include <string_view>

#include "allocator/residency/state/residency_options.h"

namespace spillway::integration {

// `name`: of a kernel, demangled or not, or of a copy.
allocator::KernelPasses PassesOf(std::string_view name);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_KERNEL_PASSES_H_
