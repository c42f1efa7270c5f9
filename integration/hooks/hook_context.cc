#include "integration/hooks/hook_context.h"

#include <vector>

namespace spillway::integration {
namespace {

using allocator::BlockId;
using allocator::StreamRef;

// The one mutable global of the hooks, since C functions have no other way to their state. Released by
// SetHookState, acquired by GetHookState.
std::atomic<HookState*> g_state{nullptr};

// Returns the stream's handle for a query. In a query's own form null stands for the legacy default stream.
CUstream HandleFor(StreamRef stream) {
  return stream.handle == nullptr && stream.per_thread_default ? CU_STREAM_PER_THREAD : stream.handle;
}

// More than any block has, so the tables can be asked before the block's size is looked up.
constexpr uint64_t kMaxBlockBytes = uint64_t{1} << 40;

}  // namespace

HookState* GetHookState() { return g_state.load(std::memory_order_acquire); }

void SetHookState(HookState* state) { g_state.store(state, std::memory_order_release); }

void PublishHookContext(HookContext* context) {
  HookState* const state = GetHookState();
  if (state != nullptr) state->context.store(context, std::memory_order_release);
}

void AttachDevice(HookContext* context, int device, allocator::Residency* residency, CUcontext primary) {
  context->contexts[device] = primary;
  context->devices.Set(device, residency);
  HookState* const state = GetHookState();
  if (state != nullptr) state->external.Attach(device, residency);
}

HookContext* ContextOwning(uint64_t address) {
  HookContext* const context = ContextOf(GetHookState());
  return context != nullptr && context->addresses->Contains(address) ? context : nullptr;
}

bool FindOurs(const HookContext* context, uint64_t address, allocator::Residency::Range* range) {
  const allocator::BlockId block = context->addresses->Find(address);
  const allocator::Residency* const residency = block.valid() ? context->Of(block.device()) : nullptr;
  if (residency == nullptr) return false;
  const absl::StatusOr<allocator::Residency::Range> found = residency->FindRange(address);
  if (!found.ok()) return false;
  *range = *found;
  return true;
}

CUresult FindCurrentContext(const HookState& state, CUcontext* context) {
  *context = nullptr;
  const auto get = state.real.Ask<Row::cuCtxGetCurrent>();
  return get == nullptr ? CUDA_ERROR_NOT_SUPPORTED : get(context);
}

int CurrentDevice(const HookState& state) {
  CUdevice device = -1;
  const auto get = state.real.Ask<Row::cuCtxGetDevice>();
  if (get == nullptr || get(&device) != CUDA_SUCCESS) return -1;
  return device;
}

bool IsCapturingNow(const HookState& state, StreamRef stream) {
  const auto query = state.real.Ask<Row::cuStreamIsCapturing>();
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (query == nullptr) return true;
  const CUresult asked = query(HandleFor(stream), &status);
  return allocator::MayCapture(asked, status);
}

uint64_t CaptureOf(const HookState& state, StreamRef stream) {
  // The version before v3 answers CUDA_ERROR_LOSSY_QUERY if launches overlap (programmatic edges).
  const auto query = state.real.Ask<Row::cuStreamGetCaptureInfo_v3>();
  if (query == nullptr) return 0;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  if (query(HandleFor(stream), &status, &id, nullptr, nullptr, nullptr, nullptr) != CUDA_SUCCESS) return 0;
  return status == CU_STREAM_CAPTURE_STATUS_NONE ? 0 : id;
}

void SwitchEvictionOff(HookState* state, const char* reason) {
  HookContext* const context = ContextOf(state);
  if (context == nullptr || state->eviction_off.exchange(true)) return;
  if (context->switch_eviction_off != nullptr) context->switch_eviction_off(reason);
}

// ---- Ends of pins.

void RecordBlockFreed(uint64_t address) {
  HookState* const state = GetHookState();
  HookContext* const context = ContextOf(state);
  if (context == nullptr) return;
  const bool has_entries = !context->strict && state->tables.MayOverlap(address, kMaxBlockBytes);
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

void RecordExternalFreed(uint64_t address, uint64_t bytes, const allocator::EscapedUsers& users) {
  HookState* const state = GetHookState();
  HookContext* const context = ContextOf(state);
  if (context == nullptr || context->strict || !state->tables.MayOverlap(address, bytes)) return;
  std::vector<PinTicket> ended;
  state->tables.Remove(address, bytes, PointerTables::Change::kGone, &ended);
  EndPins(context->devices, &ended, users);
}

void RecordGlobalsGone(const void* module) {
  HookState* const state = GetHookState();
  HookContext* const context = ContextOf(state);
  std::vector<PinTicket> ended;
  state->tables.DropGlobals(module, &ended);
  if (context != nullptr) EndPins(context->devices, &ended, {});
}

}  // namespace spillway::integration
