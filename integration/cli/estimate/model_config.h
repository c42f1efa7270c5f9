// Reads a model's sizes from its Hugging Face config file (config.json), for `spillway estimate`. A missing
// key has the value that transformers takes then. Pure.

#ifndef SPILLWAY_INTEGRATION_CLI_ESTIMATE_MODEL_CONFIG_H_
#define SPILLWAY_INTEGRATION_CLI_ESTIMATE_MODEL_CONFIG_H_

#include <string>

#include "absl/status/statusor.h"
#include "policy/estimate/model_shape.h"

namespace spillway::integration {

// Returns InvalidArgument, with the key and what is accepted: no JSON object, a family that is not known, a
// size that is missing or no number, sizes that do not fit each other.
absl::StatusOr<policy::ModelShape> ParseModelConfig(const std::string& text);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_ESTIMATE_MODEL_CONFIG_H_
