#include "tests/allocator/core_model.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>

#include "io/os/check.h"
#include "policy/plan.h"
#include "tests/fakes/faulty_engine.h"
#include "tests/fakes/memory_engine.h"

namespace spillway::allocator {
namespace {

constexpr uint64_t kChunk = CoreDevice::kChunk;

struct ModelBlock {
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
  uint64_t version = 0;      // 0: never written
  CUstream owner = nullptr;  // may reuse the block as soon as it is freed
  CUstream last = nullptr;   // stream of the last launch: others must wait for it, as an application would
  bool held = false;
  uint64_t used = 0;  // count of the last launch
};

// What each thread may take at a time besides the sets of its launches.
constexpr uint64_t kForeignChunks = 2;
constexpr uint64_t kHeldChunks = 2;

// Shared by the threads and kernels of one run.
struct Job {
  CoreDevice* device = nullptr;
  uint64_t most_chunks = 0;  // that one launch may name: room for it is there whatever else the threads hold
  std::atomic<uint64_t> wrong_words{0}, refused{0}, holds{0}, streams_destroyed{0}, freed_by_others{0};
  std::atomic<uint64_t> host_copies{0}, pinned_launches{0}, last_version{0};
  std::mutex mu;
  std::vector<ModelBlock> handed_over;  // given by one thread, to be used or freed by another
};

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

// One application thread: its own blocks, some streams of its own.
class Worker {
 public:
  Worker(Job* job, int seed, int streams, int most_blocks)
      : job_(job), device_(*job->device), random_(seed), most_blocks_(most_blocks) {
    for (int i = 0; i < streams; ++i) streams_.push_back(i == 0 ? nullptr : device_.NewStream());
    side_ = device_.NewStream();
    SPILLWAY_CHECK(CoreDevice::Driver()->cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  }

  void Run(int count) {
    CoreDevice::Driver()->cuCtxSetCurrent(CoreDevice::Context());
    for (int i = 0; i < count && job_->wrong_words.load() == 0; ++i) {
      Step();
      if (i % 128 == 0) device_->CheckInvariants();
    }
    while (!blocks_.empty()) FreeAt(blocks_.size() - 1);
    Settle();
  }

 private:
  struct HostBuffer {
    std::unique_ptr<uint64_t[]> words;
    uint64_t bytes = 0;
    uint64_t version = 0;  // to be found there once the copy out has ended; 0: a copy in
  };

  uint32_t Pick(uint64_t below) { return static_cast<uint32_t>(random_() % below); }
  CUstream AnyStream() {
    const uint32_t what = Pick(12);
    if (what == 0) return CU_STREAM_PER_THREAD;
    if (what == 1) return side_;
    return streams_[Pick(streams_.size())];
  }

  void Step() {
    const uint32_t what = Pick(1000);
    if (what < 140 || blocks_.empty()) return Allocate();
    if (what < 250) return FreeAt(Pick(2) == 0 ? LongestIdle() : Pick(blocks_.size()));
    if (what < 782) return Launch(1 + Pick(4), CoreDevice::Way::kGate);
    if (what < 790) return CopyEarly();
    if (what < 830) return Launch(1 + Pick(3), CoreDevice::Way::kPins);
    if (what < 870) return CopyIn();
    if (what < 900) return CopyOut();
    if (what < 920) return Settle();
    if (what < 945) return ChangePlan();
    if (what < 960) return HandOver();
    if (what < 972) return TakeOver();
    if (what < 977) return DestroySide();
    if (what < 982) return ForeignMemory();
    if (what < 984) return HoldOne();
    if (what < 985) return (void)device_->EmptyCache();
    if (what < 990) return (void)usleep(Pick(300));
    if (what < 996) return FreeLeaving();
    AllocateAndFreeUnused();
  }

  void Allocate() {
    if (blocks_.size() >= most_blocks_) return;
    const uint64_t chunks = Pick(8) == 0 ? 1 + Pick(8) : 1 + Pick(3);
    const uint64_t bytes = chunks * kChunk - 512 * Pick(100);
    const CUstream stream = streams_[Pick(streams_.size())];
    absl::StatusOr<CUdeviceptr> address = device_->Allocate(bytes, {stream, false});
    if (address.ok()) blocks_.push_back({*address, bytes, 0, stream, stream});
  }

  void AllocateAndFreeUnused() {
    absl::StatusOr<CUdeviceptr> address = device_->Allocate((1 + Pick(4)) * kChunk, {});
    if (address.ok()) SPILLWAY_CHECK(device_->Free(*address).ok());
  }

  // Frees the first block that is seen between the commit point of its eviction and the end of it: a short while, so
  // it is looked for.
  void FreeLeaving() {
    for (int look = 0; look < 40; ++look) {
      for (size_t i = 0; i < blocks_.size(); ++i) {
        if (IsLeaving(blocks_[i].address)) return FreeAt(i);
      }
      usleep(20);
    }
  }
  // As a plan would: copied out where it lies, if it may leave.
  void CopyEarly() {
    Core* const core = device_.residency().core();
    const CUdeviceptr address = blocks_[LongestIdle()].address;
    {
      const TableLock lock(core->table);
      Block& block = core->table.at(device_.addresses().Find(address));
      const bool may_leave = block.state == BlockState::kResident && block.pins == 0 &&
                             block.held_reasons == 0 && block.eviction.job == nullptr &&
                             !block.memory.mapping;
      if (may_leave) device_.residency().evictor()->CopyOutLocked(lock, &block, policy::PlanTier::kHost);
    }
    device_.residency().thread()->Wake();
  }
  bool IsLeaving(CUdeviceptr address) {
    Core* const core = device_.residency().core();
    const TableLock lock(core->table);
    const Block& block = core->table.at(device_.addresses().Find(address));
    return block.state == BlockState::kEvicting && block.eviction.job != nullptr &&
           block.eviction.job->committed;
  }

  // The likeliest to be on its way out.
  size_t LongestIdle() const {
    const auto before = [](const ModelBlock& a, const ModelBlock& b) { return a.used < b.used; };
    const auto written = [](const ModelBlock& block) { return block.used > 0; };
    auto best = std::find_if(blocks_.begin(), blocks_.end(), written);
    if (best == blocks_.end()) return 0;
    for (auto it = best; it != blocks_.end(); ++it) {
      if (written(*it) && before(*it, *best)) best = it;
    }
    return best - blocks_.begin();
  }

  // Frees as PyTorch does: either the owner's stream waits for the last use, or that is recorded.
  void FreeAt(size_t at) {
    const ModelBlock block = blocks_[at];
    blocks_.erase(blocks_.begin() + at);
    if (block.last != block.owner && Pick(2) == 0) {
      SPILLWAY_CHECK(device_->RecordStream(block.address, block.last).ok());
    } else {
      MakeWait(block.owner, block.last);
    }
    SPILLWAY_CHECK(device_->Free(block.address).ok());
  }

  // What cudaStreamWaitEvent does for an application that uses a block on another stream.
  void MakeWait(CUstream stream, CUstream for_stream) {
    if (stream == for_stream) return;
    SPILLWAY_CHECK(CoreDevice::Driver()->cuEventRecord(event_, for_stream) == CUDA_SUCCESS);
    SPILLWAY_CHECK(CoreDevice::Driver()->cuStreamWaitEvent(stream, event_, 0) == CUDA_SUCCESS);
  }

  void Launch(uint32_t count, CoreDevice::Way way) {
    const CUstream stream = AnyStream();
    std::vector<size_t> chosen;
    uint64_t chunks = 0;
    for (uint32_t i = 0; i < count; ++i) {
      const size_t at = Pick(blocks_.size());
      if (std::find(chosen.begin(), chosen.end(), at) != chosen.end()) continue;
      const uint64_t more = (blocks_[at].bytes + kChunk - 1) / kChunk;
      if (chunks + more > job_->most_chunks) continue;
      chunks += more;
      chosen.push_back(at);
    }
    struct Part {
      uint64_t bytes, before, after;
    };
    std::vector<Part> parts;
    std::vector<CUdeviceptr> addresses;
    for (size_t at : chosen) {
      ModelBlock& block = blocks_[at];
      MakeWait(stream, block.last);
      const uint64_t after = block.version == 0 || Pick(2) == 0 ? ++job_->last_version : block.version;
      parts.push_back({block.bytes, block.version, after});
      addresses.push_back(block.address);
    }
    const int sleep = Pick(50) == 0 ? 200 : 0;
    const auto body = [parts, sleep, job = job_](const auto& given) {
      if (sleep > 0) usleep(sleep);
      for (size_t i = 0; i < parts.size(); ++i) {
        if (parts[i].before != 0) {
          job->wrong_words += CoreDevice::Differences(given[i], parts[i].bytes, parts[i].before);
        }
        if (parts[i].after != parts[i].before) CoreDevice::Fill(given[i], parts[i].bytes, parts[i].after);
      }
    };
    job_->pinned_launches += way == CoreDevice::Way::kPins;
    if (!Passed(device_.Launch(stream, addresses, body, 1, way))) return;
    for (size_t i = 0; i < chosen.size(); ++i) {
      blocks_[chosen[i]].version = parts[i].after;
      blocks_[chosen[i]].last = stream;
      blocks_[chosen[i]].used = ++uses_;
    }
  }

  bool Passed(CUresult result) {
    if (result != CUDA_SUCCESS) ++job_->refused;
    return result == CUDA_SUCCESS;
  }

  HostBuffer* NewBuffer(uint64_t bytes) {
    buffers_.push_back({std::make_unique<uint64_t[]>(bytes / 8 + 1), bytes, 0});
    return &buffers_.back();
  }

  void CopyIn() {
    ModelBlock& block = blocks_[Pick(blocks_.size())];
    const CUstream stream = streams_[Pick(streams_.size())];
    MakeWait(stream, block.last);
    const uint64_t version = ++job_->last_version;
    HostBuffer* const buffer = NewBuffer(block.bytes);
    CoreDevice::Fill(reinterpret_cast<CUdeviceptr>(buffer->words.get()), block.bytes, version);
    if (!Passed(device_.CopyIn(stream, block.address, buffer->words.get(), block.bytes))) return;
    ++job_->host_copies;
    block.version = version;
    block.last = stream;
  }

  void CopyOut() {
    ModelBlock& block = blocks_[Pick(blocks_.size())];
    if (block.version == 0) return;
    const CUstream stream = streams_[Pick(streams_.size())];
    MakeWait(stream, block.last);
    HostBuffer* const buffer = NewBuffer(block.gate.bytes);
    if (!Passed(device_.CopyOut(stream, buffer->words.get(), block.address, block.gate.bytes))) return;
    ++job_->host_copies;
    buffer->version = block.version;
    block.last = stream;
  }

  // Waits for the GPU and looks at what was copied out, and at held blocks, which the host may touch at any time.
  void Settle() {
    device_.Synchronize();
    for (const HostBuffer& buffer : buffers_) {
      if (buffer.version == 0) continue;
      const auto words = reinterpret_cast<CUdeviceptr>(buffer.words.get());
      job_->wrong_words += CoreDevice::Differences(words, buffer.bytes, buffer.version);
    }
    buffers_.clear();
    for (const ModelBlock& block : blocks_) {
      if (!block.held || block.version == 0) continue;
      job_->wrong_words += CoreDevice::Differences(block.address, block.gate.bytes, block.version);
    }
  }

  void ChangePlan() {
    // Mostly none: with a plan in force nobody takes a block that is in use.
    if (Pick(3) != 0) return device_->SetPlan(nullptr);
    auto plan = std::make_shared<policy::MigrationPlan>();
    plan->start = device_->Stats().launches;
    plan->period = 1;
    const uint32_t steps = 1 + Pick(8);
    for (uint32_t i = 0; i < steps; ++i) {
      policy::PlanStep step;
      step.action = Pick(4) == 0 ? policy::PlanAction::kDrop : policy::PlanAction::kFetch;
      if (step.action == policy::PlanAction::kDrop) step.trigger = policy::PlanTrigger::kAfterCompleted;
      step.block = device_.addresses().Find(blocks_[Pick(blocks_.size())].address).raw();
      plan->uses.push_back({step.block, 1});
      plan->steps.push_back(step);
    }
    plan->launches.push_back({0, 0, static_cast<uint32_t>(plan->uses.size())});
    device_->SetPlan(std::move(plan));
  }

  void HandOver() {
    const size_t at = Pick(blocks_.size());
    ModelBlock block = blocks_[at];
    if (block.held) return;
    blocks_.erase(blocks_.begin() + at);
    // The next owner can name neither this thread's default stream nor one that this thread may destroy.
    MakeWait(streams_[0], block.last);
    block.last = streams_[0];
    std::lock_guard<std::mutex> lock(job_->mu);
    job_->handed_over.push_back(block);
  }

  void TakeOver() {
    ModelBlock block;
    {
      std::lock_guard<std::mutex> lock(job_->mu);
      if (job_->handed_over.empty()) return;
      block = job_->handed_over.back();
      job_->handed_over.pop_back();
    }
    blocks_.push_back(block);
    if (Pick(2) == 0) return;
    ++job_->freed_by_others;
    FreeAt(blocks_.size() - 1);
  }

  // A stream goes with work still queued on it; the hooks tell residency before the driver is asked.
  void DestroySide() {
    for (ModelBlock& block : blocks_) {
      if (block.last != side_) continue;
      MakeWait(streams_[0], side_);
      block.last = streams_[0];
    }
    device_->OnStreamDestroy(side_);
    SPILLWAY_CHECK(CoreDevice::Driver()->cuStreamDestroy_v2(side_) == CUDA_SUCCESS);
    side_ = device_.NewStream();
    ++job_->streams_destroyed;
  }

  void ForeignMemory() {
    device_->OnForeignBytes(kForeignChunks * kChunk);
    Launch(1, CoreDevice::Way::kGate);
    device_->OnForeignBytes(-static_cast<int64_t>(kForeignChunks * kChunk));
  }

  void HoldOne() {
    for (const ModelBlock& block : blocks_) {
      if (block.held) return;
    }
    ModelBlock& block = blocks_[Pick(blocks_.size())];
    if (block.gate.bytes > kHeldChunks * kChunk) return;
    AccessSet set;
    device_.addresses().Collect(block.address, &set);
    block.held = device_->Hold(set, HoldReason::kUnknownCall).ok();
    job_->holds += block.held;
  }

  Job* const job_;
  CoreDevice& device_;
  std::mt19937_64 random_;
  const size_t most_blocks_;
  std::vector<CUstream> streams_;
  CUstream side_ = nullptr;  // destroyed and made anew now and then
  CUevent event_ = nullptr;
  std::vector<ModelBlock> blocks_;
  uint64_t uses_ = 0;
  std::vector<HostBuffer> buffers_;
};

// Memory instead of a disk for most seeds; for some a plan of failures that a retry or the GPU's copy survives.
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
  setup.disk = options.disk;
  if (options.disk) setup.wrap_engine = EngineFor(options, faults);
  setup.free_reserve_bytes = seed % 2 * 4 * kChunk;
  setup.run_ahead_bytes = 16 * kChunk;
  FixedHashCode hash_code;
  if (options.hash) setup.hash_code = &hash_code;
  const int threads = 1 + seed % 3;
  Job job;
  job.most_chunks = setup.budget_bytes / kChunk - threads * (kForeignChunks + kHeldChunks);
  ModelResult result;
  {
    CoreDevice device(setup);
    job.device = &device;
    SetCopyBandwidth(options.copy_bandwidth);
    SetDriverFailures(options);
    std::vector<std::unique_ptr<Worker>> workers;
    std::vector<std::thread> pool;
    for (int i = 0; i < threads; ++i) {
      workers.push_back(
          std::make_unique<Worker>(&job, seed * 100 + i, 1 + seed % 4, options.blocks_per_thread));
    }
    for (auto& worker : workers) pool.emplace_back([&] { worker->Run(options.operations / threads); });
    for (std::thread& thread : pool) thread.join();
    for (const ModelBlock& block : job.handed_over) SPILLWAY_CHECK(device->Free(block.address).ok());
    device.Synchronize();
    device->CheckInvariants();
    const ResidencyStats stats = device->Stats();
    // Others' memory may exceed its share before we have given way.
    SPILLWAY_CHECK(stats.live_bytes == 0 && stats.peak_chunk_bytes + kChunk <= stats.budget_bytes);
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
  coverage->holds += job.holds;
  coverage->streams_destroyed += job.streams_destroyed;
  coverage->freed_by_others += job.freed_by_others;
  coverage->host_copies += job.host_copies;
  coverage->pinned_launches += job.pinned_launches;
  coverage->injected_disk_faults += faults->injected;
  coverage->refused_launches += job.refused;
  return result;
}

}  // namespace spillway::allocator
