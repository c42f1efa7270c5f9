#include "tests/simulation/scenes.h"

#include <utility>

#include "io/os/check.h"
#include "tests/simulation/scheduler.h"

namespace spillway::simulation {
namespace {

WorldSettings Small(uint64_t target, uint64_t host, uint64_t disk = 0, bool hash = false) {
  WorldSettings settings;
  settings.target_chunks = target;
  settings.host_buffers = host;
  settings.disk_slots = disk;
  settings.hash = hash;
  settings.reserve_chunks = 0;
  settings.run_ahead_chunks = 64;
  return settings;
}

WorldSettings WithoutMembarrier(WorldSettings settings) {
  settings.asymmetric_barrier = false;
  return settings;
}

WorldSettings KeepingHeadroom(WorldSettings settings) {
  settings.reserve_chunks = 1;
  return settings;
}

WorldSettings ReachingHostMemory(WorldSettings settings) {
  settings.reach = true;
  return settings;
}

WorldSettings KeepingOneAddress(WorldSettings settings) {
  settings.kept_addresses = 1;
  return settings;
}

// ---- What they play.

void LaunchAgainstEviction(Stage* stage) {
  const CUstream stream = stage->NewStream();
  const size_t block = stage->Make(1, stream);
  stage->Settle();
  stage->Play({[=] { stage->Launch(stream, {block}); }, [=] { stage->Evict(block); }});
}

void LaunchAgainstDecommit(Stage* stage) {
  const CUstream stream = stage->NewStream();
  const size_t block = stage->Make(1, stream, /*unused=*/true);
  stage->world().residency().StopEvicting().IgnoreError();
  stage->Settle();
  stage->Play({[=] { stage->Launch(stream, {block}); }, [=] { stage->Evict(block); }});
}

void FreeAgainstEviction(Stage* stage) {
  const CUstream stream = stage->NewStream();
  const size_t block = stage->Make(1, stream);
  stage->Settle();
  stage->Play({[=] { stage->Free(block); }, [=] { stage->Evict(block); }});
}

void FreeAndReuseAgainstEviction(Stage* stage) {
  const CUstream stream = stage->NewStream();
  const size_t block = stage->Make(1, stream);
  stage->Settle();
  stage->Evict(block);
  stage->Play({[=] {
    stage->Launch(stream, {block});
    stage->Free(block);
    stage->Make(1, stream);
  }});
}

void FreeAgainstFetch(Stage* stage) {
  const CUstream stream = stage->NewStream();
  const CUstream other = stage->NewStream();
  const size_t block = stage->Make(1, stream);
  const size_t second = stage->Make(1, other);
  stage->Evict(block);
  stage->Evict(second);
  stage->Settle();
  stage->Play({[=] {
                 stage->Launch(stream, {block});
                 stage->Free(block);
               },
               [=] { stage->Launch(other, {second}); }});
}

void TwoClaimsForOneChunk(Stage* stage) {
  const CUstream stream = stage->NewStream();
  const CUstream other = stage->NewStream();
  const size_t first = stage->Make(2, stream);
  stage->Settle();
  stage->Evict(first);
  stage->Settle();
  const size_t second = stage->Make(2, other);
  stage->Settle();
  stage->Play({[=] { stage->Launch(stream, {first}); }, [=] { stage->Launch(other, {second}); }});
}

// A resident block whose first eviction has loaded the hash.
size_t BlockWithHash(Stage* stage, CUstream stream) {
  const size_t block = stage->Make(1, stream);
  stage->Evict(block);
  stage->Settle();
  stage->Launch(stream, {block});
  stage->Settle();
  return block;
}

void LaunchAgainstEarlyCopy(Stage* stage) {
  const CUstream stream = stage->NewStream();
  const size_t block = BlockWithHash(stage, stream);
  stage->Play({[=] {
                 stage->SomeTime();
                 stage->Launch(stream, {block});
               },
               [=] { stage->CopyOut(block); }});
  stage->Settle();
  stage->Evict(block);
}

void LaunchAgainstComparison(Stage* stage) {
  const CUstream stream = stage->NewStream();
  const size_t block = BlockWithHash(stage, stream);
  stage->CopyOut(block);
  stage->Settle();
  stage->Play({[=] { stage->Launch(stream, {block}); }, [=] { stage->Evict(block); }});
  stage->Settle();
  stage->Evict(block);
}

void TwoLaunchesOnOneSpilledBlock(Stage* stage) {
  const CUstream stream = stage->NewStream();
  const CUstream other = stage->NewStream();
  const size_t block = stage->Make(1, stream);
  stage->Evict(block);
  stage->Settle();
  stage->Play(
      {[=] { stage->Launch(stream, {block}, false); }, [=] { stage->Launch(other, {block}, false); }});
}

void EmptyCacheAgainstAllocation(Stage* stage) {
  const CUstream stream = stage->NewStream();
  const size_t block = stage->Make(1, stream);
  stage->Free(block);
  stage->Settle();
  stage->Play(
      {[=] { stage->world().residency().EmptyCache().IgnoreError(); }, [=] { stage->Make(1, stream); }});
}

void RecordStreamAgainstEviction(Stage* stage) {
  const CUstream stream = stage->NewStream();
  const CUstream other = stage->NewStream();
  const size_t block = stage->Make(1, stream);
  stage->Settle();
  stage->Play({[=] {
                 SPILLWAY_CHECK(stage->world().residency().RecordStream(stage->AddressOf(block), other).ok());
                 stage->Free(block);
                 stage->Make(1, stream);
               },
               [=] { stage->Evict(block); }});
}

void PinAgainstEviction(Stage* stage) {
  const CUstream stream = stage->NewStream();
  const size_t block = stage->Make(1, stream);
  stage->Settle();
  stage->Play({[=] {
                 allocator::AccessSet set;
                 set.Add(stage->Record(block).id);
                 const auto held = stage->world().residency().Pin(set, allocator::PinReason::kExport);
                 SPILLWAY_CHECK(held.ok() && stage->world().gpu().IsMapped(stage->AddressOf(block)));
               },
               [=] { stage->Evict(block); }});
}

void DeviceErrorAgainstClaim(Stage* stage) {
  const CUstream stream = stage->NewStream();
  const CUstream other = stage->NewStream();
  const size_t first = stage->Make(2, stream);
  stage->Evict(first);
  stage->Settle();
  const size_t second = stage->Make(2, other);
  stage->Settle();
  stage->Play({[=] { stage->Launch(stream, {first}); },
               [=] { stage->world().gpu().Poison(CUDA_ERROR_ASSERT); },
               [=] { stage->Launch(other, {second}); }});
}

void ShutdownAgainstLaunch(Stage* stage) {
  const CUstream stream = stage->NewStream();
  const size_t block = stage->Make(1, stream);
  stage->Settle();
  stage->Play({[=] { stage->Launch(stream, {block}); }, [=] { stage->world().residency().Shutdown(); }});
}

void FetchFromDiskAgainstLaunch(Stage* stage) {
  const CUstream stream = stage->NewStream();
  const size_t block = stage->Make(1, stream);
  stage->Evict(block, policy::PlanTier::kDisk);
  stage->Settle();
  stage->Play({[=] { stage->Launch(stream, {block}); }});
}

// The device's thread records events while a launch is numbered.
void CoverAgainstLaunch(Stage* stage) {
  const CUstream stream = stage->NewStream();
  const size_t block = stage->Make(1, stream);
  stage->Settle();
  stage->Play({[=] { stage->Launch(stream, {block}); },
               [=] {
                 stage->world().core()->clock.CoverAll();
                 stage->Evict(block);
               }});
}

// More streams than a block records timeline values of.
void ManyStreams(Stage* stage) {
  const size_t block = stage->Make(1, stage->NewStream());
  std::vector<CUstream> streams;
  for (size_t i = 0; i < allocator::Block::GateSide::kUses + 2; ++i) streams.push_back(stage->NewStream());
  stage->Settle();
  stage->Play({[=] {
    scheduler().HoldSwitches();
    for (CUstream stream : streams) stage->Launch(stream, {block}, false);
    scheduler().AllowSwitches();
    stage->Evict(block);
  }});
}

// Work that did not pass the gate, on a stream that is recorded.
void RecordedWork(Stage* stage) {
  const CUstream stream = stage->NewStream();
  const CUstream other = stage->NewStream();
  const size_t block = stage->Make(1, stream);
  stage->Settle();
  stage->Play({[=] {
    stage->ReadUnseen(other, block);
    SPILLWAY_CHECK(stage->world().residency().RecordStream(stage->AddressOf(block), other).ok());
    stage->Evict(block);
  }});
}

// A stream is recorded, and given the work that uses the block later: what it has been given at the free
// counts.
void WorkAfterItsRecord(Stage* stage) {
  const CUstream stream = stage->NewStream();
  const CUstream other = stage->NewStream();
  const size_t block = stage->Make(1, stream);
  stage->Settle();
  stage->Play({[=] {
    SPILLWAY_CHECK(stage->world().residency().RecordStream(stage->AddressOf(block), other).ok());
    stage->world().core()->clock.CoverAll();  // as any claim does: the record's own number completes
    stage->Settle();
    stage->ReadUnseen(other, block, 100'000);
    stage->Free(block);
    stage->Make(1, stream);
  }});
}

// Evicted, taken back and evicted again, with copies that are hashed.
void TakenBackOften(Stage* stage) {
  const CUstream stream = stage->NewStream();
  const size_t block = BlockWithHash(stage, stream);
  stage->Play({[=] {
                 for (int i = 0; i < 3; ++i) stage->Launch(stream, {block});
               },
               [=] {
                 for (int i = 0; i < 3; ++i) {
                   i % 2 == 0 ? stage->Evict(block) : stage->CopyOut(block);
                   scheduler().SleepUntil(scheduler().now() + 20'000);
                 }
               }});
  stage->Settle();
  stage->Evict(block);
}

// The first claim in the queue is refused, since a driver allocation of the job takes the memory. The next
// one goes on.
void ClaimThatIsRefused(Stage* stage) {
  const CUstream stream = stage->NewStream();
  const CUstream other = stage->NewStream();
  const size_t large = stage->Make(3, stream);
  stage->Evict(large);
  stage->Settle();
  const size_t small = stage->Make(1, other);
  stage->Evict(small);
  stage->Settle();
  const size_t there = stage->Make(4, stream);
  stage->Settle();
  const uint64_t bytes = 3 * World::chunk_bytes();
  stage->Play({[=] { stage->Launch(stream, {large}, true, /*may_refuse=*/true); },
               [=] { stage->Launch(other, {small}, true, /*may_refuse=*/true); },
               [=] {
                 stage->world().residency().BeginExternalAllocation(bytes);
                 stage->world().residency().EndExternalAllocation(bytes, /*failed=*/true);
               }});
  stage->Settle();
  stage->Launch(stream, {there});
}

// A freed block's address is promised to an allocation, which waits for the block's decommit while another is
// freed.
void AddressGivenUp(Stage* stage) {
  const CUstream stream = stage->NewStream();
  const CUstream other = stage->NewStream();
  const size_t block = stage->Make(1, stream);
  stage->Free(block);
  stage->Settle();
  stage->Play({[=] { stage->Evict(block); },
               [=] {
                 stage->SomeTime();
                 stage->Make(1, stream, /*unused=*/true);
               },
               [=] {
                 for (int i = 0; i < 8; ++i) {
                   scheduler().SleepUntil(scheduler().now() + 2'000);
                   stage->Free(stage->Make(2, other, /*unused=*/true));
                 }
               }});
}

// The drive is full: nothing can leave, and the first claim in the queue is refused. The next one fits.
void ClaimThatNothingCanMeet(Stage* stage) {
  const CUstream stream = stage->NewStream();
  const CUstream other = stage->NewStream();
  const size_t large = stage->Make(4, stream);
  stage->Evict(large, policy::PlanTier::kDisk);
  stage->Settle();
  stage->Make(3, stream);
  const size_t small = stage->Make(1, other, /*unused=*/true);
  stage->Settle();
  stage->world().drives()->FallIll(Disk::Sickness::kFull, int64_t{3600} * 1'000'000'000);
  stage->Play({[=] { stage->Launch(stream, {large}, true, /*may_refuse=*/true); },
               [=] { stage->Launch(other, {small}); }});
  stage->Free(large);
}

// A launch names more than the GPU and the free host buffers hold, and the drive to which the idle blocks
// should go fails for half a minute.
void ReachWhileDriveFails(Stage* stage) {
  const CUstream stream = stage->NewStream();
  for (int i = 0; i < 2; ++i) stage->Evict(stage->Make(2, stream));
  stage->Settle();
  const size_t first = stage->Make(3, stream);
  const size_t second = stage->Make(3, stream);
  stage->Settle();
  stage->world().drives()->FallIll(Disk::Sickness::kWritesFail, int64_t{30} * 1'000'000'000);
  stage->Play({[=] { stage->Launch(stream, {first, second}); }});
}

// Headroom is short until long kernels end. Then blocks leave soon, though nobody wakes the device's thread.
void EvictionSoonAfterItsUse(Stage* stage) {
  const CUstream stream = stage->NewStream();
  std::vector<size_t> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(stage->Make(1, stream));
  stage->Settle();
  // Those that are there, and one that takes the last chunk.
  blocks = {blocks[3], blocks[4], blocks[5], blocks[0]};
  stage->Play({[=] {
    for (size_t block : blocks) stage->LaunchFor(stream, block, 200'000);
    stage->world().gpu().Synchronize(stream);
    const int64_t ended = scheduler().now();
    const auto available = [stage] {
      const allocator::TableLock lock(stage->world().core()->table);
      return stage->world().residency().charges()->chunks(lock).available();
    };
    while (available() < 1) scheduler().SleepUntil(scheduler().now() + 100'000);
    // Two preemptions of 20 ms, and polls.
    if (scheduler().now() - ended > 80'000'000) scheduler().Fail("a block leaves long after its last use");
  }});
}

std::vector<Scene> MakeScenes() {
  std::vector<Scene> scenes = {
      {"launch_eviction", Small(4, 8), LaunchAgainstEviction},
      {"launch_eviction_fence", WithoutMembarrier(Small(4, 8)), LaunchAgainstEviction},
      {"launch_decommit", Small(4, 8), LaunchAgainstDecommit},
      {"free_eviction", Small(4, 8), FreeAgainstEviction},
      {"free_reuse_eviction", Small(4, 8, 0, true), FreeAndReuseAgainstEviction},
      {"free_fetch", Small(4, 8), FreeAgainstFetch},
      {"two_claims", Small(2, 8), TwoClaimsForOneChunk},
      {"launch_early_copy", Small(4, 8, 0, true), LaunchAgainstEarlyCopy},
      {"launch_comparison", Small(4, 8, 0, true), LaunchAgainstComparison},
      {"two_launches", Small(4, 8), TwoLaunchesOnOneSpilledBlock},
      {"empty_cache", Small(4, 8), EmptyCacheAgainstAllocation},
      {"record_stream", Small(4, 8), RecordStreamAgainstEviction},
      {"hold_eviction", Small(4, 8), PinAgainstEviction},
      {"device_error_claim", Small(2, 8), DeviceErrorAgainstClaim},
      {"shutdown_launch", Small(4, 8), ShutdownAgainstLaunch},
      {"fetch_disk", Small(4, 0, 8), FetchFromDiskAgainstLaunch},
      {"cover_launch", Small(4, 8), CoverAgainstLaunch},
      {"many_streams", Small(4, 8), ManyStreams},
      {"recorded_work", Small(4, 8), RecordedWork},
      {"recorded_early", Small(4, 8), WorkAfterItsRecord},
      {"taken_back", Small(4, 8, 0, true), TakenBackOften},
      {"claim_refused", Small(4, 12), ClaimThatIsRefused},
      {"eviction_in_time", KeepingHeadroom(Small(4, 12)), EvictionSoonAfterItsUse},
      {"claim_hopeless", Small(4, 0, 16), ClaimThatNothingCanMeet},
      {"reach_drive_fails", ReachingHostMemory(Small(4, 4, 16)), ReachWhileDriveFails},
      {"address_given_up", KeepingOneAddress(Small(4, 8)), AddressGivenUp},
  };
  for (Scene& scene : PauseScenes()) scenes.push_back(std::move(scene));
  return scenes;
}

}  // namespace

const std::vector<Scene>& AllScenes() {
  static const std::vector<Scene> scenes = MakeScenes();
  return scenes;
}

}  // namespace spillway::simulation
