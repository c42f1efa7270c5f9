// The stand-in driver with the costs of a machine (SIMCUDA_HARDWARE): what benches ask of it beyond the driver's calls.
// The driver is loaded already. Programs end with words on a failure.

#ifndef SPILLWAY_TESTS_FAKES_HARDWARE_STAND_IN_H_
#define SPILLWAY_TESTS_FAKES_HARDWARE_STAND_IN_H_

#include <string>

#include "allocator/driver/cuda_driver.h"
#include "integration/simcuda/driver/simcuda.h"

namespace spillway::fakes {

// Where costs are taken from. Without a name there are none.
struct Machine {
  std::string name;  // of a profile, or its file
  std::string end;   // of assumed figures: low, high
  std::string form;  // launches wait for the memory lock, or pass
  double time_scale = 1;
};

class HardwareStandIn {
 public:
  HardwareStandIn();

  // No work may be queued. Large copies move samples of their bytes from the first call on.
  void Become(const Machine& machine) const;
  simcuda_hardware_stats Stats() const;
  void ResetStats() const { reset_stats_(); }
  // Processor seconds of all threads of Spillway, without what they spent inside the driver's calls.
  double OwnCpuSeconds() const;

  // A kernel of one address and one number: adds one to the word at the address, and ends the program when the word
  // was not the number before.
  CUfunction count_kernel() const { return count_; }
  // A kernel of one address that does nothing.
  CUfunction empty_kernel() const { return empty_; }
  decltype(&::cuLaunchKernel) launch_kernel = nullptr;
  decltype(&::cuMemAlloc_v2) mem_alloc = nullptr;
  decltype(&::cuMemFree_v2) mem_free = nullptr;

 private:
  void* Find(const char* name) const;
  void Set(const char* name, const std::string& value) const;
  CUfunction Register(const char* name, simcuda_kernel_function run, size_t parameters) const;

  void* library_ = nullptr;
  decltype(&::simcuda_set) set_ = nullptr;
  decltype(&::simcuda_get_hardware_stats) get_stats_ = nullptr;
  decltype(&::simcuda_reset_hardware_stats) reset_stats_ = nullptr;
  decltype(&::simcuda_thread_cpu_ns) thread_cpu_ = nullptr;
  CUfunction count_ = nullptr;
  CUfunction empty_ = nullptr;
};

}  // namespace spillway::fakes

#endif  // SPILLWAY_TESTS_FAKES_HARDWARE_STAND_IN_H_
