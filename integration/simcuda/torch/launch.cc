// Entry points by cuGetProcAddress, registration by name and number of addresses, and the launch itself.
#include "integration/simcuda/torch/launch.h"

#include <c10/cuda/CUDAException.h>
#include <cudaTypedefs.h>
#include <dlfcn.h>
#include <link.h>

#include <cstdio>
#include <cstring>
#include <utility>

#include "integration/simcuda/driver/simcuda.h"

namespace simcuda::ops {
namespace {

struct Driver {
  PFN_cuLaunchKernel_v4000 launch_kernel = nullptr;
  PFN_cuCtxGetCurrent_v4000 context_get_current = nullptr;
  PFN_cuLibraryLoadData_v12000 library_load = nullptr;
  PFN_cuLibraryGetKernel_v12000 library_get_kernel = nullptr;
  decltype(&simcuda_register_kernel) register_kernel = nullptr;
  decltype(&simcuda_set_release) set_release = nullptr;
  decltype(&simcuda_fail_device) fail_device = nullptr;
};

Driver& GetDriver() {
  static Driver driver;
  return driver;
}

// A library before the stand-in may carry its SONAME (a preload that hooks the driver), and may answer for every path,
// so the stand-in's own names are looked up in the loaded objects themselves.
void* FindInLoadedDriver(const char* name) {
  link_map* map = nullptr;
  if (dlinfo(dlopen(nullptr, RTLD_NOW), RTLD_DI_LINKMAP, &map) != 0) return nullptr;
  for (; map != nullptr; map = map->l_next) {
    if (std::strstr(map->l_name, "libcuda.so") == nullptr) continue;
    if (void* address = dlsym(map, name)) return address;  // glibc: a link_map is a handle
  }
  return nullptr;
}

template <typename Pointer>
bool FindEntry(PFN_cuGetProcAddress_v12000 resolve, const char* name, int version, Pointer* pointer) {
  void* address = nullptr;
  CUdriverProcAddressQueryResult why;
  if (resolve(name, &address, version, CU_GET_PROC_ADDRESS_DEFAULT, &why) != CUDA_SUCCESS) return false;
  *pointer = reinterpret_cast<Pointer>(address);
  return address != nullptr;
}

// The first parameter: a reference on the heap, given back by the driver when the launch can run no more.
using WorkHolder = std::shared_ptr<QueuedWork>;

WorkHolder* HolderIn(void** params) {
  WorkHolder* holder;
  std::memcpy(&holder, params[0], sizeof(holder));
  return holder;
}

void RunQueuedWork(const simcuda_launch*, void** params) { (*HolderIn(params))->Run(); }
void ReleaseQueuedWork(void** params) { delete HolderIn(params); }

// Forms grow in classes, so that a list op of changing length does not register a function for every length.
constexpr size_t kStep = 16;
size_t SizeClass(size_t addresses) {
  if (addresses <= kMaxAddressesOfOne) return addresses;
  return kMaxAddressesOfOne + (addresses - kMaxAddressesOfOne + kStep - 1) / kStep;
}
size_t ClassCapacity(size_t size_class) {
  if (size_class <= kMaxAddressesOfOne) return size_class;
  return kMaxAddressesOfOne + (size_class - kMaxAddressesOfOne) * kStep;
}

void CheckDriver(CUresult result, const char* function, uint32_t line) {
  // The runtime's error numbers are the driver's.
  c10::cuda::c10_cuda_check_implementation(static_cast<int32_t>(result), __FILE__, function, line, false);
}

// The form's kernel, of a library as the runtime loads them: a handle that whoever stands in the driver's place has
// seen. Libraries stay loaded.
CUfunction Load(const std::string& name, size_t parameters) {
  const std::string image =
      std::string(SIMCUDA_IMAGE_MAGIC "\n.kernel ") + name + " " + std::to_string(parameters) + "\n";
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CUresult result =
      GetDriver().library_load(&library, image.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (result == CUDA_SUCCESS) result = GetDriver().library_get_kernel(&kernel, library, name.c_str());
  CheckDriver(result, __func__, __LINE__);
  return reinterpret_cast<CUfunction>(kernel);  // launches take either
}

CUfunction Register(const std::string& name, size_t addresses, size_t number_words) {
  std::vector<simcuda_parameter> parameters;
  for (size_t i = 0; i < addresses + 1; ++i) parameters.push_back({i * sizeof(uint64_t), sizeof(uint64_t)});
  parameters.push_back({(addresses + 1) * sizeof(uint64_t), number_words * sizeof(uint64_t)});
  simcuda_kernel kernel{};
  kernel.name = name.c_str();
  kernel.run = &RunQueuedWork;
  kernel.parameters = parameters.data();
  kernel.parameter_count = parameters.size();
  CUfunction function = nullptr;
  int result = GetDriver().register_kernel(&kernel, &function);
  if (result == 0) result = GetDriver().set_release(function, &ReleaseQueuedWork);
  TORCH_CHECK(result == 0, "simcuda: the driver refused to register ", name, " with ", addresses,
              " addresses: error ", result);
  return Load(name, parameters.size());
}

}  // namespace

CUfunction LaunchFunctions::Find(const std::string& name, size_t addresses, size_t number_words,
                                 size_t* padded) {
  const size_t size_class = SizeClass(addresses);
  *padded = ClassCapacity(size_class);
  std::lock_guard lock(mu_);
  if (by_size_class_.size() <= size_class) by_size_class_.resize(size_class + 1, nullptr);
  CUfunction& function = by_size_class_[size_class];
  if (function == nullptr) function = Register(name, *padded, number_words);
  return function;
}

bool OpenDriver(std::string* reason) {
  Driver& driver = GetDriver();
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) {
    *reason = dlerror();
    return false;
  }
  auto resolve = reinterpret_cast<PFN_cuGetProcAddress_v12000>(dlsym(library, "cuGetProcAddress_v2"));
  if (resolve == nullptr || !FindEntry(resolve, "cuLaunchKernel", 4000, &driver.launch_kernel) ||
      !FindEntry(resolve, "cuCtxGetCurrent", 4000, &driver.context_get_current) ||
      !FindEntry(resolve, "cuLibraryLoadData", 12000, &driver.library_load) ||
      !FindEntry(resolve, "cuLibraryGetKernel", 12000, &driver.library_get_kernel)) {
    *reason = "libcuda.so.1 lacks cuGetProcAddress_v2, or a function that launches want";
    return false;
  }
  driver.register_kernel =
      reinterpret_cast<decltype(driver.register_kernel)>(FindInLoadedDriver("simcuda_register_kernel"));
  driver.fail_device =
      reinterpret_cast<decltype(driver.fail_device)>(FindInLoadedDriver("simcuda_fail_device"));
  driver.set_release =
      reinterpret_cast<decltype(driver.set_release)>(FindInLoadedDriver("simcuda_set_release"));
  if (driver.register_kernel == nullptr || driver.set_release == nullptr || driver.fail_device == nullptr) {
    *reason = "libcuda.so.1 is not the stand-in driver";
    return false;
  }
  return true;
}

void Launch(const std::string& name, LaunchFunctions* functions, const LaunchParameters& parameters,
            std::shared_ptr<QueuedWork> work, c10::cuda::CUDAStream stream) {
  const Driver& driver = GetDriver();
  size_t padded = 0;
  CUcontext context = nullptr;
  if (driver.context_get_current(&context) == CUDA_SUCCESS && context == nullptr) {
    C10_CUDA_CHECK(cudaSetDevice(stream.device_index()));  // a thread's first CUDA call may be this launch
  }
  const CUfunction function =
      functions->Find(name, parameters.addresses.size(), parameters.numbers.size(), &padded);
  c10::SmallVector<uint64_t, 24> values(padded + 1, 0);
  auto holder = std::make_unique<WorkHolder>(std::move(work));
  values[0] = reinterpret_cast<uint64_t>(holder.get());
  std::copy(parameters.addresses.begin(), parameters.addresses.end(), values.begin() + 1);
  c10::SmallVector<void*, 24> params;
  for (uint64_t& value : values) params.push_back(&value);
  params.push_back(const_cast<uint64_t*>(parameters.numbers.data()));
  const CUresult result =
      driver.launch_kernel(function, 1, 1, 1, 1, 1, 1, 0, stream.stream(), params.data(), nullptr);
  if (result == CUDA_SUCCESS) [[maybe_unused]]
    auto* given = holder.release();
  CheckDriver(result, __func__, __LINE__);
}

void FailDevice(const std::string& text) { GetDriver().fail_device(CUDA_ERROR_LAUNCH_FAILED, text.c_str()); }

void FailDeviceByAssert(const std::string& line) {
  std::fprintf(stderr, "simcuda: %s\n", line.c_str());
  GetDriver().fail_device(CUDA_ERROR_ASSERT, ("device-side assert triggered: " + line).c_str());
}

}  // namespace simcuda::ops
