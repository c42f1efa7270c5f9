// What the tests of reports share: figures of two devices, and a folder for the files. The second device is
// the first but for a few figures, so that sums and rows of one device can be told apart.

#ifndef SPILLWAY_TESTS_INTEGRATION_REPORT_METRICS_HELPERS_H_
#define SPILLWAY_TESTS_INTEGRATION_REPORT_METRICS_HELPERS_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "integration/report/metrics.h"

namespace spillway::integration {

inline Metrics TwoDevices() {
  Metrics metrics;
  DeviceMetrics first;
  first.device = 0;
  first.stats.budget_bytes = first.stats.budget_in_force_bytes = uint64_t{2} << 30;
  first.stats.peak_bytes = uint64_t{1} << 30;
  first.stats.peak_chunk_bytes = 900 << 20;
  first.stats.spilled_bytes = 300;
  first.stats.host_spilled_bytes = 100;
  first.stats.disk_spilled_bytes = 200;
  first.stats.fetched_bytes = 70;
  first.stats.stall_chunks_nanos = 1'500'000'000;
  first.stats.lost_chunks_nanos = 400'000'000;
  first.stats.lost_arrival_nanos = 500'000'000;
  first.stats.throttled_nanos = 7'000'000'000;
  first.stats.pinned_bytes_by_reason[1] = 5;
  first.stats.largest_set_bytes = 9;
  first.plan_iteration_launches = 186;
  DeviceMetrics second = first;
  second.device = 1;
  second.plans = 2;
  second.stats.stall_arrival_nanos = 250'000'000;
  metrics.devices = {first, second};
  metrics.disk = {4096, 2048};
  metrics.seconds = 12.5;
  metrics.unknown_kernel_launches = 3;
  return metrics;
}

class ReportFileTest : public ::testing::Test {
 protected:
  ReportFileTest() {
    char name[] = "/tmp/spillway_report_XXXXXX";
    folder_ = ::mkdtemp(name);
  }
  ~ReportFileTest() override { std::filesystem::remove_all(folder_); }
  static std::string Text(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  std::string folder_;
};

}  // namespace spillway::integration

#endif  // SPILLWAY_TESTS_INTEGRATION_REPORT_METRICS_HELPERS_H_
