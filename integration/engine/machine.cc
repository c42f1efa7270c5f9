#include "integration/engine/machine.h"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>

#include "io/os/errno.h"

namespace spillway::integration {
namespace {

// Values of control groups from this one on mean "no limit".
constexpr uint64_t kNoLimit = uint64_t{1} << 60;

std::optional<uint64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  if (!(file >> number) || number >= kNoLimit) return std::nullopt;  // "max" is no number
  return number;
}

// Returns the value of "inactive_file 4096" in a control group's memory.stat: page cache that the kernel
// gives back under pressure.
uint64_t Reclaimable(const std::string& path) {
  std::ifstream file(path);
  std::string key;
  uint64_t value = 0;
  uint64_t bytes = 0;
  while (file >> key >> value) {
    if (key == "inactive_file" || key == "total_inactive_file") bytes = std::max(bytes, value);
  }
  return bytes;
}

// The memory that control groups allow, and the rest of it.
struct GroupMemory {
  uint64_t limit = kNoLimit;
  uint64_t left = kNoLimit;
};

GroupMemory MemoryOfControlGroups(const std::string& root) {
  GroupMemory memory;
  for (const auto& [folder, second_version] : ControlGroups("memory", root)) {
    const auto limit = ReadNumber(folder + (second_version ? "/memory.max" : "/memory.limit_in_bytes"));
    const auto usage = ReadNumber(folder + (second_version ? "/memory.current" : "/memory.usage_in_bytes"));
    if (!limit || !usage) continue;
    const uint64_t used = *usage - std::min(*usage, Reclaimable(folder + "/memory.stat"));
    memory.limit = std::min(memory.limit, *limit);
    memory.left = std::min(memory.left, *limit - std::min(*limit, used));
  }
  return memory;
}

// Returns a line of /proc/meminfo in bytes; 0 if there is none.
uint64_t MemInfo(const std::string& root, const char* wanted) {
  std::ifstream file(root + "/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    uint64_t kib = 0;
    if (words >> key >> kib && key == wanted) return kib * 1024;
  }
  return 0;
}

// Returns whether a driver of <root>/sys/bus serves a device. Its folder exists without one, too, and then
// has no link but that to its module.
bool ServesDevice(const std::string& folder) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->is_symlink(error) && entry->path().filename() != "module") return true;
  }
  return false;
}

// Returns what gives this machine more memory while it runs, since a virtual machine starts with little.
// Empty: nothing.
std::string WhatGrows(const std::string& root) {
  constexpr const char* kDrivers[] = {"virtio/drivers/virtio_mem", "virtio/drivers/virtio_balloon",
                                      "vmbus/drivers/hv_balloon"};
  for (const char* driver : kDrivers) {
    const std::string folder = root + "/sys/bus/" + driver;
    if (ServesDevice(folder)) return folder.substr(folder.rfind('/') + 1);
  }
  std::error_code error;
  if (std::filesystem::exists(root + "/sys/devices/system/xen_memory/xen_memory0", error))
    return "xen_memory";
  // gVisor has no such device: its total is twice what is used, and at least 2 GiB.
  std::ifstream file(root + "/proc/version");
  const std::string version((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  for (const char* words : {"gvisor", "gVisor", "#1 SMP Sun Jan 10 15:06:54 PST 2016"}) {
    if (version.find(words) != std::string::npos) return "gVisor";
  }
  return "";
}

}  // namespace

std::vector<ControlGroup> ControlGroups(const std::string& controller, const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  std::vector<ControlGroup> groups;
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool second_version = controllers == ",,";
    if (!second_version && controllers.find("," + controller + ",") == std::string::npos) continue;
    const std::string base = root + "/sys/fs/cgroup" + (second_version ? "" : "/" + controller);
    std::string group = line.substr(second + 1);
    while (!group.empty() && group != "/") {
      groups.push_back({base + group, second_version});
      group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
    }
    groups.push_back({base, second_version});
  }
  return groups;
}

uint64_t AvailableHostMemory(const std::string& root) {
  return std::min(MemInfo(root, "MemAvailable:"), MemoryOfControlGroups(root).left);
}

HostMemory WholeHostMemory(const std::string& root) {
  const uint64_t limit = MemoryOfControlGroups(root).limit;
  return {.machine_bytes = MemInfo(root, "MemTotal:"),
          .group_bytes = limit == kNoLimit ? 0 : limit,
          .available_bytes = AvailableHostMemory(root),
          .grows_by = WhatGrows(root)};
}

std::string FirstDiskDirectory(const std::vector<std::string>& candidates) {
  for (const std::string& path : candidates) {
    struct statfs system = {};
    if (path.empty() || path.front() != '/' || !CheckDirectory(path).ok()) continue;
    if (::statfs(path.c_str(), &system) != 0) continue;
    if (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC) continue;
    return path;
  }
  return "";
}

absl::Status CheckDirectory(const std::string& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0) return os::StatusFromErrno(errno, path);
  if (!S_ISDIR(info.st_mode)) return os::StatusFromErrno(ENOTDIR, path);
  if (::access(path.c_str(), W_OK | X_OK) != 0) return os::StatusFromErrno(errno, path);
  return absl::OkStatus();
}

int RanksThatShare(const std::string& directory,
                   const std::vector<std::vector<std::string>>& rank_directories, int ranks) {
  if (rank_directories.empty()) return std::max(1, ranks);
  struct stat mine = {};
  const bool known = ::stat(directory.c_str(), &mine) == 0;
  const auto same = [&](const std::string& path) {
    struct stat other = {};
    if (path == directory) return true;
    return known && ::stat(path.c_str(), &other) == 0 && other.st_dev == mine.st_dev &&
           other.st_ino == mine.st_ino;
  };
  int sharers = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto& list = rank_directories[static_cast<size_t>(rank) % rank_directories.size()];
    sharers += std::any_of(list.begin(), list.end(), same) ? 1 : 0;
  }
  return std::max(1, sharers);
}

}  // namespace spillway::integration
