// The settings that the doctor would choose, with the reasons: from what was found and measured, with the
// product's own arithmetic for defaults, so that a job does what the doctor says. Pure: facts in, settings
// out. Thread-safe.

#ifndef SPILLWAY_INTEGRATION_CLI_DOCTOR_CHOICE_H_
#define SPILLWAY_INTEGRATION_CLI_DOCTOR_CHOICE_H_

#include <map>
#include <string>
#include <vector>

#include "integration/cli/doctor/facts.h"

namespace spillway::integration {

struct ChosenSetting {
  std::string name;      // "host_memory"
  std::string value;     // empty: it stays unset
  std::string reason;    // one line
  bool given = false;    // the value is the user's own
  bool dropped = false;  // the user has set it, and it is to be unset: a job would be refused with it
};

// Returns gpu_memory, host_memory, dirs and, if it is of use, disk_reserve; then the other settings of the
// user.
std::vector<ChosenSetting> ChooseSettings(const DoctorFacts& facts);

// Returns the settings with a value, by name: the check at the start is asked about them.
std::map<std::string, std::string> ValuesOf(const std::vector<ChosenSetting>& settings);

// Returns "export SPILLWAY_HOST_MEMORY=5GiB  # reason" for each; "unset SPILLWAY_METRICS  # reason" for one
// that is dropped; a comment for one that stays unset.
std::vector<std::string> ExportLines(const std::vector<ChosenSetting>& settings);

// Returns the settings as the text of PyTorch's variable: "backend:spillway,host_memory:5GiB,dirs:[/nvme0]",
// with PyTorch's own entries behind. The mode, which is a variable only, is left out.
std::string ConfText(const std::vector<ChosenSetting>& settings, const std::string& kept_conf);

// Returns `value` as a word for a shell.
std::string ShellWord(const std::string& value);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_DOCTOR_CHOICE_H_
