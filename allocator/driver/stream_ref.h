// StreamRef: the stream that a launch names. TimelineValue: a point in a stream. Both are plain values.
// Wrappers of the driver make the first, residency the second. Nothing here can fail.

#ifndef SPILLWAY_ALLOCATOR_DRIVER_STREAM_REF_H_
#define SPILLWAY_ALLOCATOR_DRIVER_STREAM_REF_H_

#include <cstdint>

#include "allocator/driver/cuda_driver.h"

namespace spillway::allocator {

// When the handle is null, the entry point that was called (cuLaunchKernel or cuLaunchKernel_ptsz) says
// whether the legacy or the per-thread default stream is meant.
struct StreamRef {
  CUstream handle = nullptr;
  bool per_thread_default = false;  // a null handle means the calling thread's stream
  // For a default stream: the context that was current, which may be another device's. Null: the context of
  // the residency. For any other stream the driver is asked for the context of the handle.
  CUcontext context = nullptr;

  // Whether the current context decides which stream is meant.
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

// Index of a stream of one device while the stream exists. Afterwards a new stream may get the index. Its
// numbers go on from the old one's, so that old timeline values stay valid.
using StreamIndex = uint16_t;
inline constexpr StreamIndex kNoStream = 0;

// Launch `number` of a stream, counted from 1. The GPU completes the launches of a stream in this order.
struct TimelineValue {
  StreamIndex stream = kNoStream;
  uint64_t number = 0;

  // As one word, for atomics: 16 bits of stream, 48 of number. 0 is no value.
  constexpr uint64_t Packed() const { return (uint64_t{stream} << kNumberBits) | number; }
  static constexpr TimelineValue Unpack(uint64_t packed) {
    return {static_cast<StreamIndex>(packed >> kNumberBits), packed & ((uint64_t{1} << kNumberBits) - 1)};
  }

 private:
  static constexpr int kNumberBits = 48;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_DRIVER_STREAM_REF_H_
