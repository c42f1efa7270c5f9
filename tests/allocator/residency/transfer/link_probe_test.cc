// The measurement of the link: what a batch of copies says about the rates, on links of known rates; when a
// device measures, and what it does when the driver refuses.

#include "allocator/residency/transfer/link_probe.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "io/os/clock.h"
#include "tests/allocator/copy_helpers.h"

namespace spillway::allocator {
namespace {

using policy::LinkRates;

// Two batches of copies over a link that reaches `alone` or `both`, begun at these times (nanoseconds).
LinkBatch BatchOn(const LinkRates& alone, const LinkRates& both, LinkBatch batch) {
  double in_left = batch.in_bytes, out_left = batch.out_bytes, now = 0;
  while (in_left > 0 || out_left > 0) {
    const bool in = in_left > 0 && batch.in_begin <= now, out = out_left > 0 && batch.out_begin <= now;
    const double in_rate = !in ? 0 : (out ? both.in : alone.in) / 1e9;
    const double out_rate = !out ? 0 : (in ? both.out : alone.out) / 1e9;
    double until = 1e30;
    if (in) until = std::min(until, now + in_left / in_rate);
    if (out) until = std::min(until, now + out_left / out_rate);
    if (!in && in_left > 0) until = std::min(until, batch.in_begin);
    if (!out && out_left > 0) until = std::min(until, batch.out_begin);
    in_left -= in_rate * (until - now);
    out_left -= out_rate * (until - now);
    now = until;
    if (in && in_left < 1e-6) in_left = 0, batch.in_end = now;
    if (out && out_left < 1e-6) out_left = 0, batch.out_end = now;
  }
  return batch;
}

TEST(RatesTogetherOfTest, WhatRanAloneIsTakenOut) {
  const LinkRates alone{25e9, 24e9};
  for (const LinkRates& both : {LinkRates{12.5e9, 12e9}, {11.25e9, 23.5e9}, {20e9, 20e9}, {25e9, 24e9}}) {
    for (const double late : {0.0, 20e3, 100e3}) {
      LinkBatch begun;
      begun.in_begin = late;
      begun.in_bytes = begun.out_bytes = 16 << 20;
      const auto found = RatesTogetherOf(BatchOn(alone, both, begun), alone);
      ASSERT_TRUE(found);
      EXPECT_NEAR(found->in, both.in, 1e-6 * both.in);
      EXPECT_NEAR(found->out, both.out, 1e-6 * both.out);
    }
  }
}

TEST(RatesTogetherOfTest, BatchesThatHardlyMetSayNothing) {
  const LinkRates alone{25e9, 25e9};
  LinkBatch begun;
  begun.in_bytes = begun.out_bytes = 16 << 20;
  begun.in_begin = 0.7 * begun.out_bytes / 25e9 * 1e9;
  EXPECT_FALSE(RatesTogetherOf(BatchOn(alone, {20e9, 20e9}, begun), alone));
  begun.in_begin = 1e9;  // not at all
  EXPECT_FALSE(RatesTogetherOf(BatchOn(alone, {20e9, 20e9}, begun), alone));
}

CoreSetup Measuring(bool disk = true) {
  CoreSetup setup;
  setup.host_bytes = 4 << 20;
  setup.disk = disk;
  setup.measure_link = true;
  return setup;
}

// Something leaves the GPU for lack of memory, as the Reclaimer says it.
void EvictInNeed(CoreDevice& device, CUdeviceptr block) {
  device->core()->pressure.store(true);
  Evict(device, block);
}

// With `success`, a measurement that took too long on a busy machine does not count.
ResidencyStats AwaitMeasurement(CoreDevice& device, bool success = false) {
  ResidencyStats stats;
  EXPECT_TRUE(tests::WaitUntil([&] {
    device->thread()->Wake();  // nothing else moves, and the first chunks are free only now
    stats = device->Stats();
    return stats.link_measurements + (success ? 0 : stats.link_measurements_dropped) > 0;
  })) << "nothing is measured";
  return stats;
}

TEST(LinkProbeTest, TheFirstEvictionMeasuresAndTheNextDoNot) {
  for (const bool disk : {true, false}) {
    CoreSetup setup = Measuring(disk);
    setup.link_apart_nanos = 1'000'000;
    CoreDevice device(setup);
    const CUdeviceptr block = Filled(device, 7);
    EXPECT_FALSE(device->Stats().link) << "nothing has left the GPU";
    EvictInNeed(device, block);
    const ResidencyStats stats = AwaitMeasurement(device, /*success=*/true);
    ASSERT_EQ(stats.link_measurements, 1u);
    ASSERT_TRUE(stats.link);
    EXPECT_GT(stats.link->alone.in, 0);
    EXPECT_GT(stats.link->alone.out, 0);
    EXPECT_TRUE(policy::LinkIsPossible(
        {.pcie_in = stats.link->alone.in, .pcie_out = stats.link->alone.out, .pcie_both = stats.link->both}));
    EXPECT_LE(stats.host_in_both_rate, stats.host_in_rate);
    EXPECT_EQ(Read(device, block, 7), 0u);
    Evict(device, block);
    EXPECT_EQ(Read(device, block, 7), 0u);
    EXPECT_EQ(device->Stats().link_measurements, 1u);
    device->CheckInvariants();
  }
}

// The stand-in with the link of a machine, at the low end of its figures and so slow that a copy of 64 KiB takes
// 0.5 to 3 ms: the stand-in's threads then wake late by little of it. Calls take no time.
class OnLinkOf {
 public:
  explicit OnLinkOf(const std::string& name) : file_(testing::TempDir() + name + "_link.json") {
    Dl_info library;
    if (dladdr(reinterpret_cast<void*>(CoreDevice::Driver()->cuMemCreate), &library) == 0) std::abort();
    const auto folder = std::filesystem::path(library.dli_fname).parent_path() / "hardware";
    nlohmann::json machine = nlohmann::json::parse(std::ifstream(folder / (name + ".json")));
    for (auto& [call, costs] : machine["calls"].items()) {
      for (const char* cost : {"call_us", "handle_us", "gib_us"})
        if (costs.contains(cost)) costs[cost]["low"] = 0;
    }
    const auto slow = [&machine](const char* direction, const char* rate) {
      nlohmann::json& value = machine["copies"][direction][rate]["low"];
      value = value.get<double>() / kSlower;
      return value.get<double>() * 1e9;
    };
    alone = {slow("in", "alone_gb_per_s"), slow("out", "alone_gb_per_s")};
    both = {slow("in", "both_gb_per_s"), slow("out", "both_gb_per_s")};
    std::ofstream(file_) << machine.dump();
    SetSimcuda("HARDWARE_END", "low");
    SetSimcuda("HARDWARE_FORM", "pass");
    SetSimcuda("HARDWARE", file_);
  }
  ~OnLinkOf() {
    SetSimcuda("HARDWARE", "");
    std::filesystem::remove(file_);
  }

