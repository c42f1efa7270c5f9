#include "allocator/residency/transfer/copy_streams.h"

#include <optional>

#include "io/os/errno.h"

namespace spillway::allocator {

absl::StatusOr<std::unique_ptr<CopyStreams>> CopyStreams::Create(const CudaDriver* driver, StreamClock* clock,
                                                                 DeviceError* error, os::WaitList* waits) {
  CUstream out = nullptr;
  CUstream in = nullptr;
  SPILLWAY_RETURN_IF_ERROR(driver->ToStatus(
      driver->cuStreamCreateWithPriority(&out, CU_STREAM_NON_BLOCKING, 0), "creating the copy-out stream"));
  SPILLWAY_RETURN_IF_ERROR(driver->ToStatus(
      driver->cuStreamCreateWithPriority(&in, CU_STREAM_NON_BLOCKING, 0), "creating the copy-in stream"));
  return std::unique_ptr<CopyStreams>(new CopyStreams(driver, clock, error, waits, out, in));
}

absl::Status CopyStreams::Noted(CUresult result, const char* what) const {
  error_->Record(result);
  return driver_->ToStatus(result, what);
}

absl::Status CopyStreams::Out(void* host, CUdeviceptr device, uint32_t bytes) {
  enqueued_.fetch_add(1, std::memory_order_relaxed);
  return Noted(driver_->cuMemcpyDtoHAsync_v2(host, device, bytes, out_), "copying a chunk out");
}

absl::Status CopyStreams::In(CUdeviceptr device, const void* host, uint32_t bytes) {
  enqueued_.fetch_add(1, std::memory_order_relaxed);
  return Noted(driver_->cuMemcpyHtoDAsync_v2(device, host, bytes, in_), "copying a chunk in");
}

absl::StatusOr<CUevent> CopyStreams::MarkOut() { return Mark(out_); }
absl::StatusOr<CUevent> CopyStreams::MarkIn() { return Mark(in_); }

absl::StatusOr<CUevent> CopyStreams::Mark(CUstream stream) {
  absl::StatusOr<CUevent> event = clock_->TakeEvent();
  if (event.ok()) {
    const CUresult result = driver_->cuEventRecord(*event, stream);
    if (result == CUDA_SUCCESS) return event;
    clock_->GiveEvent(*event);
    event = Noted(result, "recording an event on a copy stream");
  }
  // The caller gives back memory that copies may still use, so all of them must have ended.
  AwaitEnd(stream).IgnoreError();
  return event.status();
}

absl::StatusOr<CUevent> CopyStreams::BeginHash(DeviceHash* hash, CUdeviceptr address, uint64_t bytes,
                                               DeviceHash::Request* request) {
  SPILLWAY_ASSIGN_OR_RETURN(DeviceHash::Request enqueued, hash->Enqueue(hash->stream(), address, bytes));
  absl::StatusOr<CUevent> mark = Mark(hash->stream());
  mark.ok() ? void(*request = enqueued) : hash->Drop(&enqueued);
  return mark;
}

absl::Status CopyStreams::Record(CUevent event, CUstream stream) {
  return Noted(driver_->cuEventRecord(event, stream), "recording an event on a copy stream");
}

absl::Status CopyStreams::MakeInWait(CUevent event) {
  return Noted(driver_->cuStreamWaitEvent(in_, event, 0), "making a copy stream wait for the other");
}

absl::Status CopyStreams::AwaitEnd(CUstream stream) {
  const os::Wait wait(waits_, os::WaitKind::kDriverCall, "cuStreamSynchronize");
  absl::Status ended =
      driver_->ToStatus(driver_->cuStreamSynchronize(stream), "waiting for our work on the device");
  if (!ended.ok()) error_->Fail(ended);
  return ended;
}

bool CopyStreams::Done(CUevent event) const { return error_->Completed(driver_->cuEventQuery(event)); }

absl::Status CopyStreams::MakeWait(StreamRef stream, CUevent event) {
  std::optional<ScopedContext> scope;
  if (stream.context != nullptr) scope.emplace(driver_, stream.context);
  return Noted(driver_->cuStreamWaitEvent(stream.Explicit(), event, 0), "making a stream wait for a copy");
}

}  // namespace spillway::allocator
