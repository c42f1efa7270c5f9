// The differences between two runs: times, bytes, memory and rates, each before and after with a place for
// the likely cause, and the settings and machines. Runs need not be equally long, so bytes and lost time are
// those of one iteration if both know theirs. For `spillway report A B`. Pure; no call fails.

#ifndef SPILLWAY_INTEGRATION_CLI_REPORT_RUN_CHANGES_H_
#define SPILLWAY_INTEGRATION_CLI_REPORT_RUN_CHANGES_H_

#include <string>
#include <vector>

#include "integration/cli/page/report_units.h"
#include "integration/cli/report/iteration_parts.h"
#include "integration/cli/report/report_data.h"
#include "integration/cli/report/report_facts.h"

namespace spillway::integration {

// One run, or the rank that stands for a run of several. Both outlive the comparison.
struct ComparedRun {
  const ReportData* data = nullptr;
  const ReportFacts* facts = nullptr;
};

struct Change {
  std::string key, label;
  Unit unit = Unit::kCount;
  Known before, after;
  std::string cause;  // likely, by FindCauses; empty: nothing to explain, or the files show no cause

  // Returns after - before; none if one is not known.
  Known Absolute() const;
  Known Percent() const;  // of `before`; none if that is 0 or one is not known
  // Returns whether it is at least 2 %, or from or to nothing.
  bool IsNotable() const;
};

struct ChangeGroup {
  std::string key, title;
  std::vector<Change> changes;
};

struct TextChange {
  std::string what, before, after;  // empty: not given, not known
};

struct RunChanges {
  bool per_iteration = false;  // otherwise bytes and lost time are those of the whole runs
  // Whether one iteration's time differs by no more than iterations of one run do among themselves.
  bool within_spread = false;
  IterationParts before, after;
  std::vector<ChangeGroup> groups;
  std::vector<TextChange> settings, machine, job;  // only those that differ

  const Change* Find(const std::string& key) const;  // null: no change has that key
};

// Returns the changes without causes, which FindCauses (change_causes.h) adds.
RunChanges ChangesOf(const ComparedRun& before, const ComparedRun& after);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_REPORT_RUN_CHANGES_H_
