// What the engine says, and does, where Spillway cannot serve the process: one line, and the end of the process where
// the user asked for that (SPILLWAY_REQUIRE). The preload does the same for what it finds (not_served.c). Called
// inside cuInit by the engine and its TorchSwap, on the thread of that cuInit, and at a device's first block by Runtime.

#ifndef SPILLWAY_INTEGRATION_ENGINE_NOT_SERVED_H_
#define SPILLWAY_INTEGRATION_ENGINE_NOT_SERVED_H_

#include <string>

#include "absl/status/status.h"
#include "integration/settings/settings.h"

namespace spillway::integration {

enum class IfNotServed { kGoOn, kEndJob };

inline IfNotServed IfNot(const Settings& settings) {
  return settings.require ? IfNotServed::kEndJob : IfNotServed::kGoOn;
}

// Writes the line `why`, with how to have such a job ended. With kEndJob it does not return: the process ends with
// exit status 2 and without exit handlers, which a driver call above may keep waiting.
void ReportNotServed(const std::string& why, IfNotServed then);

// What the first allocation on a device that cannot be served gets, and every later one. With kGoOn the line is
// written, and kFailedPrecondition sends the caller to PyTorch's own allocator. With kEndJob PyTorch raises: its own
// allocator is not asked (kInvalidArgument). Does not end the process, which has blocks on other devices, perhaps.
absl::Status NotServedOn(int device, const std::string& reason, IfNotServed then);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_NOT_SERVED_H_
