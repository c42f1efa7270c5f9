#include "integration/engine/device_check.h"

#include "absl/strings/str_format.h"

namespace spillway::integration {

absl::Status CheckDevice(ComputeCapability capability) {
  if (capability == 0 || capability >= kMinCapability) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("its compute capability is %d.%d, and %d.%d or later is needed: on older GPUs kernels "
                      "may fail while memory is mapped",
                      capability / 10, capability % 10, kMinCapability / 10, kMinCapability % 10));
}

}  // namespace spillway::integration
