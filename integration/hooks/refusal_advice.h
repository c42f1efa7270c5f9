// What to tell the user when a launch needs more than the budget: which kernel it is, and if it works on many tensors at
// once, as optimisers and gradient clipping do, which of PyTorch's options makes it fit. A pure function.

#ifndef SPILLWAY_INTEGRATION_HOOKS_REFUSAL_ADVICE_H_
#define SPILLWAY_INTEGRATION_HOOKS_REFUSAL_ADVICE_H_

#include <cstddef>
#include <string>

namespace spillway::integration {

// One or two sentences, or nothing. `kernel`: its name, readable, empty when not known; `blocks`: that the launch names.
std::string RefusalAdvice(const std::string& kernel, size_t blocks);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_REFUSAL_ADVICE_H_
