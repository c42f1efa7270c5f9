// The process's environment, as far as anything in C++ reads it: here alone. Callers read before other
// threads change it, as with getenv; nothing fails.

#ifndef SPILLWAY_INTEGRATION_SETTINGS_ENVIRONMENT_H_
#define SPILLWAY_INTEGRATION_SETTINGS_ENVIRONMENT_H_

#include <string>
#include <vector>

namespace spillway::integration {

// The names of all variables.
std::vector<std::string> EnvironmentNames();

// Empty where the variable is not set.
std::string EnvironmentValue(const char* name);

// The variable of the setting of that name ("gpu_memory"), null where it is not set. Valid until the next
// setenv.
const char* EnvironmentSetting(const char* name);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_SETTINGS_ENVIRONMENT_H_
