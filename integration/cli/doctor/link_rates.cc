#include "integration/cli/doctor/link_rates.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "integration/engine/sizing.h"
#include "io/os/clock.h"
#include "io/os/errno.h"

namespace spillway::integration {
namespace {

using allocator::CudaDriver;

constexpr uint64_t kMaxBytes = uint64_t{64} << 20;
// Two copies in progress: the next one is there when one ends.
constexpr int kCopies = 2;

// One direction: a stream, pinned host memory and as much of the GPU's, all released with the object.
class CopyPath {
 public:
  CopyPath(const CudaDriver* driver, uint64_t bytes) : driver_(driver), bytes_(bytes) {}
  ~CopyPath() {
    if (stream_ != nullptr) {
      (void)driver_->cuStreamSynchronize(stream_);  // after an error copies may be in progress
      (void)driver_->cuStreamDestroy_v2(stream_);
    }
    if (mapped_) (void)driver_->cuMemUnmap(address_, bytes_);
    if (handle_ != 0) (void)driver_->cuMemRelease(handle_);
    if (address_ != 0) (void)driver_->cuMemAddressFree(address_, bytes_);
    if (pinned_) (void)driver_->cuMemHostUnregister(host_);
    std::free(host_);
  }
  CopyPath(const CopyPath&) = delete;
  CopyPath& operator=(const CopyPath&) = delete;

  absl::Status Make(int device) {
    host_ = std::aligned_alloc(kChunkBytes, bytes_);
    if (host_ == nullptr) return absl::ResourceExhaustedError("no host memory for a buffer");
    SPILLWAY_RETURN_IF_ERROR(Check(driver_->cuMemHostRegister_v2(host_, bytes_, 0), "pinning host memory"));
    pinned_ = true;
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device;
    SPILLWAY_RETURN_IF_ERROR(
        Check(driver_->cuMemAddressReserve(&address_, bytes_, 0, 0, 0), "reserving addresses"));
    SPILLWAY_RETURN_IF_ERROR(Check(driver_->cuMemCreate(&handle_, bytes_, &prop, 0), "taking GPU memory"));
    SPILLWAY_RETURN_IF_ERROR(Check(driver_->cuMemMap(address_, bytes_, 0, handle_, 0), "mapping"));
    mapped_ = true;
    CUmemAccessDesc access = {};
    access.location = prop.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    SPILLWAY_RETURN_IF_ERROR(
        Check(driver_->cuMemSetAccess(address_, bytes_, &access, 1), "opening a mapping"));
    return Check(driver_->cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0), "making a stream");
  }

  // Copies until `time` is over.
  absl::Status Run(bool in, std::chrono::nanoseconds time, CopyRate* rate) {
    SPILLWAY_RETURN_IF_ERROR(Copy(in));  // the first touches and sets up what later ones find there
    SPILLWAY_RETURN_IF_ERROR(Check(driver_->cuStreamSynchronize(stream_), "waiting for a copy"));
    const auto start = os::SteadyClock::now();
    uint64_t copies = 0;
    do {
      for (int i = 0; i < kCopies; ++i) SPILLWAY_RETURN_IF_ERROR(Copy(in));
      SPILLWAY_RETURN_IF_ERROR(Check(driver_->cuStreamSynchronize(stream_), "waiting for a copy"));
      copies += kCopies;
    } while (os::SteadyClock::now() - start < time);
    rate->seconds = std::chrono::duration<double>(os::SteadyClock::now() - start).count();
    rate->bytes = copies * bytes_;
    return absl::OkStatus();
  }

 private:
  absl::Status Check(CUresult result, const char* what) const { return driver_->ToStatus(result, what); }
  absl::Status Copy(bool in) const {
    return in ? Check(driver_->cuMemcpyHtoDAsync_v2(address_, host_, bytes_, stream_), "a copy to the GPU")
              : Check(driver_->cuMemcpyDtoHAsync_v2(host_, address_, bytes_, stream_), "a copy from the GPU");
  }

  const CudaDriver* const driver_;
  const uint64_t bytes_;
  void* host_ = nullptr;
  bool pinned_ = false, mapped_ = false;
  CUdeviceptr address_ = 0;
  CUmemGenericAllocationHandle handle_ = 0;
  CUstream stream_ = nullptr;
};

absl::Status Measure(const CudaDriver& driver, CUcontext context, int device, std::chrono::nanoseconds time,
                     MeasuredLink* rates) {
  CopyPath in(&driver, rates->buffer_bytes), out(&driver, rates->buffer_bytes);
  SPILLWAY_RETURN_IF_ERROR(in.Make(device));
  SPILLWAY_RETURN_IF_ERROR(out.Make(device));
  SPILLWAY_RETURN_IF_ERROR(in.Run(true, time, &rates->in));
  SPILLWAY_RETURN_IF_ERROR(out.Run(false, time, &rates->out));
  absl::Status other;
  std::thread second([&] {
    const allocator::ScopedContext scope(&driver, context);
    other = out.Run(false, time, &rates->both_out);
  });
  const absl::Status status = in.Run(true, time, &rates->both_in);
  second.join();
  return status.ok() ? other : status;
}

}  // namespace

MeasuredLink MeasureLink(const CudaDriver& driver, CUcontext context, int device,
                         const LinkOptions& options) {
  MeasuredLink rates;
  rates.problem.clear();
  const uint64_t host = options.host_bytes == 0 ? kMaxBytes : options.host_bytes / 16;
  rates.buffer_bytes = std::min({kMaxBytes, host, options.free_bytes / 8}) / kChunkBytes * kChunkBytes;
  if (rates.buffer_bytes == 0) {
    rates.problem = "no memory is free for it";
    return rates;
  }
  const absl::Status status = Measure(driver, context, device, options.time, &rates);
  if (!status.ok()) rates.problem = std::string(status.message());
  return rates;
}

}  // namespace spillway::integration