  LinkRates alone, both;  // bytes a second

 private:
  static constexpr double kSlower = 500;
  const std::string file_;
};

// What a new device measures on the link.
ResidencyStats::Link MeasureOn(const OnLinkOf&) {
  CoreSetup setup = Measuring(/*disk=*/false);
  setup.link_apart_nanos = 1'000'000;
  CoreDevice device(setup);
  const CUdeviceptr block = Filled(device, 7);
  EvictInNeed(device, block);
  const ResidencyStats stats = AwaitMeasurement(device, /*success=*/true);
  EXPECT_EQ(Read(device, block, 7), 0u);
  return stats.link.value_or(ResidencyStats::Link());
}

// One of ten measurements: on a busy machine the stand-in's threads may wake late in several.
TEST(LinkProbeTest, FindsTheRatesOfALink) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "rates are those of code without ThreadSanitizer";
#endif
  const auto near = [](double found, double rate) { return std::abs(found - rate) <= 0.1 * rate; };
  for (const char* name : {"a100", "h200"}) {
    const OnLinkOf link(name);
    bool right = false;
    std::string seen;
    for (int i = 0; i < 10 && !right; ++i) {
      const auto [alone, both] = MeasureOn(link);
      right = near(alone.in, link.alone.in) && near(alone.out, link.alone.out) &&
              near(both.in, link.both.in) && near(both.out, link.both.out);
      absl::StrAppend(&seen, alone.in, " ", alone.out, " and ", both.in, " ", both.out, "\n");
    }
    EXPECT_TRUE(right) << name << ": in and out alone, and together:\n" << seen;
  }
}

TEST(LinkProbeTest, AJobThatFitsMeasuresNothing) {
  CoreDevice device(Measuring());
  const CUdeviceptr block = Filled(device, 7);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Read(device, block, 7), 0u);
  const ResidencyStats stats = device->Stats();
  EXPECT_EQ(stats.link_measurements + stats.link_measurements_dropped, 0u);
  EXPECT_EQ(stats.host_in_both_rate, 0);
}

