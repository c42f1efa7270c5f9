// Refused calls: what PyTorch raises when a launch or a copy was refused for want of room. PyTorch checks both by one function
// of libc10_cuda, which knows the error's number alone and raises torch.AcceleratorError. Ours stands before it, in
// every library that imports it, and raises torch.OutOfMemoryError with the words of the refusal (and
// where a wait was limited by the user, torch.AcceleratorError with them); whatever else is checked goes to PyTorch's own.

#ifndef SPILLWAY_INTEGRATION_TORCH_REFUSED_CALLS_H_
#define SPILLWAY_INTEGRATION_TORCH_REFUSED_CALLS_H_

#include <string>

#include "integration/engine/spillway.h"

namespace spillway::integration {

// Once, for the rest of the process. Libraries that come later are reached at the next refusal. "", or why refused calls stay
// what they are without it. `api` lives as long as the process.
std::string InstallRefusedCalls(const spillway_api* api);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_TORCH_REFUSED_CALLS_H_
