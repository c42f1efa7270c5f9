#include "tests/allocator/core_model.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>

#include "io/os/check.h"
#include "policy/model/plan.h"
#include "tests/allocator/model_worker.h"
#include "tests/fakes/faulty_engine.h"
#include "tests/fakes/memory_engine.h"

namespace spillway::allocator {
namespace {

std::atomic<uint64_t> delay_state{1};
std::atomic<uint32_t> delay_one_in{64};

// Sleeps now and then; around the commit point more often, where little else takes time.
void RandomDelay(const char* point) {
  uint64_t x = delay_state.fetch_add(0x9E3779B97F4A7C15u);
  x ^= x >> 31;
  x *= 0xD6E8FEB86659FD93u;
  const bool commit = std::strstr(point, "commit") != nullptr;
  const bool committed = std::strcmp(point, "evictor.committed") == 0;  // long: a free is to fall into it
  const uint32_t one_in = commit ? 8 : delay_one_in.load();
  if ((x >> 40) % one_in == 0) usleep((x >> 32) % (committed ? 3000 : 300));
}

// Memory instead of a disk for most seeds; for some a plan of failures that a retry or the GPU's copy
// survives.
std::function<std::unique_ptr<io::IoEngine>(std::unique_ptr<io::IoEngine>, size_t)> EngineFor(
    const ModelOptions& options, std::shared_ptr<io::FaultCounters> counters) {
  const int seed = options.seed;
  const bool failures = options.failures && seed % 3 == 2;
  const bool memory = seed % 4 != 0;
  if (!memory && !failures) return nullptr;
  return [=](std::unique_ptr<io::IoEngine> real, size_t) {
    io::MemoryEngineOptions slow;
    slow.latency = std::chrono::microseconds(seed % 2 * 100);
    std::unique_ptr<io::IoEngine> engine = memory ? io::MakeMemoryEngine(slow) : std::move(real);
    if (!failures) return engine;
    io::FaultPlan plan;
    for (uint64_t at = 200; at < 100'000; at += 500) {
      plan.faults.push_back({io::FaultKind::kErrno, io::IoOp::kWrite, at, 1});
      plan.faults.push_back({io::FaultKind::kErrno, io::IoOp::kRead, at, 1});
      plan.faults.push_back({io::FaultKind::kShort, io::IoOp::kRead, at + 100, 1, 0, 4096});
      plan.faults.push_back(
          {io::FaultKind::kDelay, io::IoOp::kRead, at + 150, 20, 0, 0, std::chrono::milliseconds(1)});
      plan.faults.push_back(
          {io::FaultKind::kDelay, io::IoOp::kWrite, at + 250, 20, 0, 0, std::chrono::milliseconds(1)});
    }
    for (uint64_t at = 450; at < 1200; at += 500) {  // a write and its retry: the block stays on the GPU
      plan.faults.push_back({io::FaultKind::kErrno, io::IoOp::kWrite, at, 3});
    }
    return io::MakeFaultyEngine(std::move(engine), plan, counters);
  };
}

void SetDriverFailures(const ModelOptions& options) {
  const bool failures = options.failures;
  SetSimcuda("FAIL_SET_ACCESS_EVERY", failures && options.seed % 4 == 1 ? "7" : "0");
  SetSimcuda("FAIL_CREATE_EVERY", failures && options.seed % 4 == 2 ? "5" : "0");
  SetSimcuda("FAIL_COPY_EVERY", failures && options.seed % 4 == 3 ? "499" : "0");
}

void AddJob(const ModelJob& job, uint64_t injected, Coverage* coverage) {
  coverage->pins += job.pins;
  coverage->pauses_of_all += job.pauses_of_all;
  coverage->pauses_of_regions += job.pauses_of_regions;
  coverage->streams_destroyed += job.streams_destroyed;
  coverage->freed_by_others += job.freed_by_others;
  coverage->host_copies += job.host_copies;
  coverage->pinned_launches += job.pinned_launches;
  coverage->injected_disk_faults += injected;
  coverage->refused_launches += job.refused;
}

}  // namespace

ModelOptions ModelOptions::FromSeed(int seed, int operations) {
  ModelOptions options;
  options.seed = seed;
  options.operations = operations;
  options.host_bytes = (seed % 3) * (512 << 10);
  return options;
}

ModelResult RunModel(const ModelOptions& options, Coverage* coverage) {
  const int seed = options.seed;
  delay_state.store(seed * 7919 + 1);
  delay_one_in.store(options.delay_one_in);
  delay_function.store(&RandomDelay);
  const auto faults = std::make_shared<io::FaultCounters>();
  CoreSetup setup;
  setup.budget_bytes = (24 + seed % 5 * 4) * kChunk;
  setup.host_bytes = options.host_bytes;
  setup.largest_handle = uint32_t{1} << seed % 7;
  setup.disk = options.disk;
  if (options.disk) setup.wrap_engine = EngineFor(options, faults);
  setup.free_reserve_bytes = seed % 2 * 4 * kChunk;
  setup.run_ahead_bytes = 16 * kChunk;
  FixedHashCode hash_code;
  if (options.hash) setup.hash_code = &hash_code;
  const int threads = 1 + seed % 3;
  ModelJob job;
  setup.pause_gate = &job.gate;
  job.drops = seed % 2 == 0;
  job.most_chunks = setup.budget_bytes / kChunk - threads * (kExternalChunks + kPinnedChunks);
  ModelResult result;
  {
    CoreDevice device(setup);
    job.device = &device;
    SetCopyBandwidth(options.copy_bandwidth);
    SetDriverFailures(options);
    std::vector<std::function<void(int)>> workers;
    std::vector<std::thread> pool;
    for (int i = 0; i < threads; ++i) {
      workers.push_back(MakeModelWorker(&job, seed * 100 + i, 1 + seed % 4, options.blocks_per_thread));
    }
    for (auto& worker : workers) pool.emplace_back([&] { worker(options.operations / threads); });
    for (std::thread& thread : pool) thread.join();
    for (const ModelBlock& block : job.handed_over) SPILLWAY_CHECK(device->Free(block.address).ok());
    device.Synchronize();
    device->CheckInvariants();
    const ResidencyStats stats = device->Stats();
    SPILLWAY_CHECK(stats.live_bytes == 0 && stats.peak_chunk_bytes <= stats.budget_bytes);
    ModelOptions none;
    none.failures = false;
    SetDriverFailures(none);
    SetCopyBandwidth("0");
    if (coverage != nullptr) coverage->Add(device.residency());
  }
  delay_function.store(nullptr);
  result.wrong_words = job.wrong_words;
  result.refused_launches = job.refused;
  result.may_refuse = options.failures && (seed % 4 == 2 || seed % 4 == 3 || seed % 3 == 2);
  if (coverage == nullptr) return result;
  AddJob(job, faults->injected, coverage);
  return result;
}

}  // namespace spillway::allocator
