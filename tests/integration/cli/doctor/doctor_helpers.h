// Facts of a machine on which all is well, for the doctor's tests to change. A test sets the one thing that
// is wrong, and looks at what is said of it.

#ifndef SPILLWAY_TESTS_INTEGRATION_CLI_DOCTOR_DOCTOR_HELPERS_H_
#define SPILLWAY_TESTS_INTEGRATION_CLI_DOCTOR_DOCTOR_HELPERS_H_

#include <string>

#include "integration/cli/doctor/facts.h"
#include "tests/sizes.h"

namespace spillway::integration {

inline DiskFacts GoodDisk(const std::string& path, uint64_t file_system, double rate = 3e9) {
  DiskFacts disk;
  disk.start = {path, "", 500 * kGiB, 1000 * kGiB, true};
  disk.reserve_bytes = 50 * kGiB;
  disk.file_system = "ext4";
  disk.drive = "nvme0n1";
  disk.file_system_id = file_system;
  disk.direct_io = true;
  disk.io_uring = true;
  disk.rates.write = {static_cast<uint64_t>(6 * rate), 6, rate};
  disk.rates.read = {static_cast<uint64_t>(8 * rate), 4, 2 * rate};
  return disk;
}

inline DoctorFacts GoodFacts() {
  DoctorFacts facts;
  facts.installation = {"/opt/lib", {}, "", {"2.11", "2.15"}};
  facts.system.kernel = "6.1.0";
  facts.system.architecture = "x86_64";
  facts.system.cpu = "A processor";
  facts.system.cpus = 16;
  facts.system.numa_nodes = 2;
  facts.system.memory.machine_bytes = 128 * kGiB;
  facts.system.memory.available_bytes = 100 * kGiB;
  facts.torch = {"/venv/bin/python", true, "", "2.11.0+cu130", "2.11", "13.0", "", false};
  facts.driver.version = 13000;
  DeviceFacts& device = facts.driver.devices.emplace_back();
  device.name = "A GPU";
  device.bytes = 80 * kGiB;
  device.free_bytes = 78 * kGiB;
  device.capability = 80;
  device.maps = true;
  device.link.problem.clear();
  device.link.buffer_bytes = 64 * kMiB;
  device.link.in = device.link.out = {25'000'000'000, 1};
  device.link.both_in = {11'000'000'000, 1};
  device.link.both_out = {24'000'000'000, 1};
  facts.limits.membarrier = true;
  facts.limits.memory_maps = 65530;
  facts.limits.shared_memory = 64 * kGiB;
  facts.disks = {GoodDisk("/nvme0", 1)};
  return facts;
}

}  // namespace spillway::integration

#endif  // SPILLWAY_TESTS_INTEGRATION_CLI_DOCTOR_DOCTOR_HELPERS_H_
