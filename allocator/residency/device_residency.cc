#include "allocator/residency/device_residency.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "io/os/errno.h"
#include "io/os/wait.h"

namespace spillway::allocator {
namespace {

constexpr std::chrono::seconds kMaxHashLoad{10};  // a driver that compiles it takes about one

ResidencyOptions WithDefaults(ResidencyOptions options) {
  if (options.external_share_bytes == 0)
    options.external_share_bytes = DefaultExternalShare(options.budget_bytes);
  if (options.free_reserve_bytes == 0) options.free_reserve_bytes = options.budget_bytes / 16;
  if (options.run_ahead_bytes == 0) options.run_ahead_bytes = options.budget_bytes / 4;
  return options;
}

}  // namespace

DeviceResidency::Components::Components(const ResidencyOptions& options, const ResidencyParts& parts)
    : core(options, parts),
      charges(options, parts, &core.table, &core.evict),
      addresses(options, parts, &core.table),
      clean(&core.table, parts.host, parts.disk),
      reach(&core, &clean),
      log(&core.clock),
      hash(parts.driver, parts.context, options.device, parts.hash_code),
      writes(parts.driver, &hash, &core.table) {}

absl::Status DeviceResidency::Components::Start() {
  SPILLWAY_ASSIGN_OR_RETURN(copies,
                            CopyStreams::Create(core.parts.driver, &core.clock, &core.error, core.waits));
  thread.emplace(&core, [this] { return Poll(); });
  const auto wake = [this] { thread->Wake(); };
  soft.emplace(&core, SoftBlocks::Parts{&addresses, &clean}, wake);
  const auto end_soft = [this](const TableLock& lock, Block* block) { soft->EndLocked(lock, block); };
  faulter.emplace(&core, Faulter::Parts{&charges, &addresses, &clean, copies.get(), &reach, end_soft, &hash},
                  wake);
  evictor.emplace(&core, Evictor::Parts{&charges, &addresses, &clean, &hash, copies.get(), &reach, &*soft},
                  wake);
  demoter.emplace(&core, &*soft, wake);
  probe.emplace(&core, &charges, copies.get());
  releaser.emplace(&core, &charges, &*evictor, wake);
  const auto leave = [this](const TableLock& lock, const std::vector<Block*>& blocks) {
    for (const Block* block : blocks) plan_runner->RecordUnplannedLocked(lock, *block);
    evictor->StartLocked(lock, blocks);
  };
  claims.emplace(&core, &charges, &*faulter, &reach, leave, wake);
  plan_runner.emplace(&core, &charges, &log, &*evictor, &*faulter);
  reclaimer.emplace(&core, Reclaimer::Parts{&charges, &addresses, &*evictor, &*faulter, &*claims,
                                            &*plan_runner, &*probe, &*demoter});
  pauser.emplace(
      &core,
      Pauser::Parts{&charges, &clean, &*soft, &*evictor, &*faulter, &*claims, &*plan_runner,
                    [this] { return releaser->ReleaseFree(); }, [this] { return releaser->EmptyCache(); }},
      wake);
  return absl::OkStatus();
}

// Polls everything that goes on in the background once. The clock comes first, so that the others see what
// has completed.
DeviceThread::PollResult DeviceResidency::Components::Poll() {
  DeviceThread::PollResult result;
  result.moved = core.clock.Poll();
  result.moved |= faulter->Poll();
  result.moved |= soft->Poll();
  result.moved |= probe->Poll();
  if (!probe->suspends_evictions()) result.moved |= evictor->Poll();
  bool launch_waits;
  Demoter::Request request;
  {
    const TableLock lock(core.table);
    launch_waits = claims->WantedLocked(lock) > 0;
    request.buffers = claims->HostWantedLocked(lock);
  }
  if (request.buffers > 0) {
    request.keeps = [this](const TableLock& lock, const Block& block, size_t extent) {
      return claims->ReachesLocked(lock, block, extent);
    };
  }
  result.moved |= demoter->Poll(request, *plan_runner);
  result.progress = result.moved;
  result.progress |= allocations->FinishFrees();
  result.progress |= writes.Poll();
  result.progress |= plan_runner->Poll(launch_waits);
  result.progress |= reclaimer->Poll();
  result.progress |= releaser->PollDeviceLimit();
  result.progress |= pauser->Poll();
  if (!evictor->idle() || !faulter->idle() || !demoter->idle() || !soft->idle() || probe->measuring()) {
    result.ahead = DeviceThread::Ahead::kTransfers;
  } else if (plan_runner->active() || allocations->frees_wait() || pauser->active() ||
             (core.pressure.load() && core.clock.UncompletedLaunches() > 0)) {
    result.ahead = DeviceThread::Ahead::kLaunches;
  } else if (reclaimer->waits_for_time() || releaser->limited()) {
    result.ahead = DeviceThread::Ahead::kTime;
  }
  return result;
}

DeviceResidency::DeviceResidency(const ResidencyOptions& options, const ResidencyParts& parts)
    : components_(std::make_unique<Components>(WithDefaults(options), parts)),
      core_(&components_->core),
      refusals_(parts.refusals == nullptr ? &own_refusals_ : parts.refusals) {}

DeviceResidency::~DeviceResidency() {
  Shutdown();
  if (left_behind_) static_cast<void>(components_.release());  // a thread stuck in the driver may come back
}

absl::Status DeviceResidency::Start() {
  Components& m = *components_;
  ScopedContext scope(core_->parts.driver, core_->parts.context);
  SPILLWAY_RETURN_IF_ERROR(m.Start());
  m.allocations.emplace(core_, Allocations::Parts{&m.charges, &m.addresses, &m.clean, &m.log, &*m.soft,
                                                  [&m] { m.thread->Wake(); }});
  allocations_ = &*m.allocations;
  launches_.emplace(
      core_,
      Launches::Parts{&m.log, &*m.claims, &*m.faulter, m.copies.get(), &m.reach, &m.writes,
                      &m.plan_runner->throttle(), refusals_,
                      [this](auto call) { return RepeatWhenFull(kMaxGiveBacks, 0, call); },
                      [this](const AccessSet& set) { return Residency::Pin(set, PinReason::kGraph); }});
  if (core_->options.evict) m.hash.Begin();
  if (core_->standstill.on()) {  // a block that left without a hash would not stay mapped
    const os::Wait wait(core_->waits, os::WaitKind::kDriverCall, "the content hash to be loaded");
    m.hash.Await(kMaxHashLoad);
  }
  return m.thread->Start();
}

// ---- Allocation.

absl::StatusOr<CUdeviceptr> DeviceResidency::Allocate(uint64_t bytes, StreamRef stream, BlockRegion region) {
  SPILLWAY_ASSIGN_OR_RETURN(Block* const block, allocations_->Allocate(bytes, stream.handle, region));
  const CUdeviceptr address = block->address;
  if (core_->map_at_once.load()) SPILLWAY_RETURN_IF_ERROR(MapNow(block, stream));
  return address;
}

absl::Status DeviceResidency::MapNow(Block* block, StreamRef stream) {
  AccessSet set;
  set.Add(block->id);
  if (launches_->RunPinned(set, stream, 0, [] { return CUDA_SUCCESS; }) == CUDA_SUCCESS)
    return absl::OkStatus();
  absl::Status status = absl::ResourceExhaustedError(LastError());
  SPILLWAY_RETURN_IF_ERROR(Free(block->address));
  return status;
}

// ---- Launches.

CUresult DeviceResidency::Run(const AccessSet& set, StreamRef stream, uint64_t tag,
                              absl::FunctionRef<CUresult()> launch) {
  return launches_->Run(set, stream, tag, launch);
}

CUresult DeviceResidency::RunPinned(const AccessSet& set, StreamRef stream, uint64_t tag,
                                    absl::FunctionRef<CUresult()> launch) {
  return launches_->RunPinned(set, stream, tag, launch);
}

CUresult DeviceResidency::RunReachingAll(const AccessSet& set, StreamRef stream, uint64_t tag,
                                         absl::FunctionRef<CUresult()> launch) {
  return launches_->RunReachingAll(set, stream, tag, launch);
}

// ---- Long-term pins: blocks that must stay on the GPU because something may use them without naming them,
// and uses that were not launches through the gate.

absl::Status DeviceResidency::Pin(const AccessSet& set, PinReason reason, std::vector<PinnedBlock>* out) {
  if (core_->closed.load()) return absl::OkStatus();
  ScopedContext scope(core_->parts.driver, core_->parts.context);
  Grant grant;
  absl::Status status =
      launches_->Prepare(set, nullptr, 0, &grant);  // it is not known which streams will use them
  if (status.ok()) {
    status = PinGranted(grant, reason, out);
    components_->claims->Release(&grant);
  } else if (core_->closed.load()) {
    return absl::OkStatus();  // nothing leaves the GPU any more
  }
  return status.ok() ? status : launches_->RecordError(status);
}

absl::Status DeviceResidency::PinGranted(const Grant& grant, PinReason reason,
                                         std::vector<PinnedBlock>* out) {
  const TableLock lock(core_->table);
  // A block that another thread has freed meanwhile is left out, because its next life must not inherit the
  // pin.
  std::vector<Block*> stay;
  for (Block* block : grant.pinned) {
    if (block->live()) stay.push_back(block);
  }
  for (Block* block : stay) core_->table.AddPinLocked(lock, block, reason, components_->log.count());
  // Headroom is checked only where blocks are evicted. The pin is added in any case, since blocks that look
  // unused are also decommitted where nothing is evicted.
  if (core_->evict.load() && !components_->charges.LaunchFits(lock)) {
    for (Block* block : stay) core_->table.EndPinLocked(lock, block, reason);
    return absl::ResourceExhaustedError(
        "blocks that must stay on the GPU would leave too little headroom for the largest launch");
  }
  for (Block* block : stay) {
    if (out != nullptr) out->push_back({block->id, block->allocation.generation});
  }
  return absl::OkStatus();
}

void DeviceResidency::Unpin(const std::vector<PinnedBlock>& pinned, PinReason reason,
                            const EscapedUsers& users) {
  if (core_->closed.load()) return;
  const TableLock lock(core_->table);
  for (const PinnedBlock& entry : pinned) {
    Block* const block = &core_->table.at(entry.id);
    if (block->allocation.generation != entry.generation || !block->live()) continue;
    RecordEscapedUseLocked(lock, block, users);  // while the pin still keeps the Evictor away
    core_->table.EndPinLocked(lock, block, reason);
  }
  components_->thread->Wake();
}

void DeviceResidency::FindRanges(const AccessSet& set, std::vector<Range>* ranges) const {
  const TableLock lock(core_->table);
  for (const BlockId id : set) {
    const Block& block = core_->table.at(id);
    if (block.live()) ranges->push_back({block.address, block.allocation.requested_bytes});
  }
}

void DeviceResidency::RecordEscapedUseLocked(const TableLock& lock, Block* block, const EscapedUsers& users) {
  for (const StreamRef& stream : users.streams)
    allocations_->RecordQueuedWorkLocked(lock, block, core_->clock.Find(stream));
  if (users.pointer_block.valid() && users.pointer_block.device() == core_->options.device) {
    RecordPointerBlockUsesLocked(lock, block, core_->table.at(users.pointer_block));
  }
}

void DeviceResidency::RecordPointerBlockUsesLocked(const TableLock& lock, Block* block,
                                                   const Block& pointer_block) {
  allocations_->RecordQueuedWorkLocked(lock, block, pointer_block.allocation.owner_index);
  if (pointer_block.gate.many_streams.load()) block->gate.many_streams.store(true);
  for (const os::Atomic<uint64_t>& entry : pointer_block.gate.uses) {
    const TimelineValue value = TimelineValue::Unpack(entry.load(std::memory_order_relaxed));
    if (value.stream != kNoStream) RecordUse(core_->clock, block, value);
  }
  for (const TimelineValue& value : pointer_block.allocation.recorded)
    allocations_->RecordQueuedWorkLocked(lock, block, value.stream);
}

// ---- Streams, capture, external memory.

void DeviceResidency::RecordOverlap(StreamRef stream) {
  if (core_->closed.load() || launches_->IsCapturing(stream)) return;
  const StreamIndex index = core_->clock.Find(stream);
  if (index == kNoStream) return;
  ++core_->counters.overlapping_launches;
  core_->clock.RecordOverlap(index);
}

void DeviceResidency::OnStreamDestroy(CUstream stream) {
  if (core_->closed.load()) return;
  if (core_->parts.observer != nullptr) core_->parts.observer->OnInterrupt();
  ScopedContext scope(core_->parts.driver, core_->parts.context);
  core_->clock.OnDestroy(stream);
}

void DeviceResidency::OnCaptureBegin(CUstream stream) {
  if (core_->closed.load()) return;
  ScopedContext scope(core_->parts.driver, core_->parts.context);
  launches_->BeginCapture(stream);
  if (core_->parts.observer != nullptr) core_->parts.observer->OnInterrupt();
}

void DeviceResidency::OnExternalBytes(int64_t delta) {
  if (core_->closed.load()) return;
  {
    const TableLock lock(core_->table);
    components_->charges.AddExternal(lock, delta);
  }
  components_->thread->Wake();
}

void DeviceResidency::BeginExternalAllocation(uint64_t bytes) {
  if (core_->closed.load()) return;
  if (GpuShare* const share = core_->parts.share) share->Grow(GetShareNeed().wanted_bytes + bytes);
  components_->releaser->YieldToExternal(bytes);
}

void DeviceResidency::EndExternalAllocation(uint64_t bytes, bool failed) {
  const TableLock lock(core_->table);
  components_->charges.EndExternal(lock, bytes, failed);
}

absl::Status DeviceResidency::StopEvicting() {
  core_->map_at_once.store(true);
  core_->evict.store(false);
  const absl::Status status = launches_->BringAllBack();
  return core_->error.any() ? core_->error.status(*core_->parts.driver) : status;
}

absl::Status DeviceResidency::Pause(const PauseScope& scope, PauseStats* stats) {
  SPILLWAY_RETURN_IF_ERROR(core_->Serving());
  if (core_->parts.audit != nullptr) return IllegalState("nothing can be paused with SPILLWAY_AUDIT");
  if (launches_->open_captures() > 0)
    return IllegalState("nothing can be paused while a stream is captured", absl::StatusCode::kUnavailable);
  ScopedContext context(core_->parts.driver, core_->parts.context);
  const auto created_bytes = [this] {
    const TableLock lock(core_->table);
    return components_->charges.chunks(lock).created() * core_->chunk_bytes;
  };
  const uint64_t before = created_bytes();
  const absl::Status status = components_->pauser->Pause(scope, stats);
  const uint64_t remaining = created_bytes();
  stats->released_bytes += before - std::min(before, remaining);
  stats->remaining_bytes += remaining;
  if (!status.ok()) return status;
  if (scope.by == PausedBy::kIdle) {
    ++core_->counters.idle_pauses;
  } else if (core_->parts.share != nullptr) {
    core_->parts.share->Shrink();
  }
  return status;
}

absl::Status DeviceResidency::Resume(const PauseScope& scope, bool wait) {
  SPILLWAY_RETURN_IF_ERROR(core_->Serving());
  // Blocks that come back need a share before they begin. A caller that waits here also ends the idleness.
  if (GpuShare* const share = core_->parts.share; share != nullptr && scope.by != PausedBy::kIdle) {
    const ShareNeed need = GetShareNeed();
    share->Grow(need.wanted_bytes + need.paused_bytes);
    SPILLWAY_RETURN_IF_ERROR(components_->pauser->Resume({PausedBy::kIdle, scope.tag}, /*wait=*/false));
  }
  return components_->pauser->Resume(scope, wait);
}

void DeviceResidency::SetPlan(std::shared_ptr<const policy::MigrationPlan> plan) {
  components_->plan_runner->Set(std::move(plan));
  components_->thread->Wake();
}

uint64_t DeviceResidency::SetLimit(uint64_t (Charges::*set)(TableLock*, uint64_t), uint64_t bytes) {
  if (core_->closed.load()) return bytes;
  Charges& charges = components_->charges;
  uint64_t limit;
  {
    TableLock lock(core_->table);
    bytes = (charges.*set)(&lock, bytes);
    limit = charges.limit(lock);
  }
  core_->ScaleToCap(limit);
  components_->thread->Wake();
  return bytes;
}

void DeviceResidency::PrepareShare(uint64_t bytes) {
  TableLock lock(core_->table);
  components_->charges.PrepareShare(&lock, bytes);
}

ShareNeed DeviceResidency::GetShareNeed() const {
  ShareNeed need;
  {
    const TableLock lock(core_->table);
    core_->table.ForEachLiveLocked(lock, [&](Block* block) {
      const uint64_t bytes = block->paused() ? block->chunks * core_->chunk_bytes : 0;
      need.paused_bytes += bytes;
      if (IsIdle(block->pause.by)) need.away_bytes += bytes;
    });
    components_->charges.AddShareNeed(lock, &need);
  }
  need.launches = components_->log.count();
  need.serving = !core_->stopped.load();
  return need;
}

bool DeviceResidency::Quiet() {
  ScopedContext scope(core_->parts.driver, core_->parts.context);
  core_->clock.CoverAll();
  core_->clock.Poll();
  return core_->clock.UncompletedLaunches() == 0;
}

// ---- The end.

void DeviceResidency::Shutdown() {
  if (core_->closed.exchange(true)) return;
  {
    const TableLock lock(core_->table);  // a thread between its look at `stopped` and its wait has the lock
    core_->Stop();
  }
  core_->standstill.EndWaits();
  if (components_->thread && !components_->thread->Stop()) left_behind_ = true;
  if (!components_->hash.Stop()) left_behind_ = true;
}

void DeviceResidency::AbandonAfterFork() {
  core_->closed.store(true);
  core_->stopped.store(true);
  if (components_->thread) components_->thread->Abandon();
  components_->hash.Abandon();
}

}  // namespace spillway::allocator
