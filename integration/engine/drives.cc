#include "integration/engine/drives.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "io/store/probe.h"

namespace spillway::integration {

namespace fs = std::filesystem;

std::string WholeDrive(const std::string& device, const std::string& root) {
  if (device.empty()) return "";
  const fs::path entry = root + "/sys/class/block/" + device;
  std::error_code error;
  if (!fs::exists(entry / "partition", error)) return device;
  const fs::path real = fs::canonical(entry, error);
  return error ? device : real.parent_path().filename().string();
}

std::string DriveOf(const std::string& directory) {
  struct stat info = {};
  if (::stat(directory.c_str(), &info) != 0) return "";
  const std::string device = io::DriveName(info.st_dev);
  return device.empty() ? absl::StrCat(major(info.st_dev), ":", minor(info.st_dev)) : WholeDrive(device);
}

int RanksOnDrive(const std::string& directory, const std::vector<std::vector<std::string>>& rank_directories,
                 int ranks) {
  if (ranks <= 0) return 0;
  if (rank_directories.empty()) return ranks;
  const std::string drive = DriveOf(directory);
  const auto same = [&](const std::string& other) {
    return other == directory || (!drive.empty() && DriveOf(other) == drive);
  };
  int writers = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto& list = rank_directories[static_cast<size_t>(rank) % rank_directories.size()];
    writers += std::any_of(list.begin(), list.end(), same) ? 1 : 0;
  }
  return std::max(1, writers);
}

}  // namespace spillway::integration
