// Failures on purpose by the name of a call and its number (SIMCUDA_FAIL). The functions that have a fail
// point count their calls while there is a rule, and one that has to fail does nothing else. Thread-safe.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_CORE_FAIL_POINTS_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_CORE_FAIL_POINTS_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "integration/simcuda/driver/core/driver_api.h"

namespace simcuda {

// The driver's functions by their exported names.
enum class DriverCall : int {
#define DRIVER_FUNCTION(symbol, name, version, form) symbol,
#include "allocator/driver/driver_functions.def"
#undef DRIVER_FUNCTION
  kCount
};

// Replaces the rules by those of `text`, and all counts begin at zero: "cuMemMap:3" is the third call,
// "cuMemMap:3+" that and all later ones, "cuMemMap:3:2" the third with code 2 (otherwise CUDA_ERROR_UNKNOWN);
// several with commas between them; empty: none. Returns false if it is not understood, or names no function
// of the driver; the rules stay then.
bool SetFailures(const std::string& text);

extern std::atomic<bool> g_any_failure;  // whether there is a rule; released by SetFailures
CUresult CountCall(DriverCall call);
// The result of each rule since the counts began.
struct RuleCount {
  const char* symbol;
  int64_t calls;     // of the function
  int64_t failures;  // that the rule made
};
std::vector<RuleCount> CountRules();
// Makes all counts begin at zero; the rules stay.
void ForgetCalls();
// Counts one call. Returns its answer if it has to fail, or CUDA_SUCCESS.
inline CUresult FailureOf(DriverCall call) {
  return __builtin_expect(g_any_failure.load(std::memory_order_acquire), 0) ? CountCall(call) : CUDA_SUCCESS;
}

}  // namespace simcuda

// The first line of a function that a rule can make fail.
#define SIMCUDA_FAIL_POINT(symbol)                                                                           \
  if (const CUresult failure = ::simcuda::FailureOf(::simcuda::DriverCall::symbol); failure != CUDA_SUCCESS) \
  return failure

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_CORE_FAIL_POINTS_H_
