// Stands for libsimcuda_torch_<minor>.so (and, copied under another name, for libtorch_cuda.so) in
// runtime_operators_test.py: says on standard output that it was started, and asks for the device count while it
// starts, as the real one may.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

extern "C" {

__attribute__((visibility("default"))) const char* simcuda_torch_built_for() {
  return std::getenv("FAKE_BUILT_FOR");
}

__attribute__((visibility("default"))) int simcuda_torch_start() {
  using GetDeviceCount = int (*)(int*);
  const auto get_device_count = reinterpret_cast<GetDeviceCount>(dlsym(RTLD_DEFAULT, "cudaGetDeviceCount"));
  int count = 0;
  const int error = get_device_count == nullptr ? -1 : get_device_count(&count);
  std::printf("started, error %d\n", error);
  std::fflush(stdout);
  return std::getenv("FAKE_FAILS") != nullptr ? 1 : 0;
}
}
