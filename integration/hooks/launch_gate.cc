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
using allocator::PinReason;
using allocator::Residency;
using allocator::StreamRef;

// The ways through the gate, in the order in which they apply and in which they stand below, behind PassGate.

// Passes a call that becomes a node of a graph, whose launches will name its blocks.
CUresult PassCaptured(AccessSetBuilder* builder, StreamRef stream, RealCall real);
// Calls `pass` under pins on the targets of the addresses that the call puts into device memory. Once `pass`
// has succeeded, the pins belong to the table; those of addresses that the call has overwritten end.
CUresult PassRewriting(AccessSetBuilder* builder, StreamRef stream, RealCall pass);
// Passes a call that names blocks: they are made resident, and their use is recorded. Every ordinary launch
// goes this way.
CUresult PassNamed(AccessSetBuilder* builder, StreamRef stream, RealCall real);
// Passes a call that names blocks of several devices, for those on devices above `after`.
CUresult PassNested(AccessSetBuilder* builder, int after, StreamRef stream, RealCall real);
// Passes a call that may reach any block: all blocks of each device from `device` on are made resident.
CUresult PassReachingAll(HookContext* context, const AccessSet& set, int device, StreamRef stream,
                         uint64_t tag, RealCall real);
// Passes a launch that names no block of ours. It goes through the residency if all launches are to; all
// blocks come back for a denied kernel.
CUresult PassNothingNamed(AccessSetBuilder* builder, StreamRef stream, RealCall real);
// Passes a launch of a kernel in the deny list, as its row says. Everything: its own blocks are pinned as far
// as the budget allows, and every live block of the device is resident for it; CUDA_ERROR_OUT_OF_MEMORY if
// they do not fit together. A writer whose tables the launch does not show: its blocks are pinned until they
// are freed. Refuse: CUDA_ERROR_NOT_PERMITTED.
CUresult PassDenied(AccessSetBuilder* builder, StreamRef stream, RealCall real);
// Passes a launch of NCCL's whose works lie outside of its arguments, or are not understood. Every live block
// of the device is resident for it, and nothing is pinned. CUDA_ERROR_OUT_OF_MEMORY if they do not fit
// together.
CUresult PassNccl(AccessSetBuilder* builder, StreamRef stream, RealCall real);

// Returns the residency of the current context's device; null if there is none.
Residency* CurrentResidency(const HookState* state, const HookContext* context) {
  return context == nullptr ? nullptr : context->Of(CurrentDevice(*state));
}

}  // namespace

// ---- The gate.

CUresult PassGate(AccessSetBuilder* builder, StreamRef stream, RealCall real) {
  if (__builtin_expect(NeedsCurrentContext(*builder->state(), *builder->context()), 0)) {
    // The use would be recorded on another device's stream without the context.
    const CUresult asked = FindCurrentContext(*builder->state(), &stream.context);
    if (asked != CUDA_SUCCESS) return asked;
  }
  if (__builtin_expect(IsCapturing(*builder->state(), stream), 0)) return PassCaptured(builder, stream, real);
  if (__builtin_expect(builder->rewrites(), 0)) {
    return PassRewriting(builder, stream, [&] { return PassNamed(builder, stream, real); });
  }
  return PassNamed(builder, stream, real);
}

// ---- Captured calls.

