// Entry point for libFuzzer.

#include "tests/fuzz/kernel_params_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  spillway::integration::FuzzKernelParams(data, size);
  return 0;
}
