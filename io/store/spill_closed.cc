// Directories that are closed by errors or by silence. They get no new slots, while reads of their slots go
// on. A silent directory opens when the late requests have been answered; a failed one opens after a probe: a
// write, which is read and compared. Capacity that would lie in a closed directory is waited for, not
// refused.

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "io/engine/aligned_buffer.h"
#include "io/os/log.h"
#include "io/store/spill_store_impl.h"
#include "io/store/test_points.h"

namespace spillway::io {
namespace {

using os::kSecond;

constexpr int64_t kProvedGood = 60 * kSecond;         // after so long open, the next delay is the first again
constexpr int64_t kScanIntervalClosed = kSecond / 4;  // while capacity is wanted
constexpr int64_t kScanIntervalUnwanted = 60 * kSecond;
constexpr char kSilent[] = "does not answer";
constexpr uint32_t kProbeWriteBytes = std::min(64u << 10, kSlotBytes);

}  // namespace

// A write into a slot, whose bytes are then read and compared.
struct SpillStore::Impl::Probe {
  Directory* directory = nullptr;
  SlotId slot;
  AlignedBuffer written{kProbeWriteBytes};
  AlignedBuffer read{kProbeWriteBytes};
};

bool SpillStore::Impl::IsClosed(const Directory& directory) const {
  return directory.closed || directory.silent;
}

// Upper limit of the capacity, in bytes, that the directory adds when it opens again.
uint64_t SpillStore::Impl::WhenOpenLocked(const Directory& directory) const {
  if (directory.disk_full) return 0;
  const uint64_t now = uint64_t{directory.table.slots().size()} * kSlotBytes;
  const uint64_t more =
      directory.snapshot.at < 0 ? directory.settings.cap_bytes : directory.snapshot.growable.bytes();
  const bool unknown = directory.snapshot.at < 0 && directory.settings.cap_bytes == 0;
  return unknown ? UINT64_MAX / 4 : now + std::min(more, UINT64_MAX / 4);
}

// The reason as the rest of a sentence about the directory; "" when it is open.
std::string SpillStore::Impl::WhyClosedLocked(const Directory& directory) const {
  if (directory.silent) return kSilent;
  return directory.closed ? "failed (" + directory.why_closed + ")" : "";
}

// The closed directories as the subject of a wait.
std::string SpillStore::Impl::ClosedDirectoriesLocked() const {
  std::string text;
  for (const auto& directory : directories_) {
    if (!IsClosed(*directory)) continue;
    text += (text.empty() ? "" : ", ") + directory->queue->place() + ", which " + WhyClosedLocked(*directory);
  }
  return text;
}

// Counts a failure of the disk. Too many of them in short time close the directory.
void SpillStore::Impl::RecordFailureLocked(Directory* directory, const absl::Status& status) {
  // Transfers that the end of the store leaves under way are not the disk's failure. A full disk, an
  // interruption and silence are handled on their own.
  if (status.ok() || stopped_ || absl::IsCancelled(status) || absl::IsResourceExhausted(status) ||
      absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status))
    return;
  const int64_t now = options_.clock->NowNanos();
  directory->failed_at.push_back(now);
  while (now - directory->failed_at.front() > options_.error_window.count()) directory->failed_at.pop_front();
  if (directory->failed_at.size() < static_cast<size_t>(options_.errors_until_closed)) return;
  CloseFailingLocked(directory,
                     std::to_string(options_.errors_until_closed) + " errors in short time, the last: ",
                     std::string(status.message()));
}

// Closes directories with suspect slots, if `bytes` of capacity need these slots. The slots are out of use
// since writes of them failed, too seldom to close a directory; a probe shows whether they are good again.
// Returns false when they would not suffice.
bool SpillStore::Impl::ProbeForLocked(uint64_t bytes) {
  const auto suspect = [this](const Directory& directory) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return IsUsable(directory) ? directory.table.slots().quarantined_count() : 0u;
  };
  uint64_t capacity = capacity_.load();
  for (const auto& directory : directories_) capacity += uint64_t{suspect(*directory)} * kSlotBytes;
  if (capacity < bytes) return false;
  for (const auto& directory : directories_) {
    if (const uint32_t slots = suspect(*directory); slots > 0)
      CloseFailingLocked(directory.get(), "", "writes failed in " + std::to_string(slots) + " slots");
  }
  return true;
}

void SpillStore::Impl::CloseFailingLocked(Directory* directory, const std::string& after,
                                          const std::string& why) {
  directory->failed_at.clear();
  if (directory->closed) return;
  const int64_t now = options_.clock->NowNanos();
  const bool again = directory->opened_at != 0 && now - directory->opened_at < kProvedGood;
  directory->closed = true;
  directory->moves_at = now + options_.moves_after.count();
  directory->move_next = 0;
  ++directory->times_closed;
  directory->why_closed = why;
  directory->last_closure = WhyClosedLocked(*directory);
  directory->probe_pause = again ? std::min(2 * directory->probe_pause, options_.longest_probe_pause.count())
                                 : options_.first_probe.count();
  directory->probe_at = now + directory->probe_pause;
  os::Log(os::LogLevel::kWarn, "path=" + directory->settings.path +
                                   " gets no new spill slots until a probe passes, after " + after + why);
  UpdateCapacityLocked();
  PokeLocked();
}

