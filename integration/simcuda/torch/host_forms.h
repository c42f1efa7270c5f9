// How an op is computed on the stream thread, once its arguments are CPU aliases. Most ops are redispatched to
// PyTorch's CPU kernel; the few that CUDA has and the CPU lacks, or that draw from a generator nobody can pass, are
// written here over public at:: functions.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_TORCH_HOST_FORMS_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_TORCH_HOST_FORMS_H_

#include "integration/simcuda/torch/host_call.h"

namespace simcuda::ops {

// Runs the op; throws what the CPU kernels throw. The calling thread is below autograd.
using HostForm = void (*)(const HostCall& call);

// The form for `op`, or null when neither PyTorch nor this file can compute it on the CPU.
HostForm FindHostForm(const c10::OperatorHandle& op);

}  // namespace simcuda::ops

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_TORCH_HOST_FORMS_H_
