#include "policy/simulator/copy_queues.h"

#include <algorithm>

namespace spillway::policy {

DriveLoads::DriveLoads(std::vector<Drive> drives) : drives_(std::move(drives)), loads_(drives_.size()) {}

size_t DriveLoads::Pick(Bytes bytes) const {
  const auto time = [&](size_t d) {
    const double written = static_cast<double>(loads_[d].to_write + bytes);
    return written / drives_[d].write + (written + static_cast<double>(loads_[d].to_read)) / drives_[d].read;
  };
  size_t best = 0;
  for (size_t d = 1; d < drives_.size(); ++d) {
    if (time(d) < time(best)) best = d;
  }
  return best;
}

CopyQueues::CopyQueues(const Machine& machine)
    : machine_(machine),
      drives_(DrivesOf(machine)),
      tiers_(1 + drives_.size()),
      copies_(2 * tiers_),
      writes_(tiers_),
      reads_(tiers_),
      loads_(drives_) {}

double CopyQueues::DriveRate(Queue queue) const {
  return IsOut(queue) ? drives_[queue - 1].write : drives_[queue - tiers_ - 1].read;
}

// The rate over PCIe that is kept for a drive while copies wait for it, in bytes per second. All drives
// together get half of PCIe, if they can use it, so that the host's copies do not hold them back.
double CopyQueues::ShareOf(Queue queue) const {
  const double pcie = IsOut(queue) ? machine_.pcie_out : machine_.pcie_in;
  const double all = IsOut(queue) ? machine_.ssd_write : machine_.ssd_read;
  return DriveRate(queue) * std::min(1.0, pcie / 2 / all);
}

bool CopyQueues::Asks(Queue queue) const {
  return IsOut(queue) ? !writes_[queue].empty() : !reads_[queue - tiers_].empty();
}

// A copy keeps the rate that it begins with to its end, so it must not begin at a poor one. A drive's copy
// gets its share of PCIe, or more if no copy waits for the host; if its share is taken, it waits. The host's
// copy gets the rate that drives with copies under way or waiting leave; it waits if that is less than a
// hundredth.
double CopyQueues::RateNow(Queue queue) const {
  const bool out = IsOut(queue);
  const Queue host = out ? kHostOut : HostIn();
  double left = out ? machine_.pcie_out : machine_.pcie_in;
  for (Queue other = host; other < host + tiers_; ++other) {
    if (other == queue || (copies_[other].active && copies_[other].promotes)) continue;
    if (copies_[other].active) {
      left -= copies_[other].rate;
    } else if (queue == host && Asks(other)) {
      left -= ShareOf(other);
    }
  }
  if (queue == host) return left < (out ? machine_.pcie_out : machine_.pcie_in) / 100 ? 0 : left;
  if (machine_.ssd_shared && copies_[out ? Back(queue) : queue - tiers_].active) return 0;
  const double share = ShareOf(queue);
  if (left < 0.999 * share) return 0;
  return Asks(host) ? share : std::min(DriveRate(queue), left);
}

double CopyQueues::PromotionRate(Queue queue) const {
  return machine_.ssd_shared && copies_[queue - tiers_].active ? 0 : DriveRate(queue);
}

void CopyQueues::Push(Queue out, const Write& write) {
  if (!IsHost(out)) loads_.AddWrite(out - 1, write.bytes);
  writes_[out].push(write);
}

void CopyQueues::PopWrite(Queue out) {
  if (!IsHost(out)) loads_.RemoveWrite(out - 1, writes_[out].top().bytes);
  writes_[out].pop();
}

}  // namespace spillway::policy
