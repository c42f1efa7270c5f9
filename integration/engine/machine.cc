#include "integration/engine/machine.h"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <optional>
#include <sstream>

#include "io/os/errno.h"

namespace spillway::integration {
namespace {

// Values of control groups above this mean "no limit".
constexpr uint64_t kNoLimit = uint64_t{1} << 60;

std::optional<uint64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  if (!(file >> number) || number >= kNoLimit) return std::nullopt;  // "max" is no number
  return number;
}

// "inactive_file 4096" in a control group's memory.stat: page cache that the kernel gives back under
// pressure.
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

// What a control group allows, and what of it is left.
struct GroupMemory {
  uint64_t limit = kNoLimit;
  uint64_t left = kNoLimit;

  void Narrow(const GroupMemory& other) {
    limit = std::min(limit, other.limit);
    left = std::min(left, other.left);
  }
};

// Walks from `group` up to the root of its hierarchy: every parent limits too.
GroupMemory MemoryOfGroup(const std::string& hierarchy, std::string group, const char* limit_file,
                          const char* usage_file) {
  GroupMemory memory;
  while (true) {
    const std::string folder = hierarchy + (group == "/" ? "" : group) + "/";
    const auto limit = ReadNumber(folder + limit_file);
    const auto usage = ReadNumber(folder + usage_file);
    if (limit && usage) {
      const uint64_t used = *usage - std::min(*usage, Reclaimable(folder + "memory.stat"));
      memory.Narrow({*limit, *limit - std::min(*limit, used)});
    }
    if (group.empty() || group == "/") return memory;
    group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
}

GroupMemory MemoryOfControlGroups(const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  GroupMemory memory;
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    const std::string base = root + "/sys/fs/cgroup";
    if (controllers.empty()) {
      memory.Narrow(MemoryOfGroup(base, group, "memory.max", "memory.current"));
    } else if (controllers.find("memory") != std::string::npos) {
      memory.Narrow(MemoryOfGroup(base + "/memory", group, "memory.limit_in_bytes", "memory.usage_in_bytes"));
    }
  }
  return memory;
}

// A line of /proc/meminfo in bytes; 0 where there is none.
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

}  // namespace

uint64_t AvailableHostMemory(const std::string& root) {
  return std::min(MemInfo(root, "MemAvailable:"), MemoryOfControlGroups(root).left);
}

HostMemory WholeHostMemory(const std::string& root) {
  const uint64_t limit = MemoryOfControlGroups(root).limit;
  return {MemInfo(root, "MemTotal:"), limit == kNoLimit ? 0 : limit};
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
