#include "integration/hooks/launch_gate.h"

#include <memory>

#include "integration/hooks/hidden_passes.h"
#include "integration/hooks/launch_reports.h"

namespace spillway::integration {
namespace {

using allocator::AccessSet;
using allocator::BlockId;
using allocator::Residency;
using allocator::StreamRef;

// Asked back when the size of a failed call is not known (launches, module loads).
constexpr uint64_t kUnknownWant = 0;

// Scratch of one thread. `dead` outlives the scratch: hooks run in destructors of other thread-locals, too.
struct Scratch {
  ~Scratch();
  Touch touch;
};
thread_local bool t_scratch_dead = false;
thread_local bool t_inside = false;
thread_local Scratch t_scratch;

Scratch::~Scratch() { t_scratch_dead = true; }

int DeviceOf(const AccessSet& set) { return set.begin()->device(); }

bool OnOneDevice(const AccessSet& set) {
  const int device = DeviceOf(set);
  for (const BlockId id : set) {
    if (id.device() != device) return false;
  }
  return true;
}

// Blocks of `set` on `device`, into `part`.
void SelectDevice(const AccessSet& set, int device, AccessSet* part) {
  part->Clear();
  for (const BlockId id : set) {
    if (id.device() == device) part->Add(id);
  }
}

// The least device above `device` with a block in `set`, or -1.
int NextDevice(const AccessSet& set, int device) {
  int next = -1;
  for (const BlockId id : set) {
    if (id.device() > device && (next < 0 || id.device() < next)) next = id.device();
  }
  return next;
}

// Devices in ascending order, each inside the last: queues are taken in device order by everybody. Peer
// launches are rare, so the parts are allocated.
CUresult RunNested(Touch* touch, int after, StreamRef stream, RealCall real) {
  const int device = NextDevice(touch->set(), after);
  if (device < 0) return real();
  Residency* const residency = touch->context()->Of(device);
  if (residency == nullptr) return RunNested(touch, device, stream, real);
  AccessSet part;
  SelectDevice(touch->set(), device, &part);
  return residency->RunPinned(part, stream, touch->tag,
                              [&] { return RunNested(touch, device, stream, real); });
}

// The same for a call that may reach any block: all of each device's, from `device` on.
CUresult RunReachingAll(HookContext* context, const AccessSet& set, int device, StreamRef stream,
                        uint64_t tag, RealCall real) {
  while (device < allocator::kMaxDevices && context->Of(device) == nullptr) ++device;
  if (device == allocator::kMaxDevices) return real();
  AccessSet part;
  SelectDevice(set, device, &part);
  return context->Of(device)->RunReachingAll(
      part, stream, tag, [&] { return RunReachingAll(context, set, device + 1, stream, tag, real); });
}

}  // namespace

void Touch::Begin(HookState* hook_state, HookContext* hook_context) {
  state_ = hook_state;
  context_ = hook_context;
  tag = 0;
  may_block = reaches_all = false;
  denied = nullptr;
  set_.Clear();
  if (__builtin_expect(rewrites(), 0)) {
    found_.clear();
    overwritten_.clear();
  }
}

HookScope::HookScope() {
  if (t_inside) return;
  HookState* const state = GetHookState();
  if (state == nullptr) return;
  HookContext* const context = state->context.load(std::memory_order_acquire);
  if (context == nullptr) return;
  t_inside = true;
  touch_ = t_scratch_dead ? new Touch : &t_scratch.touch;
  touch_->Begin(state, context);
}

HookScope::~HookScope() {
  if (touch_ == nullptr) return;
  t_inside = false;
  if (t_scratch_dead) delete touch_;
}

CUresult PassGate(Touch* touch, StreamRef stream, RealCall real) {
  if (__builtin_expect(touch->context()->several_devices, 0))
    stream.context = CurrentContext(*touch->state());
  if (__builtin_expect(IsCapturing(*touch->state(), stream), 0)) return PassCaptured(touch, stream, real);
  if (__builtin_expect(touch->rewrites(), 0)) {
    return PassRewriting(touch, stream, [&] { return PassNamed(touch, stream, real); });
  }
  return PassNamed(touch, stream, real);
}

CUresult PassNamed(Touch* touch, StreamRef stream, RealCall real) {
  const AccessSet& set = touch->set();
  if (set.empty()) return PassNothingNamed(touch, stream, real);
  if (__builtin_expect(OnOneDevice(set), 1)) {
    Residency* const residency = touch->context()->Of(DeviceOf(set));
    if (residency == nullptr) return real();
    if (__builtin_expect(!touch->may_block, 1)) return residency->Run(set, stream, touch->tag, real);
    if (touch->denied != nullptr) return PassDenied(touch, stream, real);
    if (touch->reaches_all) return RunReachingAll(touch->context(), set, 0, stream, touch->tag, real);
    return residency->RunPinned(set, stream, touch->tag, real);
  }
  if (touch->denied != nullptr) return PassDenied(touch, stream, real);
  if (touch->reaches_all) return RunReachingAll(touch->context(), set, 0, stream, touch->tag, real);
  return RunNested(touch, -1, stream, real);
}

CUresult CallReachingAll(HookState* state, StreamRef stream, uint64_t tag, RealCall real) {
  HookContext* const context = state->context.load(std::memory_order_acquire);
  if (context == nullptr) return CallOthers(state, kUnknownWant, real);
  return RunReachingAll(context, {}, 0, stream, tag, real);
}

CUresult CallOthers(HookState* state, uint64_t bytes, RealCall real) {
  HookContext* const context = state == nullptr ? nullptr : state->context.load(std::memory_order_acquire);
  Residency* residency = nullptr;
  const bool allocates = bytes != kUnknownWant;
  if (allocates && context != nullptr) {
    residency = context->Of(CurrentDevice(*state));
    if (residency != nullptr) residency->BeginForeignAllocation(bytes);
  }
  CUresult result = real();
  if (__builtin_expect(result == CUDA_ERROR_OUT_OF_MEMORY, 0) && context != nullptr) {
    residency = context->Of(CurrentDevice(*state));
    if (residency != nullptr && residency->ReleaseForOthers(bytes)) result = real();
  }
  if (allocates && residency != nullptr) residency->EndForeignAllocation(bytes, result != CUDA_SUCCESS);
  return result;
}

}  // namespace spillway::integration
