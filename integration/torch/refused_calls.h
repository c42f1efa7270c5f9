// Refused calls: the error that PyTorch raises after Spillway has refused a launch or a copy for lack of
// memory. PyTorch checks launches and copies by one function of libc10_cuda, which knows only the error's
// number and raises torch.AcceleratorError. Our function takes its place in every library that imports it.
// For a refusal it raises torch.OutOfMemoryError with the refusal's text, or torch.AcceleratorError with it
// if the user limited a wait. Everything else goes on to PyTorch's own function. install.cc calls this once;
// the check runs on the job's threads.

#ifndef SPILLWAY_INTEGRATION_TORCH_REFUSED_CALLS_H_
#define SPILLWAY_INTEGRATION_TORCH_REFUSED_CALLS_H_

#include <string>

#include "integration/engine/spillway.h"

namespace spillway::integration {

// Installs the check, once, for the rest of the process. Libraries that are loaded later are reached at the
// next refusal. Returns "", or the reason why refused calls keep PyTorch's own text. `api` lives as long as
// the process.
std::string InstallRefusedCalls(const spillway_api* api);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_TORCH_REFUSED_CALLS_H_
