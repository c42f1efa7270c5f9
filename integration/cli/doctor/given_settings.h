// What the user has set, from the command's options, our variables and PyTorch's variable: which of them wins,
// what each is called in a message, and which slips in PyTorch's variable end a job, is as in a job.
// `spillway doctor` calls it; one thread. Values are judged by ReadSettings.

#ifndef SPILLWAY_INTEGRATION_CLI_DOCTOR_GIVEN_SETTINGS_H_
#define SPILLWAY_INTEGRATION_CLI_DOCTOR_GIVEN_SETTINGS_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "integration/cli/doctor/facts.h"
#include "integration/settings/settings.h"

namespace spillway::integration {

// `options` by name, "host_memory". An option wins over a variable, a variable over a key.
GivenSettings CollectSettings(const std::map<std::string, std::string>& options);

// kInvalidArgument, with the words of a job's start, for a slip in PyTorch's variables: a key that is nobody's,
// a list without brackets, a backend that is nearly ours. OK with SPILLWAY=off, as a job goes on then.
absl::Status CheckConf(const GivenSettings& given);

// Lives on what it is made from. Retired settings are read from the environment, to be refused.
SettingSource SourceOf(const GivenSettings& given, const std::map<std::string, std::string>& options);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_DOCTOR_GIVEN_SETTINGS_H_
