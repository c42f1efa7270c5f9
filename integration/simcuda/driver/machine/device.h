// A device: its number, its capacity, and how much of it is in use. Attributes are in device_api.cc. Devices
// are made at cuInit and never destroyed. Thread-safe; only Charge and TakeLocalMemory can fail.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_DEVICE_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_DEVICE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <utility>

namespace simcuda {

class Context;

// The machine has one node of host memory, and every device is attached to it.
inline constexpr int kHostNode = 0;

// The copy engine of one direction: copies of that direction follow each other. It is used if the settings
// give a rate or a latency; a machine's profile has its own model of the link (hardware_link.h).
struct CopyEngine {
  std::mutex mutex;
  int64_t free_at_ns = 0;  // when its last copy will be done (clock.h); guarded by mutex
};

class Device {
 public:
  Device(int ordinal, int number, uint64_t capacity)
      : ordinal_(ordinal), number_(number), capacity_(capacity) {}

  int ordinal() const { return ordinal_; }  // as the process counts
  int number() const { return number_; }    // on the machine: CUDA_VISIBLE_DEVICES may exclude others
  uint64_t capacity() const { return capacity_; }
  void set_capacity(uint64_t bytes) { capacity_ = bytes; }
  uint64_t used() {
    FinishScrubbing();
    return used_;
  }
  uint64_t peak() const { return peak_; }
  void ResetPeak() { peak_ = used_.load(); }

  // Returns the driver's free memory, which is less than the rest if other processes share the device.
  uint64_t free();
  // Charges physical memory. Returns false (nothing charged) beyond the capacity.
  bool Charge(uint64_t bytes);
  void Uncharge(uint64_t bytes);
  // Uncharges a handle's memory, which stays charged until it is cleared (SIMCUDA_SCRUB).
  void UnchargeHandle(uint64_t bytes);
  // Called for each launch: takes the local memory of kernels (SIMCUDA_LOCAL_MEMORY) at the launch that needs
  // it, once. Returns false if the device has no memory for it.
  bool TakeLocalMemory();

  CopyEngine& engine(int direction) { return engines_[direction]; }

 private:
  // Releases the memory that has been cleared by now.
  void FinishScrubbing();

  const int ordinal_;
  const int number_;
  std::atomic<uint64_t> capacity_;
  std::atomic<uint64_t> used_{0};
  std::atomic<uint64_t> peak_{0};
  std::atomic<int64_t> launches_{0};  // counted until local memory has been taken
  std::atomic<bool> has_local_memory_{false};
  CopyEngine engines_[2];  // SIMCUDA_HTOD, SIMCUDA_DTOH
  std::mutex scrub_mutex_;
  // The time when memory will be cleared (clock.h), and its bytes; the first to end in front. Guarded by
  // scrub_mutex_.
  std::deque<std::pair<int64_t, uint64_t>> scrubbing_;
};

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_DEVICE_H_
