// What the spill store costs: GB/s and processor time of 2 MiB slots written and read through it, next to
// plain O_DIRECT pwrite and pread of the same bytes by as many threads, and next to fio, in the same run on
// the same file system. Disks differ by their mood, so the figures to keep are ratios, of the medians of
// alternating rounds.
//
//   io_engine_bench [--against-fio] [--json] [--dir DIRECTORY] [--mib N] [--rounds N]

#include <sys/utsname.h>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/fio.h"
#include "bench/plain_file.h"
#include "io/engine/aligned_buffer.h"
#include "io/os/clock.h"
#include "io/os/sync.h"
#include "io/store/checksum.h"
#include "io/store/completion_pool.h"
#include "io/store/spill_store.h"
#include "tests/command_line.h"

namespace spillway::io {
namespace {

using bench::Direction;
using bench::FioWay;
using bench::TransferStats;

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
  StoreFile(const std::string& directory, uint64_t bytes, EngineKind engine, ChecksumMode checksum,
            std::shared_ptr<const SlotCipher> cipher) {
    SpillStoreOptions options;
    options.directories = {SpillDirectory{directory, 0}};
    options.disk_reserve_bytes = 1;
    options.allow_any_file_system = true;
    options.engine = engine;
    options.checksum = checksum;
    options.cipher = std::move(cipher);
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
    // A read that is converted has its place in the buffer for itself.
    FreePlaces(buffer->size() / kSlotBytes);
    for (const SlotId slot : slots_) {
      const size_t place = TakePlace();
      char* const data = buffer->data() + place * uint64_t{kSlotBytes};
      const auto done = [this, place](const absl::Status& status) { Done(place, status); };
      if (write) {
        store_->Write(slot, data, kSlotBytes, done);
      } else {
        store_->Read(slot, data, kSlotBytes, Priority::kDemand, done);
      }
    }
    WaitForAll();
    return static_cast<double>(slots_.size() * uint64_t{kSlotBytes}) / 1e9 / Seconds(start);
  }

 private:
  void FreePlaces(size_t count) {
    os::MutexLock lock(&mu_);
    places_.resize(count);
    std::iota(places_.begin(), places_.end(), size_t{0});
  }

  size_t TakePlace() {
    os::MutexLock lock(&mu_);
    while (under_way_ == kWindow) changed_.Wait(&mu_);
    ++under_way_;
    const size_t place = places_.front();
    places_.pop_front();
    return place;
  }

  void WaitForAll() {
    os::MutexLock lock(&mu_);
    while (under_way_ > 0) changed_.Wait(&mu_);
  }

  void Done(size_t place, const absl::Status& status) {
    if (!status.ok()) Die(status.ToString());
    os::MutexLock lock(&mu_);
    places_.push_back(place);
    --under_way_;
    changed_.NotifyAll();
  }

  std::string error_;
  std::vector<SlotId> slots_;
  os::Mutex mu_{os::LockRank::kRuntime};
  os::CondVar changed_;
  size_t under_way_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<size_t> places_ ABSL_GUARDED_BY(mu_);  // of the buffer, that are free; more than kWindow
  std::unique_ptr<SpillStore> store_;               // last: its callbacks use the above
};

struct Series {
  std::string name;
  size_t fio = 0;  // the place in the list of the series of fio that goes the same way; 0: none
  std::vector<double> rate[2] = {};        // GB/s of each round, by Direction
  std::vector<double> cpu_per_gb[2] = {};  // seconds of processor per GB
};

// Series, and why others are not there.
struct Measured {
  std::vector<Series> series;  // the first one is plain
  std::vector<std::string> missing;
  std::string fio;           // its version; empty: it was not asked for
  double checksum_rate = 0;  // GB/s of one core
  double pool_speedup = 0;   // of the pool for four drives over that for one, where hashes are modelled
};

constexpr Direction kDirections[] = {Direction::kWrite, Direction::kRead};

const char* NameOf(Direction direction) { return direction == Direction::kWrite ? "write" : "read"; }

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The processor's time is that of this whole process.
TransferStats InThisProcess(uint64_t bytes, const std::function<double()>& transfer) {
  const double cpu = ProcessCpuSeconds();
  const double rate = transfer();
  return {rate, (ProcessCpuSeconds() - cpu) / (static_cast<double>(bytes) / 1e9)};
}

// Owns what is measured, and measures it.
class Bench {
 public:
  Bench(std::string directory, uint64_t bytes)
      : directory_(std::move(directory)), bytes_(bytes), plain_(directory_, bytes) {
    for (size_t i = 0; i < buffer_.size(); ++i) buffer_.data()[i] = static_cast<char>(i * 2654435761u >> 13);
  }

