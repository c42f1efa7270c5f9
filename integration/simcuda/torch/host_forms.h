// The computation of an op on the stream thread, once its arguments are CPU aliases. Most ops are
// redispatched to PyTorch's CPU kernel. The few that CUDA has and the CPU lacks, or that draw from a
// generator nobody can pass, are written here over public at:: functions.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_TORCH_HOST_FORMS_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_TORCH_HOST_FORMS_H_

#include "integration/simcuda/torch/host_call.h"

namespace simcuda::ops {

// Runs the op; throws the exceptions of the CPU kernels. The calling thread is below autograd.
using HostForm = void (*)(const HostCall& call);

// Returns the form for `op`, or null if neither PyTorch nor this file can compute it on the CPU.
HostForm FindHostForm(const c10::OperatorHandle& op);

}  // namespace simcuda::ops

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_TORCH_HOST_FORMS_H_
