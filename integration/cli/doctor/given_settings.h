// What the user has set, from the command's options, our variables and PyTorch's variable: which of them wins,
// and what each is called in a message, is as in a job. `spillway doctor` calls it; one thread; nothing fails,
// since values are judged by ReadSettings.

#ifndef SPILLWAY_INTEGRATION_CLI_DOCTOR_GIVEN_SETTINGS_H_
#define SPILLWAY_INTEGRATION_CLI_DOCTOR_GIVEN_SETTINGS_H_

#include <map>
#include <string>

#include "integration/cli/doctor/facts.h"
#include "integration/settings/settings.h"

namespace spillway::integration {

// `options` by name, "host_memory". An option wins over a variable, a variable over a key.
GivenSettings CollectSettings(const std::map<std::string, std::string>& options);

// The entries of PyTorch's variable, "key" -> "value" without its brackets; the key of an entry without a colon
// is the whole entry.
std::map<std::string, std::string> ConfEntries(const std::string& text);

// Lives on what it is made from. Retired settings are read from the environment, to be refused.
SettingSource SourceOf(const GivenSettings& given, const std::map<std::string, std::string>& options);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_DOCTOR_GIVEN_SETTINGS_H_
