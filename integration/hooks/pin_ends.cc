#include "integration/hooks/pin_ends.h"

#include <vector>

namespace spillway::integration {

using allocator::BlockId;

namespace {

// More than any block has: a look at the tables without asking how large the block is.
constexpr uint64_t kMostBlockBytes = uint64_t{1} << 40;

}  // namespace

void NoteBlockFreed(uint64_t address) {
  HookState* const state = GetHookState();
  HookContext* const context = ContextOf(state);
  if (context == nullptr) return;
  const bool has_slots = !context->strict && state->tables.MayTouch(address, kMostBlockBytes);
  if (context->trust == nullptr && !has_slots) return;
  allocator::Residency::Range range;
  if (!FindOurs(context, address, &range) || range.base != address) return;  // a free that will fail
  const BlockId block = context->addresses->Find(address);
  if (context->trust != nullptr) context->trust->Forget(block);
  if (!has_slots) return;
  std::vector<HoldTicket> ended;
  state->tables.Remove(range.base, range.bytes, &ended);
  EndHolds(context->devices, &ended, {{}, block});
}

void NoteForeignFreed(uint64_t address, uint64_t bytes, const allocator::HiddenUsers& users) {
  HookState* const state = GetHookState();
  HookContext* const context = ContextOf(state);
  if (context == nullptr || context->strict || !state->tables.MayTouch(address, bytes)) return;
  std::vector<HoldTicket> ended;
  state->tables.Remove(address, bytes, &ended);
  EndHolds(context->devices, &ended, users);
}

void NoteGlobalsGone(const void* module) {
  HookState* const state = GetHookState();
  HookContext* const context = ContextOf(state);
  std::vector<HoldTicket> ended;
  state->tables.DropGlobals(module, &ended);
  if (context != nullptr) EndHolds(context->devices, &ended, {});
}

void NoteHiddenUse(HookState* state, const HoldTicket& ticket, CUstream stream) {
  HookContext* const context = ContextOf(state);
  for (const allocator::HeldBlock& block : ticket.blocks) {
    allocator::Residency* const residency = context == nullptr ? nullptr : context->Of(block.id.device());
    if (residency != nullptr) residency->NoteHiddenUse({block}, {{{stream, false}}, {}});
  }
}

void EndGraphHolds(HookState* state, GraphHolds::Ended* ended) {
  HookContext* const context = ContextOf(state);
  for (auto& [ticket, users] : *ended) {
    if (context != nullptr) EndHolds(context->devices, &ticket, users);
  }
  ended->clear();
}

}  // namespace spillway::integration
