// The process's environment, which C++ of the product reads only here. The engine calls this when it opens,
// the command line when it starts. No other thread may change the environment meanwhile, as with getenv. No
// call fails: a variable that is not set reads as empty or null.

#ifndef SPILLWAY_INTEGRATION_SETTINGS_ENVIRONMENT_H_
#define SPILLWAY_INTEGRATION_SETTINGS_ENVIRONMENT_H_

#include <string>
#include <vector>

namespace spillway::integration {

// Returns the names of all variables.
std::vector<std::string> EnvironmentNames();

// Returns the whole environment, for a process to be started. Valid until the next setenv.
char** WholeEnvironment();

// Returns the variable's value; empty if it is not set.
std::string EnvironmentValue(const char* name);

// Returns the path of a file of that name in the user's cache directory: XDG_CACHE_HOME/spillway, or
// HOME/.cache/spillway. Empty if neither is an absolute path.
std::string UserCacheFile(const std::string& name);

// Returns the variable's value; null if it is not set. Valid until the next setenv.
const char* EnvironmentVariable(const char* name);

// Returns the name of a setting's variable: "SPILLWAY_GPU_MEMORY" for "gpu_memory", "SPILLWAY" for
// "spillway".
std::string VariableOf(const std::string& name);

// Returns the value of a setting's variable; null if it is not set or empty. Valid until the next setenv.
const char* EnvironmentSetting(const char* name);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_SETTINGS_ENVIRONMENT_H_
