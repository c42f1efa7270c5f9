#include "integration/hooks/hidden_passes.h"

#include <cstring>
#include <string>
#include <utility>

#include "integration/hooks/launch_reports.h"
#include "integration/hooks/pointer_queries.h"
#include "io/os/log.h"

namespace spillway::integration {
namespace {

using allocator::AccessSet;
using allocator::BlockId;
using allocator::HiddenUsers;
using allocator::HoldReason;
using allocator::StreamRef;

// A table of pointers is small; large copies are data.
constexpr uint64_t kLargestPointerTable = 64 * 1024;

void EndAll(HookContext* context, std::vector<HoldTicket>* tickets, const HiddenUsers& users) {
  for (HoldTicket& ticket : *tickets) EndHolds(context, &ticket, users);
  tickets->clear();
}

HookContext* ContextOf(HookState* state) {
  return state == nullptr ? nullptr : state->context.load(std::memory_order_acquire);
}

// Holds the targets of what the call puts into device memory, by where it puts them.
CUresult HoldFound(Touch* touch, std::vector<HoldTicket>* tickets) {
  AccessSet in_globals;
  AccessSet in_tables;
  for (const TableSlot& slot : touch->found()) {
    (touch->state()->tables.IsGlobal(slot.address) ? in_globals : in_tables).Add(slot.target);
  }
  const std::pair<const AccessSet*, HoldReason> parts[] = {{&in_tables, HoldReason::kPointerTable},
                                                           {&in_globals, HoldReason::kModuleGlobal}};
  for (const auto& [set, reason] : parts) {
    if (set->empty()) continue;
    TellOfHold(touch->state(), reason, "a copy to the device");
    const CUresult held = HoldBlocks(touch->context(), *set, reason, &tickets->emplace_back());
    if (held == CUDA_SUCCESS) continue;
    tickets->pop_back();
    EndAll(touch->context(), tickets, {});
    return held;
  }
  return CUDA_SUCCESS;
}

void EnterFound(Touch* touch, std::vector<HoldTicket>* tickets) {
  if (touch->found().empty()) return;
  const bool entered = touch->state()->tables.Add(touch->found(), tickets);
  EndAll(touch->context(), tickets, {});
  if (entered) return;
  static std::atomic<bool> told{false};
  if (!told.exchange(true)) {
    os::Log(
        os::LogLevel::kWarn,
        "more addresses were copied to the GPU than are followed: their blocks stay until they are freed");
  }
}

}  // namespace

void Touch::WritesFromHost(uint64_t address, const void* source, uint64_t bytes) {
  Writes(address, bytes);
  if (source == nullptr || bytes > kLargestPointerTable) return;
  const char* const first = static_cast<const char*>(source);
  for (uint64_t at = 0; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, first + at, sizeof(word));
    if (__builtin_expect(!map().Contains(word), 1)) continue;
    scratch_.Clear();
    map().Collect(word, &scratch_);
    for (const BlockId id : scratch_) found_.push_back({address + at, sizeof(word), id});
  }
  if (__builtin_expect(!state_->tensor_maps.any(), 1)) return;
  for (uint64_t at = -address % TensorMaps::kStep; at + TensorMaps::kBytes <= bytes;
       at += TensorMaps::kStep) {
    const TensorMaps::Range range = state_->tensor_maps.Find(first + at);
    if (range.bytes == 0) continue;
    scratch_.Clear();
    map().CollectRange(range.address, range.bytes, &scratch_);
    for (const BlockId id : scratch_) found_.push_back({address + at, TensorMaps::kBytes, id});
  }
}

void Touch::WritesFromDevice(uint64_t address, uint64_t source, uint64_t bytes) {
  Writes(address, bytes);
  if (bytes != 0 && state_->tables.MayTouch(source, bytes)) {
    state_->tables.Moved(source, bytes, address, &found_);
  }
}

