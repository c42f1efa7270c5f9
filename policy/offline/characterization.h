// Characterization: a job's memory before anything moves (`spillway characterize`): how little of it a kernel
// uses, how large its tensors are, how long they lie idle, and how many of the idle bytes could leave and
// come back in that time. Pure; thread-safe; no call fails.

#ifndef SPILLWAY_POLICY_OFFLINE_CHARACTERIZATION_H_
#define SPILLWAY_POLICY_OFFLINE_CHARACTERIZATION_H_

#include <array>
#include <cstdint>

#include "policy/model/active_share.h"
#include "policy/model/workload.h"

namespace spillway::policy {

// Tensors of `least_bytes` up to the next class. Idle intervals are those of Lifetimes: at least one kernel
// lies between the two uses, and those of persistent tensors go over the iteration's end.
struct SizeClass {
  Bytes least_bytes = 0;
  uint32_t tensors = 0;  // that a kernel names
  Bytes bytes = 0;       // of these together
  uint32_t intervals = 0;
  std::array<uint32_t, 6> longer{};  // intervals that are longer than kIdleTimes
  uint32_t dead = 0;                 // intervals whose content is not read again
  Bytes interval_bytes = 0;          // of the intervals that are not dead, each with its tensor's size
  Bytes movable_bytes = 0;           // of it, idle long enough to move out and back, one after the other
};

struct Characterization {
  static constexpr std::array<Bytes, 5> kMinBytes = {0, 1'000'000, 10'000'000, 100'000'000, 1'000'000'000};
  static constexpr std::array<Nanos, 6> kIdleTimes = {10'000,     100'000,     1'000'000,
                                                      10'000'000, 100'000'000, 1'000'000'000};
  Bytes peak_live_bytes = 0;
  ActiveShare active;
  std::array<SizeClass, kMinBytes.size()> sizes{};
  SizeClass all;
};

// `bytes_per_s`, more than 0, is the rate at which a tensor leaves and at which it returns.
Characterization Characterize(const Workload& workload, double bytes_per_s);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_OFFLINE_CHARACTERIZATION_H_
