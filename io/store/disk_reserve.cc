#include "io/store/disk_reserve.h"

#include <algorithm>
#include <fstream>

namespace spillway::io {
namespace {

constexpr uint64_t kMinReserve = 10ull << 30;
constexpr uint64_t kPercent = 5;
constexpr uint64_t kPercentInPod =
    12;  // above the kubelet's 10 %, as our files are not the only ones that grow

bool HasLineWith(const std::string& path, const char* words) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (line.find(words) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

bool InPod(const std::string& root) {
  return HasLineWith(root + "/proc/self/cgroup", "kubepods") ||
         HasLineWith(root + "/proc/self/mountinfo", "/kubelet/pods/");
}

uint64_t DefaultReserve(uint64_t total_bytes, bool in_pod) {
  return std::max(total_bytes / 100 * (in_pod ? kPercentInPod : kPercent), kMinReserve);
}

uint64_t ReserveOf(uint64_t total_bytes, uint64_t reserve_bytes) {
  if (reserve_bytes != 0) return reserve_bytes;
  static const bool in_pod = InPod();  // does not change during the process's life
  return DefaultReserve(total_bytes, in_pod);
}

}  // namespace spillway::io
