// DeviceHash: content hashes of a device's memory where it lies: the loaded kernel, a stream of ours for it, and pinned
// memory that its results arrive in. HashLoader makes one in the background, once blocks begin to leave the GPU.

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

// Where the kernel of the hash comes from: PTX that is kept in the tree; tests give other images.
class HashCode {
 public:
  virtual ~HashCode() = default;
  // An image for cuModuleLoadData that holds content_hash::kKernelName, for devices of that compute capability. Any
  // thread.
  virtual absl::StatusOr<std::string> Image(int major, int minor) = 0;
};

class PtxHashCode : public HashCode {
 public:
  // kNotFound for devices that are too old for it.
  absl::StatusOr<std::string> Image(int major, int minor) override {
    if (10 * major + minor >= content_hash::kLeastCapability) return content_hash::KernelPtx();
    return absl::NotFoundError("the content hash is for compute capability 7.5 and later");
  }
};

class DeviceHash {
 public:
  // One hash that has been enqueued. Given back by Take or Drop, once the device has done it.
  struct Request {
    int slot = -1;
    unsigned partials = 0;
    bool valid() const { return slot >= 0; }
  };

  // Loads `image`, and has it hash memory whose hash is known: kInternal when it comes to another. Context current.
  static absl::StatusOr<std::unique_ptr<DeviceHash>> Create(const CudaDriver* driver,
                                                            const std::string& image);
  ~DeviceHash() =
      default;  // leaves module, stream and memory to the process's end: the device may still use them

  // Enqueues the hash of `bytes` (a multiple of 16) at `address` on `stream` and returns. kUnavailable when too many
  // are under way. Any thread with the context current; no lock is held across the launch.
  absl::StatusOr<Request> Enqueue(CUstream stream, CUdeviceptr address, uint64_t bytes);
  // The result; the device must have done it (an event recorded behind it has completed).
  ContentHash Take(Request* request);
  // The same without the result.
  void Drop(Request* request);

  // For hashes that belong to nobody else's stream. NON_BLOCKING.
  CUstream stream() const { return stream_; }

 private:
  static constexpr int kSlots = 64;
  static constexpr uint64_t kSlotBytes = content_hash::kMostBlocks * sizeof(ContentHash);

  explicit DeviceHash(const CudaDriver* driver) : driver_(driver) {}
  absl::Status Load(const std::string& image);
  absl::Status MakeSlots();
  absl::Status Check();

  const CudaDriver* const driver_;
  CUfunction function_ = nullptr;
  CUstream stream_ = nullptr;
  std::byte* results_ = nullptr;    // kSlots of kSlotBytes, pinned
  CUdeviceptr device_results_ = 0;  // the same memory, as the device names it

  os::Mutex mu_{os::LockRank::kTier};
  std::vector<int> free_ ABSL_GUARDED_BY(mu_);
};

class HashLoader {
 public:
  // `code` may be null: there never is a hash.
  HashLoader(const CudaDriver* driver, CUcontext context, int device, HashCode* code)
      : driver_(driver), context_(context), device_(device), code_(code) {}
  ~HashLoader() { Stop(); }

  // Starts loading at the first call, on a thread of its own. Device's thread.
  void Begin();
  // Null until it is loaded, and for good when it could not be. Any thread.
  DeviceHash* Get() const { return ready_.load(std::memory_order_acquire); }
  // Waits until the thread has ended, about a second when it compiles. False when it takes longer: it is left behind, and
  // what it uses must stay. Any other thread.
  bool Stop(std::chrono::nanoseconds longest = std::chrono::seconds(1));
  // In a forked child, where the thread is not.
  void Abandon();

 private:
  void Load();
  static void SayUnused(const absl::Status& why);

  const CudaDriver* const driver_;
  const CUcontext context_;
  const int device_;
  HashCode* const code_;
  std::unique_ptr<DeviceHash> hash_;        // the thread's until it is published
  os::Atomic<DeviceHash*> ready_{nullptr};  // release in Load, acquire in Get
  os::Atomic<bool> begun_{false};
  os::JoinableThread thread_;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_DRIVER_DEVICE_HASH_H_
