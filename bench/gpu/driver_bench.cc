// What the driver's calls cost that Spillway's speed rests on: create, map, set access, unmap and release of blocks of
// 2 to 256 MiB in chunks of several sizes, with the device idle and with a kernel running; pinned copies in each
// direction and in both at once; a launch. Each figure is the median of several rounds. Prints a table; --json FILE.
// Run with and without LD_PRELOAD=libspillway.so, the launch shows what the hook costs.

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/gpu/call_costs.h"
#include "tests/command_line.h"
#include "tests/gpu/gpu.h"

namespace spillway::gpu {
namespace {

using Json = nlohmann::json;

// Microseconds of each call on one block, summed over its chunks.
struct BlockCosts {
  double create = 0, map = 0, set_access = 0, unmap = 0, release = 0;
};

// One round: a block of `bytes` in chunks of `chunk`.
BlockCosts Round(uint64_t bytes, uint64_t chunk) {
  const Gpu& gpu = Gpu::Get();
  const auto& driver = gpu.driver();
  CUmemAllocationProp kind = {};
  kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemAccessDesc access = {};
  access.location = kind.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUdeviceptr address = 0;
  gpu.Must(driver.cuMemAddressReserve(&address, bytes, 0, 0, 0), "cuMemAddressReserve");
  std::vector<CUmemGenericAllocationHandle> chunks(bytes / chunk);
  BlockCosts costs;
  const auto timed = [&](double* into, const char* what, const std::function<CUresult()>& call) {
    const Clock::time_point start = Clock::now();
    const CUresult result = UntilReady(call);
    *into += MicrosSince(start);
    gpu.Must(result, what);
  };
  for (auto& handle : chunks) {
    timed(&costs.create, "cuMemCreate", [&] { return driver.cuMemCreate(&handle, chunk, &kind, 0); });
  }
  for (size_t i = 0; i < chunks.size(); ++i) {
    timed(&costs.map, "cuMemMap",
          [&] { return driver.cuMemMap(address + i * chunk, chunk, 0, chunks[i], 0); });
  }
  timed(&costs.set_access, "cuMemSetAccess",
        [&] { return driver.cuMemSetAccess(address, bytes, &access, 1); });
  timed(&costs.unmap, "cuMemUnmap", [&] { return driver.cuMemUnmap(address, bytes); });
  for (auto& handle : chunks) {
    timed(&costs.release, "cuMemRelease", [&] { return driver.cuMemRelease(handle); });
  }
  gpu.Must(driver.cuMemAddressFree(address, bytes), "cuMemAddressFree");
  return costs;
}

BlockCosts MedianOf(const std::vector<BlockCosts>& rounds) {
  BlockCosts median;
  for (double BlockCosts::*member : {&BlockCosts::create, &BlockCosts::map, &BlockCosts::set_access,
                                     &BlockCosts::unmap, &BlockCosts::release}) {
    std::vector<double> values;
    for (const BlockCosts& round : rounds) values.push_back(round.*member);
    median.*member = Median(values);
  }
  return median;
}

// `busy`: a kernel runs on another stream all the while, started anew as it ends.
Json MeasureBlocks(int rounds, bool busy) {
  const Gpu& gpu = Gpu::Get();
  const CUstream spinning = gpu.NewStream();
  std::printf("\n%s, us for the whole block\n%10s %10s %10s %10s %10s %10s %10s %14s\n",
              busy ? "a kernel running" : "device idle", "block MiB", "chunk MiB", "create", "map", "access",
              "unmap", "release", "swap GB/s max");
  Json rows = Json::array();
  for (const uint64_t bytes : {2 * kMiB, 16 * kMiB, 64 * kMiB, 256 * kMiB}) {
    for (const uint64_t chunk : {2 * kMiB, 16 * kMiB, 64 * kMiB}) {
      if (chunk > bytes) continue;
      std::vector<BlockCosts> all;
      for (int round = 0; round < rounds; ++round) {
        if (busy) gpu.Spin(spinning, 50'000'000);
        all.push_back(Round(bytes, chunk));
        if (busy) gpu.Must(gpu.driver().cuStreamSynchronize(spinning), "cuStreamSynchronize");
      }
      const BlockCosts median = MedianOf(all);
      // Evicting one block and fetching another maps once, sets access once and unmaps once: no more bytes than this.
      const double swap = bytes / (median.map + median.set_access + median.unmap) / 1e3;
      std::printf("%10d %10d %10.1f %10.1f %10.1f %10.1f %10.1f %14.1f\n", static_cast<int>(bytes / kMiB),
                  static_cast<int>(chunk / kMiB), median.create, median.map, median.set_access, median.unmap,
                  median.release, swap);
      rows.push_back({{"busy", busy},
                      {"block_bytes", bytes},
                      {"chunk_bytes", chunk},
                      {"create_us", median.create},
                      {"map_us", median.map},
                      {"set_access_us", median.set_access},
                      {"unmap_us", median.unmap},
                      {"release_us", median.release}});
    }
  }
  return rows;
}

// Bytes per second of copies between the device and registered host memory.
Json MeasureCopies(int rounds, uint64_t bytes) {
  const Gpu& gpu = Gpu::Get();
  const auto& driver = gpu.driver();
  HostMemory host[2] = {HostMemory(bytes), HostMemory(bytes)};
  const Clock::time_point registering = Clock::now();
  host[0].Register();
  std::printf("\nregistering host memory: %.1f GB/s\n", bytes / MicrosSince(registering) / 1e3);
  host[1].Register();
  Mapping device[2] = {Mapping(bytes), Mapping(bytes)};
  const CUstream streams[] = {gpu.NewStream(), gpu.NewStream()};
  const auto out = [&] {
    return driver.cuMemcpyDtoHAsync_v2(host[0].at(0), device[0].address(), bytes, streams[0]);
  };
  const auto in = [&] {
    return driver.cuMemcpyHtoDAsync_v2(device[1].address(), host[1].at(0), bytes, streams[1]);
  };
  const auto measure = [&](bool outward, bool inward) {
    std::vector<double> speeds;
    for (int round = 0; round < rounds; ++round) {
      gpu.Synchronize();
      const Clock::time_point start = Clock::now();
      if (outward) gpu.Must(out(), "cuMemcpyDtoHAsync");
      if (inward) gpu.Must(in(), "cuMemcpyHtoDAsync");
      gpu.Synchronize();
      speeds.push_back((outward + inward) * bytes / MicrosSince(start) / 1e3);
    }
    return Median(speeds);
  };
  const Json result = {{"device_to_host_gb_per_s", measure(true, false)},
                       {"host_to_device_gb_per_s", measure(false, true)},
                       {"both_gb_per_s", measure(true, true)}};
  std::printf("copies of %d MiB, GB/s: to the host %.1f, to the device %.1f, both at once together %.1f\n",
              static_cast<int>(bytes / kMiB), result["device_to_host_gb_per_s"].get<double>(),
              result["host_to_device_gb_per_s"].get<double>(), result["both_gb_per_s"].get<double>());
  return result;
}

// Nanoseconds from call to return of a launch that the device does not hold up.
Json MeasureLaunch(int rounds) {
  const Gpu& gpu = Gpu::Get();
  const CUstream stream = gpu.NewStream();
  CUdeviceptr word = 0;
  gpu.Must(gpu.mem_alloc(&word, 4), "cuMemAlloc");
  constexpr int kBatch = 500;  // fewer than a stream's queue holds
  std::vector<double> nanos;
  for (int round = 0; round < rounds * 10; ++round) {
    gpu.Synchronize();
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < kBatch; ++i) gpu.Nothing(stream, word);
    nanos.push_back(MicrosSince(start) * 1e3 / kBatch);
  }
  gpu.Synchronize();
  gpu.Must(gpu.mem_free(word), "cuMemFree");
  std::printf("a launch of an empty kernel: %.0f ns\n", Median(nanos));
  return {{"launch_ns", Median(nanos)}};
}

int Run(int argc, char** argv) {
  CommandLine line{"Costs of the driver's calls"};
  std::string json_file;
  int rounds = 9;
  uint64_t copy_mib = 512;
  bool launch_only = false;
  line.Add("--json", &json_file, "write the figures here");
  line.Add("--rounds", &rounds, "rounds of each figure", 1, 1000);
  line.Add("--copy-mib", &copy_mib, "size of the copies", 1, 16384);
  line.Add("--launch-only", &launch_only, "only the launch");
  line.Parse(argc, argv);
  std::printf("%s\n", Gpu::Get().Description().c_str());
  Json report = {{"device", Gpu::Get().Description()}, {"launch", MeasureLaunch(rounds)}};
  if (!launch_only) {
    report["blocks"] = MeasureBlocks(rounds, false);
    for (Json& row : MeasureBlocks(rounds, true)) report["blocks"].push_back(row);
    report["copies"] = MeasureCopies(rounds, copy_mib * kMiB);
    report["calls"] = MeasureCalls(rounds);
    report["link"] = MeasureLink(rounds, copy_mib * kMiB);
  }
  if (!json_file.empty()) std::ofstream(json_file) << report.dump(2) << "\n";
  return 0;
}

}  // namespace
}  // namespace spillway::gpu

int main(int argc, char** argv) { return spillway::gpu::Run(argc, argv); }
