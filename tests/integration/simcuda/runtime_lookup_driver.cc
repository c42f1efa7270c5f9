// A libcuda.so.1 that has no device and writes down how it is reached: one line on standard error for each function
// that is looked up or called. Only runtime_lookup_test.py loads it.
#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstring>

namespace {

CUresult NoDevice(unsigned int flags) {
  std::fprintf(stderr, "call cuInit %u\n", flags);
  return CUDA_ERROR_NO_DEVICE;
}

CUresult DriverVersion(int* version) {
  *version = 13000;
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

#undef cuGetProcAddress
__attribute__((visibility("default"))) CUresult cuGetProcAddress_v2(const char* symbol, void** function,
                                                                    int version, cuuint64_t flags,
                                                                    CUdriverProcAddressQueryResult* status) {
  std::fprintf(stderr, "look-up %s %d %llu\n", symbol, version, static_cast<unsigned long long>(flags));
  *function = nullptr;
  if (std::strcmp(symbol, "cuInit") == 0) *function = reinterpret_cast<void*>(&NoDevice);
  if (std::strcmp(symbol, "cuDriverGetVersion") == 0) *function = reinterpret_cast<void*>(&DriverVersion);
  if (std::strcmp(symbol, "cuGetProcAddress") == 0) *function = reinterpret_cast<void*>(&cuGetProcAddress_v2);
  if (status != nullptr) {
    *status = *function != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return CUDA_SUCCESS;
}

// Present so that a runtime which took it instead of asking cuGetProcAddress would be noticed.
__attribute__((visibility("default"))) CUresult cuInit(unsigned int) {
  std::fprintf(stderr, "direct cuInit\n");
  return CUDA_ERROR_UNKNOWN;
}
}
