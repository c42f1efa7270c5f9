#include "allocator/residency/audit.h"

#include <string>
#include <utility>

#include "allocator/residency/transfer/mapping.h"
#include "io/os/check.h"
#include "io/os/errno.h"
#include "io/os/log.h"
#include "io/os/thread.h"

namespace spillway::allocator {
namespace {

// A launch that never ends must not keep the process from ending.
constexpr auto kLongestWaitAtEnd = std::chrono::seconds(1);

// The errors that a kernel's own access can cause. Other errors are about the call.
bool IsFault(CUresult result) {
  return result == CUDA_ERROR_ILLEGAL_ADDRESS || result == CUDA_ERROR_LAUNCH_FAILED ||
         result == CUDA_ERROR_INVALID_ADDRESS_SPACE || result == CUDA_ERROR_MISALIGNED_ADDRESS;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Residency>> Residency::Create(const ResidencyOptions& options,
                                                             const ResidencyParts& parts) {
  std::unique_ptr<DeviceResidency> residency;
  if (parts.audit != nullptr) {
    residency = std::make_unique<AuditedResidency>(options, parts);
  } else {
    residency = std::make_unique<DeviceResidency>(options, parts);
  }
  SPILLWAY_RETURN_IF_ERROR(residency->Start());
  return std::unique_ptr<Residency>(std::move(residency));
}

AuditedResidency::AuditedResidency(const ResidencyOptions& options, const ResidencyParts& parts)
    : DeviceResidency(options, parts), observer_(parts.audit) {
  SPILLWAY_CHECK(observer_ != nullptr);
}

// ---- The interface.

CUresult AuditedResidency::Run(const AccessSet& set, StreamRef stream, uint64_t tag,
                               absl::FunctionRef<CUresult()> launch) {
  return RunAudited(set, Reach::kNamed, stream, tag, launch);
}

CUresult AuditedResidency::RunPinned(const AccessSet& set, StreamRef stream, uint64_t tag,
                                     absl::FunctionRef<CUresult()> launch) {
  return RunAudited(set, Reach::kNamed, stream, tag, launch);
}

CUresult AuditedResidency::RunReachingAll(const AccessSet& set, StreamRef stream, uint64_t tag,
                                          absl::FunctionRef<CUresult()> launch) {
  return RunAudited(set, Reach::kAll, stream, tag, launch);
}

absl::Status AuditedResidency::Pin(const AccessSet& set, PinReason reason, std::vector<PinnedBlock>* pinned) {
  ScopedContext scope(core_->parts.driver, core_->parts.context);
  const bool mine = IsMyTurn();
  const bool taken = !mine && TakeTurn();
  absl::Status status = taken || mine ? RemapSet(set) : absl::OkStatus();
  if (status.ok()) status = DeviceResidency::Pin(set, reason, pinned);
  if (taken) EndTurn();
  return status;
}

absl::Status AuditedResidency::StopEvicting() {
  absl::Status status = DeviceResidency::StopEvicting();
  if (core_->closed.load() || over_.load()) return status;
  stop_wanted_.store(true);
  if (IsMyTurn()) return status;  // EndTurn ends the audit
  ScopedContext scope(core_->parts.driver, core_->parts.context);
  if (TakeTurn()) EndTurn();
  return status;
}

void AuditedResidency::Shutdown() {
  if (!core_->closed.load() && !IsMyTurn()) {
    ScopedContext scope(core_->parts.driver, core_->parts.context);
    if (TakeTurn(Clock::now() + kLongestWaitAtEnd)) {
      if (!over_.exchange(true)) RemapAll();
      EndTurn();
    }
  }
  DeviceResidency::Shutdown();
}

size_t AuditedResidency::UnmappedBlocks() const {
  size_t unmapped = 0;
  const TableLock lock(core_->table);
  core_->table.ForEachLocked(lock, [&](Block* block) { unmapped += block->memory.unmapped ? 1 : 0; });
  return unmapped;
}

// ---- One launch.

CUresult AuditedResidency::RunAudited(const AccessSet& set, Reach reach, StreamRef stream, uint64_t tag,
                                      absl::FunctionRef<CUresult()> launch) {
  if (core_->stopped.load(std::memory_order_relaxed)) return launches_->Bypass(launch);
  ScopedContext scope(core_->parts.driver, core_->parts.context);
  if (over_.load()) return PassThrough(set, reach, stream, tag, launch);
  if (launches_->IsCapturing(stream)) {
    if (!reported_captured_.exchange(true)) observer_->OnCaptured(core_->options.device, tag);
    return PassThrough(set, reach, stream, tag, launch);
  }
  if (!TakeTurn()) return launch();
  const CUresult result = over_.load() ? PassThrough(set, reach, stream, tag, launch)
                                       : RunInTurn(set, reach, stream, tag, launch);
  EndTurn();
  return result;
}

CUresult AuditedResidency::PassThrough(const AccessSet& set, Reach reach, StreamRef stream, uint64_t tag,
                                       absl::FunctionRef<CUresult()> launch) {
  if (reach == Reach::kAll) return DeviceResidency::RunReachingAll(set, stream, tag, launch);
  return set.empty() ? launch() : DeviceResidency::RunPinned(set, stream, tag, launch);
}

CUresult AuditedResidency::RunInTurn(const AccessSet& set, Reach reach, StreamRef stream, uint64_t tag,
                                     absl::FunctionRef<CUresult()> launch) {
  ++number_;
  // Phase 1: wait until nothing runs any more. An error here is not this launch's doing.
  if (const CUresult before = Drain(stream); before != CUDA_SUCCESS) {
    over_.store(true);
    observer_->OnEarlierFault(core_->options.device, number_, before);
    return launch();
  }
  // Phase 2: map the blocks that the launch needs. Phases 3 to 5 are LaunchAlone's, under pins.
  const AccessSet all = reach == Reach::kAll ? launches_->LiveBlocks() : AccessSet();
  const AccessSet& needed = reach == Reach::kAll ? all : set;
  if (absl::Status status = RemapSet(needed); !status.ok()) {
    return launches_->Ended(status, launch);
  }
  const auto alone = [&] { return LaunchAlone(needed, stream, launch); };
  ++core_->counters.slow_launches;
  const CUresult result = needed.empty() ? alone() : launches_->RunClaimed(needed, set, stream, tag, alone);
  if (!IsFault(result)) {
    observer_->OnPassed(core_->options.device);
    return result;
  }
  over_.store(true);
  std::vector<Range> named;
  FindRanges(set, &named);
  observer_->OnFault({core_->options.device, number_, tag, result, std::move(named)});
  return result;
}

CUresult AuditedResidency::LaunchAlone(const AccessSet& visible, StreamRef stream,
                                       absl::FunctionRef<CUresult()> launch) {
  // Phase 3: unmap everything else.
  if (absl::Status status = UnmapAllBut(visible); !status.ok()) {
    over_.store(true);
    os::ReportLine("audit ends: " + std::string(status.message()));
  }
  // Phase 4: launch, and wait for the end.
  CUresult result = launch();
  if (result == CUDA_SUCCESS) result = core_->parts.driver->cuStreamSynchronize(stream.Explicit());
  // Phase 5: let evictions go on.
  {
    const TableLock lock(core_->table);
    components_->evictor->SuspendLocked(lock, false);
  }
  components_->thread->Wake();
  return result;
}

CUresult AuditedResidency::Drain(StreamRef stream) {
  // The context may not be waited for while any stream is under capture.
  const bool captures = launches_->open_captures() > 0;
  return captures ? core_->parts.driver->cuStreamSynchronize(stream.Explicit())
                  : core_->parts.driver->cuCtxSynchronize();
}

// ---- Taking away and giving back.

absl::Status AuditedResidency::UnmapAllBut(const AccessSet& visible) {
  std::unordered_set<uint32_t> keep;
  for (BlockId id : visible) keep.insert(id.raw());
  std::vector<Block*> to_unmap;
  {
    const TableLock lock(core_->table);
    components_->evictor->SuspendLocked(lock, true);  // before the look: no further eviction begins to move
    const os::Wait wait(core_->waits, os::WaitKind::kAudit, "transfers under way");
    while (TransfersUnderWayLocked(lock, keep) && !core_->stopped.load()) {
      SPILLWAY_RETURN_IF_ERROR(wait.Check());
      components_->thread->Wake();
      core_->table.changed.WaitFor(&core_->table.mu, std::chrono::milliseconds(10));
    }
    core_->table.ForEachLocked(lock, [&](Block* block) {
      const bool mapped = block->has_chunks() && !block->memory.unmapped && !block->memory.mapping;
      if (!mapped || block->pin_reasons != 0 || block->fetch.job != nullptr || keep.contains(block->id.raw()))
        return;
      if (block->eviction.job != nullptr && block->eviction.job->moving) return;
      block->memory.mapping = true;
      to_unmap.push_back(block);
    });
  }
  absl::Status status;
  for (Block* block : to_unmap) status.Update(UnmapForAudit(core_, block));
  return status;
}

bool AuditedResidency::TransfersUnderWayLocked(const TableLock& lock,
                                               const std::unordered_set<uint32_t>& visible) {
  bool any = false;
  core_->table.ForEachLocked(lock, [&](Block* block) {
    if (visible.contains(block->id.raw())) return;
    any |= block->memory.mapping || block->fetch.job != nullptr ||
           (block->eviction.job != nullptr && block->eviction.job->moving);
  });
  return any;
}

absl::Status AuditedResidency::RemapSet(const AccessSet& set) {
  for (BlockId id : set) SPILLWAY_RETURN_IF_ERROR(Remap(core_, &core_->table.at(id)));
  return absl::OkStatus();
}

void AuditedResidency::RemapAll() {
  AccessSet unmapped;
  {
    const TableLock lock(core_->table);
    core_->table.ForEachLocked(lock, [&](Block* block) {
      if (block->memory.unmapped) unmapped.AddNew(block->id);
    });
  }
  // The device is lost after a fault, and nothing can be mapped any more.
  RemapSet(unmapped).IgnoreError();
}

// ---- Turns.

bool AuditedResidency::TakeTurn(Clock::time_point until) {
  const os::Wait wait(core_->waits, os::WaitKind::kAudit, "the turn of a launch");
  TableLock lock(core_->table);
  while (taken_) {
    if (Clock::now() >= until || !core_->AwaitChangeLocked(&lock, wait).ok()) return false;
  }
  if (core_->closed.load()) return false;
  taken_ = true;
  taker_ = os::ThisThreadId();
  return true;
}

void AuditedResidency::EndTurn() {
  if (stop_wanted_.load() && !over_.exchange(true)) {
    RemapAll();
    os::ReportLine("audit ends: where nothing is moved off the GPU, no address is ever missed");
  }
  const TableLock lock(core_->table);
  taken_ = false;
  taker_ = {};
  core_->table.changed.NotifyAll();
}

bool AuditedResidency::IsMyTurn() const {
  const TableLock lock(core_->table);
  return taken_ && taker_ == os::ThisThreadId();
}

}  // namespace spillway::allocator