  Measured Run(int rounds, bool against_fio) {
    if (against_fio) measured_.fio = fio_.emplace().version();
    Add("plain pread/pwrite", [this](Direction direction) {
      return InThisProcess(bytes_, [&] { return plain_.Transfer(direction == Direction::kWrite, &buffer_); });
    });
    AddEngine("threads", EngineKind::kThreads, FioWay::kThreads);
    AddEngine("io_uring", EngineKind::kUring, FioWay::kUring);
    Measure(rounds);
    measured_.checksum_rate = ChecksumRate();
    measured_.pool_speedup = ModelledHashSeconds(1) / ModelledHashSeconds(4);
    return std::move(measured_);
  }

 private:
  size_t Add(const std::string& name, std::function<TransferStats(Direction)> transfer) {
    transfers_.push_back(std::move(transfer));
    measured_.series.push_back({name});
    return measured_.series.size() - 1;
  }

  // The store over an engine, with checksums, without and encrypted, and fio where it goes the same way.
  void AddEngine(const std::string& name, EngineKind engine, FioWay way) {
    const struct {
      const char* words;
      ChecksumMode checksum;
      bool encrypt;
    } kForms[] = {{"", ChecksumMode::kOn, false},
                  {", no sums", ChecksumMode::kOff, false},
                  {", encrypted", ChecksumMode::kOn, true}};
    size_t fio = 0;
    for (const auto& form : kForms) {
      std::shared_ptr<const SlotCipher> cipher;
      if (form.encrypt) {
        auto made = SlotCipher::Create();
        if (!made.ok()) {
          measured_.missing.push_back(name + form.words + ": " + std::string(made.status().message()));
          continue;
        }
        cipher = *std::move(made);
      }
      auto store = std::make_unique<StoreFile>(directory_, bytes_, engine, form.checksum, std::move(cipher));
      if (!store->works()) {
        measured_.missing.push_back(name + " does not work here: " + store->error());
        return;
      }
      StoreFile* const raw = store.get();
      stores_.push_back(std::move(store));
      if (fio == 0 && fio_)
        fio = Add("fio, " + name, [this, way](Direction direction) {
          return fio_->Transfer(way, direction, plain_.path(), bytes_);
        });
      const size_t place = Add("store, " + name + form.words, [this, raw](Direction direction) {
        return InThisProcess(bytes_, [&] { return raw->Transfer(direction == Direction::kWrite, &buffer_); });
      });
      measured_.series[place].fio = fio;
    }
  }

  // Each round runs through the series the other way, so that none is always behind the same one. The first
  // one only fills the preallocated blocks.
  void Measure(int rounds) {
    for (int round = -1; round < rounds; ++round) {
      for (size_t i = 0; i < transfers_.size(); ++i) {
        const size_t place = round % 2 == 0 ? transfers_.size() - 1 - i : i;
        Series& series = measured_.series[place];
        for (const Direction direction : kDirections) {
          const TransferStats metrics = transfers_[place](direction);
          if (round < 0) continue;
          series.rate[static_cast<size_t>(direction)].push_back(metrics.gb_per_s);
          series.cpu_per_gb[static_cast<size_t>(direction)].push_back(metrics.cpu_s_per_gb);
        }
      }
    }
  }

  // Returns the seconds in which a pool of the size for so many drives, on a machine with enough processors, has
  // hashed 800 slots, where a hash takes 250 us and no processor: so the pool's own order counts, and not the
  // number of this machine's processors.
  static double ModelledHashSeconds(size_t drives) {
    auto pool = CompletionPool::Create(WorkersFor(drives, 64));
    if (!pool.ok()) Die(std::string(pool.status().message()));
    const int64_t start = os::Clock::System()->NowNanos();
    for (int slot = 0; slot < 800; ++slot)
      (*pool)->Post([] { std::this_thread::sleep_for(std::chrono::microseconds(250)); });
    if (!(*pool)->WaitUntilIdle(std::chrono::minutes(1))) Die("the pool has not ended its tasks in a minute");
    return Seconds(start);
  }

  static double ChecksumRate() {
    AlignedBuffer buffer(kSlotBytes);
    for (size_t i = 0; i < buffer.size(); ++i) buffer.data()[i] = static_cast<char>(i * 2654435761u >> 13);
    std::vector<double> rates;
    volatile uint64_t sink = 0;
    for (int i = 0; i < 50; ++i) {
      const int64_t start = os::Clock::System()->NowNanos();
      sink = ComputeChecksum(buffer.data(), buffer.size(), static_cast<uint64_t>(i)).low;
      rates.push_back(static_cast<double>(kSlotBytes) / 1e9 / Seconds(start));
    }
    static_cast<void>(sink);
    return Median(rates);
  }

