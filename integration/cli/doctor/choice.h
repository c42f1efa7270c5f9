// Which settings the doctor would choose, and why: from what was found out and measured, with the product's own
// arithmetic for defaults, so that what it says is what a job does. Pure: facts in, settings out. Any thread.

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

// gpu_memory, host_memory, dirs and, where that is of use, disk_reserve; then what else the user has set.
std::vector<ChosenSetting> ChooseSettings(const DoctorFacts& facts);

// By name, those with a value: what the check at the start is asked about.
std::map<std::string, std::string> ValuesOf(const std::vector<ChosenSetting>& settings);

// "export SPILLWAY_HOST_MEMORY=5GiB  # reason" for each; "unset SPILLWAY_METRICS  # reason" for one that is
// dropped; one that stays unset is a comment.
std::vector<std::string> ExportLines(const std::vector<ChosenSetting>& settings);

// The same as the text of PyTorch's variable: "backend:spillway,host_memory:5GiB,dirs:[/nvme0]", with PyTorch's
// own entries behind. The mode, which is a variable only, is left out.
std::string ConfText(const std::vector<ChosenSetting>& settings, const std::string& kept_conf);

// `value` as a word for a shell.
std::string ShellWord(const std::string& value);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_DOCTOR_CHOICE_H_
