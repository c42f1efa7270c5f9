// The doctor's report, as text for people and as JSON for programs: the same facts, findings and settings.
// docs/doctor.md documents the JSON; `format` changes when a key goes or changes its meaning. Pure.
// Thread-safe.

#ifndef SPILLWAY_INTEGRATION_CLI_DOCTOR_DOCTOR_REPORT_H_
#define SPILLWAY_INTEGRATION_CLI_DOCTOR_DOCTOR_REPORT_H_

#include <string>
#include <vector>

#include "integration/cli/doctor/choice.h"
#include "integration/cli/doctor/facts.h"
#include "integration/cli/doctor/judgement.h"

namespace spillway::integration {

struct DoctorReport {
  DoctorFacts facts;
  std::vector<Finding> findings;
  std::vector<ChosenSetting> settings;  // empty if only the installation was checked
};

// Returns 0 if usable, limits included; 1 if not.
int ExitStatus(const DoctorReport& report);

// Returns the last line: "usable", "usable, with 2 limits (--)", "not usable: ...".
std::string VerdictText(const DoctorReport& report);

// Returns sections of aligned lines, with advice below a line; then the settings to copy, and the verdict.
std::string ReportText(const DoctorReport& report);

// Returns one object, indented, with a newline at the end.
std::string ReportJson(const DoctorReport& report);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_DOCTOR_DOCTOR_REPORT_H_
