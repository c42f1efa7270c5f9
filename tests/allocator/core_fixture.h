// A device of the memory core on the stand-in driver: small chunks, a few MiB of budget, both tiers. Launches
// go through Residency::Run as the hooks would send them; kernels are host functions that check and write
// patterns.

#ifndef SPILLWAY_TESTS_ALLOCATOR_CORE_FIXTURE_H_
#define SPILLWAY_TESTS_ALLOCATOR_CORE_FIXTURE_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "allocator/driver/device_hash.h"
#include "allocator/memory/address_map.h"
#include "allocator/residency/device_residency.h"
#include "allocator/tier/host_pool.h"
#include "io/store/spill_store.h"

namespace spillway::allocator {

inline constexpr uint64_t kChunk = 64 << 10;  // the stand-in's granularity here

struct CoreSetup {
  uint64_t budget_bytes = 4 << 20;
  uint64_t external_share_bytes = 64 << 10;
  uint64_t reserve_bytes = 0;     // of the device, beyond the budget
  uint64_t host_bytes = 1 << 20;  // storage, staging not included; 0 = no host tier
  bool disk = true;
  uint64_t disk_cap_bytes = uint64_t{4} << 30;  // of the directory; charging counts on 1 GiB in any case
  std::string directory = "/var/tmp";
  uint64_t growth_bytes = 64 << 20;
  std::chrono::nanoseconds request_timeout = std::chrono::seconds(60);
  std::chrono::nanoseconds shutdown_timeout = std::chrono::seconds(1);
  bool reach = false;      // the host tier is made of handles
  bool grow_ahead = true;  // the tiers have their first capacity before the device starts
  bool may_fail = false;   // the device's context may have failed when the fixture ends
  bool evict = true;
  bool measure_link = false;
  int64_t link_apart_nanos = 10'000'000'000;
  bool soft = false;  // with `reach`: what leaves for host memory stays mapped there
  bool verify_always = false;
  bool verify_arrivals = false;
  io::ChecksumMode checksum = io::ChecksumMode::kOn;
  bool grow_at_once = true;  // host tier and spill file, up to 32 MiB; else when they are needed
  std::function<std::unique_ptr<io::IoEngine>(std::unique_ptr<io::IoEngine>, size_t)> wrap_engine;
  LaunchObserver* observer = nullptr;
  MotionObserver* motion = nullptr;
  AuditObserver* audit = nullptr;
  uint64_t free_reserve_bytes = 0;
  uint64_t run_ahead_bytes = 0;
  int64_t idle_nanos = 300'000'000'000;
  uint32_t largest_handle = 64;
  HashCode* hash_code = nullptr;       // null: no hash, every eviction writes
  const CudaDriver* driver = nullptr;  // what the core calls; null: the stand-in's own
  Refusals* refusals = nullptr;        // null: the device's own
  PauseGate* pause_gate = nullptr;
  GpuShare* share = nullptr;
};

// The stand-in's own kind of image for the content hash; an empty one: as where the compiler is missing.
class FixedHashCode : public HashCode {
 public:
  explicit FixedHashCode(std::string image = "//simcuda image 1\nspillway_content_hash\n")
      : image_(std::move(image)) {}
  absl::StatusOr<std::string> Image(int, int) override {
    if (image_.empty()) return absl::NotFoundError("no compiler");
    return image_;
  }

 private:
  const std::string image_;
};

// The process's device: driver initialized once, with SIMCUDA_GRANULARITY of 64 KiB and 64 MiB of memory.
class CoreDevice {
 public:
  static constexpr uint64_t kChunk = allocator::kChunk;

  static const CudaDriver* Driver();
  static CUcontext Context();

  explicit CoreDevice(const CoreSetup& setup);
  // The same where making it may fail.
  static absl::StatusOr<std::unique_ptr<CoreDevice>> Create(const CoreSetup& setup);
  ~CoreDevice();  // shuts down and waits for the GPU

  DeviceResidency* operator->() { return residency_.get(); }
  DeviceResidency& residency() { return *residency_; }
  AddressMap& addresses() { return *addresses_; }
  io::SpillStore* disk() { return disk_.get(); }
  HostPool& host() { return *host_; }

  CUdeviceptr MustAllocate(uint64_t bytes, CUstream stream = nullptr);

  // What Launch's call of the driver answers instead of launching, as on a device with a sticky error;
  // CUDA_SUCCESS: it launches.
  static inline std::atomic<CUresult> launch_error{CUDA_SUCCESS};

  enum class Way { kGate, kPins, kReachingAll };
  // Launches `body` on the stream with these device addresses, through the gate. `body` gets the same
  // addresses.
  CUresult Launch(CUstream stream, const std::vector<CUdeviceptr>& addresses,
                  std::function<void(const std::vector<CUdeviceptr>&)> body, uint64_t tag = 1,
                  Way way = Way::kGate);
  // An asynchronous copy of that block's first bytes to or from host memory, through the gate.
  CUresult CopyIn(CUstream stream, CUdeviceptr address, const void* host, uint64_t bytes);
  CUresult CopyOut(CUstream stream, void* host, CUdeviceptr address, uint64_t bytes);
  // Fills the words of a block that tests look at / counts those that differ from `version`.
  static void Fill(CUdeviceptr address, uint64_t bytes, uint64_t version);
  static uint64_t Differences(CUdeviceptr address, uint64_t bytes, uint64_t version);

  CUstream NewStream();
  // Waits for everything on all streams.
  void Synchronize();

 private:
  // Two arguments: `CoreDevice device({})` is one with the defaults.
  CoreDevice(const CoreSetup& setup, absl::Status* status) { *status = Build(setup); }
  absl::Status Build(const CoreSetup& setup);

  bool may_fail_ = false;
  std::unique_ptr<AddressMap> addresses_;
  std::unique_ptr<HostPool> host_;
  std::unique_ptr<io::SpillStore> disk_;
  std::unique_ptr<DeviceResidency> residency_;
};

// The stand-in's copy engines from now on, in bytes a second; "0" is unlimited.
void SetCopyBandwidth(const char* bytes_per_second);
// Another setting of the stand-in, by the name of its variable without SIMCUDA_.
void SetSimcuda(const char* name, const std::string& value);

// Keeps what is queued on all streams queued, until called with false. Events are not held, but what lies
// before them.
void PauseStreams(bool hold);
// A kernel that does nothing, past the gate.
void LaunchNothing(CUstream stream);

}  // namespace spillway::allocator

#endif  // SPILLWAY_TESTS_ALLOCATOR_CORE_FIXTURE_H_
