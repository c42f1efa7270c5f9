// The part of Runtime that judges whether calls of the driver can be followed: before the first block, and
// later, when a call is met that cannot.

#include "absl/strings/str_cat.h"
#include "integration/engine/runtime.h"
#include "io/os/log.h"

namespace spillway::integration {

// A block has no memory until a launch or copy names it. Where those go unseen, PyTorch's own allocator must
// serve.
absl::Status Runtime::FollowableLocked() {
  std::string unseen = missing_hooks_;
  char name[128];
  if (unseen.empty() && shim_->first_unwrapped(name, sizeof(name)) >= 0) unseen = name;
  if ((shim_->flags & SPILLWAY_SHIM_DRIVER_ALREADY_LOADED) != 0) unseen = "a driver that was loaded before";
  if (unseen.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("calls of ", unseen, " cannot be followed; PyTorch's own allocator serves this process"));
}

bool Runtime::MayEvictLocked() {
  if (settings_.on_full == OnFull::kError || settings_.Observes() || eviction_off_.load() ||
      !missing_hooks_.empty())
    return false;
  if ((shim_->flags & SPILLWAY_SHIM_DRIVER_ALREADY_LOADED) != 0) return false;
  char name[128];
  return shim_->first_unwrapped(name, sizeof(name)) < 0;
}

void Runtime::SwitchEvictionOff(const char* reason) {
  Runtime* runtime = Get();
  if (runtime == nullptr || runtime->eviction_off_.exchange(true)) return;
  bool in_use = false;
  absl::Status status;
  for (std::atomic<allocator::Residency*>& device : runtime->residencies_) {
    if (allocator::Residency* const residency = device.load()) {
      status.Update(residency->StopEvicting());
      in_use = true;
    }
  }
  // Before the first block there is nothing to report: FollowableLocked will refuse.
  if (!in_use) return;
  os::ReportLine(absl::StrCat("nothing more will be moved off the GPU: ", reason, " cannot be followed"));
  if (status.ok()) return;
  os::ReportLine(
      absl::StrCat("what has been moved off the GPU does not fit it any more: ", status.message(),
                   " Where such a call is seen it is refused; one that is not seen may end the job"));
}

}  // namespace spillway::integration
