// DeviceError: the first error after which a device can be relied on no more. From then on nothing moves: every wait ends,
// launches and copies go to the driver, whose code goes to the caller, and allocations answer the same code.

#ifndef SPILLWAY_ALLOCATOR_DRIVER_DEVICE_ERROR_H_
#define SPILLWAY_ALLOCATOR_DRIVER_DEVICE_ERROR_H_

#include <atomic>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "allocator/driver/cuda_driver.h"

namespace spillway::allocator {

// Whether CUDA says of this code that the context cannot be used any more (cuda.h: "leaves the process in an
// inconsistent state", or the context is gone).
bool IsSticky(CUresult result);

class DeviceError {
 public:
  // `on_first` runs once, on the thread that brings the first error, whatever locks that holds: it must take none.
  explicit DeviceError(std::function<void()> on_first = nullptr) : on_first_(std::move(on_first)) {}

  // What a call of the driver answered. Keeps the first sticky code; true when this one is sticky. Any thread.
  bool Note(CUresult result);
  bool Note(const absl::Status& status) { return !status.ok() && Note(ResultOf(status)); }
  // Whether an event that was asked for has completed. An error says nothing of that: a sticky one is kept, and nothing
  // moves from then on; any other is asked again, and taken for the device's once it does not go away.
  bool Completed(CUresult query);
  // Something failed that leaves the device's memory in an unknown state, whatever the code: a mapping that may be half
  // gone. Any thread.
  void Fail(const absl::Status& status);

  // Whether anything was kept. Any thread, no lock.
  bool any() const { return first_.load(std::memory_order_acquire) != CUDA_SUCCESS; }
  // CUDA_SUCCESS: none.
  CUresult first() const { return static_cast<CUresult>(first_.load(std::memory_order_acquire)); }
  // In words, with first() as its code. OK: none.
  absl::Status status(const CudaDriver& driver) const;

 private:
  void Keep(CUresult result);

  const std::function<void()> on_first_;
  std::atomic<int> first_{CUDA_SUCCESS};  // changes once; pairs with nothing else
  std::atomic<int> odd_answers_{0};       // to queries, in a row
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_DRIVER_DEVICE_ERROR_H_
