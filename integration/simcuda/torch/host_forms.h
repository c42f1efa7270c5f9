// How an op is computed on the stream thread, once its arguments are CPU aliases. Most ops are redispatched to
// PyTorch's CPU kernel; the few that CUDA has and the CPU lacks, or that draw from a generator nobody can pass, are
// written here over public at:: functions.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_TORCH_HOST_FORMS_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_TORCH_HOST_FORMS_H_

#include <ATen/core/Generator.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>

namespace simcuda::ops {

struct HostCall {
  const c10::OperatorHandle& op;
  c10::Stack* stack;                       // exactly the arguments; replaced by the returns
  std::optional<at::Generator> generator;  // of this call alone; set for ops that draw random numbers
  int generator_argument;                  // where it goes, or -1
};

// Runs the op; throws what the CPU kernels throw. The calling thread is below autograd.
using HostForm = void (*)(const HostCall& call);

// The form for `op`, or null when neither PyTorch nor this file can compute it on the CPU.
HostForm FindHostForm(const c10::OperatorHandle& op);

}  // namespace simcuda::ops

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_TORCH_HOST_FORMS_H_
