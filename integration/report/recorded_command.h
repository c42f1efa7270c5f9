// The job's command line as it appears in the data of a run: cut to a length, and without the values of
// arguments whose names are those of secrets. Pure functions; thread-safe.

#ifndef SPILLWAY_INTEGRATION_REPORT_RECORDED_COMMAND_H_
#define SPILLWAY_INTEGRATION_REPORT_RECORDED_COMMAND_H_

#include <string>
#include <string_view>
#include <vector>

namespace spillway::integration {

// Returns whether a value of that name is secret: the last word of the name is key, token, secret, password
// or one of their kin. "--api-key", "HF_TOKEN" and "--accessToken" are secret, "--max-tokens", "--key-dim"
// and "--monkey" are not.
bool NamesASecret(std::string_view name);

// Returns at most 64 arguments of at most 256 bytes each. "--api-key=x" becomes "--api-key=***", and
// "--api-key x" and "WANDB_API_KEY=x" are treated alike.
std::vector<std::string> RecordedCommand(std::vector<std::string> arguments);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_REPORT_RECORDED_COMMAND_H_
