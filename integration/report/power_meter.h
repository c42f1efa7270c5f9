// PowerMeter: the energy that a GPU and the machine's processors have used since the first sample, if the
// system reports it: NVML for the GPU, RAPL's counters in /sys/class/powercap for the processors. They count
// for the whole device and the whole machine, whoever uses them. Only the reporter's thread uses it. A value
// that cannot be read is absent, without a line.

#ifndef SPILLWAY_INTEGRATION_REPORT_POWER_METER_H_
#define SPILLWAY_INTEGRATION_REPORT_POWER_METER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "integration/report/run_data.h"

namespace spillway::integration {

class PowerMeter {
 public:
  struct Options {
    std::string pci_bus_id;                  // of the GPU, "0000:65:00.0"; empty: its energy is not read
    std::string nvml = "libnvidia-ml.so.1";  // opened once, and never closed
    std::string root = {};                   // prefix of "/sys", for tests
  };
  // Reads and opens nothing.
  explicit PowerMeter(Options options) : options_(std::move(options)) {}

  // Adds the energy used since the last sample. Must be called once a minute at least, since RAPL's counters
  // wrap after some minutes at full load.
  void Sample();
  // Returns the energy used; none before the second sample, or if nothing can be read.
  std::optional<Power> Used() const;

 private:
  using ReadEnergy = int (*)(void* device, unsigned long long* millijoules);
  struct Counter {
    std::string path;
    uint64_t range = 0;  // in microjoules: the counter wraps here
    uint64_t last = 0;
  };

  void Open();
  void OpenNvml();
  void OpenRapl();

  const Options options_;
  int samples_ = 0;
  ReadEnergy read_energy_ = nullptr;  // null: NVML does not answer
  void* device_ = nullptr;
  unsigned long long first_millijoules_ = 0;
  unsigned long long last_millijoules_ = 0;
  std::vector<Counter> packages_;
  uint64_t microjoules_ = 0;
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_REPORT_POWER_METER_H_
