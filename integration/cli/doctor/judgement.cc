#include "integration/cli/doctor/judgement.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "integration/cli/common/units.h"
#include "integration/cli/doctor/directory_facts.h"
#include "integration/engine/sizing.h"
#include "integration/engine/torch_release.h"
#include "io/os/bytes_text.h"

namespace spillway::integration {
namespace {

using os::BytesText;

// The version with which cuFuncGetParamInfo came, which gives the places of a kernel's parameters.
constexpr int kOldestDriver = 12040;
constexpr uint64_t kLittleLocked = 8 * kMebibyte;  // the kernel's default since 5.16
constexpr uint64_t kFewFiles = 256;
constexpr uint64_t kUsualMaps = 65530;                    // the kernel's default of vm.max_map_count
constexpr uint64_t kLittleSharedMemory = 64 * kMebibyte;  // what container engines give
constexpr uint64_t kLittleMemory = kGibibyte;
constexpr double kSecondsOfDay = 86400;

class Judgement {
 public:
  explicit Judgement(const DoctorFacts& facts) : facts_(facts) {}

  std::vector<Finding> All() {
    Installation();
    System();
    Torch();
    if (facts_.installation_only) return std::move(findings_);
    Driver();
    Limits();
    Disks();
    Start();
    return std::move(findings_);
  }

 private:
  void Add(Verdict verdict, const std::string& what, const std::string& found,
           const std::string& advice = "") {
    findings_.push_back({section_, verdict, what, found, advice});
  }

  void Installation();
  void System();
  void Memory();
  void Torch();
  void Loading();
  void Driver();
  void Device(int ordinal, const DeviceFacts& device, bool only);
  void Link(int ordinal, const DeviceFacts& device);
  void Limits();
  void Limit(uint64_t value, uint64_t least, const char* what, const std::string& text,
             const std::string& advice) {
    Add(value < least ? Verdict::kLimited : Verdict::kGood, what, text, value < least ? advice : "");
  }
  void Disks();
  void Disk(const DiskFacts& disk);
  void DiskRates(const DiskFacts& disk);
  void Start();

