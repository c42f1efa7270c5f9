// How a launch names its stream, and how a point in a stream is named.

#ifndef SPILLWAY_ALLOCATOR_DRIVER_STREAM_REF_H_
#define SPILLWAY_ALLOCATOR_DRIVER_STREAM_REF_H_

#include <cstdint>

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

// Index of a stream of one device, for as long as the stream lives; afterwards the index may serve a new stream whose
// numbers go on from the old one's, so old stamps stay true.
using StreamIndex = uint16_t;
inline constexpr StreamIndex kNoStream = 0;

// Launch `number` of that stream, counted from 1.
struct Stamp {
  StreamIndex stream = kNoStream;
  uint64_t number = 0;

  // As one word, for atomics: 16 bits of stream, 48 of number; 0 is no stamp.
  constexpr uint64_t Packed() const { return (uint64_t{stream} << kNumberBits) | number; }
  static constexpr Stamp Unpack(uint64_t packed) {
    return {static_cast<StreamIndex>(packed >> kNumberBits), packed & ((uint64_t{1} << kNumberBits) - 1)};
  }

 private:
  static constexpr int kNumberBits = 48;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_DRIVER_STREAM_REF_H_
