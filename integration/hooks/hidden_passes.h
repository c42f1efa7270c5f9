// What the gate does beside ordinary launches: calls that put addresses of ours into device memory or take them out
// of it, captured work, and calls that let an address go for good. The way of every launch is launch_gate.cc's.

#ifndef SPILLWAY_INTEGRATION_HOOKS_HIDDEN_PASSES_H_
#define SPILLWAY_INTEGRATION_HOOKS_HIDDEN_PASSES_H_

#include <cstdint>

#include "integration/hooks/launch_gate.h"

namespace spillway::integration {

// Whether what is enqueued on the stream now is captured. One load when nobody captures.
bool IsCapturingNow(const HookState& state, allocator::StreamRef stream);
inline bool IsCapturing(const HookState& state, allocator::StreamRef stream) {
  return __builtin_expect(state.captures.load(std::memory_order_relaxed) != 0, 0) &&
         IsCapturingNow(state, stream);
}
// The id of the capture that the stream takes part in; 0: none, or the driver does not tell.
uint64_t CaptureOf(const HookState& state, allocator::StreamRef stream);

// The named blocks of a call, resident and stamped: the way of launch_gate.cc.
CUresult PassNamed(Touch* touch, allocator::StreamRef stream, RealCall real);

// `pass` under holds on the targets of the addresses that the call puts into device memory. Once it has succeeded,
// they belong to the table, and those of addresses that it has overwritten end.
CUresult PassRewriting(Touch* touch, allocator::StreamRef stream, RealCall pass);

// A call that becomes a node of a graph: everything it names is held as long as the graph lives.
CUresult PassCaptured(Touch* touch, allocator::StreamRef stream, RealCall real);

// What was enqueued on the stream up to now may use the ticket's blocks.
void NoteHiddenUse(HookState* state, const HoldTicket& ticket, CUstream stream);

// Ends what a change of graphs has left without an owner.
void EndGraphHolds(HookState* state, GraphHolds::Ended* ended);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_HIDDEN_PASSES_H_
