#include "integration/engine/not_served.h"

#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "io/os/log.h"

namespace spillway::integration {
namespace {

constexpr int kExitNotServed = 2;

}  // namespace

void ReportNotServed(const std::string& why, IfNotServed then) {
  if (then == IfNotServed::kGoOn) return os::ReportLine(why + " (SPILLWAY_REQUIRE=1 ends the job instead)");
  os::ReportFatal(why + "; the job ends, as SPILLWAY_REQUIRE asks");
  std::fflush(nullptr);
  ::_exit(kExitNotServed);
}

absl::Status NotServedOn(int device, const std::string& reason, IfNotServed then) {
  if (then == IfNotServed::kEndJob)
    return absl::InvalidArgumentError(
        absl::StrCat("GPU ", device, " cannot be served, and SPILLWAY_REQUIRE is set: ", reason));
  ReportNotServed(absl::StrCat("not used on GPU ", device, ": ", reason), then);
  return absl::FailedPreconditionError(reason);
}

}  // namespace spillway::integration
