// Small workloads for the tests of the offline planner, the G10 traces, and random ones. The plain machine
// has round rates, so that a test can say the times that come out.

#ifndef SPILLWAY_TESTS_POLICY_WORKLOAD_HELPERS_H_
#define SPILLWAY_TESTS_POLICY_WORKLOAD_HELPERS_H_

#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "policy/model/machine.h"
#include "policy/model/transfer_plan.h"
#include "policy/model/workload.h"
#include "policy/offline/workload_csv.h"

namespace spillway::policy {

inline constexpr Nanos kMilli = 1'000'000;
inline constexpr Bytes kMega = 1'000'000;

// A machine whose links all move 1 MB in 1 ms, and whose tensors move whole.
inline Machine PlainMachine(Bytes gpu, Bytes host) {
  Machine machine;
  machine.gpu_bytes = gpu;
  machine.host_bytes = host;
  machine.pcie_in = machine.pcie_out = machine.ssd_read = machine.ssd_write = 1e9;
  machine.piece_bytes = 0;
  return machine;
}

// The machine of the published comparisons.
inline Machine G10Machine(Bytes host) {
  Machine machine;
  machine.gpu_bytes = 40ull << 30;
  machine.host_bytes = host;
  machine.pcie_in = machine.pcie_out = 15.754e9;
  machine.ssd_read = machine.ssd_write = 3.2e9;
  return machine;
}

inline std::string FileText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The published trace of that name.
Workload G10Workload(const std::string& name);

// Twelve kernels of 10 ms; tensor 0 (100 MB) is made by kernel 0 and read by kernel 11; in the middle,
// kernels 5 and 6 share tensor 1 (100 MB). With 150 MB, tensor 0 has to be away for both: written while
// kernels 1 to 4 run (100 ms for 40) and read back while 7 to 10 do.
inline Workload MountainWorkload(Nanos kernel = 10 * kMilli) {
  Workload workload;
  workload.tensors = {{100 * kMega, false}, {100 * kMega, false}};
  for (int k = 0; k < 12; ++k) workload.kernels.push_back({"k", kernel, {}, {}, 0});
  workload.kernels[0].outputs = {0};
  workload.kernels[11].inputs = {0};
  workload.kernels[5].outputs = {1};
  workload.kernels[6].inputs = {1};
  return workload;
}

inline Workload RandomWorkload(uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&random](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  Workload workload;
  const uint32_t tensors = 4 + below(30);
  for (uint32_t t = 0; t < tensors; ++t) workload.tensors.push_back({(1 + below(50)) * kMega, below(3) == 0});
  const uint32_t kernels = 5 + below(60);
  for (uint32_t k = 0; k < kernels; ++k) {
    WorkloadKernel kernel{"k", below(20) * kMilli / 2, {}, {}, below(4) == 0 ? below(20) * kMega : 0};
    std::set<uint32_t> inputs, outputs;
    for (uint32_t i = below(4); i > 0; --i) inputs.insert(below(tensors));
    for (uint32_t i = below(3); i > 0; --i) outputs.insert(below(tensors));
    kernel.inputs.assign(inputs.begin(), inputs.end());
    kernel.outputs.assign(outputs.begin(), outputs.end());
    workload.kernels.push_back(kernel);
  }
  return workload;
}

// The same with tensors in pieces of 10 MB.
inline Machine PieceMachine(Bytes gpu, Bytes host) {
  Machine machine = PlainMachine(gpu, host);
  machine.piece_bytes = 10 * kMega;
  return machine;
}

// The first half of MountainWorkload's tensor 0 is away from kernel 4 on.
inline TransferPlan HalfAway(PlanTier tier) {
  TransferPlan plan;
  plan.evictions = {{0, 0, 5, 4, tier}};
  return plan;
}

inline Machine WithDrives(Machine machine, const std::vector<Drive>& drives) {
  machine.drives = drives;
  machine.ssd_read = machine.ssd_write = 0;
  for (const Drive& drive : drives) {
    machine.ssd_read += drive.read;
    machine.ssd_write += drive.write;
  }
  return machine;
}

inline std::vector<Nanos> TimesOf(const Workload& workload) {
  std::vector<Nanos> times;
  for (const WorkloadKernel& kernel : workload.kernels) times.push_back(kernel.duration);
  return times;
}

inline void ExpectSame(const Workload& a, const Workload& b) {
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  ASSERT_EQ(a.kernels.size(), b.kernels.size());
  for (size_t t = 0; t < a.tensors.size(); ++t) {
    EXPECT_EQ(a.tensors[t].bytes, b.tensors[t].bytes);
    EXPECT_EQ(a.tensors[t].persistent, b.tensors[t].persistent);
  }
  for (size_t k = 0; k < a.kernels.size(); ++k) {
    EXPECT_EQ(a.kernels[k].name, b.kernels[k].name);
    EXPECT_EQ(a.kernels[k].duration, b.kernels[k].duration);
    EXPECT_EQ(a.kernels[k].inputs, b.kernels[k].inputs);
    EXPECT_EQ(a.kernels[k].outputs, b.kernels[k].outputs);
    EXPECT_EQ(a.kernels[k].workspace_bytes, b.kernels[k].workspace_bytes);
  }
}

}  // namespace spillway::policy

#endif  // SPILLWAY_TESTS_POLICY_WORKLOAD_HELPERS_H_
