// Workloads as the two CSV files of a G10 trace (tests/policy/g10). Bytes in, bytes out; the caller reads and
// writes the files. Pure; thread-safe.

#ifndef SPILLWAY_POLICY_OFFLINE_WORKLOAD_CSV_H_
#define SPILLWAY_POLICY_OFFLINE_WORKLOAD_CSV_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "policy/model/workload.h"

namespace spillway::policy {

// Reads the two files of a G10 trace (kernels.csv, tensors.csv), given as bytes. A bad line is
// InvalidArgument with the file's name, the line and the offset of the line in the file.
absl::StatusOr<Workload> ParseCsvWorkload(absl::string_view kernels_csv, absl::string_view tensors_csv);

// Write the same form. It has no lives: a tensor that lives over the iteration's end becomes persistent
// there, any other lives from its first to its last kernel. Commas and line ends in names become other signs.
std::string KernelsCsv(const Workload& workload);
std::string TensorsCsv(const Workload& workload);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_OFFLINE_WORKLOAD_CSV_H_
