#include "tests/simulation/job.h"

#include <algorithm>
#include <utility>

#include "io/os/check.h"
#include "tests/simulation/contents.h"
#include "tests/simulation/random_plan.h"
#include "tests/simulation/scheduler.h"
#include "tests/simulation/thread_pauses.h"

namespace spillway::simulation {
namespace {

// Once nothing new begins, everything ends within so many switch points. Drives may fail for two minutes
// meanwhile, which the device's thread looks at every 10 ms.
constexpr uint64_t kMaxStepsOfTheEnd = 16'000'000;

struct Held {
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
  uint64_t version = 0;  // 0: not written yet
  uint64_t earlier = 0;  // the version before
  CUstream owner = nullptr;
  CUstream writer = nullptr;      // that wrote it last
  std::vector<CUstream> readers;  // since then; they do not wait for each other
  std::vector<CUstream> recorded;
  uint64_t drops = 0;  // PauseModel::Dropped
};

struct Shared {
  World* world;
  const JobSettings& settings;
  Random* random;
  JobCounts counts;
  uint64_t last_version = 0;
  int left = 0;  // operations
  std::vector<Held> handed_over;
  PauseModel pauses;
};

// One thread of the application. Blocks are its own until it hands them over.
class Thread {
 public:
  explicit Thread(Shared* shared)
      : shared_(*shared),
        world_(*shared->world),
        pauses_(&world_, &shared->settings, &shared->pauses, shared->random) {}

  void Run() {
    for (int i = 0; i < shared_.settings.streams; ++i) streams_.push_back(world_.gpu().NewStream());
    const CUresult made = world_.gpu().driver()->cuEventCreate(&event_, 0);
    SPILLWAY_CHECK(made == CUDA_SUCCESS || world_.gpu().error() != CUDA_SUCCESS);
    // What leaves before there is a hash leaves as anywhere else.
    while (shared_.settings.hides && world_.residency().hash()->Get() == nullptr)
      scheduler().SleepUntil(scheduler().now() + 1000);
    while (shared_.left > 0) {
      --shared_.left;
      ++shared_.counts.operations;
      ChangeFaults();
      scheduler().RecordEffect();
      scheduler().RecordProgress();
      One();
    }
    scheduler().BeFair(kMaxStepsOfTheEnd);
    pauses_.Unpin(streams_);
    while (!blocks_.empty()) FreeAt(blocks_.size() - 1);
    for (CUstream stream : streams_) world_.gpu().Synchronize(stream);
  }

 private:
  uint32_t Pick(uint64_t count) { return shared_.random->Below(static_cast<uint32_t>(count)); }
  CUstream AnyStream() { return streams_[Pick(streams_.size())]; }
  static bool Contains(const std::vector<CUstream>& streams, CUstream stream) {
    return std::find(streams.begin(), streams.end(), stream) != streams.end();
  }
  uint64_t ChunksOf(const Held& block) const {
    return (block.bytes + world_.chunk_bytes() - 1) / world_.chunk_bytes();
  }

  void ChangeFaults() {
    const JobSettings& settings = shared_.settings;
    const int left = shared_.left;
    if (settings.poison && left == settings.operations / 2) world_.gpu().Poison(CUDA_ERROR_ASSERT);
    const bool now = left > settings.operations / 2;
    if (settings.disk_faults && world_.drives() != nullptr) {
      world_.drives()->set_failures(now ? 40 : 0);
      // To two minutes: within what is tried again, and beyond. Beside pauses, which look often, 0.5 s.
      const uint32_t doublings = settings.Pauses() ? 20 : 28;
      if (now && shared_.random->OneIn(30))
        world_.drives()->FallIll(static_cast<Disk::Sickness>(Pick(4)), int64_t{1000} << Pick(doublings));
    }
    if (settings.chunk_faults) world_.gpu().set_refuse_chunks(now ? 20 : 0);
  }
  bool Ended() const { return world_.gpu().error() != CUDA_SUCCESS; }

