// CopyStreams: our two copy streams of a device, and the copies of chunks on them. There is one stream for
// each direction, so that both copy engines run at once. The streams are NON_BLOCKING, so that the
// application's legacy stream does not wait for them. CopyIn, CopyOut, Faulter and Launches call it, on any
// thread with the context current. A call fails with the driver's error.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_COPY_STREAMS_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_COPY_STREAMS_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "allocator/driver/cuda_driver.h"
#include "allocator/driver/device_hash.h"
#include "allocator/residency/state/stream_clock.h"
#include "io/os/wait.h"

namespace spillway::allocator {

class CopyStreams {
 public:
  // The context must be current. `clock` lends events, `error` receives the driver's results, and waits are
  // entered in `waits`.
  static absl::StatusOr<std::unique_ptr<CopyStreams>> Create(const CudaDriver* driver, StreamClock* clock,
                                                             DeviceError* error, os::WaitList* waits);

  // Enqueue one copy and return at once. Any thread with the context current; copies of one direction run in
  // order.
  absl::Status Out(void* host, CUdeviceptr device, uint32_t bytes);
  absl::Status In(CUdeviceptr device, const void* host, uint32_t bytes);
  // Returns an event that completes when all work enqueued so far in that direction has completed. The caller
  // gives it back to the clock. On failure all of that work has ended, because the call waits for it; if it
  // cannot wait, the device has an error from then on.
  absl::StatusOr<CUevent> MarkOut();
  absl::StatusOr<CUevent> MarkIn();
  // Records an event of the caller's in that direction.
  absl::Status RecordOut(CUevent event) { return Record(event, out_); }
  absl::Status RecordIn(CUevent event) { return Record(event, in_); }
  // The stream for hashes of bytes that were copied in.
  CUstream in() const { return in_; }
  // Enqueues a hash of `bytes` at `address`, beside the copies. Returns an event that completes with it, to
  // be given back to the clock. On an error no hash is under way.
  absl::StatusOr<CUevent> BeginHash(DeviceHash* hash, CUdeviceptr address, uint64_t bytes,
                                    DeviceHash::Request* request);
  // Makes all later copies in wait for the event.
  absl::Status MakeInWait(CUevent event);
  // Number of copies that were enqueued so far, in both directions.
  uint64_t enqueued() const { return enqueued_.load(std::memory_order_relaxed); }
  // Waits for all work that was enqueued on one of our streams, or in that direction. A failure is the
  // device's error from then on.
  absl::Status AwaitEnd(CUstream stream);
  absl::Status AwaitEndIn() { return AwaitEnd(in_); }
  absl::Status AwaitEndOut() { return AwaitEnd(out_); }
  // Whether the event has completed, as far as is known.
  bool Done(CUevent event) const;
  // Makes the application's stream, which may be another device's, wait for an event of ours.
  absl::Status MakeWait(StreamRef stream, CUevent event);

 private:
  CopyStreams(const CudaDriver* driver, StreamClock* clock, DeviceError* error, os::WaitList* waits,
              CUstream out, CUstream in)
      : driver_(driver), clock_(clock), error_(error), waits_(waits), out_(out), in_(in) {}
  // Turns the result into a status, and keeps an error that ends the device.
  absl::Status Noted(CUresult result, const char* what) const;
  absl::StatusOr<CUevent> Mark(CUstream stream);
  absl::Status Record(CUevent event, CUstream stream);

  const CudaDriver* const driver_;
  StreamClock* const clock_;
  DeviceError* const error_;
  os::WaitList* const waits_;
  const CUstream out_;
  const CUstream in_;
  std::atomic<uint64_t> enqueued_{0};  // read alone: pairs with nothing
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_COPY_STREAMS_H_
