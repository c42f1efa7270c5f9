// The part of Runtime that judges whether calls of the driver can be followed: before the first block, and
// later, when a call is met that cannot.

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "allocator/driver/cuda_driver.h"
#include "integration/engine/runtime.h"
#include "integration/hooks/access_set_builder.h"
#include "io/os/log.h"

namespace spillway::integration {

// A block has no memory until a launch or copy names it. Where those go unseen, PyTorch's own allocator must
// serve.
absl::Status Runtime::Followable() const {
  std::string unseen = missing_hooks_;
  char name[128];
  if (unseen.empty() && shim_->first_unwrapped(name, sizeof(name)) >= 0) unseen = name;
  if ((shim_->flags & SPILLWAY_SHIM_DRIVER_ALREADY_LOADED) != 0) unseen = "a driver that was loaded before";
  if (unseen.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("calls of ", unseen, " cannot be followed; PyTorch's own allocator serves this process"));
}

absl::Status Runtime::WithCause(const absl::Status& refusal) const {
  if (!absl::IsResourceExhausted(refusal) || !ended_.load()) return refusal;
  return allocator::WithWords(refusal, absl::StrCat(refusal.message(), "; evictions have ended, since ",
                                                    ended_by_, " cannot be followed"));
}

bool Runtime::MayEvictLocked() {
  if (settings_.on_full == OnFull::kError || settings_.Observes() || eviction_off_.load() ||
      !missing_hooks_.empty())
    return false;
  if ((shim_->flags & SPILLWAY_SHIM_DRIVER_ALREADY_LOADED) != 0) return false;
  char name[128];
  return shim_->first_unwrapped(name, sizeof(name)) < 0;
}

bool Runtime::InUse() const {
  return std::any_of(residencies_.begin(), residencies_.end(),
                     [](const auto& residency) { return residency.load() != nullptr; });
}

absl::Status Runtime::StopEvicting() {
  absl::Status status;
  for (std::atomic<allocator::Residency*>& device : residencies_) {
    if (allocator::Residency* const residency = device.load()) status.Update(residency->StopEvicting());
  }
  return status;
}

void Runtime::SwitchEvictionOff(const char* reason) {
  Runtime* const runtime = Get();
  if (runtime != nullptr && !runtime->eviction_off_.load()) runtime->EndEvictions(reason).IgnoreError();
}

absl::Status Runtime::EndEvictions(const char* reason) {
  const bool first = !eviction_off_.exchange(true);
  absl::Status status = StopEvicting();
  if (!first) return status;
  ended_by_ = reason;
  ended_.store(true);
  // Before the first block there is nothing to report: FollowableLocked will refuse.
  if (!InUse()) return status;
  os::ReportLine(absl::StrCat("nothing more will be moved off the GPU: ", reason, " cannot be followed"));
  if (status.ok()) return status;
  os::ReportLine(
      absl::StrCat("what has been moved off the GPU does not fit it any more: ", status.message(),
                   " Where such a call is seen it is refused; one that is not seen may end the job"));
  return status;
}

// Inside a hooked call nothing is done: bringing everything back would wait for the launch that this thread is
// in. The function's stub asks again at its next call.
void Runtime::OnUnwrapped(const char* name, int) {
  if (!InsideHookedCall()) SwitchEvictionOff(name);
}

// A function that no table of ours has may do anything with any address. So all blocks are there for its first
// call, and stay from then on. Before the first block there is no address that it could use.
int Runtime::OnNewerCall(const char* name) {
  Runtime* const runtime = Get();
  if (runtime == nullptr || runtime->dead_.load() || !runtime->InUse()) return SPILLWAY_NEWER_CALL;
  if (InsideHookedCall()) return SPILLWAY_NEWER_CALL;
  const std::string reason = absl::StrCat(name, ", which is newer than this version of Spillway,");
  return runtime->EndEvictions(reason.c_str()).ok() ? SPILLWAY_NEWER_CALL_ALWAYS : SPILLWAY_NEWER_REFUSE;
}

}  // namespace spillway::integration
