// DeviceHash: content hashes of a device's memory, computed on the device. It has the loaded kernel, a stream
// for it, and pinned memory for its results. HashLoader makes one on a thread of its own when the device starts:
// a driver may keep all calls of the process waiting while it loads a module behind queued work. Evictions and early copies ask for hashes on the device's thread. Without a hash, blocks are
// copied although they have not changed: an old device, a driver that cannot compile the kernel, or a kernel
// that computes wrong values.

#ifndef SPILLWAY_ALLOCATOR_DRIVER_DEVICE_HASH_H_
#define SPILLWAY_ALLOCATOR_DRIVER_DEVICE_HASH_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "allocator/driver/content_hash.h"
#include "allocator/driver/cuda_driver.h"
#include "io/os/atomic.h"
#include "io/os/joinable_thread.h"
#include "io/os/sync.h"

namespace spillway::allocator {

// Where the kernel comes from: the PTX that is kept in the tree. Tests give other images.
class HashCode {
 public:
  virtual ~HashCode() = default;
  // An image for cuModuleLoadData with the kernel content_hash::kKernelName, for devices of that compute
  // capability. Any thread.
  virtual absl::StatusOr<std::string> Image(int major, int minor) = 0;
};

class PtxHashCode : public HashCode {
 public:
  // kNotFound for devices that are too old for the kernel.
  absl::StatusOr<std::string> Image(int major, int minor) override {
    if (10 * major + minor >= content_hash::kLeastCapability) return content_hash::KernelPtx();
    return absl::NotFoundError("the content hash is for compute capability 7.5 and later");
  }
};

class DeviceHash {
 public:
  static constexpr int kPlaces = 64;  // hashes under way at a time

  // One hash that was enqueued. Take or Drop ends it, once the device has completed it.
  struct Request {
    int place = -1;
    unsigned partials = 0;
    bool valid() const { return place >= 0; }
  };

  // Loads `image` and tries it on memory whose hash is known: kInternal when its result is another. The
  // context must be current.
  static absl::StatusOr<std::unique_ptr<DeviceHash>> Create(const CudaDriver* driver,
                                                            const std::string& image);
  ~DeviceHash() =
      default;  // leaves module, stream and memory to the process's end: the device may still use them

  // Enqueues the hash of `bytes` (a multiple of 16) at `address` on `stream` and returns. kUnavailable when
  // too many are under way. Any thread with the context current; no lock is held across the launch.
  absl::StatusOr<Request> Enqueue(CUstream stream, CUdeviceptr address, uint64_t bytes);
  // The result. The device must have completed it: an event recorded behind it has completed.
  ContentHash Take(Request* request);
  // Ends a request without its result. The device must have completed it.
  void Drop(Request* request);

  // A stream for hashes that need not follow other work. NON_BLOCKING.
  CUstream stream() const { return stream_; }

 private:
  static constexpr uint64_t kPlaceBytes = content_hash::kMostBlocks * sizeof(ContentHash);

  explicit DeviceHash(const CudaDriver* driver) : driver_(driver) {}
  absl::Status Load(const std::string& image);
  absl::Status MakePlaces();
  absl::Status Check();

  const CudaDriver* const driver_;
  CUfunction function_ = nullptr;
  CUstream stream_ = nullptr;
  std::byte* results_ = nullptr;    // kPlaces of kPlaceBytes, pinned
  CUdeviceptr device_results_ = 0;  // the same memory, as the device names it

  os::Mutex mu_{os::LockRank::kTier};
  std::vector<int> free_ ABSL_GUARDED_BY(mu_);
};

class HashLoader {
 public:
  // With `code` null there is never a hash.
  HashLoader(const CudaDriver* driver, CUcontext context, int device, HashCode* code)
      : driver_(driver), context_(context), device_(device), code_(code) {}
  ~HashLoader() { Stop(); }

  // Starts loading, on a thread of its own. Once, before anything else is called.
  void Begin();
  // Null until the kernel is loaded, and for ever when it could not be. Any thread.
  DeviceHash* Get() const { return ready_.load(std::memory_order_acquire); }
  // A hash is wanted and there is none: writes one line if there will never be one. The device's thread.
  void ReportMissing();
  // Waits until the thread has ended, about a second when it compiles. False when it takes longer: it is left
  // behind, and what it uses must stay in memory. Any other thread.
  bool Stop(std::chrono::nanoseconds longest = std::chrono::seconds(1));
  // For a forked child, in which the thread does not exist.
  void Abandon();

 private:
  void Load();
  void Fail(absl::Status why);

  const CudaDriver* const driver_;
  const CUcontext context_;
  const int device_;
  HashCode* const code_;
  std::unique_ptr<DeviceHash> hash_;        // the thread's only, until ready_ is set
  os::Atomic<DeviceHash*> ready_{nullptr};  // release in Load, acquire in Get
  absl::Status failure_;                    // written before failed_ is set
  os::Atomic<bool> failed_{false};          // release where loading ends, acquire in ReportMissing
  bool reported_ = false;                   // the device's thread only
  os::JoinableThread thread_;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_DRIVER_DEVICE_HASH_H_
