// The optimizer's update as blocks and launches: torch.optim's SGD and AdamW of PyTorch 2.11 in their forms:
// over lists of tensors (foreach, the default, which needs a copy of the weights for AdamW), fused, and one
// tensor after another. Pure; one thread; no call fails.

#ifndef SPILLWAY_POLICY_ESTIMATE_OPTIMIZER_UPDATE_H_
#define SPILLWAY_POLICY_ESTIMATE_OPTIMIZER_UPDATE_H_

#include <cstdint>
#include <deque>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "policy/estimate/autograd.h"

namespace spillway::policy {

enum class Optimizer : uint8_t { kSgd, kSgdMomentum, kAdamW, kAdamWFused, kAdamWLoop };

// "sgd, sgd-momentum, adamw, adamw-fused, adamw-loop".
extern const char kOptimizerNames[];
// Returns InvalidArgument, with what is accepted, for another name.
absl::StatusOr<Optimizer> ParseOptimizer(absl::string_view name);

// Updates all parameters that have a gradient. The first call makes the optimizer's state.
void Update(DeviceTape* tape, Optimizer optimizer, std::deque<Parameter>* parameters);

// torch.nn.utils.clip_grad_norm_.
void ClipGradients(DeviceTape* tape, std::deque<Parameter>* parameters);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_ESTIMATE_OPTIMIZER_UPDATE_H_