namespace {

CUresult RefuseDenied(const AccessSetBuilder& builder) {
  static std::atomic<bool> reported{false};
  if (!reported.exchange(true)) {
    os::ReportLine("kernel " + Demangled(builder.denied->name) + " is in the deny list (" +
                   builder.denied->denied->origin + ", action=refuse): it is not launched");
  }
  return CUDA_ERROR_NOT_PERMITTED;
}

// Records that a kernel in the deny list goes into a graph, whose launches do not show it. A kernel that may
// reach everything ends evictions. The blocks that a writer names stay until they are freed.
CUresult RecordDeniedInGraph(AccessSetBuilder* builder) {
  const DenyList::Action action = builder->denied->denied->action;
  if (action == DenyList::Action::kRefuse) return RefuseDenied(*builder);
  if (action == DenyList::Action::kEverything)
    builder->NotUnderstood((Demangled(builder->denied->name) + " (of the deny list) in a graph").c_str());
  builder->denied = nullptr;
  return CUDA_SUCCESS;
}

// Records the same for a launch of NCCL's: the graph's launches would not show which blocks they reach.
void RecordNcclInGraph(AccessSetBuilder* builder) {
  builder->NotUnderstood(
      (Demangled(builder->nccl->name) + " in a graph, with works outside of its arguments").c_str());
  builder->nccl = nullptr;
}

CUresult PassCaptured(AccessSetBuilder* builder, StreamRef stream, RealCall real) {
  GraphBlocks& graphs = builder->state()->graphs;
  const uint64_t capture = CaptureOf(*builder->state(), stream);
  if (!graphs.Follows(capture)) {
    builder->state()->pin_reports.Report(PinReason::kGraph, "a capture");
    return PassPinning(builder, PinReason::kGraph, real);
  }
  GraphBlocks::Ranges named;
  const CUresult result = PassIntoGraph(builder, &named, real);
  if (result == CUDA_SUCCESS) graphs.AddToCapture(capture, named);
  return result;
}

// Records what no later launch would show of a call whose blocks are pinned, or whose graph names them.
CUresult CheckLastScan(AccessSetBuilder* builder) {
  const CUresult noted = builder->denied == nullptr ? CUDA_SUCCESS : RecordDeniedInGraph(builder);
  if (noted != CUDA_SUCCESS) return noted;
  if (builder->nccl != nullptr) RecordNcclInGraph(builder);
  // A driver without memory for the kernel's code has none for its launch either.
  if (builder->unanswered != nullptr && builder->unanswered->no_memory) return CUDA_ERROR_OUT_OF_MEMORY;
  if (builder->of_unknown_origin || builder->unanswered != nullptr)
    builder->NotUnderstood("a kernel of unknown origin in a graph, or on several devices at once");
  return CUDA_SUCCESS;
}

// Calls `real` with `set` pinned. If it fails, the pins end; otherwise `ticket` gets them, if it is not null.
CUresult CallPinned(AccessSetBuilder* builder, const AccessSet& set, PinReason reason, PinTicket* ticket,
                    RealCall real) {
  PinTicket taken;
  if (!set.empty()) {
    const CUresult pinned = PinBlocks(builder->context()->devices, set, reason, &taken);
    if (pinned != CUDA_SUCCESS) return pinned;
  }
  const CUresult result = CallWithRetry(builder->state(), kUnknownBytes, real);
  if (result != CUDA_SUCCESS) {
    EndPins(builder->context()->devices, &taken, {});
  } else if (ticket != nullptr) {
    *ticket = std::move(taken);
  }
  return result;
}

}  // namespace

CUresult PassPinning(AccessSetBuilder* builder, PinReason reason, PinTicket* ticket, RealCall real) {
  if (const CUresult checked = CheckLastScan(builder); checked != CUDA_SUCCESS) return checked;
  // The set has the call's own blocks, and those that a kernel will find in the memory that the call writes.
  AccessSet set = builder->set();
  for (const TableEntry& entry : builder->found()) set.Add(entry.target);
  return CallPinned(builder, set, reason, ticket, real);
}

