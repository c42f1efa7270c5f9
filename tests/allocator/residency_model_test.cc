// Random operations against a model: each block's bytes are a function of a version number that the model knows, and
// every kernel checks what it reads and writes a new version. Several threads and streams, delay points around the
// launch and inside evictions and fetches, both tiers. Then the same with a rule left out, which must be noticed.
//
//   residency_model_test --seeds=20 --operations=100000 [--first-seed=1]

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <random>
#include <thread>

#include "allocator/residency/test_points.h"
#include "tests/allocator/core_fixture.h"

namespace spillway::allocator {
namespace {

int seeds = 3;
int operations = 15000;
int first_seed = 1;

// What the seeds together have taken, so that the test can say that it went everywhere.
struct Coverage {
  uint64_t moves[kBlockStates][kBlockStates] = {};
  uint64_t cancelled[5] = {};
  uint64_t chunk_paths[static_cast<int>(ChunkPath::kCount)] = {};
  uint64_t allocation_paths[static_cast<int>(AllocationPath::kCount)] = {};

  void Add(DeviceResidency& residency) {
    Core* const core = residency.core();
    os::MutexLock lock(&core->table.mu);
    for (int from = 0; from < kBlockStates; ++from) {
      for (int to = 0; to < kBlockStates; ++to) {
        moves[from][to] += core->table.MovesLocked(static_cast<BlockState>(from), static_cast<BlockState>(to));
      }
    }
    for (int i = 0; i < 5; ++i) cancelled[i] += residency.thread()->evictor()->cancelled_in_phase[i];
    for (int i = 0; i < static_cast<int>(ChunkPath::kCount); ++i) chunk_paths[i] += core->chunk_paths[i];
    for (int i = 0; i < static_cast<int>(AllocationPath::kCount); ++i) allocation_paths[i] += core->allocation_paths[i];
  }
};

struct ModelBlock {
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
  uint64_t version = 0;   // 0: never written
  CUstream last = nullptr;  // stream of the last launch: another one must wait for it, as an application would
};

// Shared by the kernels of one run.
struct Findings {
  std::atomic<uint64_t> wrong_words{0};
  std::atomic<uint64_t> refused{0};
};

std::atomic<uint64_t> delay_state{1};
void RandomDelay(const char*) {
  uint64_t x = delay_state.fetch_add(0x9E3779B97F4A7C15u);
  x ^= x >> 31;
  x *= 0xD6E8FEB86659FD93u;
  if ((x >> 40) % 64 == 0) {
    usleep((x >> 32) % 300);
  } else if ((x >> 40) % 8 == 0) {
    std::this_thread::yield();
  }
}

// One application thread: its own blocks, some streams of its own.
class Worker {
 public:
  Worker(CoreDevice* device, int seed, int streams, Findings* findings)
      : device_(device), findings_(findings), random_(seed) {
    for (int i = 0; i < streams; ++i) streams_.push_back(i == 0 ? nullptr : device->NewStream());
    CoreDevice::Driver()->cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING);
  }

  void Run(int count) {
    CoreDevice::Driver()->cuCtxSetCurrent(CoreDevice::Context());
    for (int i = 0; i < count && findings_->wrong_words.load() == 0; ++i) {
      Step();
      if (i % 512 == 0) (*device_)->CheckInvariants();
    }
    for (ModelBlock& block : blocks_) EXPECT_TRUE((*device_)->Free(block.address).ok());
  }

 private:
  uint32_t Pick(uint32_t below) { return static_cast<uint32_t>(random_() % below); }

  void Step() {
    const uint32_t what = Pick(100);
    if (what < 14 || blocks_.empty()) {
      Allocate();
    } else if (what < 26) {
      FreeOne();
    } else if (what < 90) {
      Launch(1 + Pick(4));
    } else if (what < 93) {
      device_->Synchronize();
    } else if (what < 96) {
      RecordAndFree();
    } else if (what < 97) {
      usleep(Pick(500));
    } else if (what < 98) {
      (*device_)->OnForeignBytes(64 << 10);
      Launch(1);
      (*device_)->OnForeignBytes(-(64 << 10));
    } else if (Pick(20) == 0) {
      EXPECT_TRUE((*device_)->EmptyCache().ok());
    } else {
      AllocateAndFreeUnused();
    }
  }

  void Allocate() {
    if (blocks_.size() > 24) return;
    const uint64_t bytes = (1 + Pick(11)) * CoreDevice::kChunk - 512 * Pick(100);
    const CUstream stream = streams_[Pick(streams_.size())];
    absl::StatusOr<CUdeviceptr> address = (*device_)->Allocate(bytes, {stream, false});
    if (!address.ok()) {
      ++findings_->refused;
      return;
    }
    blocks_.push_back({*address, bytes, 0, stream});
  }

  void AllocateAndFreeUnused() {
    absl::StatusOr<CUdeviceptr> address = (*device_)->Allocate((1 + Pick(4)) * CoreDevice::kChunk, {});
    if (!address.ok()) return;
    EXPECT_TRUE((*device_)->Free(*address).ok());
  }

  void FreeOne() {
    const size_t at = Pick(blocks_.size());
    EXPECT_TRUE((*device_)->Free(blocks_[at].address).ok());
    blocks_.erase(blocks_.begin() + at);
  }

  void RecordAndFree() {
    const size_t at = Pick(blocks_.size());
    const CUstream stream = streams_[Pick(streams_.size())];
    MakeWait(stream, blocks_[at].last);
    EXPECT_TRUE((*device_)->RecordStream(blocks_[at].address, stream).ok());
    EXPECT_TRUE((*device_)->Free(blocks_[at].address).ok());
    blocks_.erase(blocks_.begin() + at);
  }

