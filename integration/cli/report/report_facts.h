// Facts that follow from a run's data: shares, means, the life of a disk, the cost of the energy. A fact that
// cannot be known is none, with the reason kept for the section that shows it. For `spillway report`. Pure;
// no call fails.

#ifndef SPILLWAY_INTEGRATION_CLI_REPORT_REPORT_FACTS_H_
#define SPILLWAY_INTEGRATION_CLI_REPORT_REPORT_FACTS_H_

#include <string>
#include <utility>
#include <vector>

#include "integration/cli/report/report_data.h"
#include "integration/cli/report/what_if.h"
#include "integration/report/wear.h"

namespace spillway::integration {

// The figures that the command line adds to the file.
struct ReportAssumptions {
  double ssd_tbw = kRatedTerabytes;  // terabytes that each drive is rated to be written; assumed unless given
  bool ssd_tbw_given = false;
  Known watts, price_per_kwh;
};

struct ReportFacts {
  Known seconds, budget_bytes, peak_live_bytes, saved_bytes;
  Known lost_seconds, lost_percent;
  std::vector<std::pair<std::string, double>> lost_by_cause;  // as text, the greatest first
  Known iteration_s, ideal_s, bound_s, percent_of_bound, percent_of_ideal;
  bool bound_is_near = false;  // it is as long as it can be, to some hundredths
  // The part of an iteration that neither its kernels took nor the GPU lost to a cause of ours: host, data,
  // other work. No plan makes it shorter; percent_with_pauses is the share of the bound that counts it.
  Known own_pauses_s, percent_with_pauses;
  // Returns "at least ", or nothing if a share of the bound is known to 2 points.
  std::string AtLeast(double percent) const;
  std::string iteration_how;  // what iteration_s is, or why it is not known
  std::string bound_missing;  // why there is no share of the bound
  double drives = 0;          // as far as the file tells them apart; 0: the run had no disk
  double wear_ranks = 1;      // of the job on this node that write to the drive that is used up first
  Known written_per_day;      // by all of them, to all drives
  Known ssd_days;             // until the rated writes of the first drive are used up
  Known joules, lost_joules, lost_joules_per_gb, money, lost_money_per_gb;
  std::string power_source;    // how `joules` is known
  std::string help;            // the setting that would help most, as text; empty: not known
  std::string help_simulated;  // the simulator's result for it
};

ReportFacts FactsOf(const ReportData& data, const WhatIf& what_if, const ReportAssumptions& assumptions);

// Returns what was waited for, as text, by the name of a cause in the figures or in the file; a name that is
// not known stays as it is.
std::string CauseText(const std::string& cause);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_REPORT_REPORT_FACTS_H_
