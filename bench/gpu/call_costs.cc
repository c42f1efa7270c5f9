#include "bench/gpu/call_costs.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "tests/gpu/gpu.h"

namespace spillway::gpu {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kPieceBytes = 2 * kMiB;
constexpr int kCalls = 100;  // of one kind in a row: fewer than a stream's queue holds

double MedianOf(int rounds, const std::function<double()>& measure) {
  std::vector<double> values;
  for (int i = 0; i < rounds; ++i) values.push_back(measure());
  return Median(values);
}

double Micros(const std::function<void()>& body) {
  const Clock::time_point start = Clock::now();
  body();
  return MicrosSince(start);
}

// Of one of kCalls calls in a row; the device is idle before.
double PerCall(int rounds, const char* what, const std::function<CUresult()>& call) {
  const Gpu& gpu = Gpu::Get();
  return MedianOf(rounds, [&] {
    gpu.Synchronize();
    const double micros = Micros([&] {
      for (int i = 0; i < kCalls; ++i) {
        const CUresult result = call();
        if (result != CUDA_ERROR_NOT_READY) gpu.Must(result, what);
      }
    });
    return micros / kCalls;
  });
}

Json MeasureRegistering(int rounds) {
  Json rows = Json::array();
  for (const uint64_t bytes : {2 * kMiB, 256 * kMiB}) {
    std::vector<double> in, out;
    for (int i = 0; i < rounds; ++i) {
      HostMemory host(bytes);
      in.push_back(Micros([&] { host.Register(); }));
      out.push_back(Micros([&] { host.Unregister(); }));
    }
    rows.push_back({{"bytes", bytes}, {"register_us", Median(in)}, {"unregister_us", Median(out)}});
  }
  return rows;
}

// The two directions of the link.
class Link {
 public:
  explicit Link(uint64_t bytes) : bytes_(bytes), host_{HostMemory(bytes), HostMemory(bytes)} {
    for (HostMemory& side : host_) side.Register();
    for (CUstream& stream : streams_) stream = Gpu::Get().NewStream();
  }
  ~Link() { Gpu::Get().Synchronize(); }

  // Seconds until each direction that takes part has ended, in pieces.
  struct Ends {
    double in = 0, out = 0;
  };
  Ends Copy(bool in, bool out, uint64_t piece) {
    const Gpu& gpu = Gpu::Get();
    gpu.Synchronize();
    const Clock::time_point start = Clock::now();
    for (uint64_t at = 0; at < bytes_; at += piece) {
      if (in)
        gpu.Must(
            gpu.driver().cuMemcpyHtoDAsync_v2(device_[0].address() + at, host_[0].at(at), piece, streams_[0]),
            "cuMemcpyHtoDAsync");
      if (out)
        gpu.Must(
            gpu.driver().cuMemcpyDtoHAsync_v2(host_[1].at(at), device_[1].address() + at, piece, streams_[1]),
            "cuMemcpyDtoHAsync");
    }
    Ends ends;
    const auto look = [&](bool asked, CUstream stream, double* end) {
      if (!asked || *end != 0 || query_(stream) != CUDA_SUCCESS) return;
      *end = std::chrono::duration<double>(Clock::now() - start).count();
    };
    while ((in && ends.in == 0) || (out && ends.out == 0)) {
      look(in, streams_[0], &ends.in);
      look(out, streams_[1], &ends.out);
    }
    return ends;
  }

 private:
  const uint64_t bytes_;
  HostMemory host_[2];
  Mapping device_[2] = {Mapping(bytes_), Mapping(bytes_)};
  CUstream streams_[2] = {};
  const decltype(&::cuStreamQuery) query_ =
      reinterpret_cast<decltype(&::cuStreamQuery)>(Gpu::Get().Symbol("cuStreamQuery"));
};

}  // namespace

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

Json MeasureCalls(int rounds) {
  const Gpu& gpu = Gpu::Get();
  const auto& driver = gpu.driver();
  const CUstream stream = gpu.NewStream();
  CUevent event = nullptr;
  gpu.Must(driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  HostMemory host(kPieceBytes);
  host.Register();
  const Mapping device(kPieceBytes);
  Json calls;
  calls["cuEventRecord"] =
      PerCall(rounds, "cuEventRecord", [&] { return driver.cuEventRecord(event, stream); });
  calls["cuEventQuery"] = PerCall(rounds, "cuEventQuery", [&] { return driver.cuEventQuery(event); });
  calls["cuStreamWaitEvent"] =
      PerCall(rounds, "cuStreamWaitEvent", [&] { return driver.cuStreamWaitEvent(stream, event, 0); });
  calls["cuMemcpyAsync"] = PerCall(rounds, "cuMemcpyHtoDAsync", [&] {
    return driver.cuMemcpyHtoDAsync_v2(device.address(), host.at(0), 64, stream);
  });
  gpu.Synchronize();
  CUdeviceptr address = 0;
  calls["cuMemAddressReserve"] = MedianOf(rounds, [&] {
    const double micros = Micros(
        [&] { gpu.Must(driver.cuMemAddressReserve(&address, 64 * kMiB, 0, 0, 0), "cuMemAddressReserve"); });
    gpu.Must(driver.cuMemAddressFree(address, 64 * kMiB), "cuMemAddressFree");
    return micros;
  });
  std::vector<double> frees;
  calls["cuMemAlloc"] = MedianOf(rounds, [&] {
    const double micros = Micros([&] { gpu.Must(gpu.mem_alloc(&address, 64 * kMiB), "cuMemAlloc"); });
    frees.push_back(Micros([&] { gpu.Must(gpu.mem_free(address), "cuMemFree"); }));
    return micros;
  });
  calls["cuMemFree"] = Median(frees);
  gpu.Must(GPU_FUNCTION(cuEventDestroy_v2)(event), "cuEventDestroy");
  return {{"us", calls}, {"registering", MeasureRegistering(std::min(rounds, 3))}};
}

Json MeasureLink(int rounds, uint64_t bytes) {
  bytes = std::max(bytes / kPieceBytes, uint64_t{1}) * kPieceBytes;
  Link link(bytes);
  const auto size = static_cast<double>(bytes);
  const double in = MedianOf(rounds, [&] { return link.Copy(true, false, bytes).in; });
  const double out = MedianOf(rounds, [&] { return link.Copy(false, true, bytes).out; });
  const double in_pieces = MedianOf(rounds, [&] { return link.Copy(true, false, kPieceBytes).in; });
  const double out_pieces = MedianOf(rounds, [&] { return link.Copy(false, true, kPieceBytes).out; });
  std::vector<double> in_both, out_both;
  for (int i = 0; i < rounds; ++i) {
    // What the slower direction did after the other's end, it did alone.
    const Link::Ends ends = link.Copy(true, true, bytes);
    const double together = std::min(ends.in, ends.out);
    in_both.push_back((size - std::max(0.0, ends.in - together) * size / in) / together);
    out_both.push_back((size - std::max(0.0, ends.out - together) * size / out) / together);
  }
  const double pieces = size / static_cast<double>(kPieceBytes);
  const auto direction = [&](double alone, double in_pieces_seconds, const std::vector<double>& both) {
    return Json{{"alone_gb_per_s", size / alone / 1e9},
                {"both_gb_per_s", std::min(Median(both), size / alone) / 1e9},
                {"setup_us", std::max(0.0, in_pieces_seconds - alone) / pieces * 1e6}};
  };
  return {{"in", direction(in, in_pieces, in_both)}, {"out", direction(out, out_pieces, out_both)}};
}

}  // namespace spillway::gpu
