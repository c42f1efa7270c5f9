// The path of a write and of a read through the store, its statistics, and its end.

#include "io/spill_store_impl.h"

#include <algorithm>
#include <utility>

#include "io/checksum.h"
#include "io/os/atomic.h"
#include "io/os/check.h"
#include "io/os/clock.h"
#include "io/os/errno.h"
#include "io/os/log.h"
#include "io/os/thread.h"
#include "io/test_points.h"

namespace spillway::io {
namespace {

// Times from the beginning of Shutdown. An exit handler has 2 s for everything.
constexpr auto kTransfersEnd = std::chrono::milliseconds(400);  // transfers under way are given up
constexpr auto kQueuesEnd = std::chrono::milliseconds(650);     // a queue's thread is left behind
constexpr auto kKeepersEnd = std::chrono::milliseconds(750);    // a keeper is left behind
constexpr auto kCallbackWait = std::chrono::milliseconds(150);

bool IsPageAligned(const void* data, uint32_t bytes) {
  return reinterpret_cast<uintptr_t>(data) % kPageBytes == 0 && bytes % kPageBytes == 0;
}

WriteOutcome OutcomeOf(const absl::Status& status) {
  if (status.ok()) return WriteOutcome::kWritten;
  if (absl::IsDeadlineExceeded(status)) return WriteOutcome::kUnanswered;
  // A full disk, a kernel without memory and a drive that is silent say nothing about the place.
  if (absl::IsCancelled(status) || absl::IsResourceExhausted(status) || absl::IsUnavailable(status))
    return WriteOutcome::kFailed;
  return WriteOutcome::kSuspect;
}

}  // namespace

SpillStore::Impl::Impl(SpillStoreOptions options)
    : options_(std::move(options)),
      waits_(options_.waits != nullptr ? options_.waits : &own_waits_),
      opened_at_(options_.clock->NowNanos()) {}

absl::Status SpillStore::Impl::Open() {
  SPILLWAY_ASSIGN_OR_RETURN(pool_, CompletionPool::Create(std::max(1, options_.checksum_threads)));
  for (size_t i = 0; i < options_.directories.size(); ++i) {
    auto directory = std::make_unique<Directory>();
    directory->settings = options_.directories[i];
    SPILLWAY_ASSIGN_OR_RETURN(OpenedDirectory opened, OpenDirectory(directory->settings.path, options_));
    directory->file = std::move(opened.file);
    if (!opened.cached_because.empty()) options_.checksum = ChecksumMode::kOn;
    directory->order = OrderOf(*directory);
    directory->share = ShareOf(directory->settings);
    const DiskModelOptions model = options_.models.Of(i);
    if (model.Limits()) opened.engine = MakeModelEngine(std::move(opened.engine), model);
    opened.engine = MakeFaultEngine(std::move(opened.engine), options_.faults, i, options_.clock);
    if (options_.wrap_engine) opened.engine = options_.wrap_engine(std::move(opened.engine), i);
    const TransferQueueOptions queue{.path = directory->settings.path,
                                     .drive = DriveName(directory->file->device()),
                                     .request_bytes = options_.request_bytes,
                                     .request_timeout = options_.request_timeout,
                                     .retry_time = options_.retry_time,
                                     .write_budget = options_.write_budget,
                                     .silence_changed = [this, i](bool silent) { NoteSilence(i, silent); },
                                     .clock = options_.clock,
                                     .waits = waits_};
    SPILLWAY_ASSIGN_OR_RETURN(directory->queue, TransferQueue::Start(std::move(opened.engine), queue));
    directories_.push_back(std::move(directory));
  }
  for (const auto& directory : directories_) {
    SPILLWAY_ASSIGN_OR_RETURN(
        directory->keeper, os::StartThread("spill-grow", [this, kept = directory.get()] { KeepLoop(kept); }));
  }
  return absl::OkStatus();
}

SpillStore::Impl::Directory& SpillStore::Impl::DirectoryOf(SlotId slot) {
  SPILLWAY_CHECK(slot.directory < directories_.size());
  return *directories_[slot.directory];
}

std::string SpillStore::Impl::Place(SlotId slot, uint32_t bytes) const {
  return "spill file in " + options_.directories[slot.directory].path + ": " + std::to_string(bytes) +
         " bytes at offset " + std::to_string(uint64_t{slot.index} * kSlotBytes);
}

void SpillStore::Impl::PostDone(Done done, absl::Status status) {
  pool_->Post([done = std::move(done), status = std::move(status)] { done(status); });
}

// Fills in the place.
absl::Status SpillStore::Impl::PushTransfer(SlotId slot, Transfer transfer) {
  transfer.slot = slot.index;
  transfer.offset = uint64_t{slot.index} * kSlotBytes;
  const uint32_t bytes = transfer.bytes;
  if (DirectoryOf(slot).queue->Push(std::make_shared<Transfer>(std::move(transfer)))) return absl::OkStatus();
  return absl::CancelledError(Place(slot, bytes) + ": the spill store was shut down");
}

void SpillStore::Impl::Write(SlotId slot, const void* data, uint32_t bytes, Done done) {
  SPILLWAY_CHECK(IsPageAligned(data, bytes) && bytes > 0 && bytes <= kSlotBytes);
  auto state = std::make_shared<WriteState>();
  state->slot = slot;
  state->data = data;
  state->bytes = bytes;
  state->done = std::move(done);
  StartWrite(state);
}

void SpillStore::Impl::StartWrite(const std::shared_ptr<WriteState>& state) {
  const uint32_t bytes = state->bytes;
  SlotId slot;
  {
    os::MutexLock lock(&mu_);
    slot = state->slot = HomeOfLocked(state->slot);
    if (stopped_) {
      PostDone(std::move(state->done),
               absl::CancelledError(Place(slot, bytes) + ": the spill store was shut down"));
      return;
    }
    const uint32_t generation = DirectoryOf(slot).table.BeginWrite(slot.index, bytes);
    state->seed = ChecksumSeed(slot.directory, slot.index, generation);
  }
  const bool with_checksum = options_.checksum == ChecksumMode::kOn;
  state->parts = with_checksum && !SPILLWAY_STORE_MUTANT(kChecksumNotAwaited) ? 2 : 1;
  auto arrived = [this, state](absl::Status status) {
    state->status = std::move(status);
    if (--state->parts == 0) FinishWrite(state);
  };
  // The engine's interface has one buffer type for both directions; a write only reads it.
  char* buffer = const_cast<char*>(static_cast<const char*>(state->data));
  absl::Status pushed = PushTransfer(slot, {.op = IoOp::kWrite,
                                            .transfer_class = TransferClass::kWrite,
                                            .bytes = bytes,
                                            .data = buffer,
                                            .done = arrived,
                                            .answered = [this, slot] { NoteAnswer(slot); },
                                            .keeps = state->keeps,
                                            .retries = state->retries});
  if (!pushed.ok()) pool_->Post([arrived, pushed] { arrived(pushed); });
  if (!with_checksum) return;
  pool_->Post([this, state] {
    state->checksum = ComputeChecksum(state->data, state->bytes, state->seed);
    if (--state->parts == 0) FinishWrite(state);
  });
}

void SpillStore::Impl::FinishWrite(const std::shared_ptr<WriteState>& state) {
  {
    os::MutexLock lock(&mu_);
    Directory& directory = DirectoryOf(state->slot);
    directory.table.EndWrite(state->slot.index, OutcomeOf(state->status), state->checksum);
    if (absl::IsResourceExhausted(state->status)) CloseFullLocked(&directory);
    if (state->status.ok()) directory.full_pause = 0;
    NoteFailureLocked(&directory, state->status);
    if (!state->status.ok()) UpdateCapacityLocked();
  }
  state->done(state->status);
}

// The kernel has answered a write that had been given up: its slot may be used again.
void SpillStore::Impl::NoteAnswer(SlotId slot) {
  os::MutexLock lock(&mu_);
  DirectoryOf(slot).table.Answered(slot.index);
  UpdateCapacityLocked();
}

void SpillStore::Impl::Read(SlotId slot, void* data, uint32_t bytes, Priority priority, Done done) {
  SPILLWAY_CHECK(IsPageAligned(data, bytes) && bytes > 0 && bytes <= kSlotBytes);
  std::optional<SlotTable::Contents> contents;
  {
    os::MutexLock lock(&mu_);
    slot = HomeOfLocked(slot);
    SlotTable& table = DirectoryOf(slot).table;
    contents = table.BeginRead(slot.index);
    if (contents && contents->bytes != bytes) table.EndRead(slot.index);
  }
  if (!contents || contents->bytes != bytes) {
    const std::string present = contents ? std::to_string(contents->bytes) + " bytes" : "nothing";
    PostDone(std::move(done),
             absl::FailedPreconditionError(Place(slot, bytes) + ": the slot has " + present));
    return;
  }
  auto state = std::make_shared<ReadState>();
  state->slot = slot;
  state->data = static_cast<char*>(data);
  state->bytes = bytes;
  state->expected = *contents;
  state->done = std::move(done);
  StartRead(state, priority == Priority::kDemand ? TransferClass::kDemandRead : TransferClass::kPrefetchRead);
}

void SpillStore::Impl::StartRead(const std::shared_ptr<ReadState>& state, TransferClass transfer_class) {
  absl::Status pushed = PushTransfer(
      state->slot, {.op = IoOp::kRead,
                    .transfer_class = transfer_class,
                    .bytes = state->bytes,
                    .data = state->data,
                    .done = [this, state](const absl::Status& status) { ReadArrived(state, status); },
                    .keeps = state->keeps,
                    .retries = state->retries});
  if (!pushed.ok()) pool_->Post([this, state, pushed] { FinishRead(state, pushed); });
}

void SpillStore::Impl::ReadArrived(const std::shared_ptr<ReadState>& state, const absl::Status& status) {
  if (!status.ok() || options_.checksum == ChecksumMode::kOff || SPILLWAY_STORE_MUTANT(kReadUnverified)) {
    FinishRead(state, status);
  } else {
    pool_->PostFirst([this, state] { VerifyRead(state); });
  }
}

void SpillStore::Impl::VerifyRead(const std::shared_ptr<ReadState>& state) {
  const SlotId slot = state->slot;
  const uint64_t seed = ChecksumSeed(slot.directory, slot.index, state->expected.generation);
  if (ComputeChecksum(state->data, state->bytes, seed) == state->expected.checksum) {
    FinishRead(state, absl::OkStatus());
    return;
  }
  bool changed = false;
  {
    os::MutexLock lock(&mu_);
    Directory& directory = DirectoryOf(slot);
    changed = directory.table.ChangedWhileMoving(slot.index, state->expected);
    if (!changed) ++directory.mismatches;
  }
  if (changed) {  // its owner does not read what it writes: this is the read of the move
    FinishRead(state, absl::CancelledError(Place(slot, state->bytes) + ": it changed meanwhile"));
    return;
  }
  if (state->second_try) {
    FinishRead(state,
               absl::DataLossError(Place(slot, state->bytes) +
                                   ": the bytes read are not those written (checksum differs, twice)"));
    return;
  }
  os::Log(os::LogLevel::kWarn, Place(slot, state->bytes) + ": checksum differs, reading once more");
  state->second_try = true;
  StartRead(state, TransferClass::kDemandRead);
}

void SpillStore::Impl::FinishRead(const std::shared_ptr<ReadState>& state, absl::Status status) {
  {
    os::MutexLock lock(&mu_);
    Directory& directory = DirectoryOf(state->slot);
    directory.table.EndRead(state->slot.index);
    NoteFailureLocked(&directory, status);
    if (!status.ok()) UpdateCapacityLocked();
  }
  state->done(std::move(status));
}

void SpillStore::Impl::Promote(SlotId slot) {
  slot = HomeOf(slot);
  DirectoryOf(slot).queue->Promote(slot.index);
}

void SpillStore::Impl::CancelPrefetch(SlotId slot) {
  slot = HomeOf(slot);
  DirectoryOf(slot).queue->CancelPrefetch(slot.index);
}

SpillStoreStats SpillStore::Impl::stats() {
  SpillStoreStats total;
  os::MutexLock lock(&mu_);
  for (const auto& directory : directories_) {
    const TransferCounters& counters = directory->queue->counters();
    const SlotAllocator& slots = directory->table.slots();
    DirectoryStats one{.path = directory->settings.path,
                       .engine = directory->queue->engine_name(),
                       .direct = directory->file->direct(),
                       .full = directory->disk_full ||
                               (directory->look.at >= 0 && directory->look.growable.bytes() < kSlotBytes),
                       .closed = IsClosed(*directory),
                       .why_closed = WhyClosedLocked(*directory),
                       .times_closed = directory->times_closed,
                       .last_closure = directory->last_closure,
                       .file_bytes = directory->file_bytes,
                       .bytes_written = counters.bytes_written.load(),
                       .bytes_read = counters.bytes_read.load(),
                       .slots_in_use = slots.in_use_count() - directory->table.moved_count(),
                       .slots_quarantined = slots.quarantined_count(),
                       .slots_moved = directory->slots_moved,
                       .retries = counters.retries.load(),
                       .errors = counters.errors.load(),
                       .checksum_mismatches = directory->mismatches};
    total.bytes_written += one.bytes_written;
    total.bytes_read += one.bytes_read;
    total.file_bytes += one.file_bytes;
    total.slots_in_use += one.slots_in_use;
    total.retries += one.retries;
    total.errors += one.errors;
    total.checksum_mismatches += one.checksum_mismatches;
    total.directories.push_back(std::move(one));
  }
  return total;
}

void SpillStore::Impl::Shutdown() {
  ending_.store(true);
  {
    os::MutexLock lock(&mu_);
    if (stopped_) return;
    stopped_ = true;
    keep_cv_.NotifyAll();
    grown_cv_.NotifyAll();
  }
  const auto start = os::SteadyClock::now();
  const auto left = [start](std::chrono::nanoseconds until) {
    return std::max<std::chrono::nanoseconds>(start + until - os::SteadyClock::now(),
                                              std::chrono::nanoseconds::zero());
  };
  bool stuck = false;
  for (const auto& directory : directories_) directory->queue->BeginStop(kTransfersEnd);
  std::vector<bool> in_use;
  for (const auto& directory : directories_)
    in_use.push_back(!directory->queue->FinishStop(left(kQueuesEnd)));
  {
    os::MutexLock lock(&mu_);
    for (size_t i = 0; i < directories_.size(); ++i) {
      directories_[i]->in_use = in_use[i];
      stuck |= in_use[i];
    }
    close_files_ = true;
    keep_cv_.NotifyAll();
  }
  for (const auto& directory : directories_)
    stuck = !EndKeeper(directory.get(), start + kKeepersEnd) || stuck;
  stuck = (pool_ != nullptr && !pool_->WaitUntilIdle(kCallbackWait)) || stuck;
  os::MutexLock lock(&mu_);
  stuck_ = stuck;
}

bool SpillStore::Impl::MayBeFreed() {
  {
    os::MutexLock lock(&mu_);
    if (stuck_) return false;
  }
  // Refused calls after Shutdown still get their callbacks.
  return pool_ == nullptr || pool_->WaitUntilIdle(kCallbackWait);
}

void SpillStore::Impl::AbandonAfterFork() {
  for (const auto& directory : directories_) {
    directory->queue->AbandonAfterFork();
    directory->file->Close();
    directory->order->Close();
    if (directory->share != nullptr) directory->share->Close();
  }
}

// ---- The interface: every call goes to the implementation.

SpillStore::SpillStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

absl::StatusOr<std::unique_ptr<SpillStore>> SpillStore::Create(SpillStoreOptions options) {
  SPILLWAY_RETURN_IF_ERROR(CheckOptions(options));
  std::unique_ptr<SpillStore> store(new SpillStore(std::make_unique<Impl>(std::move(options))));
  SPILLWAY_RETURN_IF_ERROR(store->impl_->Open());
  return store;
}

SpillStore::~SpillStore() {
  if (!abandoned_) Shutdown();
  // Leaked where threads may still call back, and in a forked child, where those that would end it do not
  // exist.
  if (abandoned_ || !impl_->MayBeFreed()) static_cast<void>(impl_.release());
}

uint64_t SpillStore::capacity_bytes() const { return impl_->capacity_bytes(); }
absl::Status SpillStore::GrowTo(uint64_t bytes) { return impl_->GrowTo(bytes); }
absl::StatusOr<std::vector<SlotId>> SpillStore::TakeSlots(size_t n) { return impl_->TakeSlots(n); }
void SpillStore::SetOwner(CapacityOwner* owner) { impl_->SetOwner(owner); }
void SpillStore::NotePromise(uint64_t promised) { impl_->NotePromise(promised); }
absl::StatusOr<std::vector<SlotId>> SpillStore::ReserveSlots(size_t n) { return impl_->ReserveSlots(n); }
void SpillStore::ReleaseSlot(SlotId slot) { impl_->ReleaseSlot(slot); }

void SpillStore::Write(SlotId slot, const void* data, uint32_t bytes, Done done) {
  impl_->Write(slot, data, bytes, std::move(done));
}

void SpillStore::Read(SlotId slot, void* data, uint32_t bytes, Priority priority, Done done) {
  impl_->Read(slot, data, bytes, priority, std::move(done));
}

void SpillStore::Promote(SlotId slot) { impl_->Promote(slot); }
void SpillStore::CancelPrefetch(SlotId slot) { impl_->CancelPrefetch(slot); }
SpillStoreStats SpillStore::stats() const { return impl_->stats(); }
SpillSpace SpillStore::space() const { return impl_->space(); }
void SpillStore::Shutdown() { impl_->Shutdown(); }

void SpillStore::AbandonAfterFork() {
  abandoned_ = true;
  impl_->AbandonAfterFork();
}

}  // namespace spillway::io
