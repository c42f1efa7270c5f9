// What the spill store costs: GB/s of 2 MiB slots written and read through it, next to plain O_DIRECT pwrite and pread
// of the same bytes by as many threads, in the same run on the same file system. Disks differ by their mood, so the
// figure to keep is the ratio, of the medians of alternating rounds.
//
//   io_engine_bench [--dir DIRECTORY] [--mib N] [--rounds N]

#include <sys/utsname.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "bench/plain_file.h"
#include "io/aligned_buffer.h"
#include "io/checksum.h"
#include "io/os/clock.h"
#include "io/os/sync.h"
#include "io/spill_store.h"
#include "tests/command_line.h"

namespace spillway::io {
namespace {

constexpr size_t kWindow = 8;  // slots under way at a time: 16 MiB of staging

double Seconds(int64_t start) { return static_cast<double>(os::Clock::System()->NowNanos() - start) * 1e-9; }

double ProcessCpuSeconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

[[noreturn]] void Die(const std::string& text) {
  std::fprintf(stderr, "io_engine_bench: %s\n", text.c_str());
  std::exit(1);
}

// The store, driven as an evictor drives it: a window of slots under way, the next one when one is done.
class StoreFile {
 public:
  StoreFile(const std::string& directory, uint64_t bytes, EngineKind engine, ChecksumMode checksum) {
    SpillStoreOptions options;
    options.directories = {SpillDirectory{directory, 0}};
    options.disk_reserve_bytes = 1;
    options.allow_any_file_system = true;
    options.engine = engine;
    options.checksum = checksum;
    auto store = SpillStore::Create(options);
    if (!store.ok()) {
      error_ = store.status().ToString();
      return;
    }
    store_ = *std::move(store);
    auto slots = store_->ReserveSlots(bytes / kSlotBytes);
    if (!slots.ok()) Die(slots.status().ToString());
    slots_ = *std::move(slots);
  }

  bool works() const { return store_ != nullptr; }
  const std::string& error() const { return error_; }

  double Transfer(bool write, AlignedBuffer* buffer) {
    const int64_t start = os::Clock::System()->NowNanos();
    for (size_t i = 0; i < slots_.size(); ++i) {
      WaitForPlace(kWindow - 1);
      // A slot's place in the buffer is free again: at most kWindow are under way, and they end nearly in order; the
      // bytes do not matter here, except that a read must find what was written, hence one place per slot.
      char* data = buffer->data() + i * uint64_t{kSlotBytes} % buffer->size();
      const auto done = [this](const absl::Status& status) { Done(status); };
      if (write) {
        store_->Write(slots_[i], data, kSlotBytes, done);
      } else {
        store_->Read(slots_[i], data, kSlotBytes, Priority::kDemand, done);
      }
    }
    WaitForPlace(0);
    return static_cast<double>(slots_.size() * uint64_t{kSlotBytes}) / 1e9 / Seconds(start);
  }

 private:
  void WaitForPlace(size_t most) {
    os::MutexLock lock(&mu_);
    while (under_way_ > most) changed_.Wait(&mu_);
    if (most > 0) ++under_way_;
  }

  void Done(const absl::Status& status) {
    if (!status.ok()) Die(status.ToString());
    os::MutexLock lock(&mu_);
    --under_way_;
    changed_.NotifyAll();
  }

