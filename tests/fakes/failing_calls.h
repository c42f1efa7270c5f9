// Every call that the memory core makes of the driver and of the operating system, counted, and one of them
// made to fail at its n-th time. Driver calls go through a table that stands before the real one; calls of
// the operating system through wrappers that the test is linked with (-Wl,--wrap, see failing_calls.cmake).
// Nothing is counted until Arm.

#ifndef SPILLWAY_TESTS_FAKES_FAILING_CALLS_H_
#define SPILLWAY_TESTS_FAKES_FAILING_CALLS_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "allocator/driver/cuda_driver.h"

namespace spillway::fakes {

enum class FailMode {
  kNone,        // count only
  kOnce,        // the n-th call fails, with an error of its own
  kFromThenOn,  // and every later one of that name
  kSticky,      // the n-th call, of the driver, and all later ones answer with a sticky error
  kKill,        // the process is killed at the n-th call
  kLate,        // the n-th call takes kLateness longer, as on a drive that hiccups
};

inline constexpr std::chrono::milliseconds kLateness{1500};

struct CallCount {
  std::string name;
  bool of_driver = false;
  uint64_t count = 0;
};

// What the driver has given to us and not got back.
struct DriverObjects {
  int64_t chunks = 0, mapped = 0, streams = 0, registered = 0, reserved = 0;
};

// The table to be handed to the core; `real` must stay, and `context` is the one that kSticky fails.
const allocator::CudaDriver* CountedDriver(const allocator::CudaDriver* real, CUcontext context);

// Counts begin at zero; `name` (of CallCount) fails at its n-th call.
void Arm(const std::string& name, uint64_t nth, FailMode mode);
// Counts no more, and nothing fails any more but for what a sticky error has done.
void Disarm();
// Whether the n-th call came.
bool Reached();
// Calls since Arm, those that came at least once.
std::vector<CallCount> Counts();
DriverObjects Objects();

// What a failing driver call answers, in modes kOnce and kFromThenOn; and kSticky's code.
inline constexpr CUresult kPlainError = CUDA_ERROR_UNKNOWN;
inline constexpr CUresult kStickyError = CUDA_ERROR_LAUNCH_FAILED;

}  // namespace spillway::fakes

#endif  // SPILLWAY_TESTS_FAKES_FAILING_CALLS_H_
