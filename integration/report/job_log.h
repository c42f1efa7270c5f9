// JobLog: the events of a job since the last sample, for the log at the levels info and debug: blocks leave,
// a plan came into force or was dropped and why, a tier is full, the budget has changed. It compares metrics,
// so several events between two samples are one line. Only the reporter's thread uses it. No call fails.

#ifndef SPILLWAY_INTEGRATION_REPORT_JOB_LOG_H_
#define SPILLWAY_INTEGRATION_REPORT_JOB_LOG_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "integration/report/metrics.h"
#include "io/os/log.h"

namespace spillway::integration {

class JobLog {
 public:
  struct Line {
    os::LogLevel level = os::LogLevel::kInfo;
    std::string text;
    friend bool operator==(const Line&, const Line&) = default;
  };
  // Returns the lines since the last sample. The first sample is compared with a job that has done nothing.
  std::vector<Line> Update(const Metrics& metrics);

 private:
  // A tier counts as full if it was nearly full at two samples between which it did not grow, since a tier
  // that grows as it is used is nearly full all the time. It has space again once a tenth is free.
  struct TierSeen {
    uint64_t capacity_bytes = 0;
    bool nearly_full = false;  // at the last sample
    bool full = false;         // and the log shows it
  };

  void InspectDevice(const DeviceMetrics& now, double seconds, std::vector<Line>* lines);
  static void InspectTier(const char* name, uint64_t used_bytes, uint64_t capacity_bytes, TierSeen* seen,
                          std::vector<Line>* lines);

  std::map<int, DeviceMetrics> before_;  // by device
  double seconds_before_ = 0;
  TierSeen host_, disk_;
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_REPORT_JOB_LOG_H_
