// The names of an iteration's phases in charts, and the sentences about the source of the phases. For
// report_charts and comparison_charts. Pure; nothing fails.

#ifndef SPILLWAY_INTEGRATION_CLI_REPORT_PHASE_TEXT_H_
#define SPILLWAY_INTEGRATION_CLI_REPORT_PHASE_TEXT_H_

#include <string>
#include <vector>

#include "integration/cli/report/report_data.h"

namespace spillway::integration {

// Its name in a chart, "backward?" of a guessed one; empty where the phase is too short for words.
std::string PhaseLabel(const ReportPhase& phase);
// A part of the chart's text: the source of the phases, and the part of them that is a guess.
std::string PhaseText(const std::vector<ReportPhase>& phases);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_REPORT_PHASE_TEXT_H_
