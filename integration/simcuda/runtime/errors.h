// Errors of the stand-in runtime: the driver's codes as runtime codes, and the last error of each thread.
// Owns the thread's last error; the names and texts are in errors.def.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_RUNTIME_ERRORS_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_RUNTIME_ERRORS_H_

#include "integration/simcuda/runtime/runtime_api.h"

namespace simcuda {

// Returns the runtime's code for a driver result. The two enums share their numbers; a number that the
// runtime's enum lacks becomes cudaErrorUnknown.
cudaError_t ToRuntimeError(CUresult result);
inline cudaError_t ToRuntimeError(cudaError_t error) { return error; }

// Remembers a failure as this thread's last error and hands the code on. Every entry point returns through
// it.
cudaError_t Record(cudaError_t error);

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_RUNTIME_ERRORS_H_
