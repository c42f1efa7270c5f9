// The door itself: checks options and hands every call to the inside.

#include "io/spill_store.h"

#include <utility>

#include "io/os/errno.h"
#include "io/spill_store_impl.h"

namespace spillway::io {
namespace {

absl::Status CheckOptions(const SpillStoreOptions& options) {
  if (options.directories.empty()) return absl::InvalidArgumentError("no spill directory was given");
  if (options.request_bytes == 0 || options.request_bytes % kPageBytes != 0 ||
      options.request_bytes > kSlotBytes) {
    return absl::InvalidArgumentError("request_bytes is " + std::to_string(options.request_bytes) +
                                      "; accepted is a multiple of 4096 up to " + std::to_string(kSlotBytes));
  }
  if (options.requests_in_flight < 1 || options.requests_in_flight > 1024) {
    return absl::InvalidArgumentError("requests_in_flight is " + std::to_string(options.requests_in_flight) +
                                      "; accepted is 1 to 1024");
  }
  if (options.growth_bytes < kSlotBytes) {
    return absl::InvalidArgumentError("growth_bytes is " + std::to_string(options.growth_bytes) +
                                      "; accepted is " + std::to_string(kSlotBytes) + " or more");
  }
  if (options.request_timeout <= std::chrono::nanoseconds::zero()) {
    return absl::InvalidArgumentError("request_timeout must be positive");
  }
  return absl::OkStatus();
}

}  // namespace

SpillStore::SpillStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

absl::StatusOr<std::unique_ptr<SpillStore>> SpillStore::Create(SpillStoreOptions options) {
  SPILLWAY_RETURN_IF_ERROR(CheckOptions(options));
  std::unique_ptr<SpillStore> store(new SpillStore(std::make_unique<Impl>(std::move(options))));
  SPILLWAY_RETURN_IF_ERROR(store->impl_->Open());
  return store;
}

SpillStore::~SpillStore() {
  if (!abandoned_) Shutdown();
  // Threads that do not exist here, or that may still call back, must find or not miss what they use: leak it.
  if (abandoned_ || !impl_->MayBeFreed()) static_cast<void>(impl_.release());
}

uint64_t SpillStore::room_bytes() const { return impl_->room_bytes(); }
absl::Status SpillStore::GrowTo(uint64_t bytes) { return impl_->GrowTo(bytes); }
absl::StatusOr<std::vector<SlotId>> SpillStore::TakeSlots(size_t n) { return impl_->TakeSlots(n); }
void SpillStore::SetPromised(std::function<uint64_t()> promised) { impl_->SetPromised(std::move(promised)); }
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
SpillCapacity SpillStore::capacity() const { return impl_->capacity(); }
void SpillStore::Shutdown() { impl_->Shutdown(); }

void SpillStore::AbandonAfterFork() {
  abandoned_ = true;
  impl_->AbandonAfterFork();
}

}  // namespace spillway::io
