// CudaDriver: the real driver's entry points that Spillway itself calls, as one table of typed pointers. The only
// file of the product that names libcuda's functions for calling them; nobody resolves a symbol elsewhere. Filled
// by a look-up function: the preload's (which skips our own hooks), or a test's dlsym.

#ifndef SPILLWAY_ALLOCATOR_DRIVER_CUDA_DRIVER_H_
#define SPILLWAY_ALLOCATOR_DRIVER_CUDA_DRIVER_H_

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL 1  // cuda.h must not rename functions to their newest version
#endif
#include <cuda.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace spillway::allocator {

// One member per row of driver_entries.def, named as the exported symbol.
struct CudaDriver {
  // Any exported symbol of the driver to its address, or null when this driver lacks it.
  using Lookup = std::function<void*(const char* symbol)>;

  // Fails with kNotFound and the names of the missing entry points. Entries that only newer drivers have
  // (cuFuncGetParamInfo and its kin, 12.4) may be null: callers test them.
  static absl::StatusOr<std::unique_ptr<const CudaDriver>> Load(const Lookup& lookup);

#define DRIVER_ENTRY(symbol) decltype(&::symbol) symbol = nullptr;
#include "allocator/driver/driver_entries.def"
#undef DRIVER_ENTRY

  // OK for CUDA_SUCCESS; else "WHAT: CUDA_ERROR_X (text)". OUT_OF_MEMORY is kResourceExhausted, NOT_READY
  // kUnavailable, INVALID_VALUE kInvalidArgument, NOT_SUPPORTED kUnimplemented, all else kInternal. The code itself
  // travels with it: ResultOf.
  absl::Status ToStatus(CUresult result, const std::string& what) const;
};

// The driver's answer that a status carries. CUDA_SUCCESS for OK; without one CUDA_ERROR_OUT_OF_MEMORY for
// kResourceExhausted, CUDA_ERROR_TIMEOUT for kDeadlineExceeded, else CUDA_ERROR_UNKNOWN.
CUresult ResultOf(const absl::Status& status);
// The same status and code with other words.
absl::Status WithWords(const absl::Status& status, const std::string& words);

// Makes `context` current for a scope and sets the thread's capture mode to RELAXED, so that our own calls inside a
// hook neither see a wrong device nor break somebody's stream capture. Puts both back.
class ScopedContext {
 public:
  ScopedContext(const CudaDriver* driver, CUcontext context);
  ~ScopedContext();
  ScopedContext(const ScopedContext&) = delete;
  ScopedContext& operator=(const ScopedContext&) = delete;

 private:
  const CudaDriver* const driver_;
  bool pushed_ = false;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_DRIVER_CUDA_DRIVER_H_
