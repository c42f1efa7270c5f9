#include "allocator/driver/cuda_driver.h"

#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"

namespace spillway::allocator {
namespace {

constexpr char kResultPayload[] = "spillway/CUresult";

absl::StatusCode CodeOf(CUresult result) {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY: return absl::StatusCode::kResourceExhausted;
    case CUDA_ERROR_NOT_READY: return absl::StatusCode::kUnavailable;
    case CUDA_ERROR_INVALID_VALUE: return absl::StatusCode::kInvalidArgument;
    case CUDA_ERROR_NOT_SUPPORTED: return absl::StatusCode::kUnimplemented;
    default: return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<const CudaDriver>> CudaDriver::Load(const Lookup& lookup) {
  auto driver = std::make_unique<CudaDriver>();
  std::string missing;
  const auto resolve = [&](const char* symbol) {
    void* const entry = lookup(symbol);
    if (entry == nullptr) missing += std::string(missing.empty() ? "" : ", ") + symbol;
    return entry;
  };
#define DRIVER_ENTRY(symbol) driver->symbol = reinterpret_cast<decltype(driver->symbol)>(resolve(#symbol));
#include "allocator/driver/driver_entries.def"
#undef DRIVER_ENTRY
  if (!missing.empty()) return absl::NotFoundError("the CUDA driver lacks: " + missing);
  return std::unique_ptr<const CudaDriver>(std::move(driver));
}

absl::Status CudaDriver::ToStatus(CUresult result, const std::string& what) const {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  const char* name = nullptr;
  const char* text = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) name = "unknown CUDA error";
  if (cuGetErrorString(result, &text) != CUDA_SUCCESS || text == nullptr) text = "no text";
  absl::Status status(CodeOf(result), what + ": " + name + " (" + text + ")");
  status.SetPayload(kResultPayload, absl::Cord(std::to_string(static_cast<int>(result))));
  return status;
}

CUresult CudaDriver::AskCapturing(CUstream stream, bool* capturing) const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult asked = cuStreamIsCapturing(stream, &status);
  *capturing = MayCapture(asked, status);
  return asked == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ? CUDA_SUCCESS : asked;
}

CUresult ResultOf(const absl::Status& status) {
  if (status.ok()) return CUDA_SUCCESS;
  if (const auto payload = status.GetPayload(kResultPayload)) {
    int result = CUDA_ERROR_UNKNOWN;
    if (absl::SimpleAtoi(std::string(*payload), &result)) return static_cast<CUresult>(result);
  }
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted: return CUDA_ERROR_OUT_OF_MEMORY;
    case absl::StatusCode::kDeadlineExceeded: return CUDA_ERROR_TIMEOUT;
    case absl::StatusCode::kDataLoss: return CUDA_ERROR_OPERATING_SYSTEM;
    default: return CUDA_ERROR_UNKNOWN;
  }
}

absl::Status IllegalState(const std::string& words, absl::StatusCode code) {
  absl::Status status(code, words);
  status.SetPayload(kResultPayload, absl::Cord(std::to_string(static_cast<int>(CUDA_ERROR_ILLEGAL_STATE))));
  return status;
}

absl::Status WithText(const absl::Status& status, const std::string& words) {
  absl::Status same(status.code(), words);
  if (const auto payload = status.GetPayload(kResultPayload)) same.SetPayload(kResultPayload, *payload);
  return same;
}

ScopedContext::ScopedContext(const CudaDriver* driver, CUcontext context) : driver_(driver) {
  CUcontext current = nullptr;
  if (driver_->cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != context) {
    entered_ = driver_->cuCtxPushCurrent_v2(context);
    pushed_ = entered_ == CUDA_SUCCESS;
  }
  driver_->cuThreadExchangeStreamCaptureMode(&mode_);
}

ScopedContext::~ScopedContext() {
  driver_->cuThreadExchangeStreamCaptureMode(&mode_);
  if (pushed_) {
    CUcontext popped = nullptr;
    driver_->cuCtxPopCurrent_v2(&popped);
  }
}

}  // namespace spillway::allocator
