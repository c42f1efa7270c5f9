// Core: what all parts of one device's residency stand on: its driver and tiers, the table of blocks with the
// lock, the clock of its streams, its first error, its switches, its counters and the meters of its transfers.
// Charges, LaunchLog and FreeAddresses are separate objects, given only to the parts that use them. Who may do
// what is in docs/threading.md.

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

// Written by any thread, read by Stats: plain sums, by counters.def.
struct Counters {
#define COUNTER(name, ...) std::atomic<uint64_t> name{0};
#define SECONDS(name, ...) std::atomic<uint64_t> name{0};
#include "allocator/residency/state/counters.def"

  std::atomic<uint64_t> link_measurements{0}, link_measurements_dropped{0}, link_measuring_nanos{0};
};

// Fills in what Counters has.
void AddCounters(const Counters& counters, ResidencyStats* stats);

struct Core {
  Core(const ResidencyOptions& residency_options, const ResidencyParts& residency_parts);

  // ---- Constant after construction.

  const ResidencyOptions options;
  const ResidencyParts parts;
  const uint64_t chunk_bytes;

  // ---- Internally synchronised.

  BlockTable table;
  os::WaitList own_waits;     // of a device outside a process that reports waits
  os::WaitList* const waits;  // every wait of this device is entered here
  DeviceError error;          // the first after which nothing moves any more
  StreamClock clock;
  ReadSections read_sections;
  Counters counters;
  std::array<CopyQueueMeter, static_cast<int>(CopyQueue::kCount)> copy_queues;
  LinkMeter link;
  // Set once something has been evicted: launching threads then record events and respect the run-ahead
  // bound.
  os::Atomic<bool> pressure{false};
  os::Atomic<bool> evict;  // false: nothing leaves the GPU any more
  // Of the options, less under a limit of the application's own.
  os::Atomic<uint64_t> free_reserve_bytes, run_ahead_bytes;
  os::Atomic<bool> map_at_once;    // blocks have memory from their allocation on
  os::Atomic<bool> closed{false};  // after Shutdown or in a forked child: everything passes through
  // Closed, or the device has an error: nothing moves any more, no wait goes on, launches go to the driver.
  os::Atomic<bool> stopped{false};
  Standstill standstill;

  // Makes free_reserve_bytes and run_ahead_bytes the same parts of what that limit leaves of the budget. Any
  // thread.
  void ScaleToCap(uint64_t cap_bytes);
  // Ends every wait. Any thread, whatever locks it holds. A thread that begins to wait just now is woken by
  // the device's thread.
  void Stop();
  // Why it has stopped.
  absl::Status StopStatus() const;
  // Whether the device serves allocations: else why not.
  absl::Status Serving() const {
    if (!closed.load() && !error.any()) return absl::OkStatus();
    return NotServingStatus();
  }
  absl::Status NotServingStatus() const;
  // Waits once for a change of what the table's lock guards, for 100 ms at most. OK: the caller is to look
  // again. An error: why the wait is to end. Releases the lock meanwhile.
  absl::Status AwaitChangeLocked(TableLock* lock, const os::Wait& wait)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(table.mu);

  // For reports. Any thread, whatever locks it holds up to those of the tiers.
  void ReportMove(const EndedMove& move) const {
    if (parts.motion != nullptr && move.bytes > 0) parts.motion->OnMove(move);
  }
  void ReportStall(const Stall& stall) const {
    if (parts.motion != nullptr) parts.motion->OnStall(stall);
  }
  // Counts a wait of a launching thread that began at `since` and ends now, and reports it: one for the bound
  // on launches under way only where it cost time, since behind a GPU that has work it comes with almost each
  // launch. Any thread, as above.
  void CountStall(StallCause cause, BlockId lacking, uint64_t tag, int64_t since);

  CopyQueueMeter& copy_queue(CopyQueue which) { return copy_queues[static_cast<int>(which)]; }
  // Whether SPILLWAY_TRUST lets the block leave (ResidencyParts::permission).
  bool MayLeave(const Block& block) const {
    return parts.permission == nullptr || parts.permission->MayLeave(block.id);
  }
  // Bytes of extent `index` of a block that carry something: a whole chunk of them but for the tail.
  uint32_t BytesOfExtent(const Block& block, size_t index) const {
    return static_cast<uint32_t>(std::min(chunk_bytes, BytesOfCopy(block) - index * chunk_bytes));
  }
  // The same of `count` extents together, less than 4 GiB.
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
