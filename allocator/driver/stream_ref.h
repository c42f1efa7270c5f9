// StreamRef: the stream that a launch names. TimelineValue: a point in a stream. Both are plain values. The
// driver's wrappers create StreamRefs, residency creates TimelineValues. Nothing here can fail.

#ifndef SPILLWAY_ALLOCATOR_DRIVER_STREAM_REF_H_
#define SPILLWAY_ALLOCATOR_DRIVER_STREAM_REF_H_

#include <cstdint>

#include "allocator/driver/cuda_driver.h"

namespace spillway::allocator {

// A null handle means the legacy or the per-thread default stream, depending on the entry point that was
// called (cuLaunchKernel or cuLaunchKernel_ptsz).
struct StreamRef {
  CUstream handle = nullptr;
  bool per_thread_default = false;  // a null handle means the calling thread's stream
  // The context that was current, for a default stream; it may be another device's. Null stands for the
  // residency's context. For any other stream the driver is asked for the context of the handle.
  CUcontext context = nullptr;

  // Whether the current context decides which stream is meant.
  bool IsDefault() const { return handle == nullptr || handle == CU_STREAM_LEGACY || IsPerThread(); }

  bool IsPerThread() const {
    return handle == CU_STREAM_PER_THREAD || (handle == nullptr && per_thread_default);
  }
  // The handle to pass to calls that have no per-thread form.
  CUstream Explicit() const {
    if (IsPerThread()) return CU_STREAM_PER_THREAD;
    return handle == nullptr ? CU_STREAM_LEGACY : handle;
  }
};

// Index of one of a device's streams while the stream exists. A new stream may get the index afterwards. Its
// numbers continue those of the old stream, so old timeline values stay valid.
using StreamIndex = uint16_t;
inline constexpr StreamIndex kNoStream = 0;

// Launch `number` of a stream, counted from 1. The GPU completes the launches of a stream in this order.
struct TimelineValue {
  StreamIndex stream = kNoStream;
  uint64_t number = 0;

  // The value as one word, for atomics: 16 bits of stream, 48 bits of number. 0 is no value.
  constexpr uint64_t Packed() const { return (uint64_t{stream} << kNumberBits) | number; }
  static constexpr TimelineValue Unpack(uint64_t packed) {
    return {static_cast<StreamIndex>(packed >> kNumberBits), packed & ((uint64_t{1} << kNumberBits) - 1)};
  }

 private:
  static constexpr int kNumberBits = 48;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_DRIVER_STREAM_REF_H_
