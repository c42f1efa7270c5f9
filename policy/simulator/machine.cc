#include "policy/simulator/machine.h"

#include <algorithm>

namespace spillway::policy {

std::vector<Drive> DrivesOf(const Machine& machine) {
  if (!machine.drives.empty()) return machine.drives;
  return {{machine.ssd_read, machine.ssd_write}};
}

// What each drive can do is a triangle; what they can do together is the sum of the triangles. Its border
// consists of their long sides, so each limit is the line along one of these, through the sum's outermost
// corner.
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
