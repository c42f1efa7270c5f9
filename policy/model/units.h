// Units and ids that all of policy shares with the code that hands it traces or carries its plans out: the
// recorder, residency's plan and launch log. Plain numbers, so that a trace file can contain them; nothing
// here fails.

#ifndef SPILLWAY_POLICY_MODEL_UNITS_H_
#define SPILLWAY_POLICY_MODEL_UNITS_H_

#include <cstdint>

namespace spillway::policy {

using Bytes = uint64_t;
using Nanos = int64_t;
inline constexpr double kNanosPerSecond = 1e9;

// The place of a launch in the order in which the gate let launches through, from 0. kNever: no launch, or
// none that is known.
using LaunchIndex = uint64_t;
inline constexpr LaunchIndex kNever = ~LaunchIndex{0};

// A block's identity in a trace, unique over the run: id in the low, generation in the high half.
using TraceBlock = uint64_t;

// The place of bytes while they are away from the GPU.
enum class PlanTier : uint8_t { kHost, kDisk };

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_MODEL_UNITS_H_
