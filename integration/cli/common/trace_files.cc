#include "integration/cli/common/trace_files.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "integration/cli/common/exit_status.h"
#include "policy/model/workload_file.h"
#include "policy/offline/model_workload.h"
#include "policy/offline/workload_csv.h"

namespace spillway::integration {
namespace {

absl::StatusOr<policy::Workload> ReadFolder(const std::string& path) {
  auto kernels = ReadFile(path + "/kernels.csv");
  if (!kernels.ok()) return kernels.status();
  auto tensors = ReadFile(path + "/tensors.csv");
  if (!tensors.ok()) return tensors.status();
  auto workload = policy::ParseCsvWorkload(*kernels, *tensors);
  if (workload.ok()) return workload;
  return absl::InvalidArgumentError(absl::StrCat(path, "/", workload.status().message()));
}

absl::StatusOr<policy::Workload> GenerateTrace(const std::string& model) {
  auto options = policy::ParseModel(model);
  if (!options.ok()) return options.status();
  return policy::MakeModelWorkload(*options);
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string bytes;
  char buffer[1 << 16];
  while (file.read(buffer, sizeof(buffer)) || file.gcount() > 0)
    bytes.append(buffer, static_cast<size_t>(file.gcount()));
  if (file.eof()) return bytes;
  return absl::NotFoundError(absl::StrCat(path, ": ", errno != 0 ? std::strerror(errno) : "cannot be read"));
}

absl::Status WriteFile(const std::string& path, const std::string& bytes) {
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << bytes;
  file.close();
  if (file) return absl::OkStatus();
  return absl::UnknownError(
      absl::StrCat(path, ": cannot be written", errno != 0 ? absl::StrCat(": ", std::strerror(errno)) : ""));
}

absl::StatusOr<policy::Workload> ReadTrace(const std::string& source) {
  std::error_code ignored;  // a path that cannot be examined counts as missing
  if (std::filesystem::is_directory(source, ignored)) return ReadFolder(source);
  if (!std::filesystem::exists(source, ignored)) {
    auto generated = GenerateTrace(source);
    if (generated.ok() || !absl::IsNotFound(generated.status())) return generated;
    return absl::NotFoundError(
        absl::StrCat(source, ": no such file or folder, and no model (", policy::ModelNames(), ")"));
  }
  auto bytes = ReadFile(source);
  if (!bytes.ok()) return bytes.status();
  auto workload = policy::DecodeWorkload(*bytes);
  if (workload.ok()) return workload;
  return absl::InvalidArgumentError(absl::StrCat(source, ": ", workload.status().message()));
}

absl::Status WriteTrace(const std::string& target, const policy::Workload& workload) {
  std::error_code ignored;  // the writing below reports an error
  if (!absl::EndsWith(target, "/") && !std::filesystem::is_directory(target, ignored))
    return WriteFile(target, policy::EncodeWorkload(workload));
  std::filesystem::create_directories(target, ignored);
  if (absl::Status status = WriteFile(target + "/kernels.csv", policy::KernelsCsv(workload)); !status.ok())
    return status;
  return WriteFile(target + "/tensors.csv", policy::TensorsCsv(workload));
}

CLI::App* AddGenerate(CLI::App* app, GenerateOptions* options) {
  CLI::App* generate = app->add_subcommand(
      "generate", "Write the trace of a training iteration of a model, from its shapes alone");
  generate
      ->add_option("model", options->model,
                   absl::StrCat("One of ", policy::ModelNames(),
                                "; settings follow a colon: llama3-70b:batch=2,sequence=2048,micro_batches=4,"
                                "layers=20,precision=fp32,tensor_parallel=2,tflops=400,bandwidth=3.3e12"))
      ->required();
  generate->add_option("target", options->target, "File, or a folder for CSV (a name that ends in /)")
      ->required();
  return generate;
}

int Generate(const GenerateOptions& options) {
  auto workload = GenerateTrace(options.model);
  const absl::Status status = workload.ok() ? WriteTrace(options.target, *workload) : workload.status();
  if (!status.ok()) {
    std::fprintf(stderr, "spillway: %s\n", std::string(status.message()).c_str());
    return kWrongUse;
  }
  std::printf("%zu kernels, %zu tensors, %.3f s\n", workload->kernels.size(), workload->tensors.size(),
              static_cast<double>(workload->IdealTime()) / 1e9);
  return 0;
}

}  // namespace spillway::integration
