#include "integration/engine/start_check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "integration/escape/deny_list.h"
#include "integration/report/atomic_file.h"
#include "integration/report/output_file.h"
#include "integration/settings/conf_files.h"
#include "integration/settings/environment.h"
#include "io/os/bytes_text.h"
#include "io/os/errno.h"
#include "io/store/disk_order.h"
#include "io/store/disk_reserve.h"
#include "io/store/slot_cipher.h"
#include "io/store/spill_file.h"

namespace spillway::integration {
namespace {

// An ended process gives its space back at the file system's next commit.
constexpr auto kSpaceComesBack = std::chrono::seconds(10);
constexpr auto kScanInterval = std::chrono::milliseconds(500);

// A smaller file has no place for a chunk.
constexpr uint64_t kMinSpace = 2 << 20;

bool UsesDisk(const Settings& settings) { return settings.on_full != OnFull::kError && !settings.Observes(); }

uint64_t ReserveIn(const Settings& settings, const DirectoryFacts& directory) {
  const uint64_t set = settings.disk_reserve ? std::max<uint64_t>(1, settings.disk_reserve->bytes) : 0;
  return io::ReserveOf(directory.total_bytes, set);
}

absl::Status Refuse(const SettingSource& source, const char* name, const std::string& accepted) {
  return absl::InvalidArgumentError(NotAccepted(source, name, accepted));
}

// The total is no limit if a machine's memory grows. A size this many times the total cannot be meant even
// then.
constexpr uint64_t kMaxGrowth = 1024;

absl::Status CheckHostMemory(const Settings& settings, const SettingSource& source, const HostMemory& host,
                             std::vector<std::string>* warnings) {
  if (!settings.host_memory || settings.host_memory->percent > 0) return absl::OkStatus();
  const uint64_t wanted = settings.host_memory->bytes;
  const bool grows = !host.grows_by.empty();
  const uint64_t machine = host.machine_bytes * (grows ? kMaxGrowth : 1);
  const bool group = host.group_bytes != 0 && (machine == 0 || host.group_bytes < machine);
  const uint64_t most = group ? host.group_bytes : machine;
  if (most == 0 || wanted <= most) {
    const std::string may_take =
        absl::StrCat("the host tier may take ", os::BytesText(wanted), ", above the ");
    if (grows && host.machine_bytes != 0 && wanted > host.machine_bytes) {
      warnings->push_back(absl::StrCat(may_take, os::BytesText(host.machine_bytes),
                                       " that this machine has now; its memory can grow (", host.grows_by,
                                       ")"));
    } else if (host.available_bytes != 0 && wanted > host.available_bytes) {
      warnings->push_back(absl::StrCat(may_take, os::BytesText(host.available_bytes),
                                       " that are available to this process now: beyond them the system ends "
                                       "processes (SPILLWAY_HOST_MEMORY)"));
    }
    return absl::OkStatus();
  }
  std::string accepted = absl::StrCat("at most ", os::BytesText(most), ", ",
                                      group   ? "which this process's control group may use"
                                      : grows ? absl::StrCat(kMaxGrowth, " times what this machine has now")
                                              : "which this machine has");
  if (group && host.machine_bytes != 0)
    absl::StrAppend(&accepted, " (the machine has ", os::BytesText(host.machine_bytes), ")");
  return Refuse(source, "host_memory", absl::StrCat(accepted, ", or a share such as 60%"));
}

absl::Status CheckGpuMemory(const Settings& settings, const SettingSource& source,
                            const std::vector<uint64_t>& device_bytes) {
  if (!settings.gpu_memory || settings.Observes() || device_bytes.empty()) return absl::OkStatus();
  const auto largest = std::max_element(device_bytes.begin(), device_bytes.end());
  if (settings.gpu_memory->Of(*largest) <= *largest) return absl::OkStatus();
  return Refuse(source, "gpu_memory",
                absl::StrCat("at most ", os::BytesText(*largest), ", which GPU ",
                             largest - device_bytes.begin(), " has, or a share such as 60%"));
}

// Returns "/nvme0 has 90.00 GiB free of 100.00 GiB, and the reserve is 10.00 TiB".
std::string SpaceText(const Settings& settings, const DirectoryFacts& directory) {
  return absl::StrCat(directory.path, " has ", os::BytesText(directory.free_bytes), " free of ",
                      os::BytesText(directory.total_bytes), ", and the reserve is ",
                      os::BytesText(ReserveIn(settings, directory)));
}

bool LeavesSpace(const Settings& settings, const DirectoryFacts& directory) {
  if (directory.total_bytes == 0) return true;
  return directory.free_bytes >= ReserveIn(settings, directory) + kMinSpace;
}

// Checks that the directories together give space. A directory without space costs a line.
absl::Status CheckSpace(const Settings& settings, const SettingSource& source,
                        const std::vector<DirectoryFacts>& directories, std::vector<std::string>* warnings) {
  bool enough = directories.empty(), may_come = false;
  for (const DirectoryFacts& directory : directories) {
    if (LeavesSpace(settings, directory)) {
      enough = true;
      continue;
    }
    const bool comes = directory.total_bytes > ReserveIn(settings, directory);
    may_come |= comes;
    // Bytes that other processes have spilled there come free when they end.
    enough |= comes && !directory.alone;
    warnings->push_back(absl::StrCat("nothing can be spilled to disk there now: ",
                                     SpaceText(settings, directory), " (SPILLWAY_DISK_RESERVE)"));
  }
  if (enough || !settings.dirs) return absl::OkStatus();
  const std::string accepted =
      settings.disk_reserve
          ? absl::StrCat("less than the free space of one of the spill directories; ",
                         SpaceText(settings, directories.front()))
          : absl::StrCat("directories with more free space than the reserve (SPILLWAY_DISK_RESERVE); ",
                         SpaceText(settings, directories.front()));
  const absl::Status refused = Refuse(source, settings.disk_reserve ? "disk_reserve" : "dirs", accepted);
  return may_come ? absl::UnavailableError(refused.message()) : refused;
}

// Checks settings for trials, which name spill directories by number.
absl::Status CheckTrials(const Settings& settings, const SettingSource& source) {
  const auto named = settings.OwnDirectories();
  const size_t directories = named ? named->size() : 1;
  const std::string accepted =
      directories == 0 ? "no directory number: there are no directories"
                       : absl::StrCat("directory numbers up to ", directories - 1, ", the last one");
  if (!settings.io_model.own.empty() && settings.io_model.own.rbegin()->first >= directories)
    return Refuse(source, "io_model", accepted);
  for (const io::DriveFault& fault : settings.io_faults)
    if (fault.directory.value_or(0) > 0 && *fault.directory >= directories)
      return Refuse(source, "io_faults", accepted);
  return absl::OkStatus();
}

absl::Status CheckDirectories(const Settings& settings, const SettingSource& source,
                              const std::vector<DirectoryFacts>& directories,
                              std::vector<std::string>* warnings) {
  std::vector<DirectoryFacts> usable;
  for (const DirectoryFacts& directory : directories) {
    if (directory.problem.empty()) {
      usable.push_back(directory);
    } else if (settings.dirs) {
      return Refuse(source, "dirs",
                    absl::StrCat("writable directories on a disk, or none (", directory.problem, ")"));
    }
  }
  return CheckSpace(settings, source, usable, warnings);
}

// ---- Facts.

DirectoryFacts InspectDirectory(const std::string& path) {
  DirectoryFacts facts;
  facts.path = path;
  const auto file = io::SpillFile::Create(path, io::FileSystemCheck::kNormal, io::DirectIo::kNever,
                                          io::FileNaming::kUnnamedIfPossible);
  if (!file.ok()) {
    facts.problem = std::string(file.status().message());
    facts.problem.resize(std::min(facts.problem.size(), facts.problem.find(';')));
    return facts;
  }
  struct statvfs info = {};
  if (::statvfs(path.c_str(), &info) == 0) {
    facts.free_bytes = uint64_t{info.f_bavail} * info.f_frsize;
    facts.total_bytes = uint64_t{info.f_blocks} * info.f_frsize;
  }
  facts.alone = !io::DiskOrder::IsUsed(path);
  return facts;
}

std::string WithoutNumber(const absl::Status& status) {
  const std::string text(status.message());
  return text.substr(0, text.find(" (errno"));
}

// Returns why no file can be written at `path`; empty: one can. A file that is renamed to `path` is tried
// beside it.
std::string WhyNotWritten(const std::string& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return S_ISDIR(info.st_mode) ? absl::StrCat(path, " is a directory")
                                 : absl::StrCat(path, " is not a regular file");
  }
  const absl::Status status = CheckFolderOf(path);
  return status.ok() ? "" : WithoutNumber(status);
}

std::string WhyNotRead(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return WithoutNumber(os::StatusFromErrno(errno, path));
  struct stat info = {};
  const bool directory = ::fstat(file, &info) == 0 && S_ISDIR(info.st_mode);
  ::close(file);
  return directory ? absl::StrCat(path, " is a directory") : "";
}

// Returns why the lines of a deny list are not accepted; empty: they are.
std::string WhyNotListed(const std::string& path) {
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return std::string(DenyList().Add(text, path).message());
}

void InspectFiles(const Settings& settings, std::vector<FileProblem>* problems) {
  const auto note = [problems](const char* setting, const char* accepted, const std::string& why) {
    if (!why.empty()) problems->push_back({setting, absl::StrCat(accepted, " (", why, ")")});
  };
  constexpr char kWritten[] = "the path of a file that can be written";
  constexpr char kRead[] = "the path of a file that can be read";
  const auto expand = [&](const std::string& path) { return OutputFile::Expand(path, settings.ranks.rank); };
  if (!settings.metrics.empty()) note("metrics", kWritten, WhyNotWritten(expand(settings.metrics)));
  if (!settings.report.empty()) note("report", kWritten, WhyNotWritten(expand(settings.report)));
  if (!settings.prometheus.empty()) note("prometheus", kWritten, WhyNotWritten(expand(settings.prometheus)));
  if (!settings.trace.empty()) note("trace", kWritten, WhyNotWritten(expand(settings.trace)));
  // An audit creates the list if there is none yet.
  const std::string& list = settings.denylist;
  if (!list.empty() && settings.audit && ::access(list.c_str(), F_OK) != 0) {
    note("denylist", kWritten, WhyNotWritten(list));
  } else if (!list.empty()) {
    const std::string unread = WhyNotRead(list);
    note("denylist", kRead, unread);
    if (unread.empty()) note("denylist", "a deny list whose lines can be read", WhyNotListed(list));
  }
  if (settings.cuda_driver.find('/') != std::string::npos)
    note("cuda_driver", kRead, WhyNotRead(settings.cuda_driver));
}

}  // namespace

