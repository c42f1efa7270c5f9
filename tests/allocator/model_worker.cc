#include "tests/allocator/model_worker.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <random>
#include <utility>

#include "io/os/check.h"
#include "policy/model/plan.h"

namespace spillway::allocator {
namespace {

// One application thread: its own blocks, some streams of its own.
class Worker {
 public:
  Worker(ModelJob* job, int seed, int streams, int most_blocks)
      : job_(job), device_(*job->device), random_(seed), most_blocks_(most_blocks) {
    for (int i = 0; i < streams; ++i) streams_.push_back(i == 0 ? nullptr : device_.NewStream());
    side_ = device_.NewStream();
    kept_ = {++job_->regions, true};
    dropped_ = {++job_->regions, !job_->drops};
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
    if (what < 964) return TakeOver();
    if (what < 970) return PauseRegion(Pick(2) == 0 ? kept_ : dropped_);
    if (what < 972) return PauseAll();
    if (what < 977) return DestroySide();
    if (what < 982) return ExternalMemoryCall();
    if (what < 984) return PinOne();
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
    const uint32_t where = Pick(4);
    const BlockRegion region = where == 0 ? kept_ : where == 1 ? dropped_ : BlockRegion();
    absl::StatusOr<CUdeviceptr> address = device_->Allocate(bytes, {stream, false}, region);
    if (!address.ok()) return;
    blocks_.push_back({*address, bytes, 0, stream, stream});
    blocks_.back().region = region;
  }

  void AllocateAndFreeUnused() {
    absl::StatusOr<CUdeviceptr> address = device_->Allocate((1 + Pick(4)) * kChunk, {});
    if (address.ok()) SPILLWAY_CHECK(device_->Free(*address).ok());
  }

  // Frees the first block that is seen between the commit point of its eviction and the end of it: a short
  // while, so it is looked for.
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
                             block.pin_reasons == 0 && block.eviction.job == nullptr && !block.memory.mapping;
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

  static bool IsRecorded(const ModelBlock& block, CUstream stream) {
    return std::find(block.recorded.begin(), block.recorded.end(), stream) != block.recorded.end();
  }

  // As a job records a stream before it gives it the work that uses the block.
  void Record(ModelBlock* block, CUstream stream) {
    if (stream == block->owner || IsRecorded(*block, stream)) return;
    SPILLWAY_CHECK(device_->RecordStream(block->address, stream).ok());
    block->recorded.push_back(stream);
  }

  // Frees as PyTorch does: either the owner's stream waits for the last use, or that is recorded by then.
  void FreeAt(size_t at) {
    const ModelBlock block = blocks_[at];
    blocks_.erase(blocks_.begin() + at);
    if (IsRecorded(block, block.last)) {
      // Nothing more to say.
    } else if (block.last != block.owner && Pick(2) == 0) {
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
      if (Pick(4) == 0) Record(&block, stream);
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
    HostBuffer* const buffer = NewBuffer(block.bytes);
    if (!Passed(device_.CopyOut(stream, buffer->words.get(), block.address, block.bytes))) return;
    ++job_->host_copies;
    buffer->version = block.version;
    block.last = stream;
  }

  // Waits for the GPU and looks at what was copied out, and at pinned blocks, which the host may touch at any
  // time.
  void Settle() {
    device_.Synchronize();
    for (const HostBuffer& buffer : buffers_) {
      if (buffer.version == 0) continue;
      const auto words = reinterpret_cast<CUdeviceptr>(buffer.words.get());
      job_->wrong_words += CoreDevice::Differences(words, buffer.bytes, buffer.version);
    }
    buffers_.clear();
    for (const ModelBlock& block : blocks_) {
      if (!block.pinned || block.version == 0) continue;
      job_->wrong_words += CoreDevice::Differences(block.address, block.bytes, block.version);
    }
  }

  void ChangePlan() {
    // Mostly none: with a plan in force nobody takes a block that is in use.
    if (Pick(3) != 0) return device_->SetPlan(nullptr);
    auto plan = std::make_shared<policy::MigrationPlan>();
    plan->start = device_->Stats().launches;
    plan->iteration_launches = 1;
    const uint32_t steps = 1 + Pick(8);
    plan->hints = Pick(4) == 0;
    for (uint32_t i = 0; i < steps; ++i) {
      policy::PlanOp op;
      op.kind = Pick(4) == 0 ? policy::PlanOpKind::kDrop : policy::PlanOpKind::kFetch;
      op.block = device_.addresses().Find(blocks_[Pick(blocks_.size())].address).raw();
      plan->uses.push_back(op.block);
      plan->ops.push_back(op);
    }
    plan->launches.push_back({0, static_cast<uint32_t>(plan->uses.size())});
    device_->SetPlan(std::move(plan));
  }

  void HandOver() {
    const size_t at = Pick(blocks_.size());
    ModelBlock block = blocks_[at];
    if (block.pinned || block.region.tag != 0) return;
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
      std::erase(block.recorded, side_);  // its successor may have its handle
      if (block.last != side_) continue;
      MakeWait(streams_[0], side_);
      block.last = streams_[0];
    }
    device_->OnStreamDestroy(side_);
    SPILLWAY_CHECK(CoreDevice::Driver()->cuStreamDestroy_v2(side_) == CUDA_SUCCESS);
    side_ = device_.NewStream();
    ++job_->streams_destroyed;
  }

