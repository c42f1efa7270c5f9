#include "integration/hooks/pin_ends.h"

#include <vector>

namespace spillway::integration {

using allocator::BlockId;

namespace {

// More than any block has: the tables can be asked without looking up the size of the block.
constexpr uint64_t kMostBlockBytes = uint64_t{1} << 40;

}  // namespace

void NoteBlockFreed(uint64_t address) {
  HookState* const state = GetHookState();
  HookContext* const context = ContextOf(state);
  if (context == nullptr) return;
  const bool has_entries = !context->strict && state->tables.MayOverlap(address, kMostBlockBytes);
  if (context->trust == nullptr && !has_entries) return;
  allocator::Residency::Range range;
  if (!FindOurs(context, address, &range) || range.base != address) return;  // a free that will fail
  const BlockId block = context->addresses->Find(address);
  if (context->trust != nullptr) context->trust->Forget(block);
  if (!has_entries) return;
  std::vector<PinTicket> ended;
  state->tables.Remove(range.base, range.bytes, PointerTables::Change::kGone, &ended);
  EndPins(context->devices, &ended, {{}, block});
}

void NoteExternalFreed(uint64_t address, uint64_t bytes, const allocator::EscapedUsers& users) {
  HookState* const state = GetHookState();
  HookContext* const context = ContextOf(state);
  if (context == nullptr || context->strict || !state->tables.MayOverlap(address, bytes)) return;
  std::vector<PinTicket> ended;
  state->tables.Remove(address, bytes, PointerTables::Change::kGone, &ended);
  EndPins(context->devices, &ended, users);
}

void NoteGlobalsGone(const void* module) {
  HookState* const state = GetHookState();
  HookContext* const context = ContextOf(state);
  std::vector<PinTicket> ended;
  state->tables.DropGlobals(module, &ended);
  if (context != nullptr) EndPins(context->devices, &ended, {});
}

void NoteTicketUse(HookState* state, const PinTicket& ticket, CUstream stream) {
  HookContext* const context = ContextOf(state);
  for (const allocator::PinnedBlock& block : ticket.blocks) {
    allocator::Residency* const residency = context == nullptr ? nullptr : context->Of(block.id.device());
    if (residency != nullptr) residency->NoteEscapedUse({block}, {{{stream, false}}, {}});
  }
}

void EndGraphPins(HookState* state, GraphPins::Ended* ended) {
  HookContext* const context = ContextOf(state);
  for (auto& [ticket, users] : *ended) {
    if (context != nullptr) EndPins(context->devices, &ticket, users);
  }
  ended->clear();
}

}  // namespace spillway::integration
