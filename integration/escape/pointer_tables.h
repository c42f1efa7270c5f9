// PointerTables: the words of device memory that are known to contain an address of ours because a copy put
// it there, and the beginnings of the tables that a kernel of the deny list writes. Each word keeps its
// target pinned until a copy overwrites it or its memory is freed. The length of a kernel's table is not
// known, so copies into it end nothing. The access-set builder finds the words; the gate takes and ends the
// pins. The hooks call this on any thread. Only Add can fail, when there are too many entries. See
// docs/escaped-pointers.md.

#ifndef SPILLWAY_INTEGRATION_ESCAPE_POINTER_TABLES_H_
#define SPILLWAY_INTEGRATION_ESCAPE_POINTER_TABLES_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "allocator/memory/block_id.h"
#include "allocator/memory/pin.h"
#include "integration/escape/pins.h"
#include "io/os/sync.h"

namespace spillway::integration {

// A word, or a tensor map, at `address` in device memory that leads to `target`.
struct TableEntry {
  uint64_t address = 0;
  uint32_t bytes = 0;
  allocator::BlockId target;
  bool by_kernel = false;  // the beginning of a table that a kernel of the deny list writes
};

class PointerTables {
 public:
  static constexpr size_t kMaxEntries = 1 << 16;

  // Returns whether an entry may lie in the range. Lock-free; may miss an entry that another thread is
  // adding.
  bool MayOverlap(uint64_t address, uint64_t bytes) const {
    return address < end_.load(std::memory_order_acquire) &&
           address + bytes > begin_.load(std::memory_order_acquire);
  }

  // Appends the entries that lie wholly in [source, source + bytes), with the addresses that they will have
  // at `destination` after a copy.
  void Moved(uint64_t source, uint64_t bytes, uint64_t destination, std::vector<TableEntry>* out) const;

  // Adds entries whose targets the tickets pin. One pin of each target is kept here; the others are left in
  // `tickets` for the caller to end. Returns false if there would be more than kMaxEntries: nothing is
  // added, the tickets are emptied, and the targets stay pinned until they are freed.
  bool Add(const std::vector<TableEntry>& entries, std::vector<PinTicket>* tickets);
  // The kinds of change to a range of device memory. A copy or a memset may leave the rest of a kernel's
  // table, whose length is not known: kOverwritten forgets only words that copies wrote, kGone forgets
  // everything.
  enum class Change { kOverwritten, kGone };
  // Forgets the entries with a byte in the range. Appends the pins that only they needed to `ended`; the
  // caller ends them.
  void Remove(uint64_t address, uint64_t bytes, Change change, std::vector<PinTicket>* ended);

  // `listener` runs before the first table of a kernel is entered, on the thread of the launch, with no lock
  // held. It matters from then on which memory the framework frees. The process has one listener; null takes
  // it away.
  void SetKernelTableListener(void (*listener)()) { listener_.store(listener); }
  // The caller is about to make a launch that writes a table.
  void RecordKernelTable() {
    if (const auto listener = listener_.load(); listener != nullptr && !kernel_table_seen_.exchange(true))
      listener();
  }

  // Globals of modules. The targets of addresses that are copied into one are pinned for the reason
  // kModuleGlobal, until the module is unloaded.
  void RecordGlobal(const void* module, uint64_t address, uint64_t bytes);
  bool IsGlobal(uint64_t address) const;
  // Forgets the module's globals, or those of every module if it is null, and does for each what Remove does.
  void DropGlobals(const void* module, std::vector<PinTicket>* ended);

  size_t entries() const;

 private:
  using Reason = allocator::PinReason;
  // A target, pinned for one reason. The generation tells a block from a later one with the same id.
  using Key = std::tuple<Reason, uint32_t, uint32_t>;
  struct Entry {
    uint32_t bytes = 0;
    Key key;
  };
  struct Global {
    uint64_t bytes = 0;
    const void* module = nullptr;
  };
  void RemoveLocked(uint64_t address, uint64_t bytes, Change change, std::vector<PinTicket>* ended)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns whether an earlier launch has written the same target into the same table.
  bool IsKnownLocked(const TableEntry& entry, const Key& key) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SetBoundsLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // The bounds of all entries; written under mu_ (release), read by MayOverlap (acquire).
  std::atomic<uint64_t> begin_{UINT64_MAX};
  std::atomic<uint64_t> end_{0};
  std::atomic<void (*)()> listener_{nullptr};
  std::atomic<bool> kernel_table_seen_{false};

  mutable os::Mutex mu_{os::LockRank::kRegistry};
  std::multimap<uint64_t, Entry> entries_ ABSL_GUARDED_BY(mu_);
  std::map<Key, uint64_t> counts_ ABSL_GUARDED_BY(mu_);  // entries of each target, which share one pin
  std::map<uint64_t, Global> globals_ ABSL_GUARDED_BY(mu_);
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ESCAPE_POINTER_TABLES_H_
