// The gate: every hooked call that names blocks or may need device memory passes it on the way to the driver.
// It makes the call's blocks resident through the Residency of each device concerned, pins what must stay,
// and repeats calls that ran out of memory. It runs on the thread of the hooked call, which may wait in it. A
// call that cannot pass is refused with the driver's code, mostly out of memory, and is not made. The gate
// decides nothing about blocks; the Residency does.

#ifndef SPILLWAY_INTEGRATION_HOOKS_LAUNCH_GATE_H_
#define SPILLWAY_INTEGRATION_HOOKS_LAUNCH_GATE_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "integration/hooks/access_set_builder.h"
#include "integration/hooks/hook_context.h"

namespace spillway::integration {

using RealCall = absl::FunctionRef<CUresult()>;

// Makes the builder's set resident, calls `real` on `stream`, and records the use. If the set is empty, it
// only calls `real`, as CallWithRetry does. A captured launch goes the way of PassIntoGraph.
CUresult PassGate(AccessSetBuilder* builder, allocator::StreamRef stream, RealCall real);

// Makes the builder's set resident and pins it, together with the targets of the addresses that the call puts
// into device memory; then calls `real`. Returns CUDA_ERROR_OUT_OF_MEMORY if they could not be pinned.
// `ticket` gets the pins, which end here if `real` fails; if it is null, they last until the blocks are
// freed.
CUresult PassPinning(AccessSetBuilder* builder, allocator::PinReason reason, PinTicket* ticket,
                     RealCall real);
inline CUresult PassPinning(AccessSetBuilder* builder, allocator::PinReason reason, RealCall real) {
  return PassPinning(builder, reason, nullptr, real);
}

// Calls `real`, which makes a node of a graph or sets its parameters. `named` gets the memory that the node
// names, for the graph's launches. No block needs to be on the GPU before. The targets of addresses that the
// node will put into device memory are pinned until they are freed, since kernels outside the graph may
// follow them. Refused as PassPinning is.
CUresult PassIntoGraph(AccessSetBuilder* builder, GraphBlocks::Ranges* named, RealCall real);

// Calls `real`, of which only the tag is known (it names no block), as CallWithRetry does. It passes the gate
// if all launches are to.
CUresult CallWithoutBlocks(HookState* state, uint64_t tag, allocator::StreamRef stream, RealCall real);

// Calls `real`, which may reach any block and names none that could be seen. All live blocks of every device
// are resident for it, or it is refused with out-of-memory.
CUresult CallReachingAll(HookState* state, allocator::StreamRef stream, uint64_t tag, RealCall real);

// Stands for an unknown size of what a call asks for (launches, module loads).
inline constexpr uint64_t kUnknownBytes = 0;

// Calls `real`, and once more if it ran out of memory and chunks could be given back to the driver. `bytes`:
// the device memory that it asks for, or kUnknownBytes. Our chunks make way for it before the call.
CUresult CallWithRetry(HookState* state, uint64_t bytes, RealCall real);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_LAUNCH_GATE_H_
