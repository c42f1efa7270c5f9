// Moves bytes out of a directory that stays closed, because its drive takes no writes any more, and may soon
// take no reads. Slots that can be read are copied to other directories, one at a time, which leaves most of
// the drive's places to the job. The owner keeps the slot's id; its calls go to the place where the slot's
// bytes lie (HomeOfLocked). A move makes nobody wait: a slot that is written or given back meanwhile is not
// moved.

#include <algorithm>
#include <memory>
#include <utility>

#include "io/engine/aligned_buffer.h"
#include "io/os/log.h"
#include "io/store/spill_store_impl.h"
#include "io/store/test_points.h"

namespace spillway::io {

// A slot on its way: it is read, and then written elsewhere.
struct SpillStore::Impl::Move {
  SlotId from;
  SlotId to;
  SlotTable::Contents contents;
  AlignedBuffer buffer{kSlotBytes};
};

SlotId SpillStore::Impl::HomeOfLocked(SlotId slot) const {
  while (const std::optional<SlotTable::Place> place =
             directories_[slot.directory]->table.MovedTo(slot.index)) {
    slot = SlotId{place->directory, place->index};
  }
  return slot;
}

// Whether a slot can be taken for bytes in closed directories without breaking a promise.
bool SpillStore::Impl::MayTakeForMoveLocked() const {
  if (UsableFreeSlots() == 0) return false;
  if (owner_ == nullptr) return true;
  uint64_t closed = 0;  // promised as well, and not part of the capacity
  for (const auto& directory : directories_) {
    const SlotTable& table = directory->table;
    if (!IsUsable(*directory))
      closed += uint64_t{table.slots().in_use_count() - table.moved_count()} * kSlotBytes;
  }
  const uint64_t promised = owner_->PromisedBytes();
  return promised - std::min(promised, closed) + kSlotBytes <= capacity_.load();
}

// Returns null when no slot may move now.
std::shared_ptr<SpillStore::Impl::Move> SpillStore::Impl::NextMoveLocked(Directory* directory) {
  const int64_t now = options_.clock->NowNanos();
  if (directory->moving || directory->silent) return nullptr;
  if (now < directory->moves_at || !MayTakeForMoveLocked()) return nullptr;
  const std::optional<uint32_t> index = directory->table.NextToMove(directory->move_next);
  if (!index) {  // slots that could not be read are tried again after the same time
    if (directory->move_next > 0) directory->moves_at = now + options_.moves_after.count();
    directory->move_next = 0;
    return nullptr;
  }
  if (directory->move_next == 0)
    os::Log(os::LogLevel::kWarn, "path=" + directory->settings.path +
                                     " has not worked for a while: its bytes move to other directories");
  directory->move_next = *index + 1;
  directory->moving = true;
  auto move = std::make_shared<Move>();
  move->from = SlotId{IndexOf(*directory), *index};
  move->to = PickSlotsLocked(1).front();
  move->contents = directory->table.BeginMove(*index);
  return move;
}

// ---- A move. Its first error ends it. The functions below run on the threads of the store's callbacks.

void SpillStore::Impl::StartMove(const std::shared_ptr<Move>& move) {
  auto read = std::make_shared<ReadState>();
  read->slot = move->from;
  read->data = move->buffer.data();
  read->bytes = move->contents.bytes;
  read->expected = move->contents;
  read->retries = false;
  read->keeps = move;
  read->done = [this, move](const absl::Status& status) {
    if (!status.ok()) return EndMove(move, status);
    WriteMoved(move);
  };
  StartRead(read, TransferClass::kPrefetchRead);
}

void SpillStore::Impl::WriteMoved(const std::shared_ptr<Move>& move) {
  auto write = std::make_shared<WriteState>();
  write->slot = move->to;
  write->data = move->buffer.data();
  write->bytes = move->contents.bytes;
  write->keeps = move;
  write->done = [this, move](const absl::Status& status) { EndMove(move, status); };
  StartWrite(write);
}

void SpillStore::Impl::EndMove(const std::shared_ptr<Move>& move, const absl::Status& status) {
  os::MutexLock lock(&mu_);
  Directory& directory = DirectoryOf(move->from);
  SlotTable& target = DirectoryOf(move->to).table;
  directory.moving = false;
  const bool same = directory.table.EndMove(move->from.index, move->contents);
  if (status.ok() && (same || SPILLWAY_STORE_MUTANT(kMovesWhatChanged))) {
    ++directory.slots_moved;
    directory.table.SetMoved(move->from.index, {move->to.directory, move->to.index});
  } else {
    target.Release(move->to.index);
  }
  UpdateCapacityLocked();
  PokeLocked();
}

}  // namespace spillway::io
