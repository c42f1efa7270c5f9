// Traces as files, for the program's subcommands: reading them in either form, or generating a named model's;
// writing them; and `spillway generate`. policy/model/workload_file and policy/offline/workload_csv know the
// forms. One thread. Errors name the file.

#ifndef SPILLWAY_INTEGRATION_CLI_COMMON_TRACE_FILES_H_
#define SPILLWAY_INTEGRATION_CLI_COMMON_TRACE_FILES_H_

#include <CLI/CLI.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "policy/model/workload.h"

namespace spillway::integration {

// Returns all bytes of a file; NotFound, with the system's reason, if it cannot be read.
absl::StatusOr<std::string> ReadFile(const std::string& path);
// Replaces the file. Returns Unknown, with the system's reason, if it cannot be written.
absl::Status WriteFile(const std::string& path, const std::string& bytes);

// Reads the trace of a folder with kernels.csv and tensors.csv, of a binary file, or of a model
// ("llama3-70b:batch=2"; a file or folder of such a name comes first).
absl::StatusOr<policy::Workload> ReadTrace(const std::string& source);

// Writes CSV into a folder if `target` ends in / or is one, otherwise the binary file.
absl::Status WriteTrace(const std::string& target, const policy::Workload& workload);

struct GenerateOptions {
  std::string model, target;
};

// Adds the subcommand; `options` must live until the command line has been parsed.
CLI::App* AddGenerate(CLI::App* app, GenerateOptions* options);

// Returns the exit status: 0; 2 for wrong use or a target that cannot be written.
int Generate(const GenerateOptions& options);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_COMMON_TRACE_FILES_H_