std::vector<uint64_t> BytesOfDevices(const allocator::CudaDriver& driver) {
  std::vector<uint64_t> bytes;
  int count = 0;
  if (driver.cuDeviceGetCount(&count) != CUDA_SUCCESS) return bytes;
  for (int i = 0; i < count; ++i) {
    CUdevice device = 0;
    size_t total = 0;
    if (driver.cuDeviceGet(&device, i) != CUDA_SUCCESS) return {};
    if (driver.cuDeviceTotalMem_v2(&total, device) != CUDA_SUCCESS) return {};
    bytes.push_back(total);
  }
  return bytes;
}

MachineFacts InspectMachine(const Settings& settings, const std::string& root) {
  MachineFacts facts;
  facts.host = WholeHostMemory(root);
  InspectFiles(settings, &facts.files);
  if (settings.encrypt && UsesDisk(settings) && !(settings.dirs && settings.OwnDirectories()->empty()))
    facts.no_cipher = std::string(io::SlotCipher::Create().status().message());
  if (const auto named = settings.OwnDirectories()) {
    for (const DirectoryEntry& entry : *named) facts.directories.push_back(InspectDirectory(entry.path));
  } else if (UsesDisk(settings)) {
    const std::string path = FirstDiskDirectory({"/var/tmp", EnvironmentValue("TMPDIR"), "/tmp"});
    if (!path.empty()) facts.directories.push_back(InspectDirectory(path));
  }
  return facts;
}

