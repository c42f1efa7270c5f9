// Shortens long columns until they can be drawn: series merged into a few hundred bins, moves counted by time
// and by size. For report_charts. Pure; no call fails.

#ifndef SPILLWAY_INTEGRATION_CLI_REPORT_REPORT_BINS_H_
#define SPILLWAY_INTEGRATION_CLI_REPORT_REPORT_BINS_H_

#include <cstddef>
#include <vector>

#include "integration/cli/report/report_data.h"

namespace spillway::integration {

// A series of at most `most` values; one every `every_s` seconds from time 0.
struct Series {
  double every_s = 0;
  Column values;
};
Series MergedByMost(const Column& values, double every_s, size_t most);
Series MergedBySum(const Column& values, double every_s, size_t most);

// Returns, for each of `count` bins of [from, to), the part of it, at most 1, that is covered by intervals
// from start[i] of length seconds[i]. Only rows that `wanted` marks count.
Column BusyParts(const Column& start, const Column& seconds, const std::vector<bool>& wanted, double from,
                 double to, size_t count);

// Moves of one kind and of one class of size: from `least_bytes`, a power of two, to twice that.
struct MoveSizeClass {
  size_t kind = 0;
  double least_bytes = 0;
  double moves = 0, bytes = 0;
  double slow = 0, median = 0, fast = 0;  // bytes a second: 10, 50 and 90 % of the moves lie below them
};
// Returns the classes by kind, then by size. Moves without bytes or time are left out.
std::vector<MoveSizeClass> MoveSizeClasses(const ReportMoves& moves);

// Returns the number of the iteration to show in detail: the last whole one within the time that `moves`
// covers. None if there is none.
std::optional<size_t> IterationToShow(const ReportIterations& iterations, const ReportMoves& moves,
                                      double run_seconds);

double Median(Column values);  // 0 of none

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_REPORT_REPORT_BINS_H_