  std::string error_;
  std::vector<SlotId> slots_;
  os::Mutex mu_{os::LockRank::kRuntime};
  os::CondVar changed_;
  size_t under_way_ ABSL_GUARDED_BY(mu_) = 0;
  std::unique_ptr<SpillStore> store_;  // last: its callbacks use the above
};

struct Series {
  std::string name;
  std::function<double(bool write, AlignedBuffer*)> transfer;
  std::vector<double> rate[2] = {};        // GB/s of each round; [0] read, [1] write
  std::vector<double> cpu_per_gb[2] = {};  // seconds of processor per GB
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void PrintRow(const Series& series, const Series& plain, int write) {
  const auto [least, most] = std::minmax_element(series.rate[write].begin(), series.rate[write].end());
  const double median = Median(series.rate[write]);
  std::printf("%-26s %-5s %8.2f %8.2f %8.2f %8.2f %10.3f\n", series.name.c_str(),
              write != 0 ? "write" : "read", median, *least, *most, median / Median(plain.rate[write]),
              Median(series.cpu_per_gb[write]));
}

void Run(const std::string& directory, uint64_t bytes, int rounds) {
  AlignedBuffer buffer(64u << 20);
  for (size_t i = 0; i < buffer.size(); ++i) buffer.data()[i] = static_cast<char>(i * 2654435761u >> 13);
  bench::PlainFile plain(directory, bytes);
  std::vector<std::unique_ptr<StoreFile>> stores;
  std::vector<Series> all;
  all.push_back(
      {"plain pread/pwrite", [&plain](bool write, AlignedBuffer* b) { return plain.Transfer(write, b); }});
  const auto add = [&](const std::string& name, EngineKind engine, ChecksumMode checksum) {
    auto store = std::make_unique<StoreFile>(directory, bytes, engine, checksum);
    if (!store->works()) {
      std::printf("%s does not work here: %s\n", name.c_str(), store->error().c_str());
      return;
    }
    StoreFile* raw = store.get();
    stores.push_back(std::move(store));
    all.push_back({name, [raw](bool write, AlignedBuffer* b) { return raw->Transfer(write, b); }});
  };
  add("store, threads", EngineKind::kThreads, ChecksumMode::kOn);
  add("store, threads, no sums", EngineKind::kThreads, ChecksumMode::kOff);
  add("store, io_uring", EngineKind::kUring, ChecksumMode::kOn);
  add("store, io_uring, no sums", EngineKind::kUring, ChecksumMode::kOff);
  for (int round = -1; round < rounds; ++round) {  // the first one only fills the preallocated blocks
    for (Series& series : all) {
      for (const int write : {1, 0}) {
        const double cpu = ProcessCpuSeconds();
        const double rate = series.transfer(write != 0, &buffer);
        if (round < 0) continue;
        series.rate[write].push_back(rate);
        series.cpu_per_gb[write].push_back((ProcessCpuSeconds() - cpu) / (static_cast<double>(bytes) / 1e9));
      }
    }
  }
  std::printf("%-26s %-5s %8s %8s %8s %8s %10s\n", "", "", "GB/s", "least", "most", "ratio", "cpu s/GB");
  for (const Series& series : all) {
    for (const int write : {1, 0}) PrintRow(series, all[0], write);
  }
}

void PrintChecksum() {
  AlignedBuffer buffer(kSlotBytes);
  for (size_t i = 0; i < buffer.size(); ++i) buffer.data()[i] = static_cast<char>(i * 2654435761u >> 13);
  std::vector<double> rates;
  uint64_t sink = 0;
  for (int i = 0; i < 50; ++i) {
    const int64_t start = os::Clock::System()->NowNanos();
    sink ^= ComputeChecksum(buffer.data(), buffer.size(), static_cast<uint64_t>(i)).low;
    rates.push_back(static_cast<double>(kSlotBytes) / 1e9 / Seconds(start));
  }
  std::printf("checksum of 2 MiB, one core: %.1f GB/s (%llx)\n", Median(rates),
              static_cast<unsigned long long>(sink));
}

}  // namespace
}  // namespace spillway::io

int main(int argc, char** argv) {
  std::string directory = ".";
  uint64_t mebibytes = 512;
  int rounds = 5;
  spillway::CommandLine line{"Throughput of the spill store next to plain O_DIRECT transfers"};
  line.Add("--dir", &directory, "a directory on the disk to measure");
  line.Add("--mib", &mebibytes, "MiB moved in each round", 64, 1 << 20);
  line.Add("--rounds", &rounds, "rounds; medians are printed", 1, 1000);
  line.Parse(argc, argv);
  utsname machine{};
  uname(&machine);
  std::printf("%s %s, %u processors; %llu MiB a round in slots of 2 MiB, requests of 512 KiB, %d rounds\n",
              machine.sysname, machine.release, std::thread::hardware_concurrency(),
              static_cast<unsigned long long>(mebibytes), rounds);
  spillway::io::PrintChecksum();
  spillway::io::Run(directory, mebibytes << 20, rounds);
  return 0;
}