absl::Status CheckStart(const Settings& settings, const SettingSource& source, const MachineFacts& facts,
                        std::vector<std::string>* warnings) {
  SPILLWAY_RETURN_IF_ERROR(CheckGpuMemory(settings, source, facts.device_bytes));
  SPILLWAY_RETURN_IF_ERROR(CheckHostMemory(settings, source, facts.host, warnings));
  SPILLWAY_RETURN_IF_ERROR(CheckTrials(settings, source));
  if (!facts.no_cipher.empty())
    return Refuse(
        source, "encrypt",
        "on only where OpenSSL 3 can be loaded and its key locked in memory (" + facts.no_cipher + ")");
  for (const FileProblem& file : facts.files) return Refuse(source, file.setting, file.accepted);
  return CheckDirectories(settings, source, facts.directories, warnings);
}

absl::Status CheckStartHere(const Settings& settings, const SettingSource& source,
                            const std::vector<uint64_t>& device_bytes, std::vector<std::string>* warnings) {
  const auto deadline = std::chrono::steady_clock::now() + kSpaceComesBack;
  while (true) {
    MachineFacts facts = InspectMachine(settings);
    facts.device_bytes = device_bytes;
    std::vector<std::string> found;
    const absl::Status status = CheckStart(settings, source, facts, &found);
    if (!absl::IsUnavailable(status) || std::chrono::steady_clock::now() >= deadline) {
      warnings->insert(warnings->end(), found.begin(), found.end());
      return status;
    }
    std::this_thread::sleep_for(kScanInterval);
  }
}

absl::Status CheckGivenSettings(const std::map<std::string, std::string>& given,
                                const std::function<std::string(const std::string& name)>& describe,
                                const std::vector<uint64_t>& device_bytes) {
  const ConfFiles files(ConfFiles::PathsOfProcess());
  std::string described;
  SettingSource source;
  source.value = [&](const char* name) -> const char* {
    if (const auto found = given.find(name); found != given.end()) return found->second.c_str();
    const char* const variable = EnvironmentSetting(name);
    return variable != nullptr ? variable : files.Value(name);
  };
  source.described = [&](const char* name) {
    described = given.contains(name) ? describe(name) : VariableOf(name);
    if (!given.contains(name) && EnvironmentSetting(name) == nullptr && files.Source(name) != nullptr)
      described = files.Source(name);
    return described.c_str();
  };
  files.AddLimitsTo(&source);
  std::vector<std::string> warnings;
  SPILLWAY_ASSIGN_OR_RETURN(const Settings settings, ReadSettings(source, &warnings));
  if (!settings.Enabled()) return absl::OkStatus();
  SPILLWAY_RETURN_IF_ERROR(files.status());
  return CheckStartHere(settings, source, device_bytes, &warnings);
}

}  // namespace spillway::integration