CUresult NoTime(float*, CUevent, CUevent) { return CUDA_ERROR_INVALID_HANDLE; }
CUresult NoRange(CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long) {
  return CUDA_ERROR_OUT_OF_MEMORY;
}

TEST(LinkProbeTest, ARefusalDropsItAndNothingElse) {
  for (const bool range : {true, false}) {
    CudaDriver driver = *CoreDevice::Driver();
    CoreSetup setup = Measuring();
    setup.link_apart_nanos = 0;
    setup.driver = &driver;
    CoreDevice device(setup);
    if (range) driver.cuMemAddressReserve = &NoRange;
    if (!range) driver.cuEventElapsedTime = &NoTime;
    const CUdeviceptr block = Filled(device, 3);
    EvictInNeed(device, block);
    const ResidencyStats stats = AwaitMeasurement(device);
    EXPECT_EQ(stats.link_measurements_dropped, 1u);
    EXPECT_FALSE(stats.link);
    EXPECT_EQ(stats.host_in_both_rate, 0);
    EXPECT_EQ(Read(device, block, 3), 0u);
    Evict(device, block);
    EXPECT_EQ(device->Stats().link_measurements_dropped, 1u) << "tried again";
    device->CheckInvariants();
  }
}

// Events with times are the measurement's alone in these tests.
std::atomic<bool> link_hangs{false}, seen_hanging{false};
std::atomic<uint64_t> looks_at_ends{0};  // of the measurement's copies: at each poll while it is under way
std::mutex timed_mu;
std::set<CUevent> timed_events;
CUresult CreateEvent(CUevent* event, unsigned int flags) {
  const CUresult result = CoreDevice::Driver()->cuEventCreate(event, flags);
  const std::lock_guard lock(timed_mu);
  if (result == CUDA_SUCCESS && flags == CU_EVENT_DEFAULT) timed_events.insert(*event);
  return result;
}
CUresult QueryEvent(CUevent event) {
  const std::lock_guard lock(timed_mu);
  const bool timed = timed_events.contains(event);
  if (timed) ++looks_at_ends;
  if (link_hangs.load() && timed) {
    seen_hanging = true;
    return CUDA_ERROR_NOT_READY;
  }
  return CoreDevice::Driver()->cuEventQuery(event);
}
CudaDriver WatchedDriver() {
  CudaDriver driver = *CoreDevice::Driver();
  driver.cuEventCreate = &CreateEvent;
  driver.cuEventQuery = &QueryEvent;
  return driver;
}

// The job's transfers move so many bytes a second.
void MoveAt(CoreDevice& device, LinkDirection direction, double rate) {
  constexpr uint64_t kBytes = 64 << 20;
  LinkMeter& link = device->core()->link;
  int64_t now = os::Clock::System()->NowNanos();
  for (int i = 0; i < 20; ++i) {
    link.Begin(direction, now);
    now += static_cast<int64_t>(static_cast<double>(kBytes) / rate * 1e9);
    link.End(direction, kBytes, now);
  }
}

