// The job's command line as the data of a run has it: cut to a length, and without the values of arguments that are
// named as secrets are. Pure functions; any thread.

#ifndef SPILLWAY_INTEGRATION_REPORT_RECORDED_COMMAND_H_
#define SPILLWAY_INTEGRATION_REPORT_RECORDED_COMMAND_H_

#include <string>
#include <string_view>
#include <vector>

namespace spillway::integration {

// Whether a value of that name is nobody's business: the last word of the name is key, token, secret, password or one
// of their kin. "--api-key", "HF_TOKEN" and "--accessToken" are, "--max-tokens", "--key-dim" and "--monkey" are not.
bool NamesASecret(std::string_view name);

// At most 64 arguments of at most 256 bytes each. "--api-key=x" becomes "--api-key=***", and so do "--api-key x" and
// "WANDB_API_KEY=x".
std::vector<std::string> RecordedCommand(std::vector<std::string> arguments);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_REPORT_RECORDED_COMMAND_H_
