#include "integration/cli/report/report_verdict.h"

#include "absl/strings/str_cat.h"
#include "integration/cli/page/report_units.h"

namespace spillway::integration {
namespace {

// No setting is worth a change below this part of the time (as in the job's own last line).
constexpr double kLittlePercent = 2;

std::string Bytes(double bytes) { return Shown(bytes, Unit::kBytes); }

// Returns "A job of 38.2 GiB ran on 20.0 GiB of GPU memory and lost 12.3 % of its time to it."
std::string Headline(const ReportData& data, const ReportFacts& facts) {
  const bool spilled = data.metrics.spilled_bytes.value_or(0) > 0;
  std::string text = "The job";
  if (facts.peak_live_bytes)
    absl::StrAppend(&text, ", which holds ", Bytes(*facts.peak_live_bytes), " at its peak,");
  if (facts.budget_bytes)
    absl::StrAppend(&text, " ran on ", Bytes(*facts.budget_bytes), " of GPU memory");
  else
    absl::StrAppend(&text, " ran");
  if (!spilled) return absl::StrCat(text, ". Nothing had to leave the GPU.");
  if (!facts.lost_percent) return absl::StrCat(text, ".");
  if (*facts.lost_percent < kLittlePercent)
    return absl::StrCat(text, " and lost next to nothing by it: ", Shown(*facts.lost_percent, Unit::kPercent),
                        " of the time.");
  return absl::StrCat(text, " and lost ", Shown(*facts.lost_percent, Unit::kPercent),
                      " of the time to that.");
}

std::string Duration(const ReportData& data, const ReportFacts& facts) {
  if (!facts.seconds) return "";
  std::string text = absl::StrCat("It ran ", Shown(*facts.seconds, Unit::kSeconds));
  if (data.job.ended && !*data.job.ended)
    absl::StrAppend(&text, " until this data was written; it had not ended then, or it was killed");
  if (data.iterations && !data.iterations->seconds.empty() && facts.iteration_s)
    absl::StrAppend(&text, "; an iteration took ", Shown(*facts.iteration_s, Unit::kSeconds));
  return text + ".";
}

std::string Moved(const ReportData& data) {
  const ReportMetrics& metrics = data.metrics;
  if (!metrics.spilled_bytes || *metrics.spilled_bytes <= 0) return "";
  std::string text = absl::StrCat(Bytes(*metrics.spilled_bytes), " left the GPU");
  if (metrics.host_spilled_bytes && metrics.disk_spilled_bytes)
    absl::StrAppend(&text, " (", Bytes(*metrics.host_spilled_bytes), " to host memory, ",
                    Bytes(*metrics.disk_spilled_bytes), " to the disk)");
  if (metrics.fetched_bytes) absl::StrAppend(&text, " and ", Bytes(*metrics.fetched_bytes), " came back");
  return text + ".";
}

std::string Cause(const ReportFacts& facts) {
  if (!facts.lost_seconds || !facts.lost_percent || *facts.lost_percent < kLittlePercent ||
      facts.lost_by_cause.empty())
    return "";
  const auto& [cause, seconds] = facts.lost_by_cause.front();
  const bool most = 2 * seconds > *facts.lost_seconds;
  return absl::StrCat("The GPU had to wait ", Shown(*facts.lost_seconds, Unit::kSeconds),
                      most ? ", most of it " : ", the largest part of it ", cause, " (",
                      Shown(seconds, Unit::kSeconds), ").");
}

std::string Bound(const ReportFacts& facts) {
  if (!facts.percent_with_pauses) return "";
  return absl::StrCat("That is ", facts.AtLeast(*facts.percent_with_pauses),
                      Shown(*facts.percent_with_pauses, Unit::kPercent),
                      " of the speed that no plan of Spillway can beat with this memory",
                      facts.own_pauses_s ? ", these rates and the job's own pauses." : " and these rates.");
}

std::string Help(const ReportData& data, const ReportFacts& facts) {
  if (data.metrics.spilled_bytes.value_or(0) <= 0) return "";
  if (!data.metrics.evictions_ended.empty())
    return absl::StrCat("No setting would help: nothing left the GPU after ", data.metrics.evictions_ended,
                        ".");
  if (facts.help.empty())
    return facts.lost_percent && *facts.lost_percent < kLittlePercent ? "No setting would help much." : "";
  const std::string simulated = facts.help_simulated.empty() ? "" : absl::StrCat("; ", facts.help_simulated);
  return absl::StrCat("What would help most: ", facts.help, simulated, ".");
}

}  // namespace

std::vector<std::string> VerdictOf(const ReportData& data, const ReportFacts& facts) {
  std::vector<std::string> sentences;
  for (const std::string& sentence : {Headline(data, facts), Duration(data, facts), Bound(facts), Moved(data),
                                      Cause(facts), Help(data, facts)}) {
    if (!sentence.empty()) sentences.push_back(sentence);
  }
  return sentences;
}

}  // namespace spillway::integration
