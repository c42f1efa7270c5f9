// Error codes, names, texts and the last error of a thread: see errors.h.
#include "integration/simcuda/runtime/errors.h"

#include "integration/simcuda/driver/core/sticky_errors.h"
#include "integration/simcuda/runtime/not_supported.h"

namespace simcuda {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

struct ErrorRow {
  cudaError_t error;
  const char* name;
  const char* text;
};

constexpr ErrorRow kErrors[] = {
#define RUNTIME_ERROR(name, text) {name, #name, text},
#include "integration/simcuda/runtime/errors.def"
#undef RUNTIME_ERROR
};

const ErrorRow* FindError(cudaError_t error) {
  for (const ErrorRow& row : kErrors) {
    if (row.error == error) return &row;
  }
  return nullptr;
}

static_assert(static_cast<int>(cudaErrorMemoryAllocation) == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(static_cast<int>(cudaErrorInitializationError) == CUDA_ERROR_NOT_INITIALIZED);
static_assert(static_cast<int>(cudaErrorNoDevice) == CUDA_ERROR_NO_DEVICE);
static_assert(static_cast<int>(cudaErrorInvalidResourceHandle) == CUDA_ERROR_INVALID_HANDLE);
static_assert(static_cast<int>(cudaErrorNotReady) == CUDA_ERROR_NOT_READY);
static_assert(static_cast<int>(cudaErrorIllegalAddress) == CUDA_ERROR_ILLEGAL_ADDRESS);
static_assert(static_cast<int>(cudaErrorAssert) == CUDA_ERROR_ASSERT);
static_assert(static_cast<int>(cudaErrorLaunchFailure) == CUDA_ERROR_LAUNCH_FAILED);
static_assert(static_cast<int>(cudaErrorNotSupported) == CUDA_ERROR_NOT_SUPPORTED);
static_assert(static_cast<int>(cudaErrorStreamCaptureUnsupported) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);

}  // namespace

cudaError_t ToRuntimeError(CUresult result) {
  if (result == CUDA_SUCCESS) return cudaSuccess;
  const auto error = static_cast<cudaError_t>(result);
  return FindError(error) != nullptr ? error : cudaErrorUnknown;
}

cudaError_t Record(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

int RecordNotSupported() { return Record(cudaErrorNotSupported); }

}  // namespace simcuda

cudaError_t cudaGetLastError() {
  const cudaError_t error = simcuda::last_error;
  // After a sticky error the context is lost: every later call fails with it, and reading it does not clear
  // it.
  if (!simcuda::IsSticky(error)) simcuda::last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() { return simcuda::last_error; }

const char* cudaGetErrorName(cudaError_t error) {
  const simcuda::ErrorRow* row = simcuda::FindError(error);
  return row != nullptr ? row->name : "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  const simcuda::ErrorRow* row = simcuda::FindError(error);
  return row != nullptr ? row->text : "unrecognized error code";
}
