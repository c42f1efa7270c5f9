// What the tests of a machine's costs share: a profile of round figures, and what turns it on and off. The
// costs are far above what the host takes, so that a busy machine does not change the outcome.
#ifndef SPILLWAY_TESTS_INTEGRATION_SIMCUDA_DRIVER_HARDWARE_BASE_H_
#define SPILLWAY_TESTS_INTEGRATION_SIMCUDA_DRIVER_HARDWARE_BASE_H_

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/integration/simcuda/driver_test_base.h"

namespace simcuda_test {

inline constexpr const char* kCalls[] = {
    "cuMemAddressReserve", "cuMemAddressFree",  "cuMemCreate",         "cuMemRelease",   "cuMemMap",
    "cuMemUnmap",          "cuMemSetAccess",    "cuMemAlloc",          "cuMemFree",      "cuMemHostAlloc",
    "cuMemFreeHost",       "cuMemHostRegister", "cuMemHostUnregister", "cuLaunchKernel", "cuGraphLaunch",
    "cuMemcpyAsync",       "cuMemsetAsync",     "cuEventRecord",       "cuEventQuery",   "cuStreamWaitEvent",
    "cuModuleLoadData"};
inline constexpr int kSetAccess = 6, kHostRegister = 11, kLaunch = 13;

inline bool GivesWork(const std::string& call) {
  return call == "cuLaunchKernel" || call == "cuGraphLaunch" || call == "cuMemcpyAsync" ||
         call == "cuEventRecord" || call == "cuStreamWaitEvent" || call == "cuModuleLoadData";
}

// Set access takes 10 to 20 ms a handle, a launch and a copy nothing; copies go at 1 GB/s, in at half of it beside the
// other direction; a kernel with "slow" in its name takes 30 ms, and each 10 MB of host memory 100 ms.
inline std::string Profile() {
  std::string text = R"({"name": "test", "calls": {)";
  for (const char* call : kCalls) {
    text +=
        "\n\"" + std::string(call) + R"(": {"holds": ")" + (GivesWork(call) ? "context" : "memory") + "\"";
    if (std::string(call) == "cuMemSetAccess")
      text += R"(, "handle_us": {"low": 10000, "high": 20000, "assumed": "a test"})";
    if (std::string(call) == "cuModuleLoadData")
      text += R"(, "call_us": {"value": 1000, "source": "a test"})";
    text += call == std::string(kCalls[20]) ? "}" : "},";
  }
  return text + R"(}, "copies": {
    "in": {"alone_gb_per_s": {"value": 1, "source": "a test"}, "both_gb_per_s": {"value": 0.5, "source": "a test"}},
    "out": {"setup_us": {"value": 5000, "source": "a test"},
            "alone_gb_per_s": {"value": 1, "source": "a test"}, "both_gb_per_s": {"value": 1, "source": "a test"}},
    "pageable_gb_per_s": {"value": 0.25, "source": "a test"}, "device_gb_per_s": {"value": 100, "source": "a test"}},
    "kernels": {"reach_gb_per_s": {"value": 0.1, "source": "a test"}, "table": [{"part_of_name": "slow", "us": {"value": 30000, "source": "a test"}}]}})";
}

class DriverHardwareTest : public DriverTest {
 protected:
  void SetUp() override { simcuda_reset_hardware_stats(); }
  void TearDown() override {
    EXPECT_EQ(simcuda_set("HARDWARE", ""), 0);
    EXPECT_EQ(simcuda_set("TIME_SCALE", "1"), 0);
    EXPECT_EQ(simcuda_set("HARDWARE_END", "high"), 0);
    EXPECT_EQ(simcuda_set("HARDWARE_FORM", "wait"), 0);
    EXPECT_EQ(simcuda_set("COPY_BYTES", "all"), 0);
    std::filesystem::remove(file_);
    DriverTest::TearDown();
  }

  int Use(const std::string& text) {
    std::ofstream(file_) << text;
    return simcuda_set("HARDWARE", file_.c_str());
  }
  // The profile above with one part of its text replaced.
  int UseWith(const std::string& part, const std::string& by) {
    std::string text = Profile();
    const size_t at = text.find(part);
    EXPECT_NE(at, std::string::npos) << part;
    return Use(text.replace(at, part.size(), by));
  }
  static simcuda_hardware_stats Costs() {
    simcuda_hardware_stats stats = {};
    stats.struct_bytes = sizeof(stats);
    EXPECT_EQ(simcuda_get_hardware_stats(&stats), 0);
    return stats;
  }
  // Milliseconds from the first record to the second.
  static double Between(CUevent start, CUevent end) {
    float milliseconds = -1;
    EXPECT_EQ(cuEventElapsedTime(&milliseconds, start, end), CUDA_SUCCESS);
    return milliseconds;
  }

  const std::string file_ = "./driver_hardware." + std::to_string(getpid()) + ".json";
};

struct PinnedBytes {
  explicit PinnedBytes(size_t bytes) { EXPECT_EQ(cuMemHostAlloc(&data, bytes, 0), CUDA_SUCCESS); }
  ~PinnedBytes() { EXPECT_EQ(cuMemFreeHost(data), CUDA_SUCCESS); }
  void* data = nullptr;
};
struct DeviceBytes {
  explicit DeviceBytes(size_t bytes) { EXPECT_EQ(cuMemAlloc(&start, bytes), CUDA_SUCCESS); }
  ~DeviceBytes() { EXPECT_EQ(cuMemFree(start), CUDA_SUCCESS); }
  CUdeviceptr start = 0;
};

}  // namespace simcuda_test

#endif  // SPILLWAY_TESTS_INTEGRATION_SIMCUDA_DRIVER_HARDWARE_BASE_H_
