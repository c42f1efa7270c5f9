#include "integration/hooks/launch_gate.h"

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "integration/hooks/launch_reports.h"
#include "io/os/log.h"

namespace spillway::integration {
namespace {

using allocator::AccessSet;
using allocator::BlockId;
using allocator::HoldReason;
using allocator::Residency;
using allocator::StreamRef;

// The ways through the gate, in the order in which they apply and in which they stand below.

// A call that becomes a node of a graph: everything it names is pinned as long as the graph lives.
CUresult PassCaptured(Touch* touch, StreamRef stream, RealCall real);
// `pass` under pins on the targets of the addresses that the call puts into device memory. Once it has
// succeeded, they belong to the table, and those of addresses that it has overwritten end.
CUresult PassRewriting(Touch* touch, StreamRef stream, RealCall pass);
// The named blocks of a call, resident and stamped: the way of every launch.
CUresult PassNamed(Touch* touch, StreamRef stream, RealCall real);
// Blocks of several devices.
CUresult PassNested(Touch* touch, int after, StreamRef stream, RealCall real);
// A call that may reach any block: all of each device's, from `device` on.
CUresult PassReachingAll(HookContext* context, const AccessSet& set, int device, StreamRef stream,
                         uint64_t tag, RealCall real);
// A launch that names no block of ours. In audit mode it is audited as any other; a denied kernel brings all
// back.
CUresult PassNothingNamed(Touch* touch, StreamRef stream, RealCall real);
// A launch of a kernel of the deny list: its own blocks are pinned as far as there is room, and every live
// block of the device is resident for it. CUDA_ERROR_OUT_OF_MEMORY when they do not fit together.
CUresult PassDenied(Touch* touch, StreamRef stream, RealCall real);

// Asked back when the size of a failed call is not known (launches, module loads).
constexpr uint64_t kUnknownWant = 0;

// The residency of the current context's device; null when there is none.
Residency* CurrentResidency(const HookState* state, const HookContext* context) {
  return context == nullptr ? nullptr : context->Of(CurrentDevice(*state));
}

}  // namespace

CUresult PassGate(Touch* touch, StreamRef stream, RealCall real) {
  if (__builtin_expect(touch->context()->several_devices, 0))
    stream.context = CurrentContext(*touch->state());
  if (__builtin_expect(IsCapturing(*touch->state(), stream), 0)) return PassCaptured(touch, stream, real);
  if (__builtin_expect(touch->rewrites(), 0)) {
    return PassRewriting(touch, stream, [&] { return PassNamed(touch, stream, real); });
  }
  return PassNamed(touch, stream, real);
}

// ---- Captured.

namespace {

// A kernel of the deny list goes into a graph, whose launches nobody sees coming: no eviction from now on.
void NoteDeniedInGraph(Touch* touch) {
  touch->NotUnderstood((Demangled(touch->denied->name) + " (of the deny list) in a graph").c_str());
  touch->denied = nullptr;
}

CUresult PassCaptured(Touch* touch, StreamRef stream, RealCall real) {
  touch->state()->pin_reports.Report(HoldReason::kGraph, "a capture");
  const uint64_t capture = CaptureOf(*touch->state(), stream);
  HoldTicket ticket;
  const CUresult result = PassHolding(touch, HoldReason::kGraph, capture == 0 ? nullptr : &ticket, real);
  if (result == CUDA_SUCCESS && capture != 0) {
    touch->state()->graphs.AddToCapture(capture, std::move(ticket));
  }
  return result;
}

}  // namespace

CUresult PassHolding(Touch* touch, HoldReason reason, HoldTicket* ticket, RealCall real) {
  if (touch->denied != nullptr) NoteDeniedInGraph(touch);
  // The call's own blocks, and what a kernel will find in the memory that it writes.
  AccessSet set = touch->set();
  for (const TableSlot& slot : touch->found()) set.Add(slot.target);
  HoldTicket taken;
  if (!set.empty()) {
    const CUresult held = HoldBlocks(touch->context()->devices, set, reason, &taken);
    if (held != CUDA_SUCCESS) return held;
  }
  const CUresult result = CallOthers(touch->state(), 0, real);
  if (result != CUDA_SUCCESS) {
    EndHolds(touch->context()->devices, &taken, {});
  } else if (ticket != nullptr) {
    *ticket = std::move(taken);
  }
  return result;
}

// ---- Rewriting: addresses of ours are put into device memory, or lie where the call writes.

namespace {

// Pins the targets of what the call puts into device memory, by where it puts them.
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
    touch->state()->pin_reports.Report(reason, "a copy to the device");
    const CUresult held = HoldBlocks(touch->context()->devices, *set, reason, &tickets->emplace_back());
    if (held == CUDA_SUCCESS) continue;
    tickets->pop_back();
    EndHolds(touch->context()->devices, tickets, {});
    return held;
  }
  return CUDA_SUCCESS;
}

