#include "policy/model/machine.h"

#include <algorithm>
#include <cmath>

namespace spillway::policy {

Nanos ToTicks(double nanos) {
  constexpr Nanos kTick = 2;
  return std::max<Nanos>(kTick, static_cast<Nanos>(std::ceil(nanos / static_cast<double>(kTick))) * kTick);
}

std::vector<Drive> DrivesOf(const Machine& machine) {
  if (!machine.drives.empty()) return machine.drives;
  return {{machine.ssd_read, machine.ssd_write}};
}

// The pairs (read, written) that one drive can do in a second fill a triangle; the pairs that all drives can
// do together fill the sum of the triangles. The border of the sum consists of the triangles' long sides, so
// each limit is the line along one long side, through the outermost corner of the sum.
std::vector<SharedLimit> SharedLimits(const Machine& machine) {
  const std::vector<Drive> drives = DrivesOf(machine);
  std::vector<SharedLimit> limits;
  std::vector<double> slopes;
  for (const Drive& side : drives) {
    const double slope = side.write / side.read;
    if (std::find(slopes.begin(), slopes.end(), slope) != slopes.end()) continue;
    slopes.push_back(slope);
    double most = 0;
    for (const Drive& drive : drives) most += std::max(drive.read / side.read, drive.write / side.write);
    limits.push_back({1 / (side.read * most), 1 / (side.write * most)});
  }
  return limits;
}

bool DirectionsShare(const Machine& machine) { return machine.pcie_both.in > 0 && machine.pcie_both.out > 0; }

bool LinkIsPossible(const Machine& machine) {
  const LinkRates& both = machine.pcie_both;
  if (both.in == 0 && both.out == 0) return true;
  return both.in > 0 && both.out > 0 && both.in <= machine.pcie_in && both.out <= machine.pcie_out &&
         both.in / machine.pcie_in + both.out / machine.pcie_out >= 1;
}

LinkRates PossibleTogether(const Machine& machine, LinkRates measured) {
  if (!(measured.in > 0) || !(measured.out > 0)) return {};
  double in = std::min(1.0, measured.in / machine.pcie_in);
  double out = std::min(1.0, measured.out / machine.pcie_out);
  constexpr double kTurns = 1 + 1e-9;  // more than 1, whatever rounding does
  if (in + out < kTurns) {
    const double scale = kTurns / (in + out);
    in = std::min(1.0, in * scale);
    out = std::min(1.0, out * scale);
  }
  return {in * machine.pcie_in, out * machine.pcie_out};
}

// Each limit is a line through the corner that was measured: one from the rate in alone, one from the rate
// out alone.
std::vector<SharedLimit> LinkLimits(const Machine& machine) {
  if (!DirectionsShare(machine)) return {};
  const double in = machine.pcie_both.in / machine.pcie_in, out = machine.pcie_both.out / machine.pcie_out;
  return {{1 / machine.pcie_in, (1 - in) / out / machine.pcie_out},
          {(1 - out) / in / machine.pcie_in, 1 / machine.pcie_out}};
}

LinkRates LinkParts(const Machine& machine, LinkRates wanted) {
  wanted = {std::min(1.0, wanted.in), std::min(1.0, wanted.out)};
  if (!DirectionsShare(machine)) return wanted;
  const LinkRates corner{machine.pcie_both.in / machine.pcie_in, machine.pcie_both.out / machine.pcie_out};
  // One direction wants less than it gets at the corner: the border of the region leaves this much to the
  // other.
  if (wanted.in <= corner.in)
    return {wanted.in, std::min(wanted.out, 1 - wanted.in * (1 - corner.out) / corner.in)};
  if (wanted.out <= corner.out)
    return {std::min(wanted.in, 1 - wanted.out * (1 - corner.in) / corner.out), wanted.out};
  return corner;
}

// A drive of a high speed(), in bytes per second that are both written and read, gets a large part of the
// bytes: speed / all. It reads that part at its own rate, so all bytes together are read at read / (speed /
// all) at most, and likewise written. The drive with the lowest such rate decides.
Drive RatesTogether(const Machine& machine) {
  const std::vector<Drive> drives = DrivesOf(machine);
  if (drives.size() == 1) return drives.front();
  const auto speed = [](const Drive& drive) { return 1 / (1 / drive.write + 1 / drive.read); };
  double all = 0;
  for (const Drive& drive : drives) all += speed(drive);
  Drive together{machine.ssd_read, machine.ssd_write};
  for (const Drive& drive : drives) {
    together.read = std::min(together.read, drive.read / speed(drive) * all);
    together.write = std::min(together.write, drive.write / speed(drive) * all);
  }
  return together;
}

}  // namespace spillway::policy
