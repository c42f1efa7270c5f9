// The driver API as we define it: every version and form of each function under its exported name, exported.
// All files that define driver functions include this; it has only declarations and the two macros below.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_CORE_DRIVER_API_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_CORE_DRIVER_API_H_

// If this is not defined, cuda.h renames functions to their newest version (cuMemAlloc becomes
// cuMemAlloc_v2).
#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#endif
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#include "integration/simcuda/driver/simcuda.h"

// Stands before each definition, since all other names of the library are hidden.
#define SIMCUDA_API extern "C" __attribute__((visibility("default")))

namespace simcuda {

// The meaning of stream handle 0: the legacy stream, or (functions that end in _ptsz or _ptds) the thread's
// own.
enum class Form { kLegacy, kPerThread };

}  // namespace simcuda

// Defines `symbol` and its per-thread form by a function template over Form, with a fail point
// (fail_points.h) each.
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
