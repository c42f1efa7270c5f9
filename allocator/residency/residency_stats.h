// Counters of one device, as one struct with units in the names. A snapshot: fields may be a few operations apart.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_RESIDENCY_STATS_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_RESIDENCY_STATS_H_

#include <array>
#include <cstdint>

namespace spillway::allocator {

struct ResidencyStats {
  uint64_t budget_bytes = 0;        // now; falls when the driver refuses chunks
  uint64_t chunk_target_bytes = 0;  // of the budget, what our chunks may hold now
  uint64_t live_bytes = 0;          // blocks handed out and not freed, in whole chunks
  uint64_t requested_bytes = 0;     // the same as asked for
  uint64_t resident_bytes = 0;      // live blocks that hold chunks
  uint64_t cached_bytes = 0;        // chunks of freed blocks kept for the next
  uint64_t chunk_bytes = 0;         // all chunks that we hold
  uint64_t peak_chunk_bytes = 0;
  uint64_t peak_live_bytes = 0;       // most of live_bytes, and
  uint64_t peak_requested_bytes = 0;  // requested_bytes when it was reached: the rest is rounding
  uint64_t peak_device_bytes = 0;     // most of (our chunks + others' allocations)
  uint64_t others_bytes = 0;          // driver allocations that are not ours
  uint64_t host_tier_bytes = 0;       // spilled bytes in host memory now
  uint64_t disk_tier_bytes = 0;       // spilled bytes in spill files now
  uint64_t clean_copy_bytes = 0;  // in both, copies of blocks that are on the GPU: free room for who needs it

  uint64_t spilled_bytes = 0;  // moved out, all tiers, since start
  uint64_t host_spilled_bytes = 0;
  uint64_t disk_spilled_bytes = 0;
  uint64_t fetched_bytes = 0;  // moved in, all tiers
  uint64_t host_fetched_bytes = 0;
  uint64_t disk_fetched_bytes = 0;
  uint64_t prefetched_bytes = 0;        // of fetched: on the plan's account
  uint64_t prefetch_in_time_bytes = 0;  // of fetched: arrived before their launch reached the gate

  uint64_t launches = 0;       // through the gate, with at least one block of ours
  uint64_t slow_launches = 0;  // of those, not everything was resident
  uint64_t evictions = 0;
  uint64_t evictions_cancelled = 0;
  uint64_t faults = 0;  // blocks brought in on demand
  uint64_t prefetches = 0;
  uint64_t prefetches_cancelled = 0;
  uint64_t clean_drops = 0;  // of evictions: the copy from before was the content still, nothing was moved
  uint64_t clean_drop_bytes = 0;  // what those would have moved
  uint64_t hash_mismatches = 0;   // a copy was kept, and the block had changed: written again
  uint64_t early_copies = 0;      // blocks copied out while they stayed on the GPU
  uint64_t stall_room_nanos = 0;  // launching threads waited for chunks
  uint64_t stall_disk_nanos = 0;  // for reads and their staging
  uint64_t held_back_nanos = 0;   // by the bound on uncompleted launches, mostly behind a GPU that had work
  // Of the time of the job, what the GPU spent with nothing to do: a launch waited for chunks; for bytes to come back (the
  // launching thread for the disk, or the GPU for their arrival); for the bound on uncompleted launches.
  uint64_t lost_room_nanos = 0;
  uint64_t lost_read_nanos = 0;
  uint64_t lost_run_ahead_nanos = 0;
  uint64_t in_time_bytes = 0;  // of fetched: nothing on the GPU had to wait for them
  // Bytes a second of each lane while it had anything to do, moving means; 0: not known yet.
  double host_out_rate = 0;
  double disk_out_rate = 0;
  double host_in_rate = 0;
  double disk_in_rate = 0;
  uint64_t held_bytes = 0;
  std::array<uint64_t, 8> held_bytes_by_reason{};  // index: HoldReason
  uint64_t largest_set_bytes = 0;
  uint64_t run_ahead_bytes =
      0;  // bound on the bytes that uncompleted launches touch, once spilling has begun
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_RESIDENCY_STATS_H_
