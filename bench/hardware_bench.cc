// What moving blocks costs on machines that simcuda has the costs of: blocks of several sizes go out and in together,
// beside plain copies of pinned memory in the same run. For each machine, form of its driver and end of its assumed
// figures: the part of a plain copy's speed, how long launches of another thread took, how long the longest wait for a
// lock of the driver's was before a launch, copy or event, by the stand-in's own clock (which no pause of this machine
// makes longer), and how long our calls held the memory lock. Each figure is taken at two time scales, as at scale 1.
//
//   hardware_bench [--machines a100,h100] [--forms wait,pass] [--ends low,high] [--mib 8,64] [--scale N] [--json FILE]

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/exchange.h"
#include "bench/launch_probe.h"
#include "bench/stand_in.h"
#include "io/os/thread.h"
#include "tests/command_line.h"

namespace spillway::bench {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr double kProbePauseNanos = 40'000;  // stretched with the rest
constexpr double kQuietMillis = 80;          // likewise

struct Arguments {
  std::vector<std::string> machines = {"a100", "h100", "h200"};
  std::vector<std::string> forms = {"wait", "pass"};
  std::vector<std::string> ends = {"low", "high"};
  std::vector<uint64_t> mib = {8, 32, 64, 512};
  double scale = 10;
  uint64_t moved_mib = 2048;
  std::string json_file;
};

// As at scale 1.
struct Metrics {
  double share = 0;                            // of the speed of plain copies
  double gb_per_s = 0;                         // each way
  double lock_share = 0;                       // of the time
  double longest_call_us = 0;                  // that held it
  double longest_wait_us = 0;                  // of what enqueues work, for a lock, as the stand-in counts
  double quiet_us[3] = {}, moving_us[3] = {};  // launches: p50, p99, p99.9
  double cpu_share = 0;                        // of a processor, of Spillway's threads, outside the driver
  double overrun_share = 0;                    // of the time
};

void TakeLaunches(const std::vector<int64_t>& sorted, double scale, double* into) {
  const int parts[] = {500, 990, 999};
  for (int i = 0; i < 3; ++i) into[i] = PerMille(sorted, parts[i]) / 1e3 / scale;
}

class Bench {
 public:
  Bench() : driver_(OpenStandIn("16GiB")) {
    Must(driver_->cuDevicePrimaryCtxRetain(&context_, 0), "cuDevicePrimaryCtxRetain");
    Must(driver_->cuCtxSetCurrent(context_), "cuCtxSetCurrent");
    machine_ = std::make_unique<fakes::HardwareStandIn>();
  }

  // The blocks that the next measurements move.
  void Prepare(uint64_t block_bytes, uint64_t moved_bytes) {
    exchange_.reset();
    plain_.reset();
    Exchange::Options options;
    options.block_bytes = block_bytes;
    options.fitting = std::max<size_t>(4, 256 * kMiB / block_bytes);
    options.blocks = 2 * options.fitting;
    plain_ = std::make_unique<PlainCopies>(*machine_, driver_, block_bytes);
    exchange_ = std::make_unique<Exchange>(*machine_, driver_, context_, options);
    rounds_ = static_cast<int>(std::max<uint64_t>(2, moved_bytes / (options.blocks * block_bytes)));
  }

  Metrics Measure(const fakes::Machine& machine) {
    Metrics metrics;
    const double scale = machine.time_scale;
    const auto pause = static_cast<int64_t>(kProbePauseNanos * scale);
    machine_->Become(machine);
    exchange_->Run(1);  // the first pages and waits of this speed
    exchange_->Settle();
    {
      LaunchProbe probe(*machine_, driver_, context_, pause);
      os::SleepFor(std::chrono::milliseconds(static_cast<int64_t>(kQuietMillis * scale)));
      TakeLaunches(probe.End(), scale, metrics.quiet_us);
    }
    LaunchProbe probe(*machine_, driver_, context_, pause);
    exchange_->Run(1);  // from rest, nothing can come in before the first block is out
    machine_->ResetStats();
    const double cpu_before = machine_->OwnCpuSeconds();
    const Exchange::Moved moved = exchange_->Run(rounds_);
    TakeLaunches(probe.End(), scale, metrics.moving_us);
    const double cpu = machine_->OwnCpuSeconds() - cpu_before;
    const simcuda_hardware_stats stats = machine_->Stats();
    exchange_->Settle();
    const double plain_seconds = plain_->Seconds(moved.out_bytes, moved.in_bytes);
    machine_->Become({});
    metrics.share = plain_seconds / moved.seconds;
    metrics.gb_per_s = static_cast<double>(moved.in_bytes) / moved.seconds / 1e9 * scale;
    metrics.lock_share = static_cast<double>(stats.memory_lock_ns) / 1e9 / moved.seconds;
    metrics.longest_call_us = static_cast<double>(stats.longest_memory_call_ns) / 1e3 / scale;
    metrics.longest_wait_us = static_cast<double>(stats.longest_enqueue_wait_ns) / 1e3 / scale;
    metrics.cpu_share = cpu / (moved.seconds / scale);
    metrics.overrun_share = static_cast<double>(stats.overrun_ns) / 1e9 / moved.seconds;
    return metrics;
  }

