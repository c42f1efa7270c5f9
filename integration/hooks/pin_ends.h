// What ends the pins of escaped pointers: memory that carried them is freed, a module's globals or a graph
// are gone, a stream is about to be. Called by the wrappers and by the engine on the thread of the call that
// ends it, with no lock held. Nothing fails; before there is a context, nothing is pinned.

#ifndef SPILLWAY_INTEGRATION_HOOKS_PIN_ENDS_H_
#define SPILLWAY_INTEGRATION_HOOKS_PIN_ENDS_H_

#include <cstdint>

#include "integration/hooks/hook_context.h"

namespace spillway::integration {

// Our block is about to be freed: the addresses that it carries keep nothing any more. Before
// Residency::Free.
void NoteBlockFreed(uint64_t address);
// Memory of others is gone: after the real call. `users`: what may still read it.
void NoteForeignFreed(uint64_t address, uint64_t bytes, const allocator::HiddenUsers& users);
// The module, library or context that the globals belong to is gone (null: all of them).
void NoteGlobalsGone(const void* module);

// What was enqueued on the stream up to now may use the ticket's blocks.
void NoteHiddenUse(HookState* state, const HoldTicket& ticket, CUstream stream);
// Ends what a change of graphs has left without an owner.
void EndGraphHolds(HookState* state, GraphHolds::Ended* ended);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_PIN_ENDS_H_