void EnterFound(Touch* touch, std::vector<HoldTicket>* tickets) {
  if (touch->found().empty()) return;
  const bool entered = touch->state()->tables.Add(touch->found(), tickets);
  EndHolds(touch->context()->devices, tickets, {});
  if (entered) return;
  static std::atomic<bool> told{false};
  if (!told.exchange(true)) {
    os::Log(
        os::LogLevel::kWarn,
        "more addresses were copied to the GPU than are followed: their blocks stay until they are freed");
  }
}

CUresult PassRewriting(Touch* touch, StreamRef stream, RealCall pass) {
  std::vector<HoldTicket> tickets;
  if (const CUresult held = HoldFound(touch, &tickets); held != CUDA_SUCCESS) return held;
  const CUresult result = pass();
  if (result != CUDA_SUCCESS) {
    EndHolds(touch->context()->devices, &tickets, {});
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
  EndHolds(touch->context()->devices, &ended, {{stream}, {}});
  return result;
}

// ---- Named.

int DeviceOf(const AccessSet& set) { return set.begin()->device(); }

bool AllOn(const AccessSet& set, int device) {
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

CUresult PassNamed(Touch* touch, StreamRef stream, RealCall real) {
  const AccessSet& set = touch->set();
  if (set.empty()) return PassNothingNamed(touch, stream, real);
  if (__builtin_expect(AllOn(set, DeviceOf(set)), 1)) {
    Residency* const residency = touch->context()->Of(DeviceOf(set));
    if (residency == nullptr) return real();
    if (__builtin_expect(!touch->may_block, 1)) return residency->Run(set, stream, touch->tag, real);
    if (touch->denied != nullptr) return PassDenied(touch, stream, real);
    if (touch->reaches_all) return PassReachingAll(touch->context(), set, 0, stream, touch->tag, real);
    return residency->RunPinned(set, stream, touch->tag, real);
  }
  if (touch->denied != nullptr) return PassDenied(touch, stream, real);
  if (touch->reaches_all) return PassReachingAll(touch->context(), set, 0, stream, touch->tag, real);
  return PassNested(touch, -1, stream, real);
}

// Devices in ascending order, each inside the last: queues are taken in device order by everybody. Peer
// launches are rare, so the parts are allocated.
CUresult PassNested(Touch* touch, int after, StreamRef stream, RealCall real) {
  const int device = NextDevice(touch->set(), after);
  if (device < 0) return real();
  Residency* const residency = touch->context()->Of(device);
  if (residency == nullptr) return PassNested(touch, device, stream, real);
  AccessSet part;
  SelectDevice(touch->set(), device, &part);
  return residency->RunPinned(part, stream, touch->tag,
                              [&] { return PassNested(touch, device, stream, real); });
}

// The same for a call that may reach any block: all of each device's, from `device` on.
CUresult PassReachingAll(HookContext* context, const AccessSet& set, int device, StreamRef stream,
                         uint64_t tag, RealCall real) {
  while (device < allocator::kMaxDevices && context->Of(device) == nullptr) ++device;
  if (device == allocator::kMaxDevices) return real();
  AccessSet part;
  SelectDevice(set, device, &part);
  return context->Of(device)->RunReachingAll(
      part, stream, tag, [&] { return PassReachingAll(context, set, device + 1, stream, tag, real); });
}

// ---- Nothing named.

CUresult PassNothingNamed(Touch* touch, StreamRef stream, RealCall real) {
  if (__builtin_expect(touch->denied != nullptr, 0)) return PassDenied(touch, stream, real);
  if (__builtin_expect(touch->reaches_all, 0))
    return CallReachingAll(touch->state(), stream, touch->tag, real);
  return CallUncollected(touch->state(), touch->tag, stream, real);
}

}  // namespace

CUresult CallUncollected(HookState* state, uint64_t tag, StreamRef stream, RealCall real) {
  HookContext* const context = ContextOf(state);
  if (context == nullptr || !context->audit) return CallOthers(state, 0, real);
  Residency* const residency = CurrentResidency(state, context);
  if (residency == nullptr) return CallOthers(state, 0, real);
  const AccessSet nothing;
  return CallOthers(state, 0, [&] { return residency->Run(nothing, stream, tag, real); });
}

CUresult CallReachingAll(HookState* state, StreamRef stream, uint64_t tag, RealCall real) {
  HookContext* const context = ContextOf(state);
  if (context == nullptr) return CallOthers(state, kUnknownWant, real);
  return PassReachingAll(context, {}, 0, stream, tag, real);
}

CUresult CallOthers(HookState* state, uint64_t bytes, RealCall real) {
  HookContext* const context = ContextOf(state);
  Residency* residency = nullptr;
  const bool allocates = bytes != kUnknownWant;
  if (allocates) {
    residency = CurrentResidency(state, context);
    if (residency != nullptr) residency->BeginForeignAllocation(bytes);
  }
  CUresult result = real();
  if (__builtin_expect(result == CUDA_ERROR_OUT_OF_MEMORY, 0) && context != nullptr) {
    residency = CurrentResidency(state, context);
    if (residency != nullptr && residency->ReleaseForOthers(bytes)) result = real();
  }
  if (allocates && residency != nullptr) residency->EndForeignAllocation(bytes, result != CUDA_SUCCESS);
  return result;
}

// ---- Denied.

namespace {

bool HoldDenied(Touch* touch, const char* kernel) {
  if (touch->set().empty()) return true;
  touch->state()->pin_reports.Report(HoldReason::kDenied, kernel);
  return HoldBlocks(touch->context()->devices, touch->set(), HoldReason::kDenied, nullptr) == CUDA_SUCCESS;
}

CUresult PassDenied(Touch* touch, StreamRef stream, RealCall real) {
  static std::atomic<bool> told{false}, told_refused{false}, no_room_to_hold{false};
  const std::string kernel = Demangled(touch->denied->name);
  const int device = CurrentDevice(*touch->state());
  Residency* const residency = touch->context()->Of(device);
  if (!AllOn(touch->set(), device)) {
    touch->NotUnderstood((kernel + " (of the deny list, on several devices)").c_str());
    touch->denied = nullptr;
    return PassGate(touch, stream, real);
  }
  if (residency == nullptr) return CallOthers(touch->state(), 0, real);
  if (!told.exchange(true)) {
    os::Announce("kernel " + kernel +
                 " is in the deny list: all blocks are brought to the GPU for each launch of it");
  }
  if (!no_room_to_hold.load() && !HoldDenied(touch, kernel.c_str())) no_room_to_hold.store(true);
  const CUresult result = residency->RunReachingAll(touch->set(), stream, touch->tag, real);
  if (result == CUDA_ERROR_OUT_OF_MEMORY && !told_refused.exchange(true)) {
    os::Announce(
        "kernel " + kernel +
        " is in the deny list and may reach any block, and all of them together do not fit the budget: "
        "a larger SPILLWAY_GPU_MEMORY is needed");
  }
  return result;
}

}  // namespace
}  // namespace spillway::integration
