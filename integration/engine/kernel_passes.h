// How often a kernel goes over what it names, by its name: decides what is reached in host memory where a launch does not
// fit the GPU (allocator::KernelPasses). Names are those that libraries give their kernels; an unknown one counts as one
// pass, as most kernels of PyTorch's are. Pure; any thread.

#ifndef SPILLWAY_INTEGRATION_ENGINE_KERNEL_PASSES_H_
#define SPILLWAY_INTEGRATION_ENGINE_KERNEL_PASSES_H_

#include <string_view>

#include "allocator/residency/state/residency_options.h"

namespace spillway::integration {

// `name`: of a kernel, demangled or not, or of a copy.
allocator::KernelPasses PassesOf(std::string_view name);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_KERNEL_PASSES_H_
