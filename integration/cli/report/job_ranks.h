// The ranks of one job side by side: which of them is the slowest, what they moved together, what differs
// between them, and which are missing. For `spillway report`. Pure; no call fails.

#ifndef SPILLWAY_INTEGRATION_CLI_REPORT_JOB_RANKS_H_
#define SPILLWAY_INTEGRATION_CLI_REPORT_JOB_RANKS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "integration/cli/report/report_facts.h"
#include "integration/cli/report/run_files.h"

namespace spillway::integration {

// The measure by which the slowest rank is the slowest.
enum class SlowestBy {
  kIteration,  // its iterations are longer than those of the fastest by more than kEqualPercent
  kLostTime,   // the ranks are equally fast, so the one that loses most holds the others up
  kNothing,    // neither is known: the first rank
};

// Ranks that wait for one another have iterations of equal length to this many percent.
inline constexpr double kEqualPercent = 3;

// A setting, a device or a version that is not the same for all ranks.
struct RankDifference {
  std::string what;
  std::vector<std::string> values;  // of each rank
};

struct JobRanks {
  std::vector<std::string> names;  // as RankNames returns them
  std::vector<ReportFacts> facts;  // of each rank's file alone, nothing simulated
  size_t slowest = 0;
  SlowestBy by = SlowestBy::kNothing;
  Known fastest_s, slowest_s;  // the shortest and the longest iteration, of the ranks that know theirs
  Known spilled_bytes, fetched_bytes;  // by all ranks; none: one of them does not know it
  // Each process counts once, whatever its devices, since drives are the process's.
  Known disk_written_bytes;
  std::vector<RankDifference> differences;
  std::vector<std::string> absent;  // "node07: rank 1 of 4"
};

// Returns names like "node07, rank 2, GPU 1", as far as needed to tell the run's files apart: with the host
// if there are several, and the process if all that is alike.
std::vector<std::string> RankNames(const ReportedRun& run);

// `run` has a rank or more.
JobRanks RanksOf(const ReportedRun& run, const ReportAssumptions& assumptions);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_REPORT_JOB_RANKS_H_
