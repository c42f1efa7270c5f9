#include "integration/report/wear.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "integration/settings/environment.h"

namespace spillway::integration {
namespace {

constexpr double kHour = 3600, kDay = 24 * kHour;
// This part of a drive's rated writes, in a day, is much.
constexpr double kMuch = 0.01 * kRatedTerabytes * 1e12;

}  // namespace

std::vector<std::string> WearReports::Update(double seconds, uint64_t written_bytes) {
  std::vector<std::string> lines;
  if (facts_.budget != nullptr) CheckBudget(&lines);
  if (!facts_.default_directory.empty() && !much_reported_ && WroteMuch(seconds, written_bytes)) {
    much_reported_ = true;
    lines.push_back(absl::StrFormat(
        "this job has written %.1f TB to %s within a day, 1 %% of what a drive of %.0f TBW is rated for. "
        "SPILLWAY_WRITE_BUDGET (such as 2TB/day) bounds that; SPILLWAY_DIRS names other drives",
        kMuch / 1e12, facts_.default_directory, kRatedTerabytes));
  }
  return lines;
}

void WearReports::CheckBudget(std::vector<std::string>* lines) {
  io::WriteBudget& budget = *facts_.budget;
  const absl::Status recorded = budget.Record();
  const std::string error(recorded.message());
  if (!recorded.ok() && error != last_error_)
    lines->push_back(absl::StrCat("the record of SPILLWAY_WRITE_BUDGET: ", error));
  last_error_ = error;
  const bool spent = budget.spent();
  if (spent && !spent_) {
    lines->push_back(
        absl::StrFormat("the write budget (SPILLWAY_WRITE_BUDGET) is spent: for %d min at least the disk "
                        "takes no more blocks than it "
                        "has had, and writes wait, up to %.1f MB/s. A larger one, more SPILLWAY_HOST_MEMORY "
                        "or a smaller batch ends that",
                        std::chrono::ceil<std::chrono::minutes>(budget.UntilFree()).count(),
                        budget.bytes_per_second() / 1e6));
  }
  spent_ = spent;
}

bool WearReports::WroteMuch(double seconds, uint64_t written_bytes) {
  if (a_day_.empty() || seconds - a_day_.back().seconds >= kHour) a_day_.push_back({seconds, written_bytes});
  while (seconds - a_day_.front().seconds > kDay) a_day_.pop_front();
  // The job's first hour begins before the first sample.
  const uint64_t before = seconds <= kDay ? 0 : a_day_.front().bytes;
  return static_cast<double>(written_bytes - before) >= kMuch;
}

std::string WriteRecordPath() { return UserCacheFile("writes"); }

}  // namespace spillway::integration
