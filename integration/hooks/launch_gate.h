// The gate: between a wrapper that knows what a call touches and the real call. It makes the blocks resident
// through the Residency of each device concerned, pins what must stay, and repeats calls of others that ran
// out of memory. Called on the thread of the hooked call, which may wait in it. A call that cannot be let
// through is refused with the driver's code, mostly out of memory, and is not made. It decides nothing about
// blocks itself.

#ifndef SPILLWAY_INTEGRATION_HOOKS_LAUNCH_GATE_H_
#define SPILLWAY_INTEGRATION_HOOKS_LAUNCH_GATE_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "integration/hooks/access_set_builder.h"
#include "integration/hooks/hook_context.h"

namespace spillway::integration {

using RealCall = absl::FunctionRef<CUresult()>;

// The set is made resident, `real` called on `stream`, the use stamped. An empty set: `real` alone, repeated
// once after chunks were given back when it ran out of memory. A captured launch pins its set instead.
CUresult PassGate(Touch* touch, allocator::StreamRef stream, RealCall real);

// Makes `touch`'s set, and what the call lets be found in device memory, resident and pins it, then `real`.
// CUDA_ERROR_OUT_OF_MEMORY when it could not be pinned. `ticket`: the pins, ended here when `real` fails;
// null: until the blocks are freed.
CUresult PassHolding(Touch* touch, allocator::HoldReason reason, HoldTicket* ticket, RealCall real);
inline CUresult PassHolding(Touch* touch, allocator::HoldReason reason, RealCall real) {
  return PassHolding(touch, reason, nullptr, real);
}

// `real`, of which nothing is known but its tag (a graph's launch): in audit mode it is audited as any other.
CUresult CallUncollected(HookState* state, uint64_t tag, allocator::StreamRef stream, RealCall real);

// `real`, which may reach any block and names none that could be seen: all live blocks of every device are
// resident for it, or it is refused with out-of-memory.
CUresult CallReachingAll(HookState* state, allocator::StreamRef stream, uint64_t tag, RealCall real);

// `real`, and once more when it ran out of memory and chunks could be given back. `bytes`: what it asked for,
// or 0.
CUresult CallOthers(HookState* state, uint64_t bytes, RealCall real);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_LAUNCH_GATE_H_
