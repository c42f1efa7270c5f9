// What the user has set, from the command's options, our variables, PyTorch's variable and files: which of
// them wins, what each is called in a message, and which slips in PyTorch's variable end a job, is as in a
// job. `spillway doctor` calls it; one thread. Values are judged by ReadSettings.

#ifndef SPILLWAY_INTEGRATION_CLI_DOCTOR_GIVEN_SETTINGS_H_
#define SPILLWAY_INTEGRATION_CLI_DOCTOR_GIVEN_SETTINGS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "integration/cli/doctor/facts.h"
#include "integration/settings/settings.h"

namespace spillway::integration {

// `options` by name, "host_memory". An option wins over a variable, a variable over a key, that over the
// user's file and that over /etc/spillway.conf.
GivenSettings CollectSettings(const std::map<std::string, std::string>& options);

// kInvalidArgument, with the words of a job's start, for a slip in PyTorch's variables (a key that is
// nobody's, a list without brackets, a backend that is nearly ours) and for what is wrong with a file of
// settings. OK with SPILLWAY=off, as a job goes on then.
absl::Status CheckConf(const GivenSettings& given);

// Lives on what it is made from. Retired settings are read from the environment, to be refused.
SettingSource SourceOf(const GivenSettings& given, const std::map<std::string, std::string>& options);

// All that are set, or limited (then `value` may be empty), in the order of settings.def.
std::vector<SettingOrigin> OriginsOf(const SettingSource& source);
// A line for each.
std::vector<std::string> OriginLines(const std::vector<SettingOrigin>& origins);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_DOCTOR_GIVEN_SETTINGS_H_