CUresult PassIntoGraph(AccessSetBuilder* builder, GraphBlocks::Ranges* named, RealCall real) {
  const bool writes_tables = builder->denied != nullptr;  // tables that the call does not show
  if (const CUresult checked = CheckLastScan(builder); checked != CUDA_SUCCESS) return checked;
  FindRanges(builder->context()->devices, builder->set(), named);
  // Kernels outside the graph may follow what it writes, and early reads come before the gate of the graph's
  // launch.
  AccessSet stay = writes_tables ? builder->set() : builder->early();
  for (const TableEntry& entry : builder->found()) stay.Add(entry.target);
  if (!stay.empty())
    builder->state()->pin_reports.Report(PinReason::kGraph, "a graph that puts addresses into memory");
  return CallPinned(builder, stay, PinReason::kGraph, nullptr, real);
}

// ---- Rewriting: calls that put addresses of ours into device memory, or write where such addresses lie.

namespace {

// Pins the targets of the addresses that the call puts into device memory. The reason depends on where they
// go.
CUresult PinFound(AccessSetBuilder* builder, std::vector<PinTicket>* tickets) {
  AccessSet in_globals, in_tables, by_kernel;
  for (const TableEntry& entry : builder->found()) {
    if (entry.by_kernel) {
      by_kernel.Add(entry.target);
    } else {
      (builder->state()->tables.IsGlobal(entry.address) ? in_globals : in_tables).Add(entry.target);
    }
  }
  if (!by_kernel.empty()) builder->state()->tables.RecordKernelTable();
  const std::pair<const AccessSet*, PinReason> parts[] = {{&in_tables, PinReason::kPointerTable},
                                                          {&in_globals, PinReason::kModuleGlobal},
                                                          {&by_kernel, PinReason::kDenied}};
  for (const auto& [set, reason] : parts) {
    if (set->empty()) continue;
    // It is no news that a listed writer fills tables.
    if (set != &by_kernel) builder->state()->pin_reports.Report(reason, "a copy to the device");
    const CUresult pinned = PinBlocks(builder->context()->devices, *set, reason, &tickets->emplace_back());
    if (pinned == CUDA_SUCCESS) continue;
    tickets->pop_back();
    EndPins(builder->context()->devices, tickets, {});
    return pinned;
  }
  return CUDA_SUCCESS;
}

void EnterFound(AccessSetBuilder* builder, std::vector<PinTicket>* tickets) {
  if (builder->found().empty()) return;
  const bool entered = builder->state()->tables.Add(builder->found(), tickets);
  EndPins(builder->context()->devices, tickets, {});
  if (entered) return;
  static std::atomic<bool> reported{false};
  if (!reported.exchange(true)) {
    os::Log(
        os::LogLevel::kWarn,
        "more addresses were copied to the GPU than are followed: their blocks stay until they are freed");
  }
}

CUresult PassRewriting(AccessSetBuilder* builder, StreamRef stream, RealCall pass) {
  std::vector<PinTicket> tickets;
  if (const CUresult pinned = PinFound(builder, &tickets); pinned != CUDA_SUCCESS) return pinned;
  const CUresult result = pass();
  if (result != CUDA_SUCCESS) {
    EndPins(builder->context()->devices, &tickets, {});
    return result;
  }
  // The job itself orders whatever reads the old addresses before this call, so it is enough to wait for its
  // stream.
  std::vector<PinTicket> ended;
  if (!builder->context()->strict) {
    for (const AccessSetBuilder::WrittenRange& range : builder->overwritten()) {
      builder->state()->tables.Remove(range.address, range.bytes, range.change, &ended);
    }
  }
  EnterFound(builder, &tickets);
  EndPins(builder->context()->devices, &ended, {{stream}, {}});
  return result;
}

// ---- Calls that name blocks.

bool AllOn(const AccessSet& set, int device) {
  for (const BlockId id : set) {
    if (id.device() != device) return false;
  }
  return true;
}

// Returns the least device above `device` with a block in `set`, or -1.
int NextDevice(const AccessSet& set, int device) {
  int next = -1;
  for (const BlockId id : set) {
    if (id.device() > device && (next < 0 || id.device() < next)) next = id.device();
  }
  return next;
}

CUresult PassNamed(AccessSetBuilder* builder, StreamRef stream, RealCall real) {
  const AccessSet& set = builder->set();
  if (set.empty()) return PassNothingNamed(builder, stream, real);
  const int device = set.begin()->device();
  const bool on_one = AllOn(set, device);
  Residency* const residency = builder->context()->Of(device);
  if (__builtin_expect(on_one, 1)) {
    if (residency == nullptr) return real();
    if (__builtin_expect(!builder->may_block, 1)) return residency->Run(set, stream, builder->tag, real);
  }
  if (builder->denied != nullptr) return PassDenied(builder, stream, real);
  if (builder->nccl != nullptr) return PassNccl(builder, stream, real);
  if (builder->reaches_all) return PassReachingAll(builder->context(), set, 0, stream, builder->tag, real);
  return on_one ? residency->RunPinned(set, stream, builder->tag, real)
                : PassNested(builder, -1, stream, real);
}

// The devices come in ascending order, each call inside the last, so all threads take the devices' queues in
// that order. Peer launches are rare, so the parts may be allocated.
CUresult PassNested(AccessSetBuilder* builder, int after, StreamRef stream, RealCall real) {
  const int device = NextDevice(builder->set(), after);
  if (device < 0) return real();
  Residency* const residency = builder->context()->Of(device);
  if (residency == nullptr) return PassNested(builder, device, stream, real);
  const AccessSet part = PartOn(device, builder->set());
  return residency->RunPinned(part, stream, builder->tag,
                              [&] { return PassNested(builder, device, stream, real); });
}

// Like PassNested, for all blocks of each device from `device` on.
CUresult PassReachingAll(HookContext* context, const AccessSet& set, int device, StreamRef stream,
                         uint64_t tag, RealCall real) {
  while (device < allocator::kMaxDevices && context->Of(device) == nullptr) ++device;
  if (device == allocator::kMaxDevices) return real();
  const AccessSet part = PartOn(device, set);
  return context->Of(device)->RunReachingAll(
      part, stream, tag, [&] { return PassReachingAll(context, set, device + 1, stream, tag, real); });
}

// ---- Calls that name nothing.

CUresult PassNothingNamed(AccessSetBuilder* builder, StreamRef stream, RealCall real) {
  if (__builtin_expect(builder->denied != nullptr, 0)) return PassDenied(builder, stream, real);
  if (__builtin_expect(builder->nccl != nullptr, 0)) return PassNccl(builder, stream, real);
  if (__builtin_expect(builder->reaches_all, 0))
    return CallReachingAll(builder->state(), stream, builder->tag, real);
  return CallWithoutBlocks(builder->state(), builder->tag, stream, real);
}

}  // namespace

