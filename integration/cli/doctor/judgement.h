// The doctor's judgement of its facts: one finding for each thing examined, with whether it works and what to
// do if it does not; and the verdict of all. Pure: facts in, text out. Thread-safe.

#ifndef SPILLWAY_INTEGRATION_CLI_DOCTOR_JUDGEMENT_H_
#define SPILLWAY_INTEGRATION_CLI_DOCTOR_JUDGEMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "integration/cli/doctor/facts.h"

namespace spillway::integration {

// kGood: works. kLimited: a job runs with Spillway, and something is slower, smaller or not known. kBad: a
// job would run without Spillway, or be refused at its start.
enum class Verdict : uint8_t { kGood, kLimited, kBad };

struct Finding {
  std::string section;  // "Limits"
  Verdict verdict = Verdict::kGood;
  std::string what;    // "locked memory"
  std::string found;   // "64.00 KiB"
  std::string advice;  // what to do; empty if nothing
};

// Returns the findings in the order in which they are shown; those of a section follow each other.
std::vector<Finding> Judge(const DoctorFacts& facts);

Verdict Worst(const std::vector<Finding>& findings);

// Returns "good", "limited" or "bad".
const char* NameOf(Verdict verdict);

// The rate, in bytes a second, below which a disk is called slow in either direction.
inline constexpr double kSlowDisk = 500e6;

// Returns "1.23 GB/s" or "450 MB/s".
std::string RateText(double bytes_per_second);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_DOCTOR_JUDGEMENT_H_
