// AuditSetup reads the deny lists from their files and puts them in force. In audit mode it also has the
// auditor, and writes each kernel that the auditor finds into the user's list. No other code touches these
// files. The runtime creates one before any block exists; kernels are recorded on the thread that launched
// them. A list that cannot be read or written becomes a message for the user.

#ifndef SPILLWAY_INTEGRATION_ENGINE_AUDIT_SETUP_H_
#define SPILLWAY_INTEGRATION_ENGINE_AUDIT_SETUP_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "integration/escape/deny_list.h"
#include "integration/hooks/hook_context.h"
#include "integration/hooks/launch_reports.h"
#include "integration/settings/settings.h"

namespace spillway::integration {

// Reads the shipped list and the user's. Returns kInvalidArgument with a message for the user if the file
// cannot be read or has a bad line. In audit mode the file need not exist yet, but it must be possible to
// create it.
absl::StatusOr<DenyList> ReadDenyLists(const Settings& settings);

// Appends one line for the kernel unless the file has one, in one write under a lock of the file, since other
// ranks may do the same. Creates the file if it is missing. Returns true if a line was added.
absl::StatusOr<bool> AppendToDenyList(const std::string& path, const Auditor::Kernel& kernel);

class AuditSetup {
 public:
  // `state` lives as long as the process. Must be called before any block exists.
  AuditSetup(const Settings& settings, DenyList list, HookState* state);

  // Returns the auditor; null without audit mode.
  allocator::AuditObserver* auditor() { return auditor_.get(); }
  // Returns the line for the end of an audit; empty without audit mode.
  std::string Summary() const;

 private:
  std::string Record(const Auditor::Kernel& kernel) const;

  const DenyList list_;
  const std::string file_;
  std::unique_ptr<Auditor> auditor_;
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_AUDIT_SETUP_H_
