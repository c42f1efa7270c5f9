// The one file of these tests that knows where the traces lie.

#include "policy/offline/workload_csv.h"
#include "tests/policy/workload_helpers.h"

namespace spillway::policy {

Workload G10Workload(const std::string& name) {
  const std::string folder = std::string(SPILLWAY_POLICY_TESTS) + "/g10/" + name;
  return ParseCsvWorkload(FileText(folder + "/kernels.csv"), FileText(folder + "/tensors.csv")).value();
}

}  // namespace spillway::policy