  void One() {
    if (blocks_.empty()) return Allocate();
    const uint32_t evicts = shared_.settings.evict_one_in;
    if (evicts != 0 && shared_.random->OneIn(evicts)) Pick(3) == 0 ? CopyEarly() : Evict();
    const uint32_t plans = shared_.settings.plan_one_in;
    if (plans != 0 && shared_.random->OneIn(plans)) return ChangePlan();
    if (pauses_.Step(blocks_[Pick(blocks_.size())].address, streams_)) return;
    const uint32_t what = Pick(1000);
    if (what < 160) return Allocate();
    if (what < 250) return FreeAt(Pick(blocks_.size()));
    if (what < 800) return Launch(1 + Pick(4), /*pinned=*/what < 290);
    if (what < 880) return CopyOut();
    if (what < 920) return CopyEarly();
    if (what < 940) return HandOver();
    if (what < 960) return TakeOver();
    if (what < 970) return world_.gpu().Synchronize(AnyStream());
    if (what < 974) return (void)world_.residency().EmptyCache();
    if (what < 980) return AllocateExternal();
    scheduler().SleepUntil(scheduler().now() + (int64_t{1'000} << Pick(10)));
  }

  void Allocate() {
    if (blocks_.size() >= shared_.settings.most_blocks) return FreeAt(Pick(blocks_.size()));
    const uint64_t chunks = 1 + Pick(shared_.settings.most_block);
    const uint64_t bytes = chunks * world_.chunk_bytes() - 512 * uint64_t{Pick(7)};
    const CUstream stream = AnyStream();
    const uint64_t since = shared_.pauses.changes();
    const allocator::BlockRegion region = pauses_.AnyRegion();
    const auto address = world_.residency().Allocate(bytes, {stream, false}, region);
    if (address.ok()) {
      shared_.pauses.OnAllocate(*address, region, since);
      blocks_.push_back({*address, bytes, 0, 0, stream, stream, {}, {}});
      return;
    }
    ++shared_.counts.refused_allocations;
    if (!blocks_.empty()) FreeAt(Pick(blocks_.size()));
  }

  // As a job records a stream before it gives it the work that uses the block.
  void Record(Held* block, CUstream stream) {
    if (stream == block->owner || Contains(block->recorded, stream)) return;
    SPILLWAY_CHECK(world_.residency().RecordStream(block->address, stream).ok() || Ended());
    block->recorded.push_back(stream);
  }

  // Frees as PyTorch does: either the owner's stream waits for a use, or that is recorded by then.
  void FreeAt(size_t at) {
    const Held block = blocks_[at];
    blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(at));
    std::vector<CUstream> users = block.readers;
    users.push_back(block.writer);
    for (CUstream user : users) {
      if (Contains(block.recorded, user)) continue;
      if (user != block.owner && Pick(2) == 0) {
        SPILLWAY_CHECK(world_.residency().RecordStream(block.address, user).ok() || Ended());
      } else {
        MakeWait(block.owner, user);
      }
    }
    shared_.pauses.OnFree(block.address);
    SPILLWAY_CHECK(world_.residency().Free(block.address).ok());
  }

  void MakeWait(CUstream stream, CUstream for_stream) {
    if (stream == for_stream) return;
    const allocator::CudaDriver* const driver = world_.gpu().driver();
    driver->cuEventRecord(event_, for_stream);
    driver->cuStreamWaitEvent(stream, event_, 0);
  }

  std::vector<size_t> Choose(uint32_t count) {
    std::vector<size_t> chosen;
    uint64_t chunks = 0;
    for (uint32_t i = 0; i < count; ++i) {
      size_t at = Pick(blocks_.size());
      if (i == 0 && SeeksLeaving()) at = Leaving(at);
      if (std::find(chosen.begin(), chosen.end(), at) != chosen.end()) continue;
      const uint64_t more = ChunksOf(blocks_[at]);
      if (chunks + more > shared_.settings.most_set) continue;
      chunks += more;
      chosen.push_back(at);
    }
    return chosen;
  }

  bool SeeksLeaving() {
    const uint32_t one_in = shared_.settings.seek_leaving_one_in;
    return one_in != 0 && shared_.random->OneIn(one_in);
  }
  // A block that is being evicted just now, else the one given.
  size_t Leaving(size_t otherwise) const {
    for (size_t i = 0; i < blocks_.size(); ++i) {
      scheduler().HoldSwitches();
      const allocator::BlockId id = world_.addresses().Find(blocks_[i].address);
      const bool leaving = id.valid() && world_.core()->table.at(id).eviction.job != nullptr;
      scheduler().AllowSwitches();
      if (leaving) return i;
    }
    return otherwise;
  }

  void Launch(uint32_t count, bool pinned) {
    const CUstream stream = AnyStream();
    const std::vector<size_t> chosen = Choose(count);
    // The kernel has the first one's address from elsewhere: the launch does not name it.
    const bool hides = shared_.settings.hides && Pick(3) == 0 && blocks_[chosen[0]].version != 0;
    bool reached = false;
    std::vector<Use> uses;
    std::vector<CUdeviceptr> addresses;
    allocator::AccessSet set;
    for (size_t at : chosen) {
      Held& block = blocks_[at];
      if (shared_.pauses.Dropped(block.address, &block.drops)) block.version = 0;
      uint64_t after = block.version == 0 || Pick(2) == 0 ? ++shared_.last_version : block.version;
      if (shared_.settings.hides && !hides && block.earlier != 0 && Pick(6) == 0)
        after = block.earlier;  // the same bytes again
      MakeWait(stream, block.writer);
      if (after != block.version) {
        for (CUstream reader : block.readers) MakeWait(stream, reader);
      }
      if (Pick(4) == 0) Record(&block, stream);
      uses.push_back({block.address, block.bytes, block.version, after});
      if (!hides || at != chosen[0]) world_.addresses().Collect(block.address, &set);
      addresses.push_back(block.address);
    }
    pauses_.BeforeLaunch(addresses);
    const auto launch = [&]() -> CUresult {
      world_.gpu().Pause();
      std::vector<Use> now = uses;
      reached = hides && world_.IsReachable(addresses[0]);
      if (hides && !reached) now.erase(now.begin());
      for (size_t i = 0; !hides && i < now.size(); ++i) {
        if (KnownAtLaunch(blocks_[chosen[i]])) continue;
        if (now[i].after == now[i].before) now[i].after = 0;  // others that only read do not wait for it
        now[i].before = 0;
      }
      return world_.gpu().Enqueue(stream, [now](Gpu* gpu) {
        for (const Use& use : now) UseBlock(gpu, use, World::chunk_bytes());
      });
    };
    allocator::DeviceResidency& residency = world_.residency();
    const CUresult result = pinned ? residency.RunPinned(set, {stream, false}, 1, launch)
                                   : residency.Run(set, {stream, false}, 1, launch);
    if (!Passed(result)) return;
    for (size_t i = 0; i < chosen.size(); ++i) {
      if (i == 0 && hides && !reached) continue;
      if (i == 0 && hides) ++shared_.counts.hidden_uses;
      Held& block = blocks_[chosen[i]];
      if (uses[i].after != block.version) {
        block.writer = stream;
        block.earlier = block.version;
        block.readers.clear();
      } else if (!Contains(block.readers, stream)) {
        block.readers.push_back(stream);
      }
      block.version = uses[i].after;
    }
  }

  // In a launch's own call: whether the block's bytes are still those of its version.
  bool KnownAtLaunch(const Held& block) const {
    shared_.pauses.AtLaunch(block.address);
    uint64_t drops = block.drops;
    return !shared_.pauses.Dropped(block.address, &drops);
  }

  bool Passed(CUresult result) {
    ++shared_.counts.launches;
    if (result == CUDA_SUCCESS) return true;
    ++shared_.counts.refused_launches;
    if (result == CUDA_ERROR_ILLEGAL_STATE && pauses_.MayBeRefused()) return false;
    // At the limit of waits it may be refused before anybody has heard of the error.
    if (Ended() && result != world_.gpu().error() && !shared_.settings.wait_limit) {
      scheduler().Fail("after a device error a launch is answered with another code");
    }
    if (!shared_.settings.MayRefuse()) {
      scheduler().Fail("a launch was refused: " + world_.residency().LastError() + world_.Describe());
    }
    return false;
  }

  // A synchronous copy to the host, compared there.
  void CopyOut() {
    Held& block = blocks_[Pick(blocks_.size())];
    if (shared_.pauses.Dropped(block.address, &block.drops)) block.version = 0;
    if (block.version == 0) return;
    pauses_.BeforeLaunch({block.address});
    bool known = true;
    const CUstream stream = AnyStream();
    MakeWait(stream, block.writer);
    allocator::AccessSet set;
    world_.addresses().Collect(block.address, &set);
    std::vector<uint64_t> words(block.bytes / 8);
    const allocator::CudaDriver* const driver = world_.gpu().driver();
    const CUresult result = world_.residency().RunPinned(set, {stream, false}, 2, [&]() -> CUresult {
      known = KnownAtLaunch(block);
      const CUresult queued = driver->cuMemcpyDtoHAsync_v2(words.data(), block.address, block.bytes, stream);
      return queued == CUDA_SUCCESS ? driver->cuStreamSynchronize(stream) : queued;
    });
    if (!Passed(result) || !known) return;
    Compare(words.data(), 0, words.size(), block.version, "a copy");
  }

  // As the device's thread would, but at any time.
  void Evict() {
    allocator::Core* const core = world_.core();
    const allocator::BlockId id = world_.addresses().Find(blocks_[Pick(blocks_.size())].address);
    {
      const allocator::TableLock lock(core->table);
      allocator::Block& block = core->table.at(id);
      const bool may_leave = block.state == allocator::BlockState::kResident && block.pins == 0 &&
                             block.pin_reasons == 0 && block.eviction.job == nullptr &&
                             !block.memory.mapping && !block.allocation.freed;
      if (may_leave && !core->stopped.load()) world_.residency().evictor()->StartLocked(lock, {&block});
    }
    world_.residency().thread()->Wake();
  }

  // As a plan would: copied out where it lies, if it may leave.
  void CopyEarly() {
    allocator::Core* const core = world_.core();
    const Held& held = blocks_[Pick(blocks_.size())];
    const allocator::BlockId id = world_.addresses().Find(held.address);
    {
      const allocator::TableLock lock(core->table);
      allocator::Block& block = core->table.at(id);
      const bool may_leave = block.state == allocator::BlockState::kResident && block.pins == 0 &&
                             block.pin_reasons == 0 && block.eviction.job == nullptr && !block.memory.mapping;
      if (may_leave) {
        world_.residency().evictor()->CopyOutLocked(
            lock, &block, Pick(2) == 0 ? policy::PlanTier::kHost : policy::PlanTier::kDisk);
      }
    }
    world_.residency().thread()->Wake();
  }

  void ChangePlan() {
    if (Pick(3) == 0) return world_.residency().SetPlan(nullptr);
    std::vector<uint32_t> blocks;
    for (const Held& block : blocks_) blocks.push_back(world_.addresses().Find(block.address).raw());
    world_.residency().SetPlan(RandomPlan(blocks, world_.residency().log()->count(), shared_.random));
  }

  void HandOver() {
    const size_t at = Pick(blocks_.size());
    shared_.handed_over.push_back(blocks_[at]);
    blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(at));
  }

  void TakeOver() {
    if (shared_.handed_over.empty()) return;
    blocks_.push_back(shared_.handed_over.back());
    shared_.handed_over.pop_back();
    if (Pick(2) == 0) FreeAt(blocks_.size() - 1);
  }

  // A driver allocation of the job's own comes and goes, and some jobs limit themselves meanwhile.
  void AllocateExternal() {
    const uint64_t bytes = world_.chunk_bytes() * (1 + Pick(2));
    world_.residency().BeginExternalAllocation(bytes);
    if (shared_.settings.caps) world_.residency().SetCap(Pick(2) == 0 ? UINT64_MAX : bytes * (4 + Pick(20)));
    world_.residency().EndExternalAllocation(bytes, /*failed=*/true);
  }

  Shared& shared_;
  World& world_;
  std::vector<CUstream> streams_;
  std::vector<Held> blocks_;
  CUevent event_ = nullptr;
  ThreadPauses pauses_;
};

}  // namespace

JobCounts RunJob(World* world, const JobSettings& settings, Random* random) {
  Shared shared{
      world, settings, random, {}, 0, settings.operations, {}, PauseModel(world, settings.MayFail())};
  std::vector<Task*> tasks;
  for (int i = 0; i < settings.threads; ++i) {
    tasks.push_back(scheduler().Start("thread " + std::to_string(i), TaskKind::kApplication,
                                      [&shared] { Thread(&shared).Run(); }));
  }
  const auto ended = [&] { return shared.left <= 0; };
  for (Task* task : StartOthers(world, settings, &shared.pauses, random, ended)) tasks.push_back(task);
  for (Task* task : tasks) scheduler().Join(task);
  world->residency().CheckInvariants();
  const allocator::ResidencyStats stats = world->residency().Stats();
  shared.counts.evictions = stats.evictions;
  shared.counts.cancelled = stats.evictions_cancelled;
  shared.counts.faults = stats.faults;
  shared.counts.clean_drops = stats.clean_drops;
  shared.counts.early_copies = stats.early_copies;
  shared.counts.reached_launches = stats.reached_launches;
  shared.counts.soft_evictions = stats.soft_evictions;
  shared.counts.verified_fetches = stats.verified_fetches;
  shared.counts.wrong_arrivals = stats.wrong_arrivals;
  shared.counts.disk_bytes = stats.disk_spilled_bytes;
  shared.counts.pauses = shared.pauses.pauses();
  return shared.counts;
}

}  // namespace spillway::simulation
