#include "allocator/driver/device_error.h"

namespace spillway::allocator {

bool IsSticky(CUresult result) {
  switch (result) {
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_EXTERNAL_DEVICE: return true;
    default: break;
  }
  // Codes of newer headers: an error that stays inside its partition, and tensor memory that was not given
  // back.
  constexpr int kContained = 226;
  constexpr int kTensorMemoryLeak = 721;
  return static_cast<int>(result) == kContained || static_cast<int>(result) == kTensorMemoryLeak;
}

bool DeviceError::Completed(CUresult query) {
  constexpr int kMaxOddAnswers = 1000;
  if (query == CUDA_SUCCESS || query == CUDA_ERROR_NOT_READY) {
    if (odd_answers_.load(std::memory_order_relaxed) != 0) odd_answers_.store(0, std::memory_order_relaxed);
    return query == CUDA_SUCCESS;
  }
  if (!Record(query) && odd_answers_.fetch_add(1) >= kMaxOddAnswers) Keep(query);
  return false;
}

void DeviceError::Keep(CUresult result) {
  int none = CUDA_SUCCESS;
  if (first_.compare_exchange_strong(none, result) && on_first_) on_first_();
}

bool DeviceError::Record(CUresult result) {
  if (__builtin_expect(result == CUDA_SUCCESS, 1) || !IsSticky(result)) return false;
  Keep(result);
  return true;
}

void DeviceError::Fail(const absl::Status& status) {
  if (!status.ok()) Keep(ResultOf(status));
}

absl::Status DeviceError::status(const CudaDriver& driver) const {
  return driver.ToStatus(first(), "the device cannot be used any more since an earlier error");
}

}  // namespace spillway::allocator
