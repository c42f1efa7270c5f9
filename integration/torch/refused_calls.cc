#include "integration/torch/refused_calls.h"

#include <c10/cuda/CUDAException.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <exception>

#include "integration/torch/compat_types.h"
#include "integration/torch/imports.h"

namespace spillway::integration {
namespace {

// Set once, before the first call is led here.
const spillway_api* g_engine = nullptr;
ImportedFunction* g_check = nullptr;

// Returns whether the code may be a refusal's: out of memory, or a wait that the user has limited. A device's
// own errors are never refusals.
bool MayBeRefused(int32_t error) { return error == cudaErrorMemoryAllocation || error == cudaErrorTimeout; }

[[noreturn]] void ThrowRefusedCall(int32_t error, const char* file, const char* function, uint32_t line) {
  (void)cudaGetLastError();  // as in PyTorch's own: the error is reported, and over
  const c10::SourceLocation place{function, file, line};
  const std::string words = std::string("\nSpillway: ") + g_engine->last_error();
  if (error == cudaErrorMemoryAllocation) {
    throw c10::OutOfMemoryError(
        place,
        "CUDA out of memory. A kernel launch or a copy needs more memory than can be freed for it." + words);
  }
  const std::string text = cudaGetErrorString(static_cast<cudaError_t>(error));
  throw DeviceFailure(place, error, "CUDA error: " + text + words);
}

// PyTorch's check takes more arguments in later minors; they are passed on as they are.
template <typename Function>
struct CheckBefore;

template <typename Line, typename... More>  // the line is signed up to 2.9
struct CheckBefore<void(int32_t, const char*, const char*, Line, More...)> {
  using Function = void(int32_t, const char*, const char*, Line, More...);
  static inline Function* pytorchs = nullptr;

  static void Check(int32_t error, const char* file, const char* function, Line line, More... more) {
    if (__builtin_expect(error != cudaSuccess, 0) && MayBeRefused(error) &&
        g_engine->take_refused_call() != 0)
      ThrowRefusedCall(error, file, function, static_cast<uint32_t>(line));
    pytorchs(error, file, function, line, more...);
  }
};

using Check = CheckBefore<decltype(c10::cuda::c10_cuda_check_implementation)>;

// Runs on the refusing thread, before the error reaches a library that may have come since.
void OnRefusedCall() {
  try {
    (void)g_check->Redirect();
  } catch (const std::exception&) {  // inside a driver call: the library raises what it did without us
  }
}

}  // namespace

std::string InstallRefusedCalls(const spillway_api* api) {
  if (g_check != nullptr) return "";
  if (api->take_refused_call == nullptr || api->on_refused_call == nullptr)
    return "the engine does not tell of them";
  g_engine = api;
  Check::pytorchs = &c10::cuda::c10_cuda_check_implementation;
  g_check =
      new ImportedFunction(reinterpret_cast<void*>(Check::pytorchs), reinterpret_cast<void*>(&Check::Check));
  if (g_check->Redirect() == 0) return "no library calls PyTorch's check of CUDA errors";
  const int result = api->on_refused_call(&OnRefusedCall);
  return result == 0 ? "" : "the engine does not run";
}

}  // namespace spillway::integration
