// How a launch names its stream.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_STREAM_REF_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_STREAM_REF_H_

#include "allocator/driver/cuda_driver.h"

namespace spillway::allocator {

// Legacy and per-thread default streams are told apart by the entry point that was called (cuLaunchKernel /
// cuLaunchKernel_ptsz) when the handle is null.
struct StreamRef {
  CUstream handle = nullptr;
  bool per_thread_default = false;  // a null handle means the calling thread's stream
  // Of a default stream: the context that was current, which may be another device's. Null: the residency's own. What
  // the handle of any other stream belongs to is asked of the driver.
  CUcontext context = nullptr;

  // Whether the current context tells which stream is meant.
  bool IsDefault() const { return handle == nullptr || handle == CU_STREAM_LEGACY || IsPerThread(); }

  bool IsPerThread() const {
    return handle == CU_STREAM_PER_THREAD || (handle == nullptr && per_thread_default);
  }
  // The handle to pass to calls that take no per-thread form.
  CUstream Explicit() const {
    if (IsPerThread()) return CU_STREAM_PER_THREAD;
    return handle == nullptr ? CU_STREAM_LEGACY : handle;
  }
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_STREAM_REF_H_
