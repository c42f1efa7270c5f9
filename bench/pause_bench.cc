// What a pause and a resume cost on machines that simcuda has the costs of, beside plain copies of pinned
// memory of the same bytes in the same run. Blocks of one size fill the device. For each machine and size:
// the first pause, which copies everything; the resume that waits; a second pause after launches that only
// read; how long the first launch takes after a resume that does not wait. Chunks really go back to the
// driver.
//
//   pause_bench [--machines a100,h100] [--forms wait,pass] [--ends low,high] [--mib 2,8,64,512] [--total-mib N] [--scale N]
//               [--json FILE]

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "allocator/driver/device_hash.h"
#include "allocator/memory/address_map.h"
#include "allocator/residency/residency.h"
#include "allocator/tier/host_pool.h"
#include "bench/exchange.h"
#include "bench/stand_in.h"
#include "io/os/clock.h"
#include "io/os/thread.h"
#include "tests/command_line.h"
#include "tests/fakes/hardware_stand_in.h"

namespace spillway::bench {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kChunkBytes = 2 << 20;
constexpr uint64_t kShareBytes = 32 << 20;
constexpr int kPasses = 10;  // of launches that read, between two pauses

struct Arguments {
  std::vector<std::string> machines = {"h100"};
  std::vector<std::string> forms = {"wait", "pass"};
  std::vector<std::string> ends = {"low", "high"};
  std::vector<uint64_t> mib = {2, 8, 64, 512};
  uint64_t total_mib = 2048;
  double scale = 10;
  std::string json_file;
};

// Times as at scale 1.
struct Metrics {
  double plain_out_ms = 0, plain_in_ms = 0;  // plain copies
  double pause_ms = 0, resume_ms = 0;
  double again_ms = 0;    // the second pause
  double again_part = 0;  // of the bytes, that it copied
  double launch_ms = 0;   // the first one after a resume
  double released_part = 0;
  double overrun_ms = 0;  // of the first pause: what this machine was slower than the one that it stands for
};

double SecondsSince(int64_t start) {
  return static_cast<double>(os::Clock::System()->NowNanos() - start) / 1e9;
}

class Job {
 public:
  Job(const fakes::HardwareStandIn& machine, const allocator::CudaDriver* driver, CUcontext context,
      uint64_t block_bytes, uint64_t total_bytes)
      : machine_(machine), driver_(driver), total_bytes_(total_bytes) {
    machine_.Become({});
    addresses_ =
        *allocator::AddressMap::Reserve(driver, 1, 2 * total_bytes + (uint64_t{1} << 30), kChunkBytes);
    allocator::HostPool::Options host;
    host.buffer_bytes = kChunkBytes;
    host.storage_bytes = total_bytes + block_bytes;
    host.evict_staging_buffers = host.fault_staging_buffers = 0;
    host_ = *allocator::HostPool::Create(driver, context, host);
    if (!host_->GrowStorageTo(host.storage_bytes).ok()) Die("host memory cannot be pinned");
    allocator::ResidencyOptions residency;
    residency.budget_bytes = total_bytes + 2 * block_bytes + kShareBytes;
    residency.external_share_bytes = kShareBytes;
    allocator::ResidencyParts parts;
    parts.driver = driver;
    parts.context = context;
    parts.addresses = addresses_.get();
    parts.host = host_.get();
    parts.hash_code = &hash_code_;
    residency_ = *allocator::Residency::Create(residency, parts);
    for (uint64_t bytes = 0; bytes < total_bytes; bytes += block_bytes)
      blocks_.push_back(residency_->Allocate(block_bytes, {}).value());
    Pass();
    PauseAndResume();  // pages are there, and the hash is loaded
    ForgetCopies();
  }
  ~Job() {
    machine_.Become({});
    for (CUdeviceptr block : blocks_) {
      if (!residency_->Free(block).ok()) Die("a free failed");
    }
    if (!residency_->EmptyCache().ok()) Die("memory is not given back");
    residency_->Shutdown();
  }

  Metrics Measure(const fakes::Machine& machine, const PlainCopies& plain) {
    Metrics metrics;
    machine_.Become(machine);
    const double ms = 1e3 / machine.time_scale;
    metrics.plain_out_ms = plain.Seconds(total_bytes_, 0) * ms;
    metrics.plain_in_ms = plain.Seconds(0, total_bytes_) * ms;
    allocator::PauseStats stats;
    machine_.ResetStats();
    metrics.pause_ms = Timed([&] { stats = Pause(); }) * ms;
    metrics.overrun_ms = static_cast<double>(machine_.Stats().overrun_ns) / 1e6 / machine.time_scale;
    metrics.released_part = static_cast<double>(stats.released_bytes) / static_cast<double>(total_bytes_);
    metrics.resume_ms = Timed([&] { Resume(/*wait=*/true); }) * ms;
    for (int i = 0; i < kPasses; ++i) Pass();
    metrics.again_ms = Timed([&] { stats = Pause(); }) * ms;
    metrics.again_part =
        static_cast<double>(stats.host_bytes + stats.disk_bytes) / static_cast<double>(total_bytes_);
    Resume(/*wait=*/false);
    metrics.launch_ms = Timed([&] {
                          Launch(blocks_[blocks_.size() / 2]);
                          Synchronize();
                        }) *
                        ms;
    Resume(/*wait=*/true);
    machine_.Become({});
    ForgetCopies();
    return metrics;
  }

