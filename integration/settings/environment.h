// The process's environment: the only place where C++ of the product reads it. The engine calls it when it
// opens, the command line when it starts. As with getenv, no other thread may change the environment
// meanwhile. Nothing fails: a variable that is not set reads as empty or null.

#ifndef SPILLWAY_INTEGRATION_SETTINGS_ENVIRONMENT_H_
#define SPILLWAY_INTEGRATION_SETTINGS_ENVIRONMENT_H_

#include <string>
#include <vector>

namespace spillway::integration {

// The names of all variables.
std::vector<std::string> EnvironmentNames();

// All of it, for a process to be started. Valid until the next setenv.
char** WholeEnvironment();

// Empty where the variable is not set.
std::string EnvironmentValue(const char* name);

// Of that name, in the user's cache directory: XDG_CACHE_HOME/spillway, or HOME/.cache/spillway. Empty where neither is an
// absolute path.
std::string UserCacheFile(const std::string& name);

// Null where the variable is not set. Valid until the next setenv.
const char* EnvironmentVariable(const char* name);

// The name of a setting's variable: "SPILLWAY_GPU_MEMORY" for "gpu_memory", "SPILLWAY" for "spillway".
std::string VariableOf(const std::string& name);

// The value of that variable, null where it is not set or empty. Valid until the next setenv.
const char* EnvironmentSetting(const char* name);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_SETTINGS_ENVIRONMENT_H_
