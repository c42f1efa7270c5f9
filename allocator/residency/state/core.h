// Core: the common base of all components of one device's residency: its driver and tiers, the table of
// blocks with the lock, the clock of its streams, its first error, its switches, its counters and the meters
// of its transfers. Charges, LaunchLog and FreeAddresses are separate objects, given only to the components
// that use them. docs/threading.md defines which thread may do what.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_STATE_CORE_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_STATE_CORE_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "allocator/driver/device_error.h"
#include "allocator/residency/state/block_table.h"
#include "allocator/residency/state/read_side_sections.h"
#include "allocator/residency/state/residency_options.h"
#include "allocator/residency/state/standstill.h"
#include "allocator/residency/state/stream_clock.h"
#include "allocator/tier/transfer_meters.h"
#include "io/os/atomic.h"
#include "io/os/sync.h"
#include "io/os/wait.h"

namespace spillway::allocator {

// Plain sums by counters.def, written by any thread and read by Stats.
struct Counters {
#define COUNTER(name, ...) std::atomic<uint64_t> name{0};
#define SECONDS(name, ...) std::atomic<uint64_t> name{0};
#include "allocator/residency/state/counters.def"

  std::atomic<uint64_t> link_measurements{0}, link_measurements_dropped{0}, link_measuring_nanos{0};
};

// Fills in the values that Counters has.
void AddCounters(const Counters& counters, ResidencyStats* stats);

struct Core {
  Core(const ResidencyOptions& residency_options, const ResidencyParts& residency_parts);

  // ---- Constant after construction.

  const ResidencyOptions options;
  const ResidencyParts parts;
  const uint64_t chunk_bytes;

  // ---- Internally synchronized.

  BlockTable table;
  os::WaitList own_waits;     // for a device outside a process that reports waits
  os::WaitList* const waits;  // has an entry for every wait of this device
  DeviceError error;          // the first error, after which nothing moves any more
  StreamClock clock;
  ReadSections read_sections;
  Counters counters;
  std::array<CopyQueueMeter, static_cast<int>(CopyQueue::kCount)> copy_queues;
  LinkMeter link;
  // Set when something has been evicted. Launching threads then record events and respect the run-ahead
  // bound.
  os::Atomic<bool> pressure{false};
  os::Atomic<bool> evict;  // false: nothing leaves the GPU any more
  // The values of the options, less under a limit of the application's own.
  os::Atomic<uint64_t> free_reserve_bytes, run_ahead_bytes;
  os::Atomic<bool> map_at_once;    // blocks have memory from their allocation on
  os::Atomic<bool> closed{false};  // after Shutdown or in a forked child: everything passes through
  // Closed, or the device has an error: nothing moves any more, every wait ends, and launches go to the
  // driver.
  os::Atomic<bool> stopped{false};
  Standstill standstill;
  int64_t drive_failed_at = 0;  // ns of the steady clock; 0: never. Device's thread

  // Scales free_reserve_bytes and run_ahead_bytes by the part of the budget that such a limit leaves. Any
  // thread.
  void ScaleToCap(uint64_t cap_bytes);
  // Ends every wait. Any thread, whatever locks it has. The device's thread wakes a thread that begins to
  // wait just now.
  void Stop();
  // The reason why nothing moves any more.
  absl::Status StopStatus() const;
  // OK while the device serves allocations, else the reason why it does not.
  absl::Status Serving() const {
    if (!closed.load() && !error.any()) return absl::OkStatus();
    return NotServingStatus();
  }
  absl::Status NotServingStatus() const;
  // Waits once, for at most 100 ms, for a change of what the table's lock guards; releases the lock
  // meanwhile. After OK the caller checks its condition again. An error is the reason to end the wait.
  absl::Status AwaitChangeLocked(TableLock* lock, const os::Wait& wait)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(table.mu);

  // For reports. Any thread, whatever locks it has up to those of the tiers.
  void ReportMove(const EndedMove& move) const {
    if (parts.motion != nullptr && move.bytes > 0) parts.motion->OnMove(move);
  }
  void ReportStall(const Stall& stall) const {
    if (parts.motion != nullptr) parts.motion->OnStall(stall);
  }
  // A drive has failed. Device's thread.
  void RecordDriveFailure(int64_t now) { drive_failed_at = now; }
  // Whether a drive has failed lately that may come back, so that claims wait for it. Device's thread.
  bool MayDriveComeBack(int64_t now) const;

  // Counts a wait of a launching thread that began at `since` and ends now, and reports it. A wait for the
  // bound on launches under way is reported only if it cost time, because almost each launch has such a wait
  // behind a GPU that has work. Any thread, with the same locks.
  void CountStall(StallCause cause, BlockId lacking, uint64_t tag, int64_t since);

  CopyQueueMeter& copy_queue(CopyQueue which) { return copy_queues[static_cast<int>(which)]; }
  // Whether SPILLWAY_TRUST lets the block leave (ResidencyParts::permission).
  bool MayLeave(const Block& block) const {
    return parts.permission == nullptr || parts.permission->MayLeave(block.id);
  }
  // Bytes of extent `index` of a block that carry data: a whole chunk, except in the tail.
  uint32_t BytesOfExtent(const Block& block, size_t index) const {
    return static_cast<uint32_t>(std::min(chunk_bytes, BytesOfCopy(block) - index * chunk_bytes));
  }
  // The same of `count` extents together, which must be less than 4 GiB.
  uint32_t BytesOfExtents(const Block& block, size_t first, size_t count) const {
    return static_cast<uint32_t>(std::min(count * chunk_bytes, BytesOfCopy(block) - first * chunk_bytes));
  }
  // Bytes of the block that are copied when it leaves: a multiple of a page.
  static uint64_t BytesOfCopy(const Block& block) {
    return (block.allocation.requested_bytes + 4095) / 4096 * 4096;
  }
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_STATE_CORE_H_