  const DoctorFacts& facts_;
  std::string section_;
  std::vector<Finding> findings_;
};

void Judgement::Installation() {
  section_ = "Installation";
  const InstallationFacts& it = facts_.installation;
  const std::string again = "build or install Spillway again";
  if (!it.missing.empty()) {
    Add(Verdict::kBad, "libraries", absl::StrCat(absl::StrJoin(it.missing, ", "), " missing"), again);
    return;
  }
  const std::string text = absl::StrCat(it.directory, ", for PyTorch ",
                                        it.served.empty() ? "(none)" : absl::StrJoin(it.served, ", "));
  Add(it.served.empty() ? Verdict::kBad : Verdict::kGood, "libraries", text,
      it.served.empty() ? "build with a Python that has PyTorch (SPILLWAY_PYTHON): its library is missing"
                        : "");
  if (it.engine_problem.empty()) {
    Add(Verdict::kGood, "engine", "can be opened");
  } else {
    Add(Verdict::kBad, "engine",
        absl::StrCat("cannot be opened, jobs would run without Spillway: ", it.engine_problem), again);
  }
}

void Judgement::System() {
  section_ = "Machine";
  const SystemFacts& it = facts_.system;
  const std::string kind = absl::StrCat("Linux ", it.kernel, " on ", it.architecture,
                                        it.container.empty() ? "" : ", in a container: ", it.container);
  Add(it.unserved.empty() ? Verdict::kGood : Verdict::kBad, "system",
      it.unserved.empty() ? kind : absl::StrCat(kind, ": ", it.unserved),
      it.unserved.empty() ? "" : "jobs run as without Spillway here");
  std::string cpus =
      absl::StrCat(it.cpu.empty() ? "" : it.cpu + ", ",
                   it.cpus == 0 ? "an unknown number" : absl::StrCat(it.cpus), " for this process");
  if (it.cpu_quota > 0) absl::StrAppendFormat(&cpus, ", of which its control group gives %.1f", it.cpu_quota);
  if (it.numa_nodes > 0)
    absl::StrAppend(&cpus, ", ", it.numa_nodes, " NUMA node", it.numa_nodes > 1 ? "s" : "");
  Add(Verdict::kGood, "CPUs", cpus);
  Memory();
}

void Judgement::Memory() {
  const SystemFacts& it = facts_.system;
  std::string text = absl::StrCat(BytesText(it.memory.machine_bytes), ", ",
                                  BytesText(it.memory.available_bytes), " available to this process");
  if (it.memory.group_bytes != 0 && it.memory.group_bytes < it.memory.machine_bytes)
    absl::StrAppend(&text, " (its control group may use ", BytesText(it.memory.group_bytes), ")");
  if (it.memory.available_bytes == 0) {
    Add(Verdict::kLimited, "host memory", "not known", "set SPILLWAY_HOST_MEMORY");
  } else if (it.memory.available_bytes < kLittleMemory) {
    Add(Verdict::kLimited, "host memory", text,
        "little to spill to: nearly everything will go to the disk; ask the container or batch system for "
        "more");
  } else {
    Add(Verdict::kGood, "host memory", text);
  }
}

void Judgement::Torch() {
  section_ = "PyTorch";
  const TorchFacts& it = facts_.torch;
  if (!it.problem.empty()) {
    Add(it.named ? Verdict::kBad : Verdict::kLimited, "PyTorch",
        absl::StrCat(it.python.empty() ? "" : it.python + ": ", it.problem),
        "--python names the Python that has it, or use this command in its environment");
    return;
  }
  const std::string text = absl::StrCat(
      it.version, it.cuda.empty() ? ", built without CUDA" : ", CUDA " + it.cuda, ", in ", it.python);
  const auto& served = facts_.installation.served;
  if (it.cuda.empty()) {
    Add(Verdict::kBad, "PyTorch", text, "install a PyTorch with CUDA");
  } else if (std::find(served.begin(), served.end(), it.minor) == served.end()) {
    Add(Verdict::kBad, "PyTorch", absl::StrCat(text, ": there is no library for ", it.minor),
        absl::StrCat("PyTorch would keep its own allocator; served here: ",
                     served.empty() ? "(none)" : absl::StrJoin(served, ", ")));
  } else if (IsDevelopmentBuild(it.version)) {
    Add(Verdict::kLimited, "PyTorch", absl::StrCat(text, ": a development build"),
        "served only by a Spillway that was compiled against that very build (SPILLWAY_PYTHON); "
        "SPILLWAY_REQUIRE=1 tells");
  } else {
    Add(Verdict::kGood, "PyTorch", absl::StrCat(text, ": served"));
  }
  Loading();
}

void Judgement::Loading() {
  const TorchFacts& it = facts_.torch;
  if (facts_.given.off) {
    Add(Verdict::kLimited, "loading", "SPILLWAY=off: jobs of this shell run without it", "unset SPILLWAY");
  } else if (it.loads) {
    Add(Verdict::kGood, "loading", "this Python loads Spillway when this shell starts it");
  } else if (facts_.given.named_in_conf) {
    Add(Verdict::kBad, "loading",
        "PyTorch's variable names backend:spillway, and this Python does not load it",
        "install the package into this Python (pip install), or use `spillway run`");
  } else {
    Add(Verdict::kGood, "loading",
        absl::StrCat("not asked for in this shell; `spillway run`, LD_PRELOAD",
                     it.package.empty() ? "" : ", PYTORCH_CUDA_ALLOC_CONF=backend:spillway", " do"));
  }
}

void Judgement::Driver() {
  section_ = "Driver and GPUs";
  const DriverFacts& it = facts_.driver;
  if (!it.problem.empty()) {
    Add(Verdict::kBad, "driver", it.problem, it.advice);
    return;
  }
  const std::string text =
      absl::StrFormat("CUDA %d.%d%s%s", it.version / 1000, it.version % 1000 / 10,
                      it.path.empty() ? "" : absl::StrCat(", ", it.path),
                      it.stand_in ? ", without NVIDIA's kernel module: a stand-in for a GPU" : "");
  if (it.version < kOldestDriver)
    Add(Verdict::kBad, "driver", text, "a driver of CUDA 12.4 or newer is needed");
  else
    Add(it.by_loader ? Verdict::kGood : Verdict::kLimited, "driver", text,
        it.by_loader ? ""
                     : "ld.so does not look there: Spillway finds it, but PyTorch without Spillway and the "
                       "driver's other libraries need the directory in LD_LIBRARY_PATH");
  if (it.devices.empty()) Add(Verdict::kBad, "GPUs", "none", "see CUDA_VISIBLE_DEVICES");
  const auto usable = std::count_if(it.devices.begin(), it.devices.end(), [](const DeviceFacts& device) {
    return device.problem.empty() && device.maps && CheckDevice(device.capability).ok();
  });
  for (size_t i = 0; i < it.devices.size(); ++i)
    Device(static_cast<int>(i), it.devices[i], /*only=*/usable == 0);
}

void Judgement::Device(int ordinal, const DeviceFacts& device, bool only) {
  const std::string what = absl::StrCat("GPU ", ordinal);
  const Verdict lost = only ? Verdict::kBad : Verdict::kLimited;
  if (!device.problem.empty()) {
    Add(lost, what, absl::StrCat(device.name, ": ", device.problem), "Spillway is not used on it");
    return;
  }
  std::string text =
      absl::StrCat(device.name, ", ", BytesText(device.bytes), ", ", BytesText(device.free_bytes),
                   " free now", device.maps ? ", virtual memory management" : "",
                   device.host_numa ? ", memory of host NUMA nodes" : "");
  if (device.numa_node >= 0) absl::StrAppend(&text, ", near NUMA node ", device.numa_node);
  if (!device.maps) {
    Add(lost, what, text, "this GPU cannot map memory piece by piece: Spillway is not used on it");
    return;
  }
  if (const absl::Status served = CheckDevice(device.capability); !served.ok()) {
    Add(lost, what, text, absl::StrCat(std::string(served.message()), "; Spillway is not used on it"));
    return;
  }
  Add(Verdict::kGood, what, text);
  Link(ordinal, device);
}

void Judgement::Link(int ordinal, const DeviceFacts& device) {
  const MeasuredLink& link = device.link;
  const std::string what = absl::StrCat("link of GPU ", ordinal);
  if (!link.problem.empty()) {
    const bool unasked = link.problem == "not asked for";
    Add(unasked ? Verdict::kGood : Verdict::kLimited, what, absl::StrCat("not measured: ", link.problem));
    return;
  }
  std::string text = absl::StrFormat(
      "to the GPU %s, from it %s; at once %s and %s (copies of %s, %.1f s each)%s",
      RateText(link.in.PerSecond()), RateText(link.out.PerSecond()), RateText(link.both_in.PerSecond()),
      RateText(link.both_out.PerSecond()), BytesText(link.buffer_bytes), link.in.seconds,
      facts_.driver.stand_in ? "; rates of the stand-in, not of a GPU" : "");
  Add(Verdict::kGood, what, text);
}

void Judgement::Limits() {
  section_ = "Limits";
  const LimitFacts& it = facts_.limits;
  const auto text = [](uint64_t value) { return value == kUnlimited ? "no limit" : BytesText(value); };
  const bool ring = it.io_uring_problem.empty();
  Limit(
      it.locked_bytes, kLittleLocked, "locked memory", text(it.locked_bytes),
      "it limits io_uring before Linux 5.12, and with some drivers pinned host memory: ulimit -l unlimited");
  Limit(it.open_files, kFewFiles, "open files",
        it.open_files == kUnlimited ? "no limit" : absl::StrCat(it.open_files), "raise it: ulimit -n 65536");
  if (it.file_bytes != kUnlimited)
    Add(Verdict::kLimited, "file size", text(it.file_bytes),
        "it limits the size of spill files: ulimit -f unlimited");
  if (it.address_bytes != kUnlimited)
    Add(Verdict::kLimited, "address space", text(it.address_bytes),
        "it limits the addresses of spilled blocks: ulimit -v unlimited");
  Add(ring ? Verdict::kGood : Verdict::kLimited, "io_uring", ring ? "works" : it.io_uring_problem,
      ring ? "" : "worker threads are used instead, with a little more processor time");
  Add(it.membarrier ? Verdict::kGood : Verdict::kLimited, "membarrier", it.membarrier ? "works" : "not there",
      it.membarrier ? "" : "each launch costs some ns more");
  if (it.memory_maps != 0)
    Limit(it.memory_maps, kUsualMaps, "memory maps", absl::StrCat(it.memory_maps, " (vm.max_map_count)"),
          "raise it: sysctl vm.max_map_count=65530");
  Limit(it.shared_memory, kLittleSharedMemory + 1, "/dev/shm",
        it.shared_memory == 0
            ? "not there"
            : absl::StrCat(BytesText(it.shared_memory), ", ", BytesText(it.free_shared_memory), " free"),
        "Spillway does not need it; PyTorch's DataLoader workers do: --shm-size or --ipc=host");
}

void Judgement::Disks() {
  section_ = "Disk";
  if (!facts_.disk_unused.empty()) {
    Add(Verdict::kGood, "directory", absl::StrCat("none is used: ", facts_.disk_unused));
  } else if (facts_.disks.empty()) {
    const bool wanted = facts_.dirs_named;
    Add(wanted ? Verdict::kGood : Verdict::kLimited, "directory",
        wanted ? "none, as the settings say" : "/var/tmp, TMPDIR and /tmp are no disks that can be written",
        wanted ? "" : "set SPILLWAY_DIRS, or only host memory will be used");
  }
  for (const DiskFacts& disk : facts_.disks) Disk(disk);
  if (facts_.disk_unused.empty() && facts_.faster_mount) {
    const MountFacts& mount = *facts_.faster_mount;
    Add(Verdict::kLimited, "faster disk",
        absl::StrCat(mount.path, " (", mount.file_system, " on ", mount.device, ", ",
                     BytesText(mount.free_bytes), " beyond the reserve) lies on ", NameOf(mount.kind)),
        "make a directory of your own there, and name it with SPILLWAY_DIRS");
  }
}

// Encryption is reported since the tensors that lie there are the user's data.
const char* EncryptionText(Encryption encryption) {
  return encryption == Encryption::kDmCrypt ? ", encrypted (dm-crypt)"
         : encryption == Encryption::kNone  ? ", not encrypted by dm-crypt"
                                            : "";
}

void Judgement::Disk(const DiskFacts& disk) {
  const std::string what = absl::StrCat("directory ", disk.start.path);
  const Verdict lost = facts_.dirs_named ? Verdict::kBad : Verdict::kLimited;
  if (!disk.start.problem.empty()) {
    Add(lost, what, disk.start.problem, "choose others with SPILLWAY_DIRS");
    return;
  }
  std::string text = absl::StrCat(
      disk.file_system, disk.drive.empty() ? "" : " on " + disk.drive, ", ", BytesText(disk.start.free_bytes),
      " free of ", BytesText(disk.start.total_bytes), ", space to spill to ", BytesText(disk.SpaceBytes()),
      " after a reserve of ", BytesText(disk.reserve_bytes), ", ", disk.direct_io ? "direct" : "buffered",
      ", ", disk.io_uring ? "io_uring" : "threads", EncryptionText(disk.encryption));
  if (disk.SpaceBytes() == 0) {
    Add(Verdict::kLimited, what, text,
        "nothing can be spilled there now: free space, or a smaller SPILLWAY_DISK_RESERVE");
  } else if (!disk.direct_io) {
    Add(Verdict::kLimited, what, text,
        absl::StrCat(disk.cached_because,
                     ": writes pass the page cache and are flushed; prefer a local disk"));
  } else if (!disk.io_uring && facts_.limits.io_uring_problem.empty()) {
    Add(Verdict::kLimited, what, text, absl::StrCat("worker threads are used: ", disk.io_uring_problem));
  } else {
    Add(Verdict::kGood, what, text);
  }
  if (!disk.known.empty())
    Add(Verdict::kGood, absl::StrCat("kind of ", disk.start.path),
        absl::StrCat(disk.file_system, ": ", disk.known));
  DiskRates(disk);
}

std::string DirectionText(const char* verb, const io::DirectionRate& rate) {
  return absl::StrFormat("%s %s (%s in %.1f s, %s in the second half)", verb, RateText(rate.PerSecond()),
                         BytesText(rate.bytes), rate.seconds, RateText(rate.late_bytes_per_second));
}

void Judgement::DiskRates(const DiskFacts& disk) {
  const std::string what = absl::StrCat("rates of ", disk.start.path);
  if (!disk.rate_problem.empty()) {
    const bool limited = facts_.disk_rates && disk.rate_problem != "not asked for";
    Add(limited ? Verdict::kLimited : Verdict::kGood, what,
        absl::StrCat("not measured: ", disk.rate_problem));
    return;
  }
  const io::DiskRates& rates = disk.rates;
  std::string text =
      absl::StrCat(DirectionText("writes", rates.write), ", ", DirectionText("reads", rates.read));
  if (rates.end == io::WriteEnd::kSpace)
    absl::StrAppend(&text, "; writing stopped at the end of the free space: a cache may have made it faster");
  if (rates.end == io::WriteEnd::kLimit && rates.write.bytes < kMaxMeasured)
    absl::StrAppend(&text, "; writing stopped at a limit: a cache may have made it faster");
  if (!disk.direct_io) absl::StrAppend(&text, "; through the page cache: memory may have made it faster");
  const double write = rates.write.late_bytes_per_second;
  std::string wear =
      absl::StrFormat("a day of writing at that rate is %.1f TB", write * kSecondsOfDay / 1e12);
  if (facts_.rated_writes != 0 && write > 0)
    absl::StrAppendFormat(&wear, ", and %.1f such days are the %.0f TB that the drive is rated for",
                          static_cast<double>(facts_.rated_writes) / (write * kSecondsOfDay),
                          static_cast<double>(facts_.rated_writes) / 1e12);
  const double least = std::min(write, rates.read.late_bytes_per_second);
  if (least >= kSlowDisk) return Add(Verdict::kGood, what, absl::StrCat(text, "; ", wear));
  Add(Verdict::kLimited, what, absl::StrCat(text, "; ", wear),
      absl::StrFormat(
          "slow: 1 GiB takes %.1f s; give host memory what can be spared, and prefer an NVMe drive",
          kGiB / std::max(1.0, least)));
}

// Reports the messages of the check at the start, whatever was found of the things themselves.
void Judgement::Start() {
  section_ = "Settings";
  for (const std::string& warning : facts_.warnings) Add(Verdict::kLimited, "warning", warning);
  if (facts_.given.off) {
    Add(Verdict::kGood, "start", "SPILLWAY=off: nothing is checked");
  } else if (facts_.refusal.empty()) {
    Add(Verdict::kGood, "start", "a job with the settings of this shell is accepted");
  } else {
    Add(Verdict::kBad, "start", absl::StrCat("a job is refused: ", facts_.refusal), "use the settings below");
  }
}

}  // namespace

std::vector<Finding> Judge(const DoctorFacts& facts) { return Judgement(facts).All(); }

Verdict Worst(const std::vector<Finding>& findings) {
  Verdict worst = Verdict::kGood;
  for (const Finding& finding : findings) worst = std::max(worst, finding.verdict);
  return worst;
}

const char* NameOf(Verdict verdict) {
  return verdict == Verdict::kGood ? "good" : verdict == Verdict::kLimited ? "limited" : "bad";
}

std::string RateText(double bytes_per_second) {
  return bytes_per_second >= 1e9 ? absl::StrFormat("%.2f GB/s", bytes_per_second / 1e9)
                                 : absl::StrFormat("%.0f MB/s", bytes_per_second / 1e6);
}

}  // namespace spillway::integration
