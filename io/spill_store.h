// SpillStore: the door of this room. Bytes that have no place in memory go to 2 MiB slots in unlinked,
// preallocated files, one file per directory, and come back verified. It owns the files, the table of slots
// with their checksums, one I/O engine and one thread per directory, and the workers that compute checksums.
// What the bytes mean, when they move, and the memory they are moved from are the caller's.

#ifndef SPILLWAY_IO_SPILL_STORE_H_
#define SPILLWAY_IO_SPILL_STORE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "io/engine.h"
#include "io/os/wait.h"
#include "io/spill_store_options.h"

namespace spillway::io {

// A fault whose launch waits (kDemand) goes before reads ahead of need (kPrefetch) and writes.
enum class Priority : uint8_t { kDemand, kPrefetch };

// Where a slot lies. Reused after ReleaseSlot; the table's generation tells one use from the next.
struct SlotId {
  uint32_t directory = 0;  // index into SpillStoreOptions::directories
  uint32_t index = 0;      // byte offset in the file / kSlotBytes

  friend bool operator==(const SlotId&, const SlotId&) = default;
  template <typename H>
  friend H AbslHashValue(H state, const SlotId& slot) {
    return H::combine(std::move(state), slot.directory, slot.index);
  }
};

// What one directory did, in bytes and counts since Create.
struct DirectoryStats {
  std::string path;
  const char* engine = "";  // "io_uring" or "threads"
  bool direct = false;      // O_DIRECT; false: buffered
  bool full = false;        // no further growth now, or a write met a full disk
  bool bad = false;         // too many errors, or a request that never came back
  uint64_t file_bytes = 0;
  uint64_t bytes_written = 0;
  uint64_t bytes_read = 0;
  uint64_t slots_in_use = 0;
  uint64_t slots_quarantined = 0;  // taken out of use after a failed write
  uint64_t retries = 0;            // resubmitted or continued transfers
  uint64_t errors = 0;             // writes and reads that ended in an error
  uint64_t checksum_mismatches = 0;
};

struct SpillStoreStats {
  uint64_t bytes_written = 0;
  uint64_t bytes_read = 0;
  uint64_t file_bytes = 0;
  uint64_t slots_in_use = 0;
  uint64_t retries = 0;
  uint64_t errors = 0;
  uint64_t checksum_mismatches = 0;
  std::vector<DirectoryStats> directories;
};

// Room for more slots, in bytes. Other users of the file systems change it at any time.
struct SpillCapacity {
  uint64_t total_bytes = 0;  // in use + free
  uint64_t free_bytes = 0;   // free slots, and what files may still grow by cap and reserve
};

// Callbacks: each Write and Read calls its `done` exactly once, on a completion thread of the store, never
// inside the call itself, and with no lock of the store held. `done` must not block (no I/O, no driver call
// that waits, no Shutdown); it may call any other method of the store, ReleaseSlot of its slot included.
//
// Buffers: page aligned, valid until `done`; for a write also unchanged. After DeadlineExceeded ("never came
// back") the kernel may still touch the buffer: keep it, unchanged, for as long as the process lives.
class SpillStore {
 public:
  using Done = std::function<void(absl::Status)>;

  // Checks each directory, opens and unlinks its file, chooses its engine by a real write, read and compare,
  // and starts the threads. No space is taken yet. Errors name the path and what is accepted. Forks of the
  // process must call AbandonAfterFork in the child.
  static absl::StatusOr<std::unique_ptr<SpillStore>> Create(SpillStoreOptions options);

  // Calls Shutdown if nobody did.
  ~SpillStore();
  SpillStore(const SpillStore&) = delete;
  SpillStore& operator=(const SpillStore&) = delete;

  // Bytes that slots can hold, taken or not, in what the file systems have allocated for our files in directories that
  // are usable: what may be promised. Falls at once when a directory closes (errors, a full disk), grows when files
  // grow. Slots out of use do not count. No lock; any thread.
  uint64_t room_bytes() const;

  // Waits until room_bytes() >= bytes. ResourceExhausted, with words, when caps, reserves and disks do not give as much;
  // Cancelled after Shutdown; DeadlineExceeded at the user's limit of waits. A known wait that names the directories.
  // Any thread but the store's own, no lock held.
  absl::Status GrowTo(uint64_t bytes);

  // Takes `n` slots, spread over the directories, or none; never waits. Unavailable: not now, files are being grown for
  // it in the background, ask again. ResourceExhausted: there is no room by cap, reserve and disk. Cancelled after
  // Shutdown. Any thread.
  absl::StatusOr<std::vector<SlotId>> TakeSlots(size_t n);

  // `promised` tells how many bytes of room are promised: so many are never given back to a disk that runs short. It is
  // called with the store's lock held, by any thread; null: nothing is given back. Who promises makes sure that what is
  // promised still fits room_bytes() afterwards, and calls NotePromise: files then grow ahead of need.
  void SetPromised(std::function<uint64_t()> promised);
  void NotePromise(uint64_t promised);  // any thread; a lock only when room runs low

  // TakeSlots that waits for growth, as GrowTo does. Any thread, not a completion thread.
  absl::StatusOr<std::vector<SlotId>> ReserveSlots(size_t n);

  // Gives a slot back; what it held is gone. No read or write of it may be pending (checked). Slots whose
  // last write failed are not used again. Any thread.
  void ReleaseSlot(SlotId slot);

  // Writes `bytes` (a multiple of 4 KiB, at most kSlotBytes) into a reserved slot and remembers their
  // checksum. A failed transfer is tried once more; then `done` gets the error (path, offset, length),
  // ResourceExhausted for a full disk, and the slot holds nothing. No other read or write of the slot may be
  // pending. Any thread.
  void Write(SlotId slot, const void* data, uint32_t bytes, Done done);

  // Reads what the last Write of the slot wrote: `bytes` must be the same number. When the checksum differs
  // from the one of the write, once more from the disk; then `done` gets DataLoss with path, offset and
  // length. FailedPrecondition when the slot holds nothing. Several reads of one slot may be pending. Any
  // thread.
  void Read(SlotId slot, void* data, uint32_t bytes, Priority priority, Done done);

  // Moves the waiting transfers of prefetch reads of this slot to the demand queue. Any thread.
  void Promote(SlotId slot);

  // Prefetch reads of this slot whose transfers all still wait end with Cancelled, soon; others go on. Any thread.
  void CancelPrefetch(SlotId slot);

  // Any thread; take a lock each, so not on the launch path. capacity() asks the file systems.
  SpillStoreStats stats() const;
  SpillCapacity capacity() const;

  // Ends everything within 1 s: waiting requests get Cancelled, those under way are waited for. Then
  // closes the files, which frees their space. A thread that is stuck in the kernel is left to itself. Later calls of Write and Read get Cancelled. Any thread but a
  // completion thread; a second call does nothing.
  void Shutdown();

  // In a forked child only: closes descriptors, takes no lock, joins no thread, frees no memory. Afterwards
  // nothing but the destructor may be called here.
  void AbandonAfterFork();

 private:
  class Impl;
  explicit SpillStore(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
  bool abandoned_ = false;  // only ever set in a child with one thread
};

}  // namespace spillway::io

#endif  // SPILLWAY_IO_SPILL_STORE_H_