 private:
  const allocator::CudaDriver* const driver_;
  CUcontext context_ = nullptr;
  std::unique_ptr<fakes::HardwareStandIn> machine_;
  std::unique_ptr<PlainCopies> plain_;
  std::unique_ptr<Exchange> exchange_;
  int rounds_ = 1;
};

nlohmann::json Row(const fakes::Machine& machine, uint64_t mib, const Metrics& f) {
  return {{"machine", machine.name},
          {"form", machine.form},
          {"end", machine.end},
          {"block_mib", mib},
          {"time_scale", machine.time_scale},
          {"share_of_plain_copy", f.share},
          {"gb_per_s_each_way", f.gb_per_s},
          {"memory_lock_share", f.lock_share},
          {"longest_memory_call_us", f.longest_call_us},
          {"longest_enqueue_wait_us", f.longest_wait_us},
          {"launch_us_without_moves", f.quiet_us},
          {"launch_us_with_moves", f.moving_us},
          {"threads_cpu_share_at_scale_1", f.cpu_share},
          {"overrun_share", f.overrun_share}};
}

void Print(const fakes::Machine& machine, uint64_t mib, const Metrics& f) {
  std::printf(
      "%-8s %-4s %-4s %5d %5g %6.3f %7.1f %6.3f %8.0f %8.0f %7.1f %7.1f %8.1f %7.1f %7.1f %8.1f %6.3f "
      "%6.3f\n",
      machine.name.c_str(), machine.form.c_str(), machine.end.c_str(), static_cast<int>(mib),
      machine.time_scale, f.share, f.gb_per_s, f.lock_share, f.longest_call_us, f.longest_wait_us,
      f.quiet_us[0], f.quiet_us[1], f.quiet_us[2], f.moving_us[0], f.moving_us[1], f.moving_us[2],
      f.cpu_share, f.overrun_share);
  std::fflush(stdout);
}

// How much the two time scales differ at most, in what no pause of this machine is in: the shares, the rates, the part of
// the time for which the lock is held, and the longest call.
class Apart {
 public:
  void Add(const Metrics& a, const Metrics& b) {
    const double pairs[][2] = {{a.share, b.share},
                               {a.gb_per_s, b.gb_per_s},
                               {a.lock_share, b.lock_share},
                               {a.longest_call_us, b.longest_call_us}};
    for (size_t i = 0; i < most_.size(); ++i)
      most_[i] = std::max(most_[i], std::abs(pairs[i][1] / pairs[i][0] - 1));
  }
  void Print() const {
    std::printf(
        "most between the two time scales: share %.1f %%, rate %.1f %%, lock %.1f %%, longest call %.1f %%\n",
        most_[0] * 100, most_[1] * 100, most_[2] * 100, most_[3] * 100);
  }

 private:
  std::array<double, 4> most_ = {};
};

void Run(const Arguments& arguments) {
  Bench bench;
  nlohmann::json rows = nlohmann::json::array();
  std::printf("%-8s %-4s %-4s %5s %5s %6s %7s %6s %8s %8s %7s %7s %8s %7s %7s %8s %6s %6s\n", "machine",
              "form", "end", "MiB", "scale", "share", "GB/s", "lock", "longest", "waited", "p50", "p99",
              "p99.9", "p50", "p99", "p99.9", "cpu", "over");
  Apart apart;
  for (const uint64_t mib : arguments.mib) {
    bench.Prepare(mib * kMiB, arguments.moved_mib * kMiB);
    for (const std::string& name : arguments.machines) {
      for (const std::string& form : arguments.forms) {
        for (const std::string& end : arguments.ends) {
          Metrics metrics[2];
          for (int twice = 0; twice < 2; ++twice) {
            const fakes::Machine machine = {name, end, form, arguments.scale * (1 + twice)};
            metrics[twice] = bench.Measure(machine);
            Print(machine, mib, metrics[twice]);
            rows.push_back(Row(machine, mib, metrics[twice]));
          }
          apart.Add(metrics[0], metrics[1]);
        }
      }
    }
  }
  apart.Print();
  if (!arguments.json_file.empty()) std::ofstream(arguments.json_file) << rows.dump(1) << "\n";
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) {
  spillway::bench::Arguments arguments;
  spillway::CommandLine line{"Moving blocks on machines that simcuda has the costs of"};
  line.Add("--machines", &arguments.machines, "profiles, or their files");
  line.Add("--forms", &arguments.forms, "launches wait for the memory lock, or pass");
  line.Add("--ends", &arguments.ends, "of assumed figures");
  line.Add("--mib", &arguments.mib, "sizes of the blocks");
  line.Add("--scale", &arguments.scale, "time scale; the second one is twice that", 1, 10);
  line.Add("--moved-mib", &arguments.moved_mib, "moved each way in each measurement");
  line.Add("--json", &arguments.json_file, "write the figures here");
  line.Parse(argc, argv);
  spillway::bench::Run(arguments);
  return 0;
}
