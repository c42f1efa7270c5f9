#include "integration/cli/doctor/directory_facts.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "integration/engine/drives.h"
#include "integration/engine/sizing.h"
#include "io/store/disk_rate.h"
#include "io/store/disk_reserve.h"
#include "io/store/probe.h"

namespace spillway::integration {
namespace {

void Measure(const DiskOptions& options, uint64_t reserve_setting, DiskFacts* facts) {
  io::DiskRateOptions rate;
  rate.time = options.time;
  rate.reserve_bytes = reserve_setting;
  rate.cap_bytes = facts->cap_bytes == 0 ? kMaxMeasured : std::min(kMaxMeasured, facts->cap_bytes);
  if (options.progress)
    rate.progress = [&](const io::DiskProgress& now) { options.progress(facts->start.path, now); };
  const auto rates = io::MeasureDisk(facts->start.path, rate);
  if (rates.ok()) {
    facts->rates = *rates;
  } else {
    facts->rate_problem = std::string(rates.status().message());
  }
}

DiskFacts InspectDisk(const Settings& settings, const DirectoryFacts& start, const DiskOptions& options) {
  DiskFacts facts;
  facts.start = start;
  if (const auto named = settings.OwnDirectories()) {
    for (const DirectoryEntry& entry : *named) {
      if (entry.path == start.path) facts.cap_bytes = entry.cap_bytes;
    }
  }
  const uint64_t set = settings.disk_reserve ? std::max<uint64_t>(1, settings.disk_reserve->bytes) : 0;
  facts.reserve_bytes = io::ReserveOf(start.total_bytes, set);
  struct stat info = {};
  if (::stat(start.path.c_str(), &info) == 0) {
    facts.file_system_id = info.st_dev;
    facts.drive = WholeDrive(io::DriveName(info.st_dev));
    facts.encryption = EncryptionOf(io::DriveName(info.st_dev));
  }
  if (!start.problem.empty()) {
    facts.rate_problem = "it cannot be used";
    return facts;
  }
  const auto probe = io::ProbeDirectory(start.path);
  if (!probe.ok()) {
    facts.start.problem = std::string(probe.status().message());
    facts.rate_problem = "it cannot be used";
    return facts;
  }
  facts.file_system = probe->file_system;
  facts.known = probe->known;
  facts.direct_io = probe->direct_io;
  facts.cached_because = probe->cached_because;
  facts.io_uring = probe->io_uring;
  facts.io_uring_problem = probe->io_uring_error;
  if (options.time.count() == 0) {
    facts.rate_problem = "not asked for";
  } else {
    Measure(options, set, &facts);
  }
  return facts;
}

}  // namespace

uint64_t DiskFacts::SpaceBytes() const {
  if (!start.problem.empty() || start.free_bytes <= reserve_bytes) return 0;
  const uint64_t space = (start.free_bytes - reserve_bytes) / kChunkBytes * kChunkBytes;
  return cap_bytes == 0 ? space : std::min(space, cap_bytes);
}

std::vector<DiskFacts> InspectDisks(const Settings& settings, const std::vector<DirectoryFacts>& directories,
                                    const DiskOptions& options) {
  std::vector<DiskFacts> disks;
  for (const DirectoryFacts& directory : directories)
    disks.push_back(InspectDisk(settings, directory, options));
  return disks;
}

std::optional<MountFacts> FasterThan(const DiskFacts& disk) {
  const auto free_bytes = [](const std::string& path) -> uint64_t {
    struct statvfs info = {};
    std::error_code error;
    if (!std::filesystem::is_directory(path, error) || ::statvfs(path.c_str(), &info) != 0) return 0;
    const uint64_t free = uint64_t{info.f_bavail} * info.f_frsize;
    const uint64_t reserve = io::ReserveOf(uint64_t{info.f_blocks} * info.f_frsize, 0);
    return free - std::min(free, reserve);
  };
  struct stat info = {};
  if (::stat(disk.start.path.c_str(), &info) != 0) return std::nullopt;
  // If the drive is not known to be slow, only a solid-state drive is surely no slower.
  return FasterMount(std::max(DriveKindOf(io::DriveName(info.st_dev)), DriveKind::kRotating), free_bytes);
}

}  // namespace spillway::integration