CUresult CallWithoutBlocks(HookState* state, uint64_t tag, StreamRef stream, RealCall real) {
  HookContext* const context = ContextOf(state);
  if (context == nullptr || !context->gates_all) return CallWithRetry(state, kUnknownBytes, real);
  Residency* const residency = CurrentResidency(state, context);
  if (residency == nullptr) return CallWithRetry(state, kUnknownBytes, real);
  return CallWithRetry(state, kUnknownBytes, [&] { return residency->Run({}, stream, tag, real); });
}

CUresult CallReachingAll(HookState* state, StreamRef stream, uint64_t tag, RealCall real) {
  HookContext* const context = ContextOf(state);
  if (context == nullptr) return CallWithRetry(state, kUnknownBytes, real);
  return PassReachingAll(context, {}, 0, stream, tag, real);
}

CUresult CallWithRetry(HookState* state, uint64_t bytes, RealCall real) {
  HookContext* const context = ContextOf(state);
  const bool allocates = bytes != kUnknownBytes;
  Residency* residency = allocates ? CurrentResidency(state, context) : nullptr;
  if (residency != nullptr) residency->BeginExternalAllocation(bytes);
  CUresult result = real();
  if (__builtin_expect(result == CUDA_ERROR_OUT_OF_MEMORY, 0)) {
    residency = CurrentResidency(state, context);  // a capture forbids the calls that evictions make
    const int attempts = state->captures.load() == 0 ? Residency::kMaxGiveBacks : 1;
    if (residency != nullptr) result = residency->RepeatWhenFull(attempts, bytes, real);
  }
  if (allocates && residency != nullptr) residency->EndExternalAllocation(bytes, result != CUDA_SUCCESS);
  return result;
}

