// The store's beginning, its statistics, its end, and the interface.

#include "io/store/spill_store_impl.h"

#include <algorithm>
#include <set>
#include <thread>
#include <utility>

#include "io/os/check.h"
#include "io/os/clock.h"
#include "io/os/errno.h"
#include "io/os/thread.h"

namespace spillway::io {
namespace {

// Hundredths of shutdown_timeout, since the beginning of Shutdown.
constexpr int kTransfersEnd = 40;  // transfers under way are given up
constexpr int kQueuesEnd = 65;     // a queue's thread is left behind
constexpr int kKeepersEnd = 75;    // a keeper is left behind
constexpr int kCallbackWait = 15;  // from then on, and once more in the destructor

std::chrono::nanoseconds Part(const SpillStoreOptions& options, int hundredths) {
  return options.shutdown_timeout / 100 * hundredths;
}

}  // namespace

SpillStore::Impl::Impl(SpillStoreOptions options)
    : options_(std::move(options)),
      cipher_buffers_(std::make_shared<CipherBuffers>()),
      waits_(options_.waits != nullptr ? options_.waits : &own_waits_),
      opened_at_(options_.clock->NowNanos()) {}

absl::Status SpillStore::Impl::Open() {
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
                                     .silence_changed = [this, i](bool silent) { RecordSilence(i, silent); },
                                     .clock = options_.clock,
                                     .waits = waits_};
    SPILLWAY_ASSIGN_OR_RETURN(directory->queue, TransferQueue::Start(std::move(opened.engine), queue));
    directories_.push_back(std::move(directory));
  }
  const int workers =
      options_.workers > 0 ? options_.workers : WorkersFor(drives(), std::thread::hardware_concurrency());
  SPILLWAY_ASSIGN_OR_RETURN(pool_, CompletionPool::Create(workers));
  for (const auto& directory : directories_) {
    SPILLWAY_ASSIGN_OR_RETURN(
        directory->keeper, os::StartThread("spill-grow", [this, kept = directory.get()] { KeepLoop(kept); }));
  }
  return absl::OkStatus();
}

size_t SpillStore::Impl::drives() const {
  std::set<dev_t> found;
  for (const auto& directory : directories_) found.insert(directory->file->device());
  return found.size();
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

void SpillStore::Impl::GuessSpeed(size_t directory, const DriveSpeed& speed) {
  TransferQueue& queue = *directories_[directory]->queue;
  queue.GuessSpeed(IoOp::kWrite, speed.write);
  queue.GuessSpeed(IoOp::kRead, speed.read);
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
                       .full = directory->disk_full || (directory->snapshot.at >= 0 &&
                                                        directory->snapshot.growable.bytes() < kSlotBytes),
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
                       .checksum_mismatches = directory->mismatches,
                       .speed = {.write = directory->queue->BytesPerSecond(IoOp::kWrite),
                                 .read = directory->queue->BytesPerSecond(IoOp::kRead)}};
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
  for (const auto& directory : directories_) directory->queue->BeginStop(Part(options_, kTransfersEnd));
  std::vector<bool> in_use;
  for (const auto& directory : directories_)
    in_use.push_back(!directory->queue->FinishStop(left(Part(options_, kQueuesEnd))));
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
    stuck = !EndKeeper(directory.get(), start + Part(options_, kKeepersEnd)) || stuck;
  stuck = (pool_ != nullptr && !pool_->WaitUntilIdle(Part(options_, kCallbackWait))) || stuck;
  os::MutexLock lock(&mu_);
  stuck_ = stuck;
}

bool SpillStore::Impl::MayBeFreed() {
  {
    os::MutexLock lock(&mu_);
    if (stuck_) return false;
  }
  // Calls that were refused after Shutdown still get their callbacks.
  return pool_ == nullptr || pool_->WaitUntilIdle(Part(options_, kCallbackWait));
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
  // The object is leaked when threads may still call back, and in a forked child, in which the threads that
  // would end it do not exist.
  if (abandoned_ || !impl_->MayBeFreed()) static_cast<void>(impl_.release());
}

size_t SpillStore::drives() const { return impl_->drives(); }
uint64_t SpillStore::capacity_bytes() const { return impl_->capacity_bytes(); }
absl::Status SpillStore::GrowTo(uint64_t bytes) { return impl_->GrowTo(bytes); }
absl::StatusOr<std::vector<SlotId>> SpillStore::TakeSlots(size_t n) { return impl_->TakeSlots(n); }
void SpillStore::SetOwner(CapacityOwner* owner) { impl_->SetOwner(owner); }
void SpillStore::RecordPromise(uint64_t promised) { impl_->RecordPromise(promised); }
absl::StatusOr<std::vector<SlotId>> SpillStore::ReserveSlots(size_t n) { return impl_->ReserveSlots(n); }
void SpillStore::ReleaseSlot(SlotId slot) { impl_->ReleaseSlot(slot); }

void SpillStore::Write(SlotId slot, const void* data, uint32_t bytes, Done done) {
  impl_->Write(slot, data, bytes, std::move(done));
}

void SpillStore::Read(SlotId slot, void* data, uint32_t bytes, Priority priority, Done done) {
  impl_->Read(slot, data, bytes, priority, std::move(done));
}

void SpillStore::Promote(SlotId slot) { impl_->Promote(slot); }
void SpillStore::GuessSpeed(size_t directory, const DriveSpeed& speed) {
  impl_->GuessSpeed(directory, speed);
}
void SpillStore::CancelPrefetch(SlotId slot) { impl_->CancelPrefetch(slot); }
SpillStoreStats SpillStore::stats() const { return impl_->stats(); }
SpillSpace SpillStore::space() const { return impl_->space(); }
void SpillStore::Shutdown() { impl_->Shutdown(); }

void SpillStore::AbandonAfterFork() {
  abandoned_ = true;
  impl_->AbandonAfterFork();
}

}  // namespace spillway::io
