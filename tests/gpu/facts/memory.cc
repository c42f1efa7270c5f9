// Rates of copies, and a device that is full.

#include <unistd.h>

#include <cstdio>

#include "tests/gpu/facts/facts.h"

namespace spillway::gpu {
namespace {

// What both directions share.
struct Directions {
  explicit Directions(uint64_t bytes)
      : total(bytes), host_out(bytes), host_in(bytes), device_out(bytes), device_in(bytes) {
    host_out.Register();
    host_in.Register();
  }
  const uint64_t total;
  HostMemory host_out, host_in;
  Mapping device_out, device_in;
  const CUstream out = Gpu::Get().NewStream(), in = Gpu::Get().NewStream();
};

void Enqueue(const Directions& both, bool outward, uint64_t size) {
  const auto& driver = Gpu::Get().driver();
  for (uint64_t at = 0; at + size <= both.total; at += size) {
    Gpu::Get().Must(outward ? driver.cuMemcpyDtoHAsync_v2(both.host_out.at(at),
                                                          both.device_out.address() + at, size, both.out)
                            : driver.cuMemcpyHtoDAsync_v2(both.device_in.address() + at, both.host_in.at(at),
                                                          size, both.in),
                    "a copy");
  }
}

// GB/s of the copies of one direction; `beside`: while the other direction is kept busy for longer than that.
double Rate(const Directions& both, bool outward, bool beside, uint64_t size) {
  const Gpu& gpu = Gpu::Get();
  std::vector<double> rates;
  for (int round = 0; round < 5; ++round) {
    gpu.Synchronize();
    if (beside) {
      for (int i = 0; i < 3; ++i) Enqueue(both, !outward, both.total);
    }
    const Clock::time_point start = Clock::now();
    Enqueue(both, outward, size);
    gpu.Must(gpu.driver().cuStreamSynchronize(outward ? both.out : both.in), "cuStreamSynchronize");
    rates.push_back(static_cast<double>(both.total / size * size) / MicrosSince(start) / 1e3);
  }
  gpu.Synchronize();
  return Quantile(rates, 0.5);
}

}  // namespace

Json CopyRates(const FactSetup& setup) {
  const Directions both((setup.small ? 16 : 256) * kMiB);
  Json rows = Json::array();
  for (uint64_t size = kMiB / 4; size <= both.total; size *= 4) {
    rows.push_back({{"bytes", size},
                    {"out_gb_per_s", Rate(both, true, false, size)},
                    {"in_gb_per_s", Rate(both, false, false, size)},
                    {"out_beside_in_gb_per_s", Rate(both, true, true, size)},
                    {"in_beside_out_gb_per_s", Rate(both, false, true, size)}});
  }
  return {{"rows", rows}};
}

Json FullDevice(const FactSetup& setup) {
  const Gpu& gpu = Gpu::Get();
  const auto info = reinterpret_cast<decltype(&::cuMemGetInfo_v2)>(gpu.Symbol("cuMemGetInfo_v2"));
  size_t free_bytes = 0, total = 0;
  gpu.Must(info(&free_bytes, &total), "cuMemGetInfo");
  uint64_t taken = 0;
  for (uint64_t piece = 256 * kMiB; piece >= 2 * kMiB; piece /= 2) {
    CUdeviceptr memory = 0;
    while (free_bytes > setup.leave + piece && gpu.mem_alloc(&memory, piece) == CUDA_SUCCESS) {
      taken += piece;
      gpu.Must(info(&free_bytes, &total), "cuMemGetInfo");
    }
  }
  std::printf("taken %llu\n", static_cast<unsigned long long>(taken));
  std::fflush(stdout);
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return {{"taken_bytes", taken}, {"free_bytes", free_bytes}, {"total_bytes", total}};
}

}  // namespace spillway::gpu
