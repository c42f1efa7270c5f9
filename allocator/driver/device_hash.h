// DeviceHash: content hashes of a device's memory, computed on the device. It owns the loaded kernel, a
// stream for it, and pinned memory for its results. Evictions and early copies ask for hashes on the device's
// thread.
//
// HashLoader creates the DeviceHash when the device starts. It does so on a thread of its own, because a
// driver may keep all calls of the process waiting while it loads a module behind queued work. There is no
// hash on a device that is too old, with a driver that cannot compile the kernel, or when the kernel computes
// wrong values; blocks are then copied although they have not changed.

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

// Source of the kernel's image. The product uses the PTX that is kept in the tree; tests give other images.
class HashCode {
 public:
  virtual ~HashCode() = default;
  // Returns an image for cuModuleLoadData with the kernel content_hash::kKernelName, for devices of that
  // compute capability. Any thread.
  virtual absl::StatusOr<std::string> Image(int major, int minor) = 0;
};

class PtxHashCode : public HashCode {
 public:
  // Fails with kNotFound for devices that are too old for the kernel.
  absl::StatusOr<std::string> Image(int major, int minor) override {
    if (10 * major + minor >= content_hash::kMinCapability) return content_hash::KernelPtx();
    return absl::NotFoundError("the content hash is for compute capability 7.5 and later");
  }
};

class DeviceHash {
 public:
  static constexpr int kPlaces = 64;  // hashes under way at a time

  // One hash that was enqueued. Take or Drop ends it, after the device has completed it.
  struct Request {
    int place = -1;
    unsigned partials = 0;
    bool valid() const { return place >= 0; }
  };

  // Loads `image` and tries it on memory whose hash is known. Fails with kInternal when the kernel computes
  // another value. The context must be current.
  static absl::StatusOr<std::unique_ptr<DeviceHash>> Create(const CudaDriver* driver,
                                                            const std::string& image);
  ~DeviceHash() =
      default;  // leaves module, stream and memory to the process's end: the device may still use them

  // Enqueues the hash of `bytes` (a multiple of 16) at `address` on `stream` and returns at once. Fails with
  // kUnavailable when too many hashes are under way. Any thread with the context current; no lock is held
  // across the launch.
  absl::StatusOr<Request> Enqueue(CUstream stream, CUdeviceptr address, uint64_t bytes);
  // Returns the result. The device must have completed the request: an event recorded behind it has
  // completed.
  ContentHash Take(Request* request);
  // Ends a request without its result. The device must have completed it.
  void Drop(Request* request);

  // A NON_BLOCKING stream for hashes that need not follow other work.
  CUstream stream() const { return stream_; }

 private:
  static constexpr uint64_t kPlaceBytes = content_hash::kMaxBlocks * sizeof(ContentHash);

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
  // There is never a hash when `code` is null.
  HashLoader(const CudaDriver* driver, CUcontext context, int device, HashCode* code)
      : driver_(driver), context_(context), device_(device), code_(code) {}
  ~HashLoader() { Stop(); }

  // Starts loading, on a thread of its own. Call it once, before anything else.
  void Begin();
  // Waits until loading has ended, at most for `longest`. Any thread but the loader's.
  void Await(std::chrono::nanoseconds longest) { static_cast<void>(thread_.WaitFor(longest)); }
  // Null until the kernel is loaded, and forever when it could not be loaded. Any thread.
  DeviceHash* Get() const { return ready_.load(std::memory_order_acquire); }
  // Called when a hash is wanted and there is none. Writes one line if there will never be one. The device's
  // thread.
  void ReportMissing();
  // Waits until the thread has ended, about a second when it compiles. Returns false when it takes longer
  // than `longest`: the thread is left behind, and everything that it uses must stay in memory. Any thread
  // but the loader's.
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
  std::unique_ptr<DeviceHash> hash_;        // only the loader's thread uses it until ready_ is set
  os::Atomic<DeviceHash*> ready_{nullptr};  // release in Load, acquire in Get
  absl::Status failure_;                    // written before failed_ is set
  os::Atomic<bool> failed_{false};          // release where loading ends, acquire in ReportMissing
  bool reported_ = false;                   // used by the device's thread alone
  os::JoinableThread thread_;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_DRIVER_DEVICE_HASH_H_