  void ExternalMemoryCall() {
    device_->OnExternalBytes(kExternalChunks * kChunk);
    Launch(1, CoreDevice::Way::kGate);
    device_->OnExternalBytes(-static_cast<int64_t>(kExternalChunks * kChunk));
  }

  void PinOne() {
    for (const ModelBlock& block : blocks_) {
      if (block.pinned) return;
    }
    ModelBlock& block = blocks_[Pick(blocks_.size())];
    if (block.bytes > kPinnedChunks * kChunk) return;
    AccessSet set;
    device_.addresses().Collect(block.address, &set);
    block.pinned = device_->Pin(set, PinReason::kUnknownCall).ok();
    job_->pins += block.pinned;
  }

  // Blocks of a region of this thread, which nobody else names: a launch of one is refused meanwhile.
  void PauseRegion(BlockRegion region) {
    std::vector<size_t> own;
    for (size_t i = 0; i < blocks_.size(); ++i) {
      if (blocks_[i].region.tag == region.tag) own.push_back(i);
    }
    if (own.empty()) return;
    const CUdeviceptr block = blocks_[own[Pick(own.size())]].address;
    const auto launch = [&] { return device_.Launch(streams_[0], {block}, [](const auto&) {}); };
    launch();  // so that one of them is on the GPU
    PauseStats stats;
    if (!device_->Pause({PausedBy::kJob, region.tag}, &stats).ok()) return;  // there is no place for it
    ++job_->pauses_of_regions;
    for (const size_t i : own) blocks_[i].version = region.keep ? blocks_[i].version : 0;
    SPILLWAY_CHECK(launch() == CUDA_ERROR_ILLEGAL_STATE);
    if (Pick(4) == 0) FreeAt(own[Pick(own.size())]);
    Allocate();
    SPILLWAY_CHECK(device_->Resume({PausedBy::kJob, region.tag}, Pick(2) == 0).ok());
  }

  // As somebody outside: launches of other threads wait until all is resumed.
  void PauseAll() {
    const std::unique_lock<std::mutex> lock(job_->outside_mu, std::try_to_lock);
    if (!lock || job_->drops) return;
    constexpr PauseScope kOutside = {PausedBy::kOutside, 0};
    job_->gate.Set(false);
    PauseStats stats;
    job_->pauses_of_all += device_->Pause(kOutside, &stats).ok();
    Allocate();
    SPILLWAY_CHECK(device_->Resume(kOutside, Pick(2) == 0).ok());
    job_->gate.Set(true);
  }

  ModelJob* const job_;
  CoreDevice& device_;
  std::mt19937_64 random_;
  const size_t most_blocks_;
  std::vector<CUstream> streams_;
  BlockRegion kept_, dropped_;
  CUstream side_ = nullptr;  // destroyed and made anew now and then
  CUevent event_ = nullptr;
  std::vector<ModelBlock> blocks_;
  uint64_t uses_ = 0;
  std::vector<HostBuffer> buffers_;
};

}  // namespace

std::function<void(int)> MakeModelWorker(ModelJob* job, int seed, int streams, int most_blocks) {
  return [worker = std::make_shared<Worker>(job, seed, streams, most_blocks)](int operations) {
    worker->Run(operations);
  };
}

}  // namespace spillway::allocator
