#include "integration/cli/doctor/driver_facts.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "integration/cli/doctor/link_rates.h"
#include "integration/cli/doctor/machine_facts.h"
#include "io/os/errno.h"

namespace spillway::integration {
namespace {

using allocator::CudaDriver;

constexpr char kDriverName[] = "libcuda.so.1";
// The directories where a job's preload looks after ld.so's places.
constexpr const char* kOtherDirectories[] = {
#define DRIVER_DIRECTORY(path) path,
#include "integration/preload/driver_directories.def"
#undef DRIVER_DIRECTORY
};

// The library is never closed, since a driver has threads.
void* Open(const std::string& name) { return ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL); }

std::string LoaderError(const std::string& otherwise) {
  const char* const why = ::dlerror();
  return why == nullptr ? otherwise : why;
}

// Finds the driver as ld.so does, or in one of the other directories; fills the path and who found it.
absl::StatusOr<void*> FindDriver(OpenedDriver* driver) {
  if (void* const library = Open(kDriverName)) return library;
  driver->by_loader = false;
  std::string problem;
  for (const char* const directory : kOtherDirectories) {
    const std::string path = absl::StrCat(directory, "/", kDriverName);
    if (::access(path.c_str(), R_OK) != 0) continue;
    if (void* const library = Open(path)) return library;
    if (problem.empty()) problem = LoaderError(path);
  }
  if (!problem.empty()) return absl::NotFoundError(problem);
  return absl::NotFoundError(absl::StrCat(kDriverName, " is not found, neither where ld.so looks nor in ",
                                          absl::StrJoin(kOtherDirectories, ", ")));
}

// Returns the path from which the loader has a library; empty if it does not report one.
std::string PathOf(void* library) {
  struct link_map* map = nullptr;
  if (::dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return "";
  return map->l_name;
}

// Returns what to do about an error of OpenDriver's.
std::string AdviceFor(const absl::Status& status) {
  if (absl::IsNotFound(status)) return "install NVIDIA's driver, or name it in SPILLWAY_CUDA_DRIVER";
  if (absl::IsFailedPrecondition(status))
    return "see that nvidia-smi works for this user, and that the container has the devices";
  return "a driver of CUDA 12.4 or newer is needed";
}

std::string DeviceName(const OpenedDriver& driver, CUdevice device) {
  const auto get = reinterpret_cast<CUresult (*)(char*, int, CUdevice)>(driver.lookup("cuDeviceGetName"));
  char name[256] = {};
  if (get == nullptr || get(name, sizeof(name) - 1, device) != CUDA_SUCCESS) return "";
  return name;
}

int AttributeOf(const CudaDriver& driver, CUdevice_attribute attribute, CUdevice device, int otherwise) {
  int value = 0;
  return driver.cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS ? value : otherwise;
}

// The device's primary context for a scope.
class PrimaryContext {
 public:
  PrimaryContext(const CudaDriver* driver, CUdevice device) : driver_(driver), device_(device) {
    status_ = driver->ToStatus(driver->cuDevicePrimaryCtxRetain(&context_, device), "making a context");
  }
  ~PrimaryContext() {
    if (status_.ok()) (void)driver_->cuDevicePrimaryCtxRelease_v2(device_);
  }
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;

  const absl::Status& status() const { return status_; }
  CUcontext context() const { return context_; }

 private:
  const CudaDriver* const driver_;
  const CUdevice device_;
  CUcontext context_ = nullptr;
  absl::Status status_;
};

absl::Status FillDevice(const OpenedDriver& driver, int ordinal, const DriverOptions& options,
                        DeviceFacts* facts) {
  const CudaDriver& entries = *driver.entries;
  CUdevice device = 0;
  size_t total = 0, free = 0;
  SPILLWAY_RETURN_IF_ERROR(entries.ToStatus(entries.cuDeviceGet(&device, ordinal), "cuDeviceGet"));
  facts->name = DeviceName(driver, device);
  facts->capability = 10 * AttributeOf(entries, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device, 0) +
                      AttributeOf(entries, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device, 0);
  facts->maps = AttributeOf(entries, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device, 0) != 0;
  facts->host_numa =
      AttributeOf(entries, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device, 0) != 0;
  facts->numa_node = AttributeOf(entries, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device, -1);
  SPILLWAY_RETURN_IF_ERROR(entries.ToStatus(entries.cuDeviceTotalMem_v2(&total, device), "cuDeviceTotalMem"));
  facts->bytes = total;
  const PrimaryContext context(&entries, device);
  SPILLWAY_RETURN_IF_ERROR(context.status());
  const allocator::ScopedContext scope(&entries, context.context());
  SPILLWAY_RETURN_IF_ERROR(entries.ToStatus(entries.cuMemGetInfo_v2(&free, &total), "cuMemGetInfo"));
  facts->free_bytes = free;
  if (!facts->maps || !CheckDevice(facts->capability).ok()) return absl::OkStatus();
  if (options.link_time.count() == 0) {
    facts->link.problem = "not asked for";
    return absl::OkStatus();
  }
  if (options.link_progress) options.link_progress(ordinal, 0);
  facts->link =
      MeasureLink(entries, context.context(), ordinal,
                  {.free_bytes = free, .host_bytes = options.host_bytes, .time = options.link_time});
  if (options.link_progress) options.link_progress(ordinal, 1);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<OpenedDriver> OpenDriver(const std::string& path) {
  OpenedDriver driver;
  void* library = nullptr;
  if (path.empty()) {
    SPILLWAY_ASSIGN_OR_RETURN(library, FindDriver(&driver));
  } else {
    library = Open(path);
    if (library == nullptr) return absl::NotFoundError(LoaderError(path));
  }
  driver.path = PathOf(library);
  const CudaDriver::Lookup lookup = [library](const char* symbol) { return ::dlsym(library, symbol); };
  const auto init = reinterpret_cast<CUresult (*)(unsigned)>(lookup("cuInit"));
  const CUresult result = init == nullptr ? CUDA_ERROR_NOT_FOUND : init(0);
  if (result != CUDA_SUCCESS)
    return absl::FailedPreconditionError(absl::StrCat("cuInit fails with ", static_cast<int>(result)));
  auto entries = CudaDriver::Load(lookup);
  if (!entries.ok()) return absl::UnimplementedError(std::string(entries.status().message()));
  driver.entries = *std::move(entries);
  driver.lookup = lookup;
  return driver;
}

DriverFacts InspectDriver(const DriverOptions& options) {
  DriverFacts facts;
  const auto driver = OpenDriver(options.path);
  if (!driver.ok()) {
    facts.problem = std::string(driver.status().message());
    facts.advice = AdviceFor(driver.status());
    return facts;
  }
  facts.path = driver->path;
  facts.by_loader = driver->by_loader;
  facts.stand_in = !HasKernelModule();
  (void)driver->entries->cuDriverGetVersion(&facts.version);
  int count = 0;
  (void)driver->entries->cuDeviceGetCount(&count);
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    DeviceFacts& device = facts.devices.emplace_back();
    const absl::Status status = FillDevice(*driver, ordinal, options, &device);
    if (!status.ok()) device.problem = std::string(status.message());
  }
  return facts;
}

}  // namespace spillway::integration