bool IsCapturingNow(const HookState& state, StreamRef stream) {
  const auto query = state.real.Get<Row::cuStreamIsCapturing>();
  CUstream handle = stream.handle;
  if (handle == nullptr && stream.per_thread_default) handle = CU_STREAM_PER_THREAD;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  // A query that fails (legacy stream while another captures) will fail the launch as well.
  return query != nullptr && query(handle, &status) == CUDA_SUCCESS &&
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

uint64_t CaptureOf(const HookState& state, StreamRef stream) {
  const auto query = state.real.Get<Row::cuStreamGetCaptureInfo_v2>();
  if (query == nullptr) return 0;
  CUstream handle = stream.handle;
  if (handle == nullptr && stream.per_thread_default) handle = CU_STREAM_PER_THREAD;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  if (query(handle, &status, &id, nullptr, nullptr, nullptr) != CUDA_SUCCESS) return 0;
  return status == CU_STREAM_CAPTURE_STATUS_NONE ? 0 : id;
}

CUresult PassRewriting(Touch* touch, StreamRef stream, RealCall pass) {
  std::vector<HoldTicket> tickets;
  if (const CUresult held = HoldFound(touch, &tickets); held != CUDA_SUCCESS) return held;
  const CUresult result = pass();
  if (result != CUDA_SUCCESS) {
    EndAll(touch->context(), &tickets, {});
    return result;
  }
  // What read the old addresses was ordered before this call by the job itself, so the stream covers it.
  std::vector<HoldTicket> ended;
  if (!touch->context()->strict) {
    for (const Touch::Piece& piece : touch->overwritten()) {
      touch->state()->tables.Remove(piece.address, piece.bytes, &ended);
    }
  }
  EnterFound(touch, &tickets);
  EndAll(touch->context(), &ended, {{stream}, {}});
  return result;
}

CUresult PassCaptured(Touch* touch, StreamRef stream, RealCall real) {
  TellOfHold(touch->state(), HoldReason::kGraph, "a capture");
  const uint64_t capture = CaptureOf(*touch->state(), stream);
  HoldTicket ticket;
  const CUresult result = PassHolding(touch, HoldReason::kGraph, capture == 0 ? nullptr : &ticket, real);
  if (result == CUDA_SUCCESS && capture != 0) {
    touch->state()->graphs.AddToCapture(capture, std::move(ticket));
  }
  return result;
}

CUresult PassHolding(Touch* touch, HoldReason reason, HoldTicket* ticket, RealCall real) {
  if (touch->denied != nullptr) NoteDeniedInGraph(touch);
  // The call's own blocks, and what a kernel will find in the memory that it writes.
  AccessSet set = touch->set();
  for (const TableSlot& slot : touch->found()) set.Add(slot.target);
  HoldTicket taken;
  if (!set.empty()) {
    const CUresult held = HoldBlocks(touch->context(), set, reason, &taken);
    if (held != CUDA_SUCCESS) return held;
  }
  const CUresult result = CallOthers(touch->state(), 0, real);
  if (result != CUDA_SUCCESS) {
    EndHolds(touch->context(), &taken, {});
  } else if (ticket != nullptr) {
    *ticket = std::move(taken);
  }
  return result;
}

bool HoldDenied(Touch* touch, const char* kernel) {
  if (touch->set().empty()) return true;
  TellOfHold(touch->state(), HoldReason::kDenied, kernel);
  return HoldBlocks(touch->context(), touch->set(), HoldReason::kDenied, nullptr) == CUDA_SUCCESS;
}

void NoteBlockFreed(uint64_t address) {
  HookState* const state = GetHookState();
  HookContext* const context = ContextOf(state);
  if (context == nullptr) return;
  const bool has_slots = !context->strict && state->tables.MayTouch(address, uint64_t{1} << 40);
  if (context->trust == nullptr && !has_slots) return;
  allocator::Residency::Range range;
  if (!FindOurs(context, address, &range) || range.base != address) return;  // a free that will fail
  const BlockId block = context->addresses->Find(address);
  if (context->trust != nullptr) context->trust->Forget(block);
  if (!has_slots) return;
  std::vector<HoldTicket> ended;
  state->tables.Remove(range.base, range.bytes, &ended);
  EndAll(context, &ended, {{}, block});
}

void NoteForeignFreed(uint64_t address, uint64_t bytes, const HiddenUsers& users) {
  HookState* const state = GetHookState();
  HookContext* const context = ContextOf(state);
  if (context == nullptr || context->strict || !state->tables.MayTouch(address, bytes)) return;
  std::vector<HoldTicket> ended;
  state->tables.Remove(address, bytes, &ended);
  EndAll(context, &ended, users);
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
    if (context != nullptr) EndHolds(context, &ticket, users);
  }
  ended->clear();
}

}  // namespace spillway::integration
