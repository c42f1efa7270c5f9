// The table of host twins and their registration: see twins.h.
#include "integration/simcuda/runtime/twins.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <link.h>
#include <time.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "integration/simcuda/driver/simcuda.h"

namespace simcuda {
namespace {

// The clock that spin_kernel's cycles are counted in, read once before the first twin runs.
std::atomic<int64_t> clock_khz{1'000'000};

void SleepFor(int64_t nanoseconds) {
  timespec left{static_cast<time_t>(nanoseconds / 1'000'000'000),
                static_cast<long>(nanoseconds % 1'000'000'000)};
  while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) != 0) {
  }
}

template <typename T>
T Parameter(void** params, int index) {
  T value;
  std::memcpy(&value, params[index], sizeof(value));
  return value;
}

// (int64 cycles): keeps its stream busy for that many clock cycles; sleeps, so that the host's cores stay free.
void Spin(const simcuda_launch*, void** params) {
  const auto cycles = Parameter<int64_t>(params, 0);
  if (cycles > 0) SleepFor(static_cast<int64_t>(1e6 * static_cast<double>(cycles) / clock_khz.load()));
}

// (int* flag): raises the flag and keeps its stream busy until another stream clears it.
void BusyWaitForFlag(const simcuda_launch*, void** params) {
  std::atomic_ref<int> flag(*Parameter<int*>(params, 0));
  flag.store(1);
  while (flag.load() == 1) SleepFor(20'000);
}

// (int* flag)
void ClearFlag(const simcuda_launch*, void** params) {
  std::atomic_ref<int>(*Parameter<int*>(params, 0)).store(0);
}

// (): empties the instruction cache on a GPU.
void Nothing(const simcuda_launch*, void**) {}

constexpr simcuda_parameter kOneWord[] = {{0, 8}};

struct Twin {
  const char* kernel;  // demangled, without the anonymous namespace's hash
  simcuda_kernel_function run;
  size_t parameter_count;  // each of 8 bytes
};

constexpr Twin kTwins[] = {
    {"at::cuda::(anonymous namespace)::spin_kernel(long)", Spin, 1},
    {"at::cuda::(anonymous namespace)::busy_wait_for_flag_kernel(int*)", BusyWaitForFlag, 1},
    {"at::cuda::(anonymous namespace)::clear_flag_kernel(int*)", ClearFlag, 1},
    {"at::cuda::(anonymous namespace)::flush_icache_kernel()", Nothing, 0},
    {"at::cuda::flush_icache_kernel()", Nothing, 0},
};

std::string Demangle(const char* name) {
  int status = 0;
  char* demangled = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string text = status == 0 && demangled != nullptr ? demangled : name;
  std::free(demangled);
  return text;
}

const Twin* FindTwin(const std::string& demangled) {
  for (const Twin& twin : kTwins) {
    if (demangled == twin.kernel) return &twin;
  }
  return nullptr;
}

// The stand-in driver's own functions are not part of the driver API, and a preload that carries the driver's SONAME
// does not have them: they are looked up in each loaded object that is called like the driver.
decltype(&simcuda_register_kernel) FindRegistration() {
  link_map* map = nullptr;
  void* self = dlopen(nullptr, RTLD_LAZY);
  if (self == nullptr || dlinfo(self, RTLD_DI_LINKMAP, &map) != 0) return nullptr;
  for (; map != nullptr; map = map->l_next) {
    if (std::strstr(map->l_name, "libcuda.so") == nullptr) continue;
    if (void* address = dlsym(map, "simcuda_register_kernel")) {  // glibc: a link_map is a handle
      return reinterpret_cast<decltype(&simcuda_register_kernel)>(address);
    }
  }
  return nullptr;
}

bool RegisterTwin(const DriverTable& driver, const Twin& twin, const char* name) {
  const auto register_kernel = FindRegistration();
  if (register_kernel == nullptr) return false;
  CUdevice device = 0;
  int khz = 0;
  if (driver.CtxGetDevice(&device) == CUDA_SUCCESS &&
      driver.DeviceGetAttribute(&khz, CU_DEVICE_ATTRIBUTE_CLOCK_RATE, device) == CUDA_SUCCESS && khz > 0) {
    clock_khz.store(khz);
  }
  const simcuda_kernel kernel{name, twin.run, nullptr, kOneWord, twin.parameter_count};
  return register_kernel(&kernel, nullptr) == 0;
}

// The kernel that is registered with the stand-in driver under this name, of a library, so that it is good in every
// context. Launches take it in place of a function.
CUfunction FindRegistered(const DriverTable& driver, const char* name) {
  const std::string image = std::string(SIMCUDA_IMAGE_MAGIC "\n") + name + "\n";
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  if (driver.LibraryLoadData(&library, image.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0) !=
      CUDA_SUCCESS)
    return nullptr;
  // The library stays loaded: its kernel is kept with the caller's.
  return driver.LibraryGetKernel(&kernel, library, name) == CUDA_SUCCESS
             ? reinterpret_cast<CUfunction>(kernel)
             : nullptr;
}

[[noreturn]] void StopAtUnknownKernel(const std::string& kernel) {
  std::fprintf(
      stderr,
      "simcuda: this process launched the kernel\n  %s\nwhose device code cannot run without a GPU, and no "
      "host function is registered under its name. Stopping.\n",
      kernel.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace

CUfunction FunctionOf(const DriverTable& driver, KernelEntry* kernel) {
  // Two threads may both find the function; they store the same one, or an equal one.
  CUfunction function = kernel->function.load();
  if (function != nullptr) return function;
  const std::string demangled = Demangle(kernel->name);
  const Twin* twin = FindTwin(demangled);
  if (twin == nullptr || RegisterTwin(driver, *twin, kernel->name))
    function = FindRegistered(driver, kernel->name);
  if (function == nullptr) StopAtUnknownKernel(demangled);
  kernel->function.store(function);
  return function;
}

}  // namespace simcuda