// Called when the drive has become silent, or has answered.
void SpillStore::Impl::RecordSilence(size_t index, bool silent) {
  os::MutexLock lock(&mu_);
  Directory& directory = *directories_[index];
  directory.silent = silent;
  if (silent) {
    ++directory.times_closed;
    directory.last_closure = kSilent;
  }
  UpdateCapacityLocked();
  PokeLocked();
  grown_cv_.NotifyAll();
}

// Makes a keeper's turn at a closed directory. Returns the time of the next turn unless the keeper is poked
// (clock, ns).
int64_t SpillStore::Impl::TurnOfClosedLocked(Directory* directory) {
  const int64_t now = options_.clock->NowNanos();
  const bool wanted = capacity_.load() < WantedLocked();
  if (wanted && directory->closed_wait == nullptr) {
    directory->closed_wait = std::make_unique<os::Wait>(
        waits_, os::WaitKind::kDrive, directory->queue->place() + ", which " + WhyClosedLocked(*directory));
  } else if (!wanted) {
    directory->closed_wait = nullptr;
  }
  const int64_t next = now + (wanted ? kScanIntervalClosed : kScanIntervalUnwanted);
  if (!directory->closed) return next;
  if (const std::shared_ptr<Move> move = NextMoveLocked(directory)) {
    mu_.Unlock();
    StartMove(move);
    mu_.Lock();
  }
  if (directory->probing) return next;
  if (now < directory->probe_at) return std::min(next, directory->probe_at);
  auto probe = std::make_shared<Probe>();
  probe->directory = directory;
  const std::optional<uint32_t> slot = directory->table.AllocateForProbe();
  if (!slot) {  // all are in use: it takes new bytes only by growing, which writes
    OpenLocked(directory);
    return now;
  }
  probe->slot = SlotId{IndexOf(*directory), *slot};
  directory->probing = true;
  mu_.Unlock();
  StartProbe(probe);
  mu_.Lock();
  return next;
}

// ---- The probe. Its first error counts. The functions below run on the threads of the store's callbacks.

void SpillStore::Impl::StartProbe(const std::shared_ptr<Probe>& probe) {
  // The bytes differ from those of the last probe, so old bytes in the slot cannot pass for those just
  // written.
  uint64_t value = static_cast<uint64_t>(options_.clock->NowNanos()) | 1;
  for (size_t i = 0; i < kProbeWriteBytes; i += sizeof(value)) {
    value = value * 6364136223846793005u + 1442695040888963407u;
    std::memcpy(probe->written.data() + i, &value, sizeof(value));
  }
  auto write = std::make_shared<WriteState>();
  write->slot = probe->slot;
  write->data = probe->written.data();
  write->bytes = kProbeWriteBytes;
  write->retries = false;
  write->keeps = probe;
  write->done = [this, probe](const absl::Status& status) {
    if (!status.ok()) return EndProbe(probe, status);
    ReadBack(probe);
  };
  StartWrite(write);
}

void SpillStore::Impl::ReadBack(const std::shared_ptr<Probe>& probe) {
  auto read = std::make_shared<ReadState>();
  read->slot = probe->slot;
  read->data = probe->read.data();
  read->bytes = kProbeWriteBytes;
  read->retries = false;
  read->keeps = probe;
  {
    os::MutexLock lock(&mu_);
    read->expected = *probe->directory->table.BeginRead(probe->slot.index);
  }
  read->done = [this, probe](absl::Status status) {
    if (status.ok() && std::memcmp(probe->read.data(), probe->written.data(), kProbeWriteBytes) != 0)
      status = absl::DataLossError("what was read is not what was written");
    EndProbe(probe, status);
  };
  StartRead(read, TransferClass::kDemandRead);
}

void SpillStore::Impl::EndProbe(const std::shared_ptr<Probe>& probe, const absl::Status& status) {
  Directory* const directory = probe->directory;
  os::MutexLock lock(&mu_);
  if (!SPILLWAY_STORE_MUTANT(kProbeSlotKept)) directory->table.Release(probe->slot.index);
  directory->probing = false;
  if (stopped_) return;
  if (status.ok() && !SPILLWAY_STORE_MUTANT(kStaysClosed)) {
    OpenLocked(directory);
  } else {
    directory->why_closed = std::string(status.message());
    directory->probe_pause = std::min(2 * directory->probe_pause, options_.longest_probe_pause.count());
    directory->probe_at = options_.clock->NowNanos() + directory->probe_pause;
  }
  UpdateCapacityLocked();
  PokeLocked();
}

void SpillStore::Impl::OpenLocked(Directory* directory) {
  directory->closed = false;
  directory->opened_at = options_.clock->NowNanos();
  directory->failed_at.clear();
  directory->table.Trust();
  os::Log(os::LogLevel::kWarn, "path=" + directory->settings.path + " works again and gets spill slots");
  UpdateCapacityLocked();
  PokeLocked();
  grown_cv_.NotifyAll();
}

uint32_t SpillStore::Impl::IndexOf(const Directory& directory) const {
  const auto is_it = [&directory](const auto& one) { return one.get() == &directory; };
  return static_cast<uint32_t>(std::find_if(directories_.begin(), directories_.end(), is_it) -
                               directories_.begin());
}

}  // namespace spillway::io
