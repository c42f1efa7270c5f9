// The message of the engine for a process that Spillway cannot serve: one line, and the end of the process if
// the user asked for that (SPILLWAY_REQUIRE). The preload does the same for what it finds (not_served.c). The
// engine and its TorchSwap call this inside cuInit, on its thread; Runtime calls it at a device's first
// block.

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

// Writes the line `why`, with the way to have such a job ended. Does not return if `then` is kEndJob: the
// process ends with exit status 2 and without exit handlers, which a driver call above may keep waiting.
void ReportNotServed(const std::string& why, IfNotServed then);

// Returns the status of the first allocation on a device that cannot be served, and of every later one. For
// kGoOn the line is written, and kFailedPrecondition sends the caller to PyTorch's own allocator. For kEndJob
// PyTorch raises and does not ask its own allocator (kInvalidArgument). The process is not ended, since it
// may have blocks on other devices.
absl::Status NotServedOn(int device, const std::string& reason, IfNotServed then);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_NOT_SERVED_H_
