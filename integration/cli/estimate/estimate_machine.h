// The machine of `spillway estimate`: the rates at which a GPU computes and moves bytes, as ranges. The
// figures of a published GPU are those of its data sheet times a part that is assumed to be reached; a
// machine file has measured ones (bench/machine_profile.py writes it). Pure.

#ifndef SPILLWAY_INTEGRATION_CLI_ESTIMATE_ESTIMATE_MACHINE_H_
#define SPILLWAY_INTEGRATION_CLI_ESTIMATE_ESTIMATE_MACHINE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "policy/model/units.h"

namespace spillway::integration {

// A range from the slowest to the fastest that is expected.
struct Range {
  double low = 0, high = 0;
};

struct EstimateMachine {
  std::string name;
  std::string source;              // "assumed: ..." or where it was measured
  policy::Bytes gpu_memory = 0;    // of the device
  Range matmul_fp32, matmul_bf16;  // operations a second
  Range memory;                    // bytes a second
  Range launch_us;                 // least time of a kernel; `low` is the longer one
  double pcie_in = 0, pcie_out = 0;
  std::string pcie_both;               // "IN,OUT"; empty: the directions are independent
  double ssd_read = 0, ssd_write = 0;  // 0: not known
  policy::Bytes workspace = 0;         // of the matrix library
};

// Returns "a100, h100, h200, rtx4090".
std::string MachineNames();
// Returns InvalidArgument, with what is accepted, for any other name.
absl::StatusOr<EstimateMachine> NamedMachine(const std::string& name);
// Reads the text of a machine file; InvalidArgument names the key and what is accepted.
absl::StatusOr<EstimateMachine> ParseMachine(const std::string& text);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_ESTIMATE_ESTIMATE_MACHINE_H_
