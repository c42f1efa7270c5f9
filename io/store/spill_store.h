// SpillStore: the interface of this module. Bytes are written to slots of 2 MiB in unlinked, preallocated
// files, one file per directory, and come back verified. The store owns the files, the table of slots with
// their checksums, and the workers that compute checksums. For each directory it also owns an I/O engine, a
// thread that moves bytes and a thread that grows the file. The caller decides the meaning of the bytes, when
// they move, and in which memory they lie.
//
// allocator/tier and allocator/residency call it from any thread; the engine creates it and ends it. Disks
// that run full, that fail or that do not answer make single writes fail, and close a directory for new slots
// until they work again. Reads wait for such disks. They never make the store return wrong bytes.

#ifndef SPILLWAY_IO_STORE_SPILL_STORE_H_
#define SPILLWAY_IO_STORE_SPILL_STORE_H_

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
#include "io/engine/engine.h"
#include "io/os/wait.h"
#include "io/store/spill_store_options.h"

namespace spillway::io {

// Reads for a launch that waits (kDemand) precede reads ahead of need (kPrefetch) and writes.
enum class Priority : uint8_t { kDemand, kPrefetch };

// The place of a slot. The id is used again after ReleaseSlot; the slot's generation distinguishes the uses.
struct SlotId {
  uint32_t directory = 0;  // index into SpillStoreOptions::directories
  uint32_t index = 0;      // byte offset in the file / kSlotBytes

  friend bool operator==(const SlotId&, const SlotId&) = default;
  template <typename H>
  friend H AbslHashValue(H state, const SlotId& slot) {
    return H::combine(std::move(state), slot.directory, slot.index);
  }
};

// Speed of a drive while it has requests, in bytes a second; 0: not known.
struct DriveSpeed {
  double write = 0;
  double read = 0;
  friend bool operator==(const DriveSpeed&, const DriveSpeed&) = default;
};

// Statistics of one directory, in bytes and counts since Create.
struct DirectoryStats {
  std::string path;
  const char* engine = "";  // "io_uring" or "threads"
  bool direct = false;      // O_DIRECT; false: buffered
  bool full = false;        // no further growth now, or a write met a full disk
  bool closed = false;      // no new slots: after errors, or while the disk does not answer
  std::string why_closed;   // "" when it is open
  uint64_t times_closed = 0;
  std::string last_closure;  // reason of its last closure; "" when there was none
  uint64_t file_bytes = 0;
  uint64_t bytes_written = 0;
  uint64_t bytes_read = 0;
  uint64_t slots_in_use = 0;
  uint64_t slots_quarantined = 0;  // out of use after a failed write, until the directory has proved good
  uint64_t slots_moved = 0;        // slots whose bytes moved, since this directory stayed closed
  uint64_t retries = 0;            // resubmitted or continued transfers
  uint64_t errors = 0;             // writes and reads that ended in an error
  uint64_t checksum_mismatches = 0;
  DriveSpeed speed;  // measured, or the guess until then
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

// Space for slots, in bytes. Other users of the file systems change it at any time.
struct SpillSpace {
  uint64_t total_bytes = 0;  // in use + free
  uint64_t free_bytes = 0;   // free slots, and the growth of files that cap and reserve still allow
};

// The owner that promises the store's capacity to others. Called with the store's lock, on any thread; must
// not call the store.
class CapacityOwner {
 public:
  virtual ~CapacityOwner() = default;
  // Reports that the store can now take `bytes`: it has grown, or a directory has closed. Promises of closed
  // capacity wait.
  virtual void SetCapacity(uint64_t bytes) = 0;
  // Asks whether `bytes` suffice, because a disk runs short. Returns false when more is promised; the store
  // then keeps its capacity.
  virtual bool LowerCapacity(uint64_t bytes) = 0;
  // Number of bytes of capacity that are promised.
  virtual uint64_t PromisedBytes() const = 0;
};

// Callbacks: each Write and Read calls its `done` exactly once, on a thread of the store (of its completions,
// or of the directory's transfers), never inside the call itself, and without a lock of the store. `done`
// must not block (no I/O, no driver call that waits, no Shutdown). It may call any other method of the store,
// including ReleaseSlot of its slot.
//
// Buffers are page aligned, valid until `done`, and for a write also unchanged. After DeadlineExceeded
// ("never came back") the kernel may still use the buffer. The late write of such a buffer reaches a slot
// that is out of use until the kernel has answered, so the buffer may be used again. A read ends like that
// only at the end of the store: its buffer must neither be used again nor be unmapped.
class SpillStore {
 public:
  using Done = std::function<void(absl::Status)>;

  // Checks each directory, opens and unlinks its file, chooses its engine by a real write, read and compare,
  // and starts the threads. It takes no space yet. Errors name the path and what is accepted. A forked child
  // must call AbandonAfterFork.
  static absl::StatusOr<std::unique_ptr<SpillStore>> Create(SpillStoreOptions options);