  // What cudaStreamWaitEvent does for an application that uses a block on another stream.
  void MakeWait(CUstream stream, CUstream for_stream) {
    if (stream == for_stream) return;
    CoreDevice::Driver()->cuEventRecord(event_, for_stream);
    CoreDevice::Driver()->cuStreamWaitEvent(stream, event_, 0);
  }

  void Launch(uint32_t count) {
    const CUstream stream = streams_[Pick(streams_.size())];
    std::vector<size_t> chosen;
    for (uint32_t i = 0; i < count && !blocks_.empty(); ++i) {
      const size_t at = Pick(blocks_.size());
      if (std::find(chosen.begin(), chosen.end(), at) == chosen.end()) chosen.push_back(at);
    }
    struct Part {
      uint64_t bytes, before, after;
    };
    std::vector<Part> parts;
    std::vector<CUdeviceptr> addresses;
    for (size_t at : chosen) {
      ModelBlock& block = blocks_[at];
      MakeWait(stream, block.last);
      const uint64_t after = block.version == 0 || Pick(2) == 0 ? ++last_version_ : block.version;
      parts.push_back({block.bytes, block.version, after});
      addresses.push_back(block.address);
    }
    Findings* const findings = findings_;
    const int sleep = Pick(50) == 0 ? 200 : 0;
    const CUresult result = device_->Launch(stream, addresses, [parts, findings, sleep](const auto& given) {
      if (sleep > 0) usleep(sleep);
      for (size_t i = 0; i < parts.size(); ++i) {
        if (parts[i].before != 0) {
          findings->wrong_words += CoreDevice::Differences(given[i], parts[i].bytes, parts[i].before);
        }
        if (parts[i].after != parts[i].before) CoreDevice::Fill(given[i], parts[i].bytes, parts[i].after);
      }
    });
    if (result != CUDA_SUCCESS) {
      ++findings_->refused;
      return;
    }
    for (size_t i = 0; i < chosen.size(); ++i) {
      blocks_[chosen[i]].version = parts[i].after;
      blocks_[chosen[i]].last = stream;
    }
  }

  CoreDevice* const device_;
  Findings* const findings_;
  std::mt19937_64 random_;
  std::vector<CUstream> streams_;
  CUevent event_ = nullptr;
  std::vector<ModelBlock> blocks_;
  uint64_t last_version_ = 0;
};

// Runs one seed; returns wrong words found.
uint64_t RunSeed(int seed, int count, Coverage* coverage) {
  delay_state.store(seed * 7919 + 1);
  delay_function.store(&RandomDelay);
  CoreSetup setup;
  setup.host_bytes = (seed % 3) * (1 << 20);
  setup.free_reserve_bytes = (seed % 2) * (256 << 10);
  setup.run_ahead_bytes = 2 << 20;
  const int threads = 1 + seed % 3;
  const int streams = 1 + seed % 4;
  Findings findings;
  {
    CoreDevice device(setup);
    std::vector<std::thread> pool;
    std::vector<std::unique_ptr<Worker>> workers;
    for (int i = 0; i < threads; ++i) {
      workers.push_back(std::make_unique<Worker>(&device, seed * 100 + i, streams, &findings));
      pool.emplace_back([&, i] { workers[i]->Run(count / threads); });
    }
    for (std::thread& thread : pool) thread.join();
    device.Synchronize();
    device->CheckInvariants();
    if (coverage != nullptr) coverage->Add(device.residency());
    const ResidencyStats stats = device->Stats();
    EXPECT_EQ(stats.live_bytes, 0u);
    EXPECT_LE(stats.peak_device_bytes, stats.budget_bytes);
  }
  delay_function.store(nullptr);
  return findings.wrong_words.load();
}

TEST(ResidencyModelTest, RandomOperationsKeepEveryByte) {
  Coverage coverage;
  for (int seed = first_seed; seed < first_seed + seeds; ++seed) {
    ASSERT_EQ(RunSeed(seed, operations, &coverage), 0u) << "seed " << seed;
  }
  // The thinnest path must still have been walked often; the full run asks for 100 of each.
  const uint64_t least = static_cast<uint64_t>(seeds) * operations >= 1'000'000 ? 100 : 1;
  for (int from = 0; from < kBlockStates; ++from) {
    for (int to = 0; to < kBlockStates; ++to) {
      const auto a = static_cast<BlockState>(from);
      const auto b = static_cast<BlockState>(to);
      if (!CanTransition(a, b) || a == BlockState::kLost || b == BlockState::kLost) continue;
      std::printf("%-10s -> %-10s %10lu\n", NameOf(a), NameOf(b), coverage.moves[from][to]);
      EXPECT_GE(coverage.moves[from][to], least) << NameOf(a) << " -> " << NameOf(b);
    }
  }
  for (int phase = 1; phase <= 3; ++phase) {
    std::printf("cancelled in phase %d %10lu\n", phase, coverage.cancelled[phase]);
    EXPECT_GE(coverage.cancelled[phase], least) << "phase " << phase;
  }
  for (uint64_t taken : coverage.chunk_paths) EXPECT_GE(taken, least);
  for (uint64_t taken : coverage.allocation_paths) EXPECT_GE(taken, least);
}

}  // namespace
}  // namespace spillway::allocator

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    std::sscanf(argv[i], "--seeds=%d", &spillway::allocator::seeds);
    std::sscanf(argv[i], "--operations=%d", &spillway::allocator::operations);
    std::sscanf(argv[i], "--first-seed=%d", &spillway::allocator::first_seed);
  }
  return RUN_ALL_TESTS();
}