  const std::string directory_;
  const uint64_t bytes_;
  AlignedBuffer buffer_{64u << 20};
  bench::PlainFile plain_;
  std::optional<bench::Fio> fio_;
  std::vector<std::unique_ptr<StoreFile>> stores_;
  std::vector<std::function<TransferStats(Direction)>> transfers_;  // of each series
  Measured measured_;
};

struct Ratios {
  double rate = 0;
  std::optional<double> cpu;  // none where the other took less processor time than its counter can show
};

Ratios RatiosTo(const Series& other, const Series& series, size_t direction) {
  Ratios ratios;
  ratios.rate = Median(series.rate[direction]) / Median(other.rate[direction]);
  const double other_cpu = Median(other.cpu_per_gb[direction]);
  if (other_cpu > 0) ratios.cpu = Median(series.cpu_per_gb[direction]) / other_cpu;
  return ratios;
}

void PrintTable(const Measured& measured) {
  std::printf("checksum of 2 MiB, one core: %.1f GB/s\n", measured.checksum_rate);
  std::printf("hashes of 250 us each, for four drives over one: %.2f times as many\n", measured.pool_speedup);
  for (const std::string& missing : measured.missing) std::printf("%s\n", missing.c_str());
  if (!measured.fio.empty())
    std::printf("ratios to fio: of GB/s, and of processor time; %s\n", measured.fio.c_str());
  std::printf("%-26s %-5s %8s %8s %8s %8s %10s %8s %8s\n", "", "", "GB/s", "least", "most", "ratio",
              "cpu s/GB", "to fio", "cpu");
  for (const Series& series : measured.series) {
    for (const Direction direction : kDirections) {
      const auto side = static_cast<size_t>(direction);
      const auto [least, most] = std::minmax_element(series.rate[side].begin(), series.rate[side].end());
      std::printf("%-26s %-5s %8.2f %8.2f %8.2f %8.2f %10.3f", series.name.c_str(), NameOf(direction),
                  Median(series.rate[side]), *least, *most, RatiosTo(measured.series[0], series, side).rate,
                  Median(series.cpu_per_gb[side]));
      if (series.fio != 0) {
        const Ratios ratios = RatiosTo(measured.series[series.fio], series, side);
        std::printf(" %8.2f", ratios.rate);
        if (ratios.cpu) std::printf(" %8.2f", *ratios.cpu);
      }
      std::printf("\n");
    }
  }
}

nlohmann::ordered_json Json(const Measured& measured) {
  nlohmann::ordered_json json;
  json["checksum_gb_per_s"] = measured.checksum_rate;
  json["pool_speedup"] = measured.pool_speedup;
  if (!measured.fio.empty()) json["fio"] = measured.fio;
  json["missing"] = measured.missing;
  json["rows"] = nlohmann::ordered_json::array();
  for (const Series& series : measured.series) {
    for (const Direction direction : kDirections) {
      const auto side = static_cast<size_t>(direction);
      const auto [least, most] = std::minmax_element(series.rate[side].begin(), series.rate[side].end());
      nlohmann::ordered_json row = {{"what", series.name + ", " + NameOf(direction)},
                                    {"gb_per_s", Median(series.rate[side])},
                                    {"least_gb_per_s", *least},
                                    {"most_gb_per_s", *most},
                                    {"cpu_s_per_gb", Median(series.cpu_per_gb[side])},
                                    {"rate_to_plain", RatiosTo(measured.series[0], series, side).rate}};
      if (series.fio != 0) {
        const Ratios ratios = RatiosTo(measured.series[series.fio], series, side);
        row["rate_to_fio"] = ratios.rate;
        if (ratios.cpu) row["cpu_to_fio"] = *ratios.cpu;
      }
      json["rows"].push_back(std::move(row));
    }
  }
  return json;
}

}  // namespace
}  // namespace spillway::io

int main(int argc, char** argv) {
  std::string directory = ".";
  uint64_t mebibytes = 512;
  int rounds = 5;
  bool against_fio = false, as_json = false;
  spillway::CommandLine line{"Throughput of the spill store next to plain O_DIRECT transfers, and to fio"};
  line.Add("--against-fio", &against_fio, "run fio in each round, too");
  line.Add("--json", &as_json, "print the figures as JSON");
  line.Add("--dir", &directory, "a directory on the disk to measure");
  line.Add("--mib", &mebibytes, "MiB moved in each round", 64, 1 << 20);
  line.Add("--rounds", &rounds, "rounds; medians are printed", 1, 1000);
  line.Parse(argc, argv);
  utsname machine{};
  uname(&machine);
  const spillway::io::Measured measured =
      spillway::io::Bench(directory, mebibytes << 20).Run(rounds, against_fio);
  const unsigned processors = std::thread::hardware_concurrency();
  if (as_json) {
    nlohmann::ordered_json json = {{"system", std::string(machine.sysname) + " " + machine.release},
                                   {"processors", processors},
                                   {"mib", mebibytes},
                                   {"rounds", rounds}};
    json.update(spillway::io::Json(measured));
    std::printf("%s\n", json.dump(1).c_str());
    return 0;
  }
  std::printf("%s %s, %u processors; %llu MiB a round in slots of 2 MiB, requests of 512 KiB, %d rounds\n",
              machine.sysname, machine.release, processors, static_cast<unsigned long long>(mebibytes),
              rounds);
  spillway::io::PrintTable(measured);
  return 0;
}
