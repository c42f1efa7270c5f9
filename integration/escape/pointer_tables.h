// PointerTables: which words of device memory are known to hold an address of ours, because a copy put it
// there. Each keeps its target pinned; the word's end (overwritten by a copy, its memory freed) ends that.
// Finding the words is the access-set builders' business, taking and ending pins the gate's. Called by the
// hooks on any thread; only Add can be short of room. See docs/escaped-pointers.md.

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

// A word, or a tensor map, at `address` that leads to `target`.
struct TableSlot {
  uint64_t address = 0;
  uint32_t bytes = 0;
  allocator::BlockId target;
};

class PointerTables {
 public:
  static constexpr size_t kMostSlots = 1 << 16;

  // False: nothing known lies there. Lock-free; what another thread is entering may be missed.
  bool MayTouch(uint64_t address, uint64_t bytes) const {
    return address < end_.load(std::memory_order_acquire) &&
           address + bytes > begin_.load(std::memory_order_acquire);
  }

  // Slots that lie wholly in [source, source + bytes), as they will lie at `destination` after a copy.
  void Moved(uint64_t source, uint64_t bytes, uint64_t destination, std::vector<TableSlot>* out) const;

  // Enters slots whose targets are held by the tickets. One hold of each target is kept here, the others are
  // left in `tickets` for the caller to end. False when there was no room: the targets then stay held until
  // they are freed.
  bool Add(const std::vector<TableSlot>& slots, std::vector<HoldTicket>* tickets);
  // Forgets the slots with a byte in the range; the holds that only they needed are appended to `ended`.
  void Remove(uint64_t address, uint64_t bytes, std::vector<HoldTicket>* ended);

  // Globals of modules: what is copied there is held for that reason, until the module (null: any) is
  // unloaded.
  void NoteGlobal(const void* module, uint64_t address, uint64_t bytes);
  bool IsGlobal(uint64_t address) const;
  void DropGlobals(const void* module, std::vector<HoldTicket>* ended);

  size_t slots() const;

 private:
  using Reason = allocator::HoldReason;
  // A target for one reason; generations keep a block's successor apart.
  using Key = std::tuple<Reason, uint32_t, uint32_t>;
  struct Slot {
    uint32_t bytes = 0;
    Key key;
  };
  struct Global {
    uint64_t bytes = 0;
    const void* module = nullptr;
  };
  void RemoveLocked(uint64_t address, uint64_t bytes, std::vector<HoldTicket>* ended)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SetBoundsLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Bounds of all slots; written under mu_ (release), read by MayTouch.
  std::atomic<uint64_t> begin_{UINT64_MAX};
  std::atomic<uint64_t> end_{0};

  mutable os::Mutex mu_{os::LockRank::kRegistry};
  std::multimap<uint64_t, Slot> slots_ ABSL_GUARDED_BY(mu_);
  std::map<Key, uint64_t> counts_ ABSL_GUARDED_BY(mu_);  // slots of each target, which share one hold
  std::map<uint64_t, Global> globals_ ABSL_GUARDED_BY(mu_);
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ESCAPE_POINTER_TABLES_H_
