#include "integration/cli/report/report_facts.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "integration/cli/page/report_units.h"
#include "integration/cli/report/report_bins.h"
#include "integration/cli/simulate/simulation_run.h"
#include "integration/report/lost_causes.h"

namespace spillway::integration {
namespace {

constexpr double kDay = 86400;
constexpr double kGB = 1e9;
// An iteration that took less than this part of its bound contradicts it (docs/metrics.md).
constexpr double kBelowBound = 0.95;
// Texts of AdviceLine (integration/report/advice.h).
constexpr char kHelps[] = "what would help most: ";
constexpr char kNoneHelps[] = "no setting would help";

// Takes the process's own mean while only the iteration ran. If there is none, takes the median without the
// first, in which plans are not there yet.
void FindIteration(const ReportData& data, ReportFacts* facts) {
  facts->iteration_how = "no iteration repeated itself";
  if (data.metrics.iteration_s) {
    facts->iteration_s = data.metrics.iteration_s;
    facts->iteration_how = "mean while the job only repeated it";
  } else if (data.iterations && !data.iterations->seconds.empty()) {
    Column seconds = data.iterations->seconds;
    const bool several = seconds.size() > 2;
    if (several) seconds.erase(seconds.begin());
    facts->iteration_s = Median(seconds);
    facts->iteration_how = several ? "median without the first" : "median";
  }
}

// The GPU lost in an iteration what it lost in the run, in proportion.
void FindOwnPauses(ReportFacts* facts) {
  if (!facts->ideal_s || !facts->lost_seconds || !facts->seconds || *facts->seconds <= 0) return;
  const double lost = *facts->lost_seconds * *facts->iteration_s / *facts->seconds;
  facts->own_pauses_s = std::max(0.0, *facts->iteration_s - *facts->ideal_s - lost);
}

void FindTimes(const ReportData& data, const WhatIf& what_if, ReportFacts* facts) {
  const bool simulated = what_if.missing.empty();
  FindIteration(data, facts);
  facts->ideal_s = simulated ? Known(what_if.ideal_s) : data.metrics.ideal_s;
  facts->bound_s = simulated ? Known(what_if.bound_s) : data.metrics.bound_s;
  facts->bound_is_near = simulated && what_if.bound_is_near;  // the run's own bound is a quick one
  if (!facts->iteration_s || *facts->iteration_s <= 0) {
    facts->bound_missing = "no iteration repeated itself, or none was marked";
    return;
  }
  FindOwnPauses(facts);
  if (facts->ideal_s) facts->percent_of_ideal = std::min(100.0, 100 * *facts->ideal_s / *facts->iteration_s);
  if (!facts->bound_s) {
    facts->bound_missing = what_if.missing;
  } else if (*facts->iteration_s < kBelowBound * *facts->bound_s) {
    facts->bound_missing = absl::StrCat(
        "the iteration took ", Shown(*facts->iteration_s, Unit::kSeconds), ", less than its bound of ",
        Shown(*facts->bound_s, Unit::kSeconds),
        ": the rates or the times of the kernels that the bound is made of were measured too slow");
  } else {
    const auto percent = [&](double bound) { return std::min(100.0, 100 * bound / *facts->iteration_s); };
    facts->percent_of_bound = percent(*facts->bound_s);
    const double with_pauses = facts->own_pauses_s ? *facts->ideal_s + *facts->own_pauses_s : 0;
    facts->percent_with_pauses = percent(std::max(*facts->bound_s, with_pauses));
  }
}

void FindLosses(const ReportData& data, ReportFacts* facts) {
  std::vector<std::pair<std::string, double>> causes = data.metrics.lost_seconds;
  if (causes.empty()) return;
  double lost = 0;
  for (auto& [cause, seconds] : causes) {
    lost += seconds;
    cause = CauseText(cause);
  }
  std::ranges::stable_sort(causes, [](const auto& a, const auto& b) { return a.second > b.second; });
  facts->lost_by_cause = causes;
  facts->lost_seconds = lost;
  if (facts->seconds && *facts->seconds > 0)
    facts->lost_percent = std::min(100.0, 100 * lost / *facts->seconds);
}

// The bytes that this process wrote to one drive, and the number of ranks that do the same.
struct DriveWear {
  double written = 0, ranks = 1;
};

// Directories on one drive share its rated writes. If a file does not name drives, each directory counts as
// one; if it has no bytes by directory, they are divided equally.
std::vector<DriveWear> WearOfDrives(const ReportData& data, double written) {
  if (!data.capacity.disks) return {{written, 1}};
  const std::vector<ReportDisk>& disks = *data.capacity.disks;
  std::map<std::string, double> by_directory;
  double found = 0;
  for (const ReportDisk& disk : data.transfers ? data.transfers->disks : std::vector<ReportDisk>()) {
    by_directory[disk.directory] = std::accumulate(disk.written.begin(), disk.written.end(), 0.0);
    found += by_directory[disk.directory];
  }
  std::map<std::string, DriveWear> drives;
  for (const ReportDisk& disk : disks) {
    DriveWear& drive = drives[disk.drive.empty() ? disk.directory : disk.drive];
    drive.written += found > 0 ? written * by_directory[disk.directory] / found
                               : written / static_cast<double>(disks.size());
    drive.ranks = std::max(drive.ranks, disk.ranks.value_or(1));
  }
  std::vector<DriveWear> list;
  for (const auto& [name, drive] : drives) list.push_back(drive);
  return list;
}

void FindWear(const ReportData& data, const ReportAssumptions& assumptions, ReportFacts* facts) {
  const Known& written = data.metrics.disk_written_bytes;
  const std::vector<DriveWear> drives = WearOfDrives(data, written.value_or(0));
  facts->drives = static_cast<double>(drives.size());
  if (!written || !facts->seconds || *facts->seconds <= 0 || drives.empty()) return;
  double most = -1, all = 0;
  for (const DriveWear& drive : drives) {
    all += drive.written * drive.ranks;
    if (drive.written * drive.ranks <= most) continue;
    most = drive.written * drive.ranks;
    facts->wear_ranks = drive.ranks;
  }
  facts->written_per_day = all / *facts->seconds * kDay;
  if (most > 0) facts->ssd_days = assumptions.ssd_tbw * 1e12 / (most / *facts->seconds * kDay);
}

void FindEnergy(const ReportData& data, const ReportAssumptions& assumptions, ReportFacts* facts) {
  if (assumptions.watts && facts->seconds) {
    facts->joules = *assumptions.watts * *facts->seconds;
    facts->power_source = absl::StrCat(Shown(*assumptions.watts, Unit::kCount), " W, as given by --watts");
  } else if (data.power && (data.power->gpu_joules || data.power->cpu_joules)) {
    facts->joules = data.power->gpu_joules.value_or(0) + data.power->cpu_joules.value_or(0);
    facts->power_source = absl::StrCat(data.power->gpu_joules ? "GPU" : "",
                                       data.power->gpu_joules && data.power->cpu_joules ? " and " : "",
                                       data.power->cpu_joules ? "processor" : "", ", as read by ",
                                       data.power->source.empty() ? "the process" : data.power->source);
  }
  if (!facts->joules) return;
  const Known price = assumptions.price_per_kwh;
  const double per_joule = price.value_or(0) / 3.6e6;
  if (price) facts->money = *facts->joules * per_joule;
  if (!facts->lost_percent) return;
  facts->lost_joules = *facts->joules * *facts->lost_percent / 100;
  if (!facts->saved_bytes || *facts->saved_bytes <= 0) return;
  facts->lost_joules_per_gb = *facts->lost_joules / (*facts->saved_bytes / kGB);
  if (price) facts->lost_money_per_gb = *facts->lost_joules_per_gb * per_joule;
}

// Returns the point that shortens an iteration most, with up to twice what the run had; none if it does so by
// less than a hundredth.
const WhatIfPoint* FasterPoint(const WhatIf& what_if, WhatIfAxis axis) {
  const WhatIfPoint* best = nullptr;
  for (const WhatIfSweep& sweep : what_if.sweeps) {
    if (sweep.axis != axis) continue;
    for (const WhatIfPoint& point : sweep.points) {
      const bool more = (point.factor > 1 && point.factor <= 2) || (point.factor == 0 && point.value > 0);
      const double before = best != nullptr ? best->iteration_s : what_if.iteration_s;
      if (more && point.runs && point.iteration_s < 0.99 * before) best = &point;
    }
  }
  return best;
}

std::string PointText(const WhatIf& what_if, const WhatIfPoint& point, Unit unit) {
  return absl::StrFormat("%s would make an iteration %.0f %% shorter (simulated)", Shown(point.value, unit),
                         100 * (1 - point.iteration_s / what_if.iteration_s));
}

// Takes the setting that the job's own last line names; without such a line, the memory that makes the
// simulated iteration shorter.
void FindHelp(const ReportData& data, const WhatIf& what_if, ReportFacts* facts) {
  const size_t at = data.advice.find(kHelps);
  if (at != std::string::npos) facts->help = data.advice.substr(at + sizeof(kHelps) - 1);
  const bool none = at == std::string::npos && absl::StrContains(data.advice, kNoneHelps);
  const WhatIfPoint* host = FasterPoint(what_if, WhatIfAxis::kHostMemory);
  const WhatIfPoint* gpu = FasterPoint(what_if, WhatIfAxis::kGpuMemory);
  const bool little = facts->lost_percent && *facts->lost_percent < 2;
  if (facts->help.empty() && !none && !little && (host != nullptr || gpu != nullptr)) {
    const bool by_host = host != nullptr && (gpu == nullptr || host->iteration_s <= gpu->iteration_s);
    facts->help = by_host ? "a larger SPILLWAY_HOST_MEMORY" : "a larger SPILLWAY_GPU_MEMORY";
  }
  if (absl::StrContains(facts->help, "SPILLWAY_HOST_MEMORY") && host != nullptr)
    facts->help_simulated = PointText(what_if, *host, Unit::kBytes);
  if (absl::StrContains(facts->help, "SPILLWAY_GPU_MEMORY") && gpu != nullptr)
    facts->help_simulated = PointText(what_if, *gpu, Unit::kBytes);
}

}  // namespace

std::string CauseText(const std::string& cause) {
  if (cause == "gpu_arrival")
    return "for bytes on their way, no thread waited";  // a part of "arrival", in stalls
  for (const LostCause& one : kLostCauses) {
    if (cause == one.key) return one.words;
  }
  return cause;
}

std::string ReportFacts::AtLeast(double percent) const {
  return bound_is_near || percent >= SimulateResult::kMinShareKnown ? "" : "at least ";
}

ReportFacts FactsOf(const ReportData& data, const WhatIf& what_if, const ReportAssumptions& assumptions) {
  ReportFacts facts;
  facts.seconds = data.job.seconds ? data.job.seconds : data.metrics.seconds;
  facts.budget_bytes = data.capacity.gpu_bytes ? data.capacity.gpu_bytes : data.metrics.budget_bytes;
  facts.peak_live_bytes = data.metrics.peak_live_bytes;
  if (facts.budget_bytes && facts.peak_live_bytes)
    facts.saved_bytes = std::max(0.0, *facts.peak_live_bytes - *facts.budget_bytes);
  FindLosses(data, &facts);  // before FindTimes, which needs it
  FindTimes(data, what_if, &facts);
  FindWear(data, assumptions, &facts);
  FindEnergy(data, assumptions, &facts);
  FindHelp(data, what_if, &facts);
  return facts;
}

}  // namespace spillway::integration
