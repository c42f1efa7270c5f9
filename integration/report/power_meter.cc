#include "integration/report/power_meter.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

namespace spillway::integration {
namespace {

// Declarations of nvml.h, whose ABI is stable: functions return 0 for success, a device is a pointer.
using Init = int (*)();
using DeviceByBusId = int (*)(const char* bus_id, void** device);

// Returns whether the folder is a package's. Each package has one, "intel-rapl:0"; the figures of its parts,
// "intel-rapl:0:1", are contained in its own.
bool IsPackage(const std::string& folder) {
  const std::string prefix = "intel-rapl:";
  return folder.starts_with(prefix) && folder.size() > prefix.size() &&
         folder.find_first_not_of("0123456789", prefix.size()) == std::string::npos;
}

std::optional<uint64_t> NumberIn(const std::string& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  if (!(file >> number)) return std::nullopt;
  return number;
}

}  // namespace

void PowerMeter::Sample() {
  if (samples_++ == 0) return Open();
  if (read_energy_ != nullptr) {
    unsigned long long now = 0;
    if (read_energy_(device_, &now) == 0) last_millijoules_ = std::max(last_millijoules_, now);
  }
  for (Counter& package : packages_) {
    const std::optional<uint64_t> now = NumberIn(package.path);
    if (!now) continue;
    microjoules_ += *now >= package.last ? *now - package.last : *now + package.range - package.last;
    package.last = *now;
  }
}

std::optional<Power> PowerMeter::Used() const {
  if (samples_ < 2 || (read_energy_ == nullptr && packages_.empty())) return std::nullopt;
  Power power;
  if (read_energy_ != nullptr) {
    power.gpu_joules = static_cast<double>(last_millijoules_ - first_millijoules_) / 1e3;
    power.source = "nvml";
  }
  if (!packages_.empty()) {
    power.cpu_joules = static_cast<double>(microjoules_) / 1e6;
    power.source += power.source.empty() ? "rapl" : "+rapl";
  }
  return power;
}

void PowerMeter::Open() {
  OpenNvml();
  OpenRapl();
}

void PowerMeter::OpenNvml() {
  if (options_.pci_bus_id.empty()) return;
  void* const library = ::dlopen(options_.nvml.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  const auto init = reinterpret_cast<Init>(::dlsym(library, "nvmlInit_v2"));
  const auto find = reinterpret_cast<DeviceByBusId>(::dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2"));
  const auto read = reinterpret_cast<ReadEnergy>(::dlsym(library, "nvmlDeviceGetTotalEnergyConsumption"));
  if (init == nullptr || find == nullptr || read == nullptr || init() != 0) return;
  if (find(options_.pci_bus_id.c_str(), &device_) != 0) return;
  if (read(device_, &first_millijoules_) != 0) return;  // GPUs before Volta do not count it
  last_millijoules_ = first_millijoules_;
  read_energy_ = read;
}

void PowerMeter::OpenRapl() {
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(options_.root + "/sys/class/powercap", error)) {
    if (!IsPackage(entry.path().filename().string())) continue;
    Counter counter;
    counter.path = entry.path() / "energy_uj";
    const std::optional<uint64_t> range = NumberIn(entry.path() / "max_energy_range_uj");
    const std::optional<uint64_t> now = NumberIn(counter.path);
    if (!range || !now) continue;
    counter.range = *range;
    counter.last = *now;
    packages_.push_back(counter);
  }
}

}  // namespace spillway::integration
