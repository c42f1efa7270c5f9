// What ends the pins of escaped pointers: memory that contained them is freed, a module's globals or a graph
// are gone, a stream is about to be destroyed. Called by the wrappers and by the engine, on the thread of the
// call that ends it, with no lock held. Nothing fails; before there is a context, nothing is pinned.

#ifndef SPILLWAY_INTEGRATION_HOOKS_PIN_ENDS_H_
#define SPILLWAY_INTEGRATION_HOOKS_PIN_ENDS_H_

#include <cstdint>

#include "integration/hooks/hook_context.h"

namespace spillway::integration {

// A block of ours is about to be freed: the addresses in it pin nothing any more. To be called before
// Residency::Free.
void NoteBlockFreed(uint64_t address);
// External memory was freed by the real call: the addresses in it pin nothing any more. `users`: what may
// still read it.
void NoteExternalFreed(uint64_t address, uint64_t bytes, const allocator::EscapedUsers& users);
// The module or library that the globals belong to is unloaded; null: all of them.
void NoteGlobalsGone(const void* module);

// What was enqueued on the stream up to now may use the ticket's blocks: the use is recorded.
void NoteTicketUse(HookState* state, const PinTicket& ticket, CUstream stream);
// Ends the pins that a change of graphs has left without an owner.
void EndGraphPins(HookState* state, GraphPins::Ended* ended);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_PIN_ENDS_H_
