#include "integration/engine/eviction_switch.h"

#include "absl/strings/str_cat.h"
#include "allocator/driver/cuda_driver.h"
#include "io/os/log.h"

namespace spillway::integration {

std::string EvictionSwitch::Unseen() const {
  if ((shim_->flags & SPILLWAY_SHIM_DRIVER_ALREADY_LOADED) != 0) return "a driver that was loaded before";
  if (!missing_hooks_.empty()) return missing_hooks_;
  char name[128];
  return shim_->first_unwrapped(name, sizeof(name)) >= 0 ? name : "";
}

absl::Status EvictionSwitch::Followable() const {
  const std::string unseen = Unseen();
  if (unseen.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("calls to ", unseen, " cannot be followed; PyTorch's own allocator serves this process"));
}

bool EvictionSwitch::MayEvict() const {
  return settings_.on_full != OnFull::kError && !settings_.Observes() && !ended_.load() && Unseen().empty();
}

absl::Status EvictionSwitch::End(const char* reason) {
  const bool first = !ended_.exchange(true);
  absl::Status status = devices_->StopEvicting();
  if (!first) return status;
  reason_ = reason;
  has_reason_.store(true);
  // There is nothing to report before the first block: Followable will refuse.
  if (!devices_->any()) return status;
  os::ReportLine(absl::StrCat("nothing more will be moved off the GPU: ", reason, " cannot be followed"));
  if (status.ok()) return status;
  os::ReportLine(
      absl::StrCat("the blocks that were moved off the GPU do not fit it any more: ", status.message(),
                   " Such a call is refused where it is seen; one that is not seen may end the job"));
  return status;
}

absl::Status EvictionSwitch::WithCause(const absl::Status& refusal) const {
  const std::string* const reason = ended_by();
  if (!absl::IsResourceExhausted(refusal) || reason == nullptr) return refusal;
  return allocator::WithText(refusal, absl::StrCat(refusal.message(), "; evictions have ended, since ",
                                                   *reason, " cannot be followed"));
}

}  // namespace spillway::integration