 private:
  template <typename Body>
  static double Timed(Body body) {
    const int64_t start = os::Clock::System()->NowNanos();
    body();
    return SecondsSince(start);
  }
  void Synchronize() { Must(driver_->cuStreamSynchronize(nullptr), "cuStreamSynchronize"); }
  allocator::PauseStats Pause() {
    allocator::PauseStats stats;
    const absl::Status status = residency_->Pause({}, &stats);
    if (!status.ok()) Die(std::string(status.message()));
    return stats;
  }
  void Resume(bool wait) {
    if (!residency_->Resume({}, wait).ok()) Die("a resume failed");
  }
  void PauseAndResume() {
    Pause();
    Resume(/*wait=*/true);
  }
  // Each block has other bytes: the next pause copies them all.
  void ForgetCopies() {
    ++value_;
    for (CUdeviceptr block : blocks_) {
      Run(block, [&] { return driver_->cuMemcpyHtoDAsync_v2(block, &value_, sizeof(value_), nullptr); });
    }
    Synchronize();
  }
  void Pass() {
    for (CUdeviceptr block : blocks_) Launch(block);
    Synchronize();
  }
  void Launch(CUdeviceptr block) {
    Run(block, [&] {
      void* parameters[] = {&block};
      return machine_.launch_kernel(machine_.empty_kernel(), 1, 1, 1, 1, 1, 1, 0, nullptr, parameters,
                                    nullptr);
    });
  }
  void Run(CUdeviceptr block, absl::FunctionRef<CUresult()> launch) {
    allocator::AccessSet set;
    addresses_->Collect(block, &set);
    Must(residency_->Run(set, {}, 1, launch), "a launch");
  }

  const fakes::HardwareStandIn& machine_;
  const allocator::CudaDriver* const driver_;
  const uint64_t total_bytes_;
  allocator::PtxHashCode hash_code_;
  std::unique_ptr<allocator::AddressMap> addresses_;
  std::unique_ptr<allocator::HostPool> host_;
  std::unique_ptr<allocator::Residency> residency_;
  std::vector<CUdeviceptr> blocks_;
  uint64_t value_ = 0;
};

void Run(const Arguments& arguments) {
  const allocator::CudaDriver* const driver = OpenStandIn("16GiB");
  CUcontext context = nullptr;
  Must(driver->cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  Must(driver->cuCtxSetCurrent(context), "cuCtxSetCurrent");
  const fakes::HardwareStandIn stand_in;
  nlohmann::json rows = nlohmann::json::array();
  std::printf("%-8s %-4s %-4s %5s %9s %6s %9s %6s %9s %6s %7s %9s %8s %7s\n", "machine", "form", "end", "MiB",
              "pause ms", "plain", "resume ms", "plain", "again ms", "part", "copied", "launch ms",
              "released", "over ms");
  for (const uint64_t mib : arguments.mib) {
    const uint64_t block_bytes = mib * kMiB;
    const PlainCopies plain(stand_in, driver, std::max(block_bytes, 32 * kMiB));
    Job job(stand_in, driver, context, block_bytes, arguments.total_mib * kMiB);
    for (const std::string& name : arguments.machines) {
      for (const std::string& form : arguments.forms) {
        for (const std::string& end : arguments.ends) {
          const Metrics f = job.Measure({name, end, form, arguments.scale}, plain);
          std::printf("%-8s %-4s %-4s %5d %9.1f %6.3f %9.1f %6.3f %9.1f %6.3f %7.3f %9.2f %8.3f %7.1f\n",
                      name.c_str(), form.c_str(), end.c_str(), static_cast<int>(mib), f.pause_ms,
                      f.plain_out_ms / f.pause_ms, f.resume_ms, f.plain_in_ms / f.resume_ms, f.again_ms,
                      f.again_ms / f.pause_ms, f.again_part, f.launch_ms, f.released_part, f.overrun_ms);
          std::fflush(stdout);
          rows.push_back({{"machine", name},
                          {"form", form},
                          {"end", end},
                          {"block_mib", mib},
                          {"total_mib", arguments.total_mib},
                          {"time_scale", arguments.scale},
                          {"pause_ms", f.pause_ms},
                          {"pause_share_of_plain_copy", f.plain_out_ms / f.pause_ms},
                          {"resume_ms", f.resume_ms},
                          {"resume_share_of_plain_copy", f.plain_in_ms / f.resume_ms},
                          {"second_pause_ms", f.again_ms},
                          {"second_pause_copied_part", f.again_part},
                          {"first_launch_ms", f.launch_ms},
                          {"released_part", f.released_part},
                          {"pause_overrun_ms", f.overrun_ms}});
        }
      }
    }
  }
  if (!arguments.json_file.empty()) std::ofstream(arguments.json_file) << rows.dump(1) << "\n";
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) {
  spillway::bench::Arguments arguments;
  spillway::CommandLine line{"Pause and resume on machines that simcuda has the costs of"};
  line.Add("--machines", &arguments.machines, "profiles, or their files");
  line.Add("--forms", &arguments.forms, "launches wait for the memory lock, or pass");
  line.Add("--ends", &arguments.ends, "of assumed figures");
  line.Add("--mib", &arguments.mib, "sizes of the blocks");
  line.Add("--total-mib", &arguments.total_mib, "of all blocks together");
  line.Add("--scale", &arguments.scale, "time scale", 1, 20);
  line.Add("--json", &arguments.json_file, "write the figures here");
  line.Parse(argc, argv);
  spillway::bench::Run(arguments);
  return 0;
}