  // Calls Shutdown unless that was done.
  ~SpillStore();
  SpillStore(const SpillStore&) = delete;
  SpillStore& operator=(const SpillStore&) = delete;

  // The disk tier's capacity: bytes that slots can take, in use or not, of the space that the file systems
  // have allocated for our files. Only usable directories and usable slots count. This much may be promised.
  // The capacity grows when files grow, falls at once when a directory closes (errors, silence, a full disk),
  // and returns when the directory opens. Any thread; takes no lock.
  uint64_t capacity_bytes() const;

  // Number of drives on which its directories lie, by their file systems. At least 1. Any thread.
  size_t drives() const;

  // Divides slots between directories by this speed of the directory until its own is measured. A wrong value
  // costs time for the first blocks, nothing else. Any thread.
  void GuessSpeed(size_t directory, const DriveSpeed& speed);

  // Waits until capacity_bytes() >= bytes. Fails with ResourceExhausted and the reason when caps, reserves
  // and disks do not give as much. A directory that is closed by errors or silence is waited for. Cancelled
  // after Shutdown; DeadlineExceeded at the user's limit of waits. The wait is entered in the WaitList with
  // the directories as its subject. Any thread but the store's own, without a lock.
  absl::Status GrowTo(uint64_t bytes);

  // Takes `n` slots, spread over the directories, or none; never waits. Unavailable means not yet: files are
  // being grown in the background, or a closed directory may come back; ask again. ResourceExhausted means
  // that cap, reserve and disk do not give enough space. Cancelled after Shutdown. Any thread.
  absl::StatusOr<std::vector<SlotId>> TakeSlots(size_t n);

  // Sets the owner that promises the capacity. Promised capacity is never given back to a disk that runs
  // short. If the owner is null, nothing is given back. The owner stays valid until another is set. After a
  // promise it calls RecordPromise: files then grow ahead of need.
  void SetOwner(CapacityOwner* owner);
  // Reports that the promises are now `promised` bytes. Any thread; takes a lock only when the remaining
  // capacity runs low.
  void RecordPromise(uint64_t promised);

  // TakeSlots, but waits for growth as GrowTo does. Any thread but the store's own.
  absl::StatusOr<std::vector<SlotId>> ReserveSlots(size_t n);

  // Gives a slot back and discards its contents. No read or write of it may be pending (checked). A slot
  // whose place may be bad after a failed write is not used again until its directory has proved good, and
  // one with an unanswered write until the kernel has answered. Any thread.
  void ReleaseSlot(SlotId slot);

  // Writes `bytes` (a multiple of 4 KiB, at most kSlotBytes) into a slot that was taken, and remembers their
  // checksum. A failed transfer is tried again within the retry window (retry_time). After that `done` gets
  // the error with path, offset and length: ResourceExhausted for a full disk, DeadlineExceeded for a write
  // that never came back. The slot has no contents then. After DeadlineExceeded it takes no other write
  // (checked), and must be given back. No other read or write of the slot may be pending. Any thread.
  void Write(SlotId slot, const void* data, uint32_t bytes, Done done);

  // Reads the bytes of the slot's last Write; `bytes` must be the same number. Errors and silence of the disk
  // are waited out, for as long as the store lives. `done` gets an error, with path, offset and length, when
  // the bytes are lost: the disk reports a medium error for the whole retry window (retry_time), or the
  // checksum differs from that of the write, twice (DataLoss). FailedPrecondition when the slot has no
  // contents. Several reads of one slot may be pending. Any thread.
  void Read(SlotId slot, void* data, uint32_t bytes, Priority priority, Done done);

  // Called when a launch waits for this slot: its waiting prefetch reads become demand reads. Any thread.
  void Promote(SlotId slot);

  // Ends the prefetch reads of this slot that have not begun, soon; they get Cancelled. Reads that have begun
  // go on. Any thread.
  void CancelPrefetch(SlotId slot);

  // Any thread. Both take a lock, so they are not for the launch path. space() asks the file systems.
  SpillStoreStats stats() const;
  SpillSpace space() const;

  // Ends everything within shutdown_timeout. Waiting requests get Cancelled; requests under way are waited
  // for. Then the files are closed, which frees their space. A thread that is stuck in the kernel is left
  // behind. Later calls of Write and Read get Cancelled. A second call does nothing. Any thread but the
  // store's own.
  void Shutdown();

  // For a forked child only: closes descriptors, takes no lock, joins no thread, frees no memory. Only the
  // destructor may be called afterwards.
  void AbandonAfterFork();

 private:
  class Impl;
  explicit SpillStore(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
  bool abandoned_ = false;  // only ever set in a child with one thread
};

}  // namespace spillway::io

#endif  // SPILLWAY_IO_STORE_SPILL_STORE_H_
