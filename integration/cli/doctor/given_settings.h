// The settings of the user, from the command's options, our variables, PyTorch's variable and files. It is as
// in a job which of them wins, what each is called in a message, and which slips in PyTorch's variable end
// the start. `spillway doctor` calls it; one thread. ReadSettings judges the values.

#ifndef SPILLWAY_INTEGRATION_CLI_DOCTOR_GIVEN_SETTINGS_H_
#define SPILLWAY_INTEGRATION_CLI_DOCTOR_GIVEN_SETTINGS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "integration/cli/doctor/facts.h"
#include "integration/settings/settings.h"

namespace spillway::integration {

// `options` by name, "host_memory". An option wins over a variable, a variable over a key, a key over the
// user's file, and that file over /etc/spillway.conf.
GivenSettings CollectSettings(const std::map<std::string, std::string>& options);

// Returns kInvalidArgument, with the message of a job's start, for a slip in PyTorch's variables (a key that
// nobody knows, a list without brackets, a backend that is nearly ours) and for an error in a file of
// settings. Returns OK with SPILLWAY=off, as a job goes on then.
absl::Status CheckConf(const GivenSettings& given);

// Returns the settings as a source. Its arguments must outlive it. Retired settings are read from the
// environment, to be refused.
SettingSource SourceOf(const GivenSettings& given, const std::map<std::string, std::string>& options);

// Returns all settings that are set, or limited (`value` may be empty then), in the order of settings.def.
std::vector<SettingOrigin> OriginsOf(const SettingSource& source);
// Returns a line for each.
std::vector<std::string> OriginLines(const std::vector<SettingOrigin>& origins);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_DOCTOR_GIVEN_SETTINGS_H_
