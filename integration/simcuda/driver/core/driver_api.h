// The driver API as we define it: every version and form of each function under its exported name, exported.
// Included by all files that define driver functions; nothing here but declarations and the two macros below.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_CORE_DRIVER_API_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_CORE_DRIVER_API_H_

// Without it cuda.h renames functions to their newest version (cuMemAlloc becomes cuMemAlloc_v2).
#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#endif
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#include "integration/simcuda/driver/simcuda.h"

// Before each definition: all other names of the library are hidden.
#define SIMCUDA_API extern "C" __attribute__((visibility("default")))

namespace simcuda {

// What stream handle 0 means: the legacy stream, or (functions that end in _ptsz or _ptds) the thread's own.
enum class Form { kLegacy, kPerThread };

}  // namespace simcuda

// Defines `symbol` and its per-thread form by a function template over Form, with a fail point (fail_points.h) each.
#define SIMCUDA_BOTH_FORMS(symbol, suffix, implementation, parameters, arguments) \
  SIMCUDA_API CUresult symbol parameters {                                        \
    SIMCUDA_FAIL_POINT(symbol);                                                   \
    return implementation<::simcuda::Form::kLegacy> arguments;                    \
  }                                                                               \
  SIMCUDA_API CUresult symbol##suffix parameters {                                \
    SIMCUDA_FAIL_POINT(symbol##suffix);                                           \
    return implementation<::simcuda::Form::kPerThread> arguments;                 \
  }

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_CORE_DRIVER_API_H_
