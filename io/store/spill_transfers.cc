// The path of a write and of a read through the store.

#include <algorithm>
#include <memory>
#include <utility>

#include "io/os/check.h"
#include "io/os/log.h"
#include "io/store/checksum.h"
#include "io/store/cipher_buffers.h"
#include "io/store/spill_store_impl.h"
#include "io/store/test_points.h"

namespace spillway::io {
namespace {

bool IsPageAligned(const void* data, uint32_t bytes) {
  return reinterpret_cast<uintptr_t>(data) % kPageBytes == 0 && bytes % kPageBytes == 0;
}

WriteOutcome OutcomeOf(const absl::Status& status) {
  if (status.ok()) return WriteOutcome::kWritten;
  if (absl::IsDeadlineExceeded(status)) return WriteOutcome::kUnanswered;
  // A full disk, a kernel without memory and a silent drive tell nothing about the place.
  if (absl::IsCancelled(status) || absl::IsResourceExhausted(status) || absl::IsUnavailable(status))
    return WriteOutcome::kFailed;
  return WriteOutcome::kSuspect;
}

}  // namespace

// Fills in the place of the transfer, and pushes it.
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
  {
    os::MutexLock lock(&mu_);
    const SlotId slot = state->slot = HomeOfLocked(state->slot);
    if (stopped_) {
      PostDone(std::move(state->done),
               absl::CancelledError(Place(slot, state->bytes) + ": the spill store was shut down"));
      return;
    }
    state->generation = DirectoryOf(slot).table.BeginWrite(slot.index, state->bytes);
  }
  if (options_.cipher == nullptr) return PushWrite(state, state->data);
  pool_->Post([this, state] { EncryptAndPush(state); });
}

// Does not change the caller's bytes, because they may be a block's only copy.
void SpillStore::Impl::EncryptAndPush(const std::shared_ptr<WriteState>& state) {
  const std::shared_ptr<AlignedBuffer> buffer = cipher_buffers_->Take();
  const SlotId slot = state->slot;
  state->status = options_.cipher->Encrypt({slot.directory, slot.index, state->generation}, state->data,
                                           state->bytes, buffer->data());
  if (!state->status.ok()) return FinishWrite(state);
  state->keeps =
      std::make_shared<std::pair<std::shared_ptr<void>, std::shared_ptr<void>>>(state->keeps, buffer);
  PushWrite(state, buffer->data());
}

// `data` is what goes to the disk, and what the checksum covers.
void SpillStore::Impl::PushWrite(const std::shared_ptr<WriteState>& state, const void* data) {
  const SlotId slot = state->slot;
  const bool with_checksum = options_.checksum == ChecksumMode::kOn;
  state->parts = with_checksum && !SPILLWAY_STORE_MUTANT(kChecksumNotAwaited) ? 2 : 1;
  auto arrived = [this, state](absl::Status status) {
    state->status = std::move(status);
    if (--state->parts == 0) FinishWrite(state);
  };
  // The engine's interface has one buffer type for both directions; a write only reads it.
  char* buffer = const_cast<char*>(static_cast<const char*>(data));
  absl::Status pushed = PushTransfer(slot, {.op = IoOp::kWrite,
                                            .transfer_class = TransferClass::kWrite,
                                            .bytes = state->bytes,
                                            .data = buffer,
                                            .done = arrived,
                                            .answered = [this, slot] { RecordAnswer(slot); },
                                            .keeps = state->keeps,
                                            .retries = state->retries});
  if (!pushed.ok()) pool_->Post([arrived, pushed] { arrived(pushed); });
  if (!with_checksum) return;
  pool_->Post([this, state, data] {
    const uint64_t seed = ChecksumSeed(state->slot.directory, state->slot.index, state->generation);
    state->checksum = ComputeChecksum(data, state->bytes, seed);
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
    RecordFailureLocked(&directory, state->status);
    if (!state->status.ok()) UpdateCapacityLocked();
  }
  state->done(state->status);
}

// The kernel has answered a write that had been given up, so its slot may be used again.
void SpillStore::Impl::RecordAnswer(SlotId slot) {
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
  const bool plain = options_.checksum == ChecksumMode::kOff && options_.cipher == nullptr;
  if (!status.ok() || plain || SPILLWAY_STORE_MUTANT(kReadUnverified)) {
    FinishRead(state, status);
  } else {
    pool_->PostFirst([this, state] { VerifyRead(state); });
  }
}

void SpillStore::Impl::VerifyRead(const std::shared_ptr<ReadState>& state) {
  const SlotId slot = state->slot;
  const uint64_t seed = ChecksumSeed(slot.directory, slot.index, state->expected.generation);
  if (options_.checksum == ChecksumMode::kOff ||
      ComputeChecksum(state->data, state->bytes, seed) == state->expected.checksum) {
    FinishRead(state, Decrypt(*state));
    return;
  }
  bool changed = false;
  {
    os::MutexLock lock(&mu_);
    Directory& directory = DirectoryOf(slot);
    changed = directory.table.ChangedWhileMoving(slot.index, state->expected);
    if (!changed) ++directory.mismatches;
  }
  if (changed) {  // an owner never reads what it is writing, so this is a move's read
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

absl::Status SpillStore::Impl::Decrypt(const ReadState& state) const {
  if (options_.cipher == nullptr) return absl::OkStatus();
  const SlotCipher::Use use = {state.slot.directory, state.slot.index, state.expected.generation};
  return options_.cipher->Decrypt(use, state.data, state.bytes, state.data);
}

void SpillStore::Impl::FinishRead(const std::shared_ptr<ReadState>& state, absl::Status status) {
  {
    os::MutexLock lock(&mu_);
    Directory& directory = DirectoryOf(state->slot);
    directory.table.EndRead(state->slot.index);
    RecordFailureLocked(&directory, status);
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

}  // namespace spillway::io
