// The costs of a machine with a GPU: a data file (integration/simcuda/hardware/*.json, or one that bench/gpu
// wrote) as numbers. Each figure of a file has a value and its source, or a low and a high value and what
// they are assumed from; the caller chooses the end. All times are stretched by the time scale. Pure;
// thread-safe. A file that is not understood fails with a message; nothing throws.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_HARDWARE_PROFILE_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_HARDWARE_PROFILE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace simcuda {

// Calls with a cost of their own; a profile names them by their driver function (kCallNames).
enum class Call : uint8_t {
  kReserve,
  kAddressFree,
  kCreate,
  kRelease,
  kMap,
  kUnmap,
  kSetAccess,
  kAlloc,
  kFree,
  kHostAlloc,
  kHostFree,
  kHostRegister,
  kHostUnregister,
  kLaunch,
  kGraphLaunch,
  kCopy,
  kFill,
  kEventRecord,
  kEventQuery,
  kStreamWait,
  kModuleLoad,
};
inline constexpr int kCallCount = static_cast<int>(Call::kModuleLoad) + 1;
extern const char* const kCallNames[kCallCount];

// The lock that a call holds while its time passes. kMemory: the driver's memory lock, one for the process.
// kContext: the lock of everything that gives the GPU work. kEverything, for a load of code alone: no call
// with a cost goes on.
enum class Held : uint8_t { kNothing, kMemory, kContext, kEverything };

enum class End : uint8_t { kLow, kHigh };  // of assumed figures

struct CallCost {
  double call_ns = 0;    // once
  double handle_ns = 0;  // for each physical handle, or each node of a graph
  double byte_ns = 0;
  double empty_byte_ns =
      0;  // more for each byte without a page, which the call makes; of a registration alone
  Held held = Held::kNothing;
};

// One direction of the link: a copy takes setup_ns and then its bytes at the rate.
struct DirectionCost {
  double setup_ns = 0;
  double alone_bytes_per_ns = 0;
  double both_bytes_per_ns = 0;  // while the other direction copies as well
};

struct KernelTime {
  std::string part;  // of the kernel's name
  double ns = 0;
};

struct HardwareProfile {
  std::string name;
  double scale = 1;
  CallCost calls[kCallCount];
  DirectionCost directions[2];  // SIMCUDA_HTOD, SIMCUDA_DTOH
  double pageable_bytes_per_ns = 0;
  double device_bytes_per_ns = 0;   // copies and fills on the device
  double kernel_ns = 0;             // least time of a kernel that no row names
  double reach_bytes_per_ns = 0;    // of host memory that kernels use over the link; 0: no time of its own
  std::vector<KernelTime> kernels;  // the first row whose part occurs in the name

  // `empty_bytes`: those of `bytes` that have no page yet.
  double NsOf(Call call, uint64_t handles, uint64_t bytes, uint64_t empty_bytes = 0) const;
  double KernelNs(const std::string& kernel) const;
};

// Reads `file`. Returns false, with what is wrong in *error, if it cannot be read or is not understood.
bool LoadProfile(const std::string& file, End end, double scale, HardwareProfile* profile,
                 std::string* error);

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_HARDWARE_PROFILE_H_
