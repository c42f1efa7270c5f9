#include "bench/stand_in.h"

#include <dlfcn.h>
#include <linux/limits.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace spillway::bench {

void Die(const std::string& text) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, text.c_str());
  std::exit(1);
}

void Must(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) Die(std::string(what) + " failed: " + std::to_string(result));
}

const allocator::CudaDriver* OpenStandIn(const char* memory) {
  char path[PATH_MAX] = {};
  if (readlink("/proc/self/exe", path, sizeof(path) - 1) < 0) Die("where am I?");
  std::string library(path);
  library = library.substr(0, library.rfind('/')) + "/../lib/simcuda/libcuda.so.1";
  setenv("SIMCUDA_MEMORY", memory, 1);
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) Die(dlerror());
  auto driver = allocator::CudaDriver::Load([handle](const char* symbol) { return dlsym(handle, symbol); });
  if (!driver.ok()) Die(driver.status().ToString());
  auto* const init = reinterpret_cast<CUresult (*)(unsigned int)>(dlsym(handle, "cuInit"));
  Must(init(0), "cuInit");
  return driver->release();
}

}  // namespace spillway::bench
