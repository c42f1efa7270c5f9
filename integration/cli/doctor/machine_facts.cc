#include "integration/cli/doctor/machine_facts.h"

#include <linux/io_uring.h>
#include <linux/membarrier.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "integration/engine/machine.h"

namespace spillway::integration {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxCpus = 1 << 20;

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// Returns the value of "model name        : AMD EPYC" in /proc/cpuinfo.
std::string CpuModel(const std::string& root) {
  std::ifstream file(root + "/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t value = line.find_first_not_of(" \t", line.find(':') + 1);
    return value == std::string::npos ? "" : line.substr(value);
  }
  return "";
}

int NumaNodes(const std::string& root) {
  int nodes = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root + "/sys/devices/system/node", error)) {
    const std::string name = entry.path().filename();
    nodes += name.starts_with("node") && name.size() > 4 && std::isdigit(name[4]) ? 1 : 0;
  }
  return nodes;
}

// The file of control groups of version 1.
constexpr char kSliceFile[] = "/cpu.cfs_period_us";

// Returns the CPUs' worth of time of one control group; 0: no limit.
double QuotaOf(const std::string& folder, bool second_version) {
  double quota = 0, slice = 0;
  if (second_version) {
    std::istringstream words(FirstLine(folder + "/cpu.max"));  // "max 100000" has no number
    if (!(words >> quota >> slice)) return 0;
  } else {
    std::istringstream quota_text(FirstLine(folder + "/cpu.cfs_quota_us"));
    std::istringstream slice_text(FirstLine(folder + kSliceFile));
    if (!(quota_text >> quota) || !(slice_text >> slice)) return 0;
  }
  return quota > 0 && slice > 0 ? quota / slice : 0;
}

double CpuQuota(const std::string& root) {
  double least = 0;
  for (const ControlGroup& group : ControlGroups("cpu", root)) {
    const double quota = QuotaOf(group.folder, group.second_version);
    if (quota > 0 && (least == 0 || quota < least)) least = quota;
  }
  return least;
}

std::string Container(const std::string& root) {
  if (Exists(root + "/.dockerenv")) return "docker";
  if (Exists(root + "/run/.containerenv")) return "podman";
  std::ifstream file(root + "/proc/self/cgroup");
  const std::string groups((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  for (const char* name : {"kubepods", "docker", "lxc"}) {
    if (absl::StrContains(groups, name)) return name == std::string("kubepods") ? "kubernetes" : name;
  }
  return "";
}

uint64_t SoftLimit(__rlimit_resource resource) {
  struct rlimit limit = {};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnlimited;
  return limit.rlim_cur;
}

// Tries to create a ring, since neither versions nor settings show what a filter of system calls refuses.
std::string RingProblem(const std::string& root) {
  struct io_uring_params params = {};
  const auto ring = static_cast<int>(::syscall(SYS_io_uring_setup, 8, &params));
  const int error = errno;
  if (ring >= 0) ::close(ring);
  return ring >= 0 ? "" : WhyNoRing(error, FirstLine(root + "/proc/sys/kernel/io_uring_disabled"));
}

bool HasMembarrier() {
  const auto commands = ::syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
  return commands > 0 && (commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0;
}

}  // namespace

int CountCpus(const AskForCpus& ask) {
  // The kernel refuses a set that is smaller than its own, whose size it does not report.
  for (size_t cpus = CPU_SETSIZE; cpus <= kMaxCpus; cpus *= 2) {
    std::vector<cpu_set_t> set(cpus / CPU_SETSIZE);
    const size_t bytes = set.size() * sizeof(cpu_set_t);
    if (ask(bytes, set.data()) == 0) return CPU_COUNT_S(bytes, set.data());
    if (errno != EINVAL) return 0;
  }
  return 0;
}

std::string WhyUnserved(const std::string& architecture, const std::string& release) {
  if (architecture != "x86_64")
    return absl::StrCat("only Linux on x86_64 is supported, this is ", architecture);
  if (absl::StrContains(absl::AsciiStrToLower(release), "microsoft"))
    return "WSL is not supported, only Linux with NVIDIA's own driver";
  return "";
}

std::string WhyNoRing(int error, const std::string& disabled) {
  if (error == ENOSYS) return "this kernel has no io_uring, or a filter of system calls blocks it";
  if (error == ENOMEM) return "the limit of locked memory is too small for a ring (ulimit -l)";
  if (error == EPERM && !disabled.empty() && disabled != "0")
    return absl::StrCat("the administrator has switched it off (kernel.io_uring_disabled is ", disabled, ")");
  if (error == EPERM)
    return "a filter of system calls refuses it, as the default profile of container engines does";
  return std::strerror(error);
}

bool HasKernelModule(const std::string& root) {
  return Exists(root + "/proc/driver/nvidia/version") || Exists(root + "/dev/nvidiactl");
}

SystemFacts InspectSystem(const std::string& root) {
  SystemFacts facts;
  struct utsname name = {};
  if (::uname(&name) == 0) {
    facts.kernel = name.release;
    facts.architecture = name.machine;
    facts.unserved = WhyUnserved(name.machine, name.release);
  }
  facts.cpu = CpuModel(root);
  facts.cpus = CountCpus([](size_t bytes, cpu_set_t* set) { return ::sched_getaffinity(0, bytes, set); });
  facts.cpu_quota = CpuQuota(root);
  facts.numa_nodes = NumaNodes(root);
  facts.container = Container(root);
  facts.memory = WholeHostMemory(root);
  return facts;
}

LimitFacts InspectLimits(const std::string& root) {
  LimitFacts facts;
  facts.locked_bytes = SoftLimit(RLIMIT_MEMLOCK);
  facts.open_files = SoftLimit(RLIMIT_NOFILE);
  facts.file_bytes = SoftLimit(RLIMIT_FSIZE);
  facts.address_bytes = SoftLimit(RLIMIT_AS);
  facts.io_uring_problem = RingProblem(root);
  facts.membarrier = HasMembarrier();
  std::istringstream(FirstLine(root + "/proc/sys/vm/max_map_count")) >> facts.memory_maps;
  struct statvfs info = {};
  if (::statvfs((root + "/dev/shm").c_str(), &info) == 0) {
    facts.shared_memory = uint64_t{info.f_blocks} * info.f_frsize;
    facts.free_shared_memory = uint64_t{info.f_bavail} * info.f_frsize;
  }
  return facts;
}

}  // namespace spillway::integration
