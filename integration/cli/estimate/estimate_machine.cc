#include "integration/cli/estimate/estimate_machine.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "integration/cli/common/units.h"

namespace spillway::integration {
namespace {

// The parts of a data sheet's figures that a training job reaches, which are assumed. docs/estimate.md names
// the sources.
constexpr Range kMatmulPart = {0.35, 0.75}, kMemoryPart = {0.5, 0.9};
constexpr Range kLaunch = {6, 2};  // microseconds

struct DataSheet {
  const char* name;
  policy::Bytes memory;
  double fp32, bf16;  // dense operations a second; fp32 without TF32, which PyTorch does not use by itself
  double bandwidth;
  double pcie_in, pcie_out;
  const char* pcie_both;
  policy::Bytes
      workspace;  // cuBLAS: 32 MiB on Hopper, 8,519,680 bytes before (CUDABlas workspaces of PyTorch)
};

// NVIDIA's data sheets of the A100 SXM 80GB, H100 SXM, H200 SXM and GeForce RTX 4090; links: docs/planner.md.
constexpr DataSheet kSheets[] = {
    {"a100", 80'000 * kMebibyte, 19.5e12, 312e12, 2.039e12, 25e9, 25e9, "11.25e9,24.5e9", 8'519'680},
    {"h100", 81'000 * kMebibyte, 67e12, 989e12, 3.35e12, 53e9, 52.8e9, "35e9,50e9", 32 * kMebibyte},
    {"h200", 143'000 * kMebibyte, 67e12, 989e12, 4.8e12, 53e9, 53e9, "", 32 * kMebibyte},
    {"rtx4090", 24'000 * kMebibyte, 82.6e12, 165.2e12, 1.008e12, 26e9, 26e9, "13.5e9,20e9", 8'519'680},
};

Range PartOf(double whole, Range part) { return {whole * part.low, whole * part.high}; }

absl::Status Wrong(const char* key, const char* accepted) {
  return absl::InvalidArgumentError(absl::StrCat(key, " is missing or invalid; expected: ", accepted));
}

bool Good(const nlohmann::json& value, double least, double most) {
  return value.is_number() && value.get<double>() >= least && value.get<double>() <= most;
}

// The slow end comes first: the smaller rate, the longer time.
enum class Slow : uint8_t { kSmaller, kLarger };

absl::Status ReadRange(const nlohmann::json& json, const char* key, Slow slow, double least, Range* range) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_array() || found->size() != 2 || !Good((*found)[0], least, 1e18) ||
      !Good((*found)[1], least, 1e18))
    return Wrong(key, "[slowest, fastest], two positive numbers");
  *range = {(*found)[0].get<double>(), (*found)[1].get<double>()};
  if (slow == Slow::kSmaller ? range->low > range->high : range->low < range->high)
    return absl::InvalidArgumentError(
        absl::StrCat(key, "=", found->dump(), " is invalid; expected: [slowest, fastest], the ",
                     slow == Slow::kSmaller ? "smaller" : "larger", " number first"));
  return absl::OkStatus();
}

absl::Status ReadNumber(const nlohmann::json& json, const char* key, double least, double* number) {
  const auto found = json.find(key);
  if (found == json.end() || !Good(*found, least, 1e15))
    return Wrong(key, "a number, bytes or bytes a second");
  *number = found->get<double>();
  return absl::OkStatus();
}

}  // namespace

std::string MachineNames() {
  std::string names;
  for (const DataSheet& sheet : kSheets) absl::StrAppend(&names, names.empty() ? "" : ", ", sheet.name);
  return names;
}

absl::StatusOr<EstimateMachine> NamedMachine(const std::string& name) {
  for (const DataSheet& sheet : kSheets) {
    if (name != sheet.name) continue;
    EstimateMachine machine;
    machine.name = name;
    machine.source = "assumed: 35 to 75 % of the data sheet's operations, 50 to 90 % of its bandwidth";
    machine.gpu_memory = sheet.memory;
    machine.matmul_fp32 = PartOf(sheet.fp32, kMatmulPart);
    machine.matmul_bf16 = PartOf(sheet.bf16, kMatmulPart);
    machine.memory = PartOf(sheet.bandwidth, kMemoryPart);
    machine.launch_us = kLaunch;
    machine.pcie_in = sheet.pcie_in;
    machine.pcie_out = sheet.pcie_out;
    machine.pcie_both = sheet.pcie_both;
    machine.workspace = sheet.workspace;
    return machine;
  }
  return absl::InvalidArgumentError(absl::StrCat("gpu=", name, " is invalid; expected: ", MachineNames(),
                                                 ", or a measured machine's file (--machine)"));
}

absl::StatusOr<EstimateMachine> ParseMachine(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object())
    return absl::InvalidArgumentError("no JSON object; expected: docs/estimate.md's form");
  EstimateMachine machine;
  double memory = 0, workspace = 0;
  for (const absl::Status& status :
       {ReadNumber(json, "gpu_memory_bytes", 1e6, &memory),
        ReadNumber(json, "workspace_bytes", 0, &workspace),
        ReadRange(json, "matmul_fp32_per_s", Slow::kSmaller, 1e6, &machine.matmul_fp32),
        ReadRange(json, "matmul_bf16_per_s", Slow::kSmaller, 1e6, &machine.matmul_bf16),
        ReadRange(json, "memory_bytes_per_s", Slow::kSmaller, 1e6, &machine.memory),
        ReadRange(json, "launch_us", Slow::kLarger, 0.001, &machine.launch_us),
        ReadNumber(json, "pcie_in_bytes_per_s", 1e6, &machine.pcie_in),
        ReadNumber(json, "pcie_out_bytes_per_s", 1e6, &machine.pcie_out),
        ReadNumber(json, "ssd_read_bytes_per_s", 1e6, &machine.ssd_read),
        ReadNumber(json, "ssd_write_bytes_per_s", 1e6, &machine.ssd_write)}) {
    if (!status.ok()) return status;
  }
  const auto name = json.find("name"), source = json.find("source");
  machine.name = name != json.end() && name->is_string() ? name->get<std::string>() : "of the file";
  machine.source = source != json.end() && source->is_string() ? source->get<std::string>() : "of the file";
  machine.gpu_memory = static_cast<policy::Bytes>(memory);
  machine.workspace = static_cast<policy::Bytes>(workspace);
  return machine;
}

}  // namespace spillway::integration
