// The parts of an iteration's time: kernels, what the GPU lost to each cause of ours, the job's own pauses.
// Also the chart of them, a bar for each rank or run. For ranks_page and changes_page. Pure; no call fails.

#ifndef SPILLWAY_INTEGRATION_CLI_REPORT_ITERATION_PARTS_H_
#define SPILLWAY_INTEGRATION_CLI_REPORT_ITERATION_PARTS_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "integration/cli/page/report_model.h"
#include "integration/cli/report/report_data.h"
#include "integration/cli/report/report_facts.h"

namespace spillway::integration {

struct IterationParts {
  Known whole_s, kernels_s, pauses_s;
  // Lost time by cause as text (CauseText), in the order of the file. It is the process's own count of a
  // recurring iteration if it has one, otherwise the run's in proportion.
  std::vector<std::pair<std::string, double>> lost_s;
  Known LostSeconds() const;  // the sum; none: the file does not have it
};

IterationParts PartsOf(const ReportData& data, const ReportFacts& facts);

// Returns a bar for each name; none if no iteration is known of any. `words`: how to read it.
std::optional<Chart> IterationPartsChart(const std::vector<std::string>& names,
                                         const std::vector<IterationParts>& parts, std::string words);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_REPORT_ITERATION_PARTS_H_
