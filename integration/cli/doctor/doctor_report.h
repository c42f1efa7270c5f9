// What the doctor says, as text for people and as JSON for programs: the same facts, findings and settings. The
// JSON's shape is documented in docs/doctor.md; `format` changes when a key goes or changes its meaning. Pure.
// Any thread.

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
  std::vector<ChosenSetting> settings;  // empty where only the installation was looked at
};

// 0: usable, limits included; 1: not.
int ExitStatus(const DoctorReport& report);

// The last line: "usable", "usable, with 2 limits (--)", "not usable: ...".
std::string VerdictText(const DoctorReport& report);

// Sections of aligned lines, with advice below a line; then the settings to copy, and the verdict.
std::string ReportText(const DoctorReport& report);

// One object, indented, with a newline at the end.
std::string ReportJson(const DoctorReport& report);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_DOCTOR_DOCTOR_REPORT_H_
