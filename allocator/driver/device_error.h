// DeviceError: keeps the first error after which a device cannot be relied on. Nothing moves from then on:
// every wait ends, launches and copies go to the driver, whose code goes to the caller, and allocations fail
// with the same code. Residency has one DeviceError per device and reports to it the results of its driver
// calls, on any thread. Nothing here fails.

#ifndef SPILLWAY_ALLOCATOR_DRIVER_DEVICE_ERROR_H_
#define SPILLWAY_ALLOCATOR_DRIVER_DEVICE_ERROR_H_

#include <atomic>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "allocator/driver/cuda_driver.h"

namespace spillway::allocator {

// Whether this code makes the context unusable (cuda.h: "leaves the process in an inconsistent state", or the
// context is gone).
bool IsSticky(CUresult result);

class DeviceError {
 public:
  // `on_first` runs once, on the thread that reports the first error. It must not take a lock, because that
  // thread may have any of them.
  explicit DeviceError(std::function<void()> on_first = nullptr) : on_first_(std::move(on_first)) {}

  // Takes the result of a driver call and keeps the first sticky code. Returns true when this result is
  // sticky. Any thread.
  bool Record(CUresult result);
  bool Record(const absl::Status& status) { return !status.ok() && Record(ResultOf(status)); }
  // Whether an event has completed, by the result of its query. An error is no answer to that question: a
  // sticky error is kept, and after any other the caller asks again. An error that persists (1000 queries in
  // a row) is kept as the device's. Any thread.
  bool Completed(CUresult query);
  // Keeps an error of any code. For failures that leave the device's memory in an unknown state, such as a
  // mapping that may be half gone. Any thread.
  void Fail(const absl::Status& status);

  // Whether an error was kept. Any thread; takes no lock.
  bool any() const { return first_.load(std::memory_order_acquire) != CUDA_SUCCESS; }
  // The first error that was kept; CUDA_SUCCESS when there is none.
  CUresult first() const { return static_cast<CUresult>(first_.load(std::memory_order_acquire)); }
  // The error as a status that carries first(); OK when there is none.
  absl::Status status(const CudaDriver& driver) const;

 private:
  void Keep(CUresult result);

  const std::function<void()> on_first_;
  std::atomic<int> first_{CUDA_SUCCESS};  // changes once; pairs with nothing else
  std::atomic<int> odd_answers_{0};       // errors of queries in a row; pairs with nothing
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_DRIVER_DEVICE_ERROR_H_
