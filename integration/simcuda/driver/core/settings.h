// The settings of the stand-in: read once from SIMCUDA_* at cuInit, changed at run time by simcuda_set().
// Values are atomics, so that streams' threads read them without a lock; 0 means "off" unless stated
// otherwise. A bad value is refused with one line.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_CORE_SETTINGS_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_CORE_SETTINGS_H_

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

namespace simcuda {

// The consequence of touching unmapped device memory, or of pulling it away under queued work.
enum class Mode : int64_t { kStrict, kReport, kOff, kFault };

// The physical memory that is filled with a pattern: none; memory that was released and created anew (a
// handle's bytes survive an unmap, as on a GPU); or also memory that was unmapped (a block that lost its
// copy-in shows then).
enum class Poison : int64_t { kOff, kRecycle, kUnmap };

// The answer of a call to a handle that is none of the kind it takes (handles.h).
enum class Handles : int64_t { kStop, kAnswer };

// Whether device memory is closed to the host by memory protection keys (device_rights.h): no, yes, or if the
// machine has them.
enum class ProtectionKeys : int64_t { kOff, kOn, kTry };

struct Settings {
  using Value = std::atomic<int64_t>;

  Value devices{1};
  Value memory_bytes{int64_t{8} << 30};  // per device
  Value granularity{2 << 20};            // of VMM; a power of two of at least 64 KiB
  Value driver_version{13020};
  Value compute_capability{90};  // 10 times the major number plus the minor one
  Value mode{static_cast<int64_t>(Mode::kStrict)};
  Value poison{static_cast<int64_t>(Poison::kRecycle)};
  Value handles{static_cast<int64_t>(Handles::kStop)};
  Value protection_keys{static_cast<int64_t>(ProtectionKeys::kOff)};

  // Whether calls that wait for the GPU on a real driver do so here. Loads of code always do with a hardware
  // profile.
  Value unregister_waits{1};
  Value module_load_waits{0};
  Value address_hints{1};  // whether a reservation may lie where the job wants it
  Value host_handles{1};   // whether handles can be made in host memory
  Value boolean_bytes{1};  // of a pointer attribute that is true or false

  // Device memory that the driver takes for itself, which no call shows.
  Value code_bytes{0};          // for a kernel's code, from its first use on
  Value local_memory_bytes{0};  // for the local memory of kernels, at once, at a device's n-th launch
  Value local_memory_launch{1};
  Value scrub_ns{0};  // before a released handle's memory is given out again: a driver clears it first

  // Index: SIMCUDA_HTOD or SIMCUDA_DTOH.
  Value copy_bytes_per_s[2] = {0, 0};
  Value copy_latency_ns[2] = {0, 0};
  Value kernel_ns{0};     // least time of a kernel
  Value delay_max_ns{0};  // random delay before each operation, 0..max
  Value seed{1};

  // The costs of calls (hardware_time.h). Changes take effect by ApplyHardware.
  std::mutex hardware_mutex;
  std::string hardware;     // a profile's name or file, "" for none; guarded by hardware_mutex
  Value hardware_high{1};   // assumed figures: their high end, or their low one
  Value hardware_waits{1};  // whether launches wait for the memory lock
  Value time_scale_thousandths{1000};
  Value copy_sample{0};  // large copies move some words of each page only

  // Fail the n-th call, or every n-th.
  Value fail_create{0}, fail_create_every{0};
  Value fail_set_access{0}, fail_set_access_every{0};
  Value fail_copy{0}, fail_copy_every{0};

  // Set before the first stream starts, constant afterwards.
  std::string log_file;
  std::string stats_file;
  std::string machine_file;

  Mode mode_now() const { return static_cast<Mode>(mode.load(std::memory_order_relaxed)); }
  Handles handles_now() const { return static_cast<Handles>(handles.load(std::memory_order_relaxed)); }
  ProtectionKeys protection_keys_now() const {
    return static_cast<ProtectionKeys>(protection_keys.load(std::memory_order_relaxed));
  }
  Poison poison_now() const { return static_cast<Poison>(poison.load(std::memory_order_relaxed)); }
};

Settings& GetSettings();

// Reads SIMCUDA_* from the environment. Returns false for a bad value, with one line on standard error that
// names the variable, the value and what is accepted.
bool ReadEnvironment();

enum class SetResult { kOk, kUnknownName, kBadValue, kTooLate };

// Sets one setting by the name that follows SIMCUDA_. `initialized`: whether cuInit has succeeded.
SetResult SetByName(const std::string& name, const std::string& value, bool initialized);

// Reads "2GiB", "500MB", "4096" in bytes. Returns false if the text is malformed, zero or out of range.
bool ParseBytes(const std::string& text, int64_t* bytes);

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_CORE_SETTINGS_H_
