// DeviceResidency's reports about its device: metrics, the machine that plans are made for, memory as the job
// sees it, and a check that its counts agree.

#include <algorithm>
#include <bit>

#include "allocator/residency/device_residency.h"

namespace spillway::allocator {

ResidencyStats DeviceResidency::Stats() const {
  ResidencyStats stats;
  static_cast<MachineStats&>(stats) = Machine();
  {
    const TableLock lock(core_->table);
    const Charges::Metrics metrics = components_->charges.metrics(lock);
    stats.budget_in_force_bytes = metrics.budget_in_force_bytes;
    stats.budget_bytes = metrics.most_budget_bytes;
    stats.driver_lacks_bytes = metrics.budget_bytes - metrics.budget_in_force_bytes;
    stats.own_limit_bytes = metrics.own_limit_bytes;
    stats.share_bytes = metrics.share_bytes;
    stats.live_bytes = metrics.live_bytes;
    stats.requested_bytes = metrics.requested_bytes;
    stats.chunk_bytes = metrics.chunk_bytes;
    stats.peak_chunk_bytes = metrics.peak_chunk_bytes;
    stats.peak_bytes = metrics.peak_device_bytes;
    stats.peak_live_bytes = metrics.peak_live_bytes;
    stats.peak_requested_bytes = metrics.peak_requested_bytes;
    stats.external_bytes = metrics.external_bytes;
    stats.least_budget_bytes = metrics.least_budget_bytes;
    stats.largest_set_bytes = core_->table.LaunchSetsLocked(lock).peak_bytes();
    stats.cached_bytes = core_->table.ChunksLocked(lock, BlockState::kCached) * core_->chunk_bytes;
    AddBlocksLocked(lock, &stats);
  }
  AddCounters(core_->counters, &stats);
  stats.launches = components_->log.count();
  if (const std::optional<LinkMeter::Rates> link = core_->link.measured())
    stats.link = ResidencyStats::Link{link->alone, link->both};
  stats.link_measurements = core_->counters.link_measurements;
  stats.link_measurements_dropped = core_->counters.link_measurements_dropped;
  stats.link_measuring_nanos = core_->counters.link_measuring_nanos;
  stats.run_ahead_bytes = std::max(core_->run_ahead_bytes.load(), stats.largest_set_bytes);
  return stats;
}

MachineStats DeviceResidency::Machine() const {
  MachineStats machine;
  {
    const TableLock lock(core_->table);
    const Charges::Metrics metrics = components_->charges.metrics(lock);
    machine.chunk_target_bytes = metrics.target_bytes + GrowableBytes(metrics);
    machine.pinned_bytes = core_->table.PinnedChunksLocked(lock) * core_->chunk_bytes;
  }
  const LinkMeter::Rates link = core_->link.rates();
  machine.host_out_rate = link.alone.out;
  machine.host_in_rate = link.alone.in;
  machine.disk_out_rate = core_->copy_queue(CopyQueue::kDiskOut).rate();
  machine.disk_writes_bound = components_->charges.capacity()->WritesPerSecond();
  machine.disk_in_rate = core_->copy_queue(CopyQueue::kDiskIn).rate();
  machine.host_out_both_rate = link.both.out;
  machine.host_in_both_rate = link.both.in;
  return machine;
}

uint64_t DeviceResidency::GrowableBytes(const Charges::Metrics& metrics) const {
  const GpuShare* const share = core_->parts.share;
  return share == nullptr || metrics.own_limit_bytes > 0 ? 0 : share->growable_bytes();
}

void DeviceResidency::AddBlocksLocked(const TableLock& lock, ResidencyStats* stats) const {
  core_->table.ForEachLiveLocked(lock, [&](Block* block) {
    const uint64_t bytes = block->chunks * core_->chunk_bytes;
    const uint64_t reached = block->memory.reached.size() * core_->chunk_bytes;
    if (block->has_chunks()) stats->resident_bytes += bytes - reached;
    stats->reached_now_bytes += reached;
    if (block->memory.soft) stats->soft_now_bytes += bytes;
    if (block->copies.homes.empty()) stats->host_tier_bytes += reached;
    stats->clean_copy_bytes += block->copies.copy_homes.size() * core_->chunk_bytes;
    for (const ExtentHome& home : block->copies.homes)
      (home.on_disk() ? stats->disk_tier_bytes : stats->host_tier_bytes) += core_->chunk_bytes;
    if (block->pin_reasons != 0) stats->pinned_bytes_by_reason[std::countr_zero(block->pin_reasons)] += bytes;
  });
}

Residency::ReservedBytes DeviceResidency::Reserved() const {
  const TableLock lock(core_->table);
  const Charges::Metrics metrics = components_->charges.metrics(lock);
  return {metrics.reserved_bytes, metrics.peak_reserved_bytes};
}

void DeviceResidency::MemoryInfo(uint64_t* free_bytes, uint64_t* total_bytes) const {
  const TableLock lock(core_->table);
  const Charges& charges = components_->charges;
  const Charges::Metrics metrics = charges.metrics(lock);
  const uint64_t backed = charges.BackedChunks(lock) * core_->chunk_bytes;
  const uint64_t used = backed + metrics.external_bytes;
  const uint64_t budget =
      std::min(metrics.budget_in_force_bytes + GrowableBytes(metrics), metrics.whole_bytes);
  *total_bytes = metrics.whole_bytes;
  *free_bytes = budget - std::min(budget, used);
  // Blocks that a pause has moved out do not show that the GPU was short of memory.
  if (!core_->pressure.load() || core_->table.PausedChunksLocked(lock) > 0 || !core_->evict.load()) return;
  const uint64_t pinned = core_->table.PinnedChunksLocked(lock) * core_->chunk_bytes;
  const uint64_t may_leave = std::min(backed - std::min(backed, pinned), charges.capacity()->Unpromised());
  *free_bytes = std::min(*free_bytes + may_leave, budget - std::min(budget, pinned + metrics.external_bytes));
}

void DeviceResidency::CheckInvariants() {
  const TableLock lock(core_->table);
  core_->table.CheckInvariantsLocked(lock);
  components_->addresses.CheckInvariants(lock);
  uint64_t live = 0;
  uint64_t live_blocks = 0;
  uint64_t backing = 0;
  core_->table.ForEachLocked(lock, [&](Block* block) {
    if (block->live()) live += block->chunks;
    live_blocks += block->live() ? 1 : 0;
    backing += ChunksOf(block->memory.handles);
  });
  components_->charges.CheckInvariants(lock, live, live_blocks, backing);
}

}  // namespace spillway::allocator
