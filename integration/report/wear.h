// WearReports reports what a job's writing does to its drives. It has the write budget recorded and reports
// when it is spent. If a job without one writes much to a directory that nobody chose, it names the setting.
// JobReports creates it and calls it on the reporter's thread, as often as the metrics are written. No call
// fails: a record that cannot be kept becomes a line.

#ifndef SPILLWAY_INTEGRATION_REPORT_WEAR_H_
#define SPILLWAY_INTEGRATION_REPORT_WEAR_H_

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "io/store/write_budget.h"

namespace spillway::integration {

// Terabytes (10^12 bytes) that a consumer drive of 1 TB is often rated to be written: Samsung's 980 Pro and
// 990 Pro, WD's SN850X.
inline constexpr double kRatedTerabytes = 600;

class WearReports {
 public:
  struct Facts {
    io::WriteBudget* budget = nullptr;  // null: there is none
    std::string
        default_directory;  // where bytes go if the user has chosen neither directory nor budget; else empty
  };
  explicit WearReports(Facts facts) : facts_(std::move(facts)) {}

  // Returns the lines to report now. `seconds`: since the job's first block; `written_bytes`: to spill files
  // since then.
  std::vector<std::string> Update(double seconds, uint64_t written_bytes);

 private:
  struct Sample {
    double seconds = 0;
    uint64_t bytes = 0;
  };
  void CheckBudget(std::vector<std::string>* lines);
  bool WroteMuch(double seconds, uint64_t written_bytes);

  const Facts facts_;
  bool spent_ = false;        // last reported
  std::string last_error_;    // of the record, last reported
  std::deque<Sample> a_day_;  // one an hour, the oldest of a day ago
  bool much_reported_ = false;
};

// Returns the path in the user's cache directory; empty if there is none: neither XDG_CACHE_HOME nor HOME is
// an absolute path.
std::string WriteRecordPath();

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_REPORT_WEAR_H_
