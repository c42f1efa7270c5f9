#include "integration/cli/doctor.h"

#include <dlfcn.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "allocator/driver/cuda_driver.h"
#include "integration/engine/machine.h"
#include "integration/engine/sizing.h"
#include "integration/engine/torch_swap.h"
#include "io/os/bytes_text.h"
#include "io/probe.h"

namespace spillway::integration {
namespace {

using allocator::CudaDriver;

// cuFuncGetParamInfo, which gives the places of a kernel's parameters, came with this version.
constexpr int kOldestDriver = 12040;

Finding DriverFinding(std::unique_ptr<const CudaDriver>* driver) {
  Finding problem;
  *driver = OpenDriver(&problem);
  if (*driver == nullptr) return problem;
  int version = 0;
  (void)(*driver)->cuDriverGetVersion(&version);
  const std::string text = absl::StrFormat("CUDA %d.%d", version / 1000, version % 1000 / 10);
  if (version < kOldestDriver)
    return {Verdict::kBad, "driver", text, "a driver of CUDA 12.4 or newer is needed"};
  return {Verdict::kGood, "driver", text, ""};
}

void ExamineDevices(const CudaDriver& driver, std::vector<Finding>* findings) {
  int count = 0;
  (void)driver.cuDeviceGetCount(&count);
  if (count == 0) findings->push_back({Verdict::kBad, "devices", "none", "see CUDA_VISIBLE_DEVICES"});
  for (int i = 0; i < count; ++i) {
    CUdevice device = 0;
    size_t total = 0;
    int vmm = 0;
    if (driver.cuDeviceGet(&device, i) != CUDA_SUCCESS) continue;
    (void)driver.cuDeviceTotalMem_v2(&total, device);
    (void)driver.cuDeviceGetAttribute(&vmm, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device);
    const std::string text =
        absl::StrCat(os::BytesText(total), vmm != 0 ? ", virtual memory management" : "");
    findings->push_back(
        {vmm != 0 ? Verdict::kGood : Verdict::kBad, absl::StrCat("GPU ", i), text,
         vmm != 0 ? "" : "this device cannot map memory piece by piece: Spillway is not used on it"});
  }
}

Finding HostMemoryFinding() {
  const uint64_t available = AvailableHostMemory();
  const std::string text = absl::StrCat(os::BytesText(available), " available, default cap of the host tier ",
                                        os::BytesText(DefaultHostCap(available, 1)));
  if (available == 0) return {Verdict::kLimited, "host memory", "unknown", "set SPILLWAY_HOST_MEMORY"};
  return {Verdict::kGood, "host memory", text, ""};
}

Finding DirectoryFinding(const std::string& path) {
  const std::string what = absl::StrCat("directory ", path);
  auto report = io::ProbeDirectory(path);
  if (!report.ok()) {
    return {Verdict::kBad, what, std::string(report.status().message()), "choose others with SPILLWAY_DIRS"};
  }
  const std::string text =
      absl::StrFormat("%s, %s free, writes %.0f MB/s, reads %.0f MB/s, %s, %s", report->file_system,
                      os::BytesText(report->free_bytes), report->write_bytes_per_second / 1e6,
                      report->read_bytes_per_second / 1e6, report->direct_io ? "direct" : "buffered",
                      report->io_uring ? "io_uring" : "threads");
  if (report->file_system == "tmpfs" || report->file_system == "ramfs") {
    return {Verdict::kBad, what, text, "this is memory, not a disk: choose others with SPILLWAY_DIRS"};
  }
  std::string advice;
  if (!report->direct_io) advice = "without O_DIRECT the page cache is in the way: prefer a local disk";
  if (report->direct_io && !report->io_uring) {
    advice =
        absl::StrCat("io_uring does not work here (", report->io_uring_error, "): worker threads are used");
  }
  return {advice.empty() ? Verdict::kGood : Verdict::kLimited, what, text, advice};
}

void ExamineDirectories(const DoctorOptions& options, std::vector<Finding>* findings) {
  std::vector<std::string> directories = options.directories;
  if (directories.empty()) {
    const std::string path = FirstDiskDirectory({"/var/tmp", options.default_candidates_tmpdir, "/tmp"});
    if (path.empty()) {
      findings->push_back({Verdict::kLimited, "directory", "/var/tmp, TMPDIR and /tmp are no disks",
                           "set SPILLWAY_DIRS, or only host memory will be used"});
    } else {
      directories.push_back(path);
    }
  }
  for (const std::string& path : directories) findings->push_back(DirectoryFinding(path));
}

Finding LibraryFinding(const std::string& directory) {
  for (const char* name : {"libspillway.so", "libspillway_engine.so"}) {
    const std::string path = absl::StrCat(directory, "/", name);
    if (::access(path.c_str(), R_OK) != 0) {
      return {Verdict::kBad, "libraries", absl::StrCat(path, " is missing"),
              "build or install Spillway anew"};
    }
  }
  const std::vector<std::string> versions = TorchVersionsIn(directory);
  const std::string text =
      absl::StrCat(directory, ", for PyTorch ", versions.empty() ? "(none)" : absl::StrJoin(versions, ", "));
  if (versions.empty()) {
    return {Verdict::kBad, "libraries", text,
            "build with PyTorch in build/venv: its allocator library is missing"};
  }
  return {Verdict::kGood, "libraries", text, ""};
}

}  // namespace

std::unique_ptr<const CudaDriver> OpenDriver(Finding* problem) {
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    *problem = {Verdict::kBad, "driver", "libcuda.so.1 is not found",
                "install NVIDIA's driver, or set SPILLWAY_CUDA_DRIVER"};
    return nullptr;
  }
  auto init = reinterpret_cast<CUresult (*)(unsigned)>(::dlsym(library, "cuInit"));
  const CUresult result = init == nullptr ? CUDA_ERROR_NOT_FOUND : init(0);
  if (result != CUDA_SUCCESS) {
    *problem = {Verdict::kBad, "driver", absl::StrCat("cuInit fails with ", static_cast<int>(result)),
                "see that nvidia-smi works for this user, and that the container has the devices"};
    return nullptr;
  }
  auto loaded = CudaDriver::Load([library](const char* symbol) { return ::dlsym(library, symbol); });
  if (loaded.ok()) return *std::move(loaded);
  *problem = {Verdict::kBad, "driver", std::string(loaded.status().message()),
              "a driver of CUDA 12.4 or newer is needed"};
  return nullptr;
}

std::vector<Finding> Examine(const DoctorOptions& options) {
  std::vector<Finding> findings;
  findings.push_back(LibraryFinding(options.library_directory));
  std::unique_ptr<const CudaDriver> driver;
  findings.push_back(DriverFinding(&driver));
  if (driver != nullptr) ExamineDevices(*driver, &findings);
  findings.push_back(HostMemoryFinding());
  ExamineDirectories(options, &findings);
  return findings;
}

std::string Format(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    const char* verdict = finding.verdict == Verdict::kGood      ? "ok"
                          : finding.verdict == Verdict::kLimited ? "--"
                                                                 : "NO";
    absl::StrAppendFormat(&text, "%-3s %-20s %s\n", verdict, finding.what, finding.found);
    if (!finding.advice.empty()) absl::StrAppendFormat(&text, "    %-20s -> %s\n", "", finding.advice);
  }
  return text;
}

}  // namespace spillway::integration