// ---- Denied kernels.

namespace {

CUresult PinDenied(AccessSetBuilder* builder, const char* kernel) {
  if (builder->set().empty()) return CUDA_SUCCESS;
  builder->state()->pin_reports.Report(PinReason::kDenied, kernel);
  return PinBlocks(builder->context()->devices, builder->set(), PinReason::kDenied, nullptr);
}

// No event shows when the last address is gone that a writer without visible tables has written.
CUresult PassWriterWithoutTables(AccessSetBuilder* builder, StreamRef stream, RealCall real) {
  const std::string kernel = Demangled(builder->denied->name);
  builder->denied = nullptr;
  if (const CUresult pinned = PinDenied(builder, kernel.c_str()); pinned != CUDA_SUCCESS) return pinned;
  return PassNamed(builder, stream, real);
}

CUresult PassDeniedEverything(AccessSetBuilder* builder, StreamRef stream, RealCall real) {
  static std::atomic<bool> pin_refused{false};
  const std::string kernel = Demangled(builder->denied->name);
  const int device = CurrentDevice(*builder->state());
  Residency* const residency = builder->context()->Of(device);
  if (!AllOn(builder->set(), device)) {
    builder->NotUnderstood((kernel + " (of the deny list, on several devices)").c_str());
    builder->denied = nullptr;
    return PassGate(builder, stream, real);
  }
  if (device < 0) return CallReachingAll(builder->state(), stream, builder->tag, real);  // unknown: all
  if (residency == nullptr) return CallWithRetry(builder->state(), kUnknownBytes, real);
  ReportReachingAll(kernel, ReachesAll::kDenied);
  if (!pin_refused.load() && PinDenied(builder, kernel.c_str()) != CUDA_SUCCESS) pin_refused.store(true);
  const CUresult result = residency->RunReachingAll(builder->set(), stream, builder->tag, real);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) ReportReachingAllRefused(kernel, ReachesAll::kDenied);
  return result;
}

CUresult PassDenied(AccessSetBuilder* builder, StreamRef stream, RealCall real) {
  switch (builder->denied->denied->action) {
    case DenyList::Action::kEverything: return PassDeniedEverything(builder, stream, real);
    case DenyList::Action::kWriter: return PassWriterWithoutTables(builder, stream, real);
    case DenyList::Action::kRefuse: return RefuseDenied(*builder);
  }
  return CUDA_ERROR_NOT_PERMITTED;
}

// ---- Kernels of NCCL's, with works that no scan finds.

CUresult PassNccl(AccessSetBuilder* builder, StreamRef stream, RealCall real) {
  const bool known = builder->nccl->nccl == NcclKernel::kFollowed;
  const ReachesAll why = known ? ReachesAll::kNcclWorksOutside : ReachesAll::kNcclUnknown;
  const std::string kernel = Demangled(builder->nccl->name);
  ReportReachingAll(kernel, why);
  const int device = CurrentDevice(*builder->state());
  Residency* const residency = builder->context()->Of(device);
  const bool elsewhere = residency == nullptr || !AllOn(builder->set(), device);
  const CUresult result =
      elsewhere ? PassReachingAll(builder->context(), builder->set(), 0, stream, builder->tag, real)
                : residency->RunReachingAll(builder->set(), stream, builder->tag, real);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) ReportReachingAllRefused(kernel, why);
  return result;
}

}  // namespace
}  // namespace spillway::integration
