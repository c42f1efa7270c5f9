// The one exported function checks that PyTorch's allocator may be swapped now, and swaps it.

#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

#include "integration/engine/spillway.h"
#include "integration/engine/torch_release.h"
#include "integration/torch/allocator.h"
#include "integration/torch/iteration_marks.h"
#include "integration/torch/refused_calls.h"

namespace spillway::integration {
namespace {

// Has PyTorch parse its variables. A variable that names a backend ("native") is compared with the
// allocator's name when PyTorch parses it strictly, on its first need. Native's snapshot needs the variables
// and touches no device yet, so the comparison is over before the name changes. A wrong variable then fails
// as it would have later, with PyTorch's text.
void ParsePyTorchVariables(torch_cuda::CUDAAllocator* native) {
  for (const char* name : {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}) {
    const auto value = PyTorchVariable(name);
    if (!value || value->find("backend") == std::string::npos) continue;
    try {
      (void)NativeForms(native).snapshot(kNoPool, false);
    } catch (const std::exception&) {
      // PyTorch parses again, and reports the error, at its first use.
    }
    return;
  }
}

std::string WhyNot(const spillway_api* api, std::string_view release, torch_cuda::CUDAAllocator* native) {
  if (api == nullptr || api->version != SPILLWAY_API_VERSION || api->size < sizeof(spillway_api)) {
    return "engine and PyTorch library are of different versions";
  }
  if (IsDevelopmentBuild(release) && release != SPILLWAY_TORCH_RELEASE) {
    return std::string(release) + " is a development build, and this Spillway was compiled against " +
           SPILLWAY_TORCH_RELEASE + "; one compiled against that very build serves it (SPILLWAY_PYTHON)";
  }
  if (native->name() == "spillway") return "already installed";
  if (native->name() != "native") {
    return "PyTorch uses its allocator '" + native->name() + "' (backend: in PYTORCH_CUDA_ALLOC_CONF)";
  }
  if (native->initialized()) return "CUDA is already initialized in PyTorch";
  if (PyTorchVariable("PYTORCH_NO_CUDA_MEMORY_CACHING")) {
    return "PYTORCH_NO_CUDA_MEMORY_CACHING is set, which asks for an allocator without a cache";
  }
  return "";
}

}  // namespace
}  // namespace spillway::integration

extern "C" __attribute__((visibility("default"))) int spillway_torch_install(const spillway_api* api,
                                                                             const char* release, char* error,
                                                                             size_t error_bytes) {
  using namespace spillway::integration;  // NOLINT: one function outside the namespace
  if (error_bytes > 0) error[0] = 0;
  try {
    auto* native = torch_cuda::allocator.load();
    if (native == nullptr) {
      std::snprintf(error, error_bytes, "PyTorch has no CUDA allocator yet");
      return SPILLWAY_TORCH_NOT_YET;
    }
    std::string reason = WhyNot(api, release, native);
    if (reason.empty()) {
      ParsePyTorchVariables(native);
      SpillwayAllocator::Install(api);
      InstallIterationMarks(api);
      const std::string unserved = InstallRefusedCalls(api);
      if (!unserved.empty()) {
        std::snprintf(error, error_bytes, "a refused launch stays torch.AcceleratorError: %s",
                      unserved.c_str());
      }
      return 0;
    }
    std::snprintf(error, error_bytes, "%s", reason.c_str());
  } catch (const std::exception& failure) {
    std::snprintf(error, error_bytes, "%s", failure.what());
  }
  return 1;
}
