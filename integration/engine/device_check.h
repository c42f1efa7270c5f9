// The GPUs that Spillway serves, by the driver's facts about them. The engine asks at a device's first block,
// `spillway doctor` at its start; thread-safe. Pure: the caller has asked the driver.

#ifndef SPILLWAY_INTEGRATION_ENGINE_DEVICE_CHECK_H_
#define SPILLWAY_INTEGRATION_ENGINE_DEVICE_CHECK_H_

#include "absl/status/status.h"

namespace spillway::integration {

// A compute capability: 10 times the major number plus the minor one, so 75 is 7.5. 0: not known.
using ComputeCapability = int;

// Turing. On Volta, kernels that ran on other pages have faulted while a mapping was changed
// (github.com/ovg-project/kvcached, pull request 465), so a block could move only while the GPU is idle. The
// content hash is made for 7.5 and later, too.
inline constexpr ComputeCapability kMinCapability = 75;

// Returns kFailedPrecondition, with a message, for a device that is older than kMinCapability. A device
// whose capability is not known passes.
absl::Status CheckDevice(ComputeCapability capability);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_DEVICE_CHECK_H_
