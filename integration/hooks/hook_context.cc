#include "integration/hooks/hook_context.h"

namespace spillway::integration {
namespace {

// The one mutable global of the hooks: C functions have no other way to their state. Released by
// SetHookState, acquired by GetHookState.
std::atomic<HookState*> g_state{nullptr};

}  // namespace

HookState* GetHookState() { return g_state.load(std::memory_order_acquire); }

void SetHookState(HookState* state) { g_state.store(state, std::memory_order_release); }

void PublishHookContext(HookContext* context) {
  HookState* const state = GetHookState();
  if (state != nullptr) state->context.store(context, std::memory_order_release);
}

void AttachDevice(HookContext* context, int device, allocator::Residency* residency, CUcontext primary) {
  context->contexts[device] = primary;
  context->residencies[device].store(residency, std::memory_order_release);
  HookState* const state = GetHookState();
  if (state != nullptr) state->foreign.Attach(device, residency);
}

CUcontext CurrentContext(const HookState& state) {
  CUcontext context = nullptr;
  const auto get = state.real.Get<Row::cuCtxGetCurrent>();
  return get != nullptr && get(&context) == CUDA_SUCCESS ? context : nullptr;
}

int CurrentDevice(const HookState& state) {
  CUdevice device = -1;
  const auto get = state.real.Get<Row::cuCtxGetDevice>();
  if (get == nullptr || get(&device) != CUDA_SUCCESS) return -1;
  return device;
}

void SwitchEvictionOff(HookState* state, const char* reason) {
  HookContext* const context = state->context.load(std::memory_order_acquire);
  if (context == nullptr || state->eviction_off.exchange(true)) return;
  if (context->switch_eviction_off != nullptr) context->switch_eviction_off(reason);
}

}  // namespace spillway::integration