// What moves at other rates than before is measured again, whichever direction first had too little to say.
TEST(LinkProbeTest, ADriftMeasuresAgain) {
  for (const LinkDirection direction : {LinkDirection::kIn, LinkDirection::kOut}) {
    const CudaDriver driver = WatchedDriver();
    CoreSetup setup = Measuring();
    setup.driver = &driver;
    setup.link_apart_nanos = 0;  // each poll may begin one
    CoreDevice device(setup);
    const CUdeviceptr block = Filled(device, 7);
    EvictInNeed(device, block);
    const auto measured = [&] {
      const ResidencyStats stats = device->Stats();
      return stats.link_measurements + stats.link_measurements_dropped;
    };
    const auto is_quiet = [&] {  // the last measurement may end late
      const uint64_t before = looks_at_ends;
      AwaitPolls(device, 10);
      return looks_at_ends == before;
    };
    ASSERT_TRUE(AwaitMeasurement(device, /*success=*/true).link);
    MoveAt(device, direction, 100e9);
    ASSERT_TRUE(tests::WaitUntil(is_quiet)) << "the rates are what they were";
    const uint64_t before = measured();
    MoveAt(device, direction, 200e9);
    EXPECT_TRUE(tests::WaitUntil([&] {
      device->thread()->Wake();
      return measured() > before;
    }));
    EXPECT_EQ(Read(device, block, 7), 0u);
  }
}

void AwaitHangingLink(CoreDevice& device) {
  ASSERT_TRUE(tests::WaitUntil([&] {
    device->thread()->Wake();
    return seen_hanging.load();
  }));
}

TEST(LinkProbeTest, ABatchThatDoesNotEndHoldsEvictionsForAMomentOnly) {
  const CudaDriver driver = WatchedDriver();
  link_hangs = true;
  seen_hanging = false;
  CoreSetup setup = Measuring();
  setup.driver = &driver;
  CoreDevice device(setup);
  const CUdeviceptr first = Filled(device, 3), second = Filled(device, 5);
  EvictInNeed(device, first);
  AwaitHangingLink(device);
  Evict(device, second);  // waits for its end
  EXPECT_EQ(device->Stats().link_measurements_dropped, 0u) << "still under way";
  link_hangs = false;
  EXPECT_EQ(AwaitMeasurement(device).link_measurements_dropped, 1u) << "its time was over";
  EXPECT_EQ(Read(device, first, 3), 0u);
  EXPECT_EQ(Read(device, second, 5), 0u);
  device->CheckInvariants();
}

// What the measurement has taken comes back when its copies end. A launch that lacks just that waits for it.
TEST(LinkProbeTest, ALaunchThatLacksItsChunksIsNotRefused) {
  const CudaDriver driver = WatchedDriver();
  link_hangs = true;
  seen_hanging = false;
  CoreSetup setup = Measuring();
  setup.host_bytes = 16 << 20;
  setup.driver = &driver;
  CoreDevice device(setup);
  const CUdeviceptr first = Filled(device, 3);
  const CUdeviceptr rest = device.MustAllocate(setup.budget_bytes - setup.external_share_bytes - kBlock);
  EvictInNeed(device, first);
  AwaitHangingLink(device);
  std::atomic<bool> answered{false};
  std::thread launch([&] {
    CoreDevice::Driver()->cuCtxSetCurrent(CoreDevice::Context());
    EXPECT_EQ(device.Launch(nullptr, {first, rest}, [](const auto&) {}), CUDA_SUCCESS);
    answered = true;
  });
  // A launch that nothing could help would be refused after 200 ms.
  EXPECT_FALSE(tests::WaitUntil([&] { return answered.load(); }, std::chrono::milliseconds(500)));
  link_hangs = false;
  launch.join();
  EXPECT_EQ(Wrong(device, first, 3), 0u) << "and then it may leave again: the reserve has no other chunks";
  device->CheckInvariants();
}

// The driver's refusal to make memory is the job's trouble, not the measurement's.
TEST(LinkProbeTest, TakesFreeMemoryAsItIs) {
  CudaDriver driver = *CoreDevice::Driver();
  CoreSetup setup = Measuring();
  setup.driver = &driver;
  CoreDevice device(setup);
  const CUdeviceptr block = Filled(device, 3);
  driver.cuMemCreate = [](CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*,
                          unsigned long long) { return CUDA_ERROR_OUT_OF_MEMORY; };
  EvictInNeed(device, block);
  const ResidencyStats stats = AwaitMeasurement(device);
  EXPECT_EQ(stats.link_measurements + stats.link_measurements_dropped, 1u);
  const TableLock lock(device->core()->table);
  EXPECT_EQ(device->charges()->lowered_at(lock), 0) << "the budget fell";
}

}  // namespace
}  // namespace spillway::allocator
