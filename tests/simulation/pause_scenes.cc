// Scenes of pauses and resumes: one task pauses and resumes, and others launch, free or evict meanwhile.

#include <string>

#include "io/os/check.h"
#include "tests/simulation/scenes.h"
#include "tests/simulation/scheduler.h"

namespace spillway::simulation {
namespace {

using allocator::BlockRegion;
using allocator::PausedBy;
using allocator::PauseScope;
using allocator::PauseStats;

constexpr PauseScope kAll;
constexpr PauseScope kFromOutside = {PausedBy::kOutside, 0};
constexpr BlockRegion kNotKept = {1, false};

WorldSettings SmallDevice(uint64_t target, uint64_t host, bool hash = false) {
  WorldSettings settings;
  settings.target_chunks = target;
  settings.host_buffers = host;
  settings.hash = hash;
  settings.reserve_chunks = 0;
  settings.run_ahead_chunks = 64;
  return settings;
}

// Must succeed; at most so many chunks are left on the GPU when it returns.
PauseStats Pause(Stage* stage, const PauseScope& scope = kAll, uint64_t most_chunks = 0) {
  PauseStats stats;
  const absl::Status status = stage->world().residency().Pause(scope, &stats);
  if (!status.ok()) scheduler().Fail("a pause returns " + status.ToString());
  if (stats.failed_bytes > 0) scheduler().Fail("a pause could not copy: " + stats.failure);
  if (stage->world().gpu().chunks_held() > most_chunks)
    scheduler().Fail("a pause has returned, and the GPU has chunks" + stage->world().Describe());
  return stats;
}

void Resume(Stage* stage, const PauseScope& scope = kAll, bool wait = false) {
  const absl::Status status = stage->world().residency().Resume(scope, wait);
  if (!status.ok()) scheduler().Fail("a resume returns " + status.ToString());
  stage->world().residency().CheckInvariants();
}

void PauseAgainstLaunch(Stage* stage) {
  const CUstream stream = stage->NewStream();
  const size_t block = stage->Make(2, stream);
  stage->Settle();
  stage->Play({[=] { stage->Launch(stream, {block}, true, /*may_refuse=*/true); },
               [=] {
                 Pause(stage);
                 Resume(stage);
               }});
}

// The launch finds a closed gate and has to claim chunks: before the pause, or not before the resume.
void PauseAgainstClaim(Stage* stage) {
  const CUstream stream = stage->NewStream();
  const size_t block = stage->Make(1, stream);
  stage->Evict(block);
  stage->Settle();
  stage->Play({[=] { stage->Launch(stream, {block}, true, /*may_refuse=*/true); },
               [=] {
                 Pause(stage);
                 scheduler().SleepUntil(scheduler().now() + 50'000'000);  // longer than a preemption
                 if (stage->world().gpu().chunks_held() > 0)
                   scheduler().Fail("a launch has brought a paused block in" + stage->world().Describe());
                 Resume(stage);
               }});
}

// Nothing of the block is copied, whether the launch is before the pause or refused.
void PauseThatDropsAgainstLaunch(Stage* stage) {
  const CUstream stream = stage->NewStream();
  const size_t block = stage->Make(1, stream, false, kNotKept);
  stage->Settle();
  stage->Play({[=] { stage->Launch(stream, {block}, true, /*may_refuse=*/true); },
               [=] {
                 if (Pause(stage).dropped_bytes == 0) scheduler().Fail("a block is not dropped");
                 if (stage->world().residency().Stats().spilled_bytes != 0)
                   scheduler().Fail("a block that is dropped was copied");
                 stage->Forget(block);
                 Resume(stage);
               }});
}

// A copy from before is given up with the bytes.
void PauseThatDropsACopy(Stage* stage) {
  const CUstream stream = stage->NewStream();
  const size_t block = stage->Make(1, stream, false, kNotKept);
  stage->Evict(block);
  stage->Settle();
  stage->Launch(stream, {block});
  stage->Settle();
  stage->Play({[=] { stage->CopyOut(block); },
               [=] {
                 Pause(stage);
                 stage->Forget(block);
                 Resume(stage);
               }});
}

// The launch waits for the resume, whenever it comes.
void PauseFromOutsideAgainstLaunch(Stage* stage) {
  const CUstream stream = stage->NewStream();
  const size_t block = stage->Make(1, stream);
  stage->Settle();
  stage->Play({[=] { stage->Launch(stream, {block}); },
               [=] {
                 stage->world().pause_gate().Close();
                 Pause(stage, kFromOutside);
                 Resume(stage, kFromOutside);
                 stage->world().pause_gate().Open();
               }});
}

// A block that comes during the pause waits, too; one that comes afterwards does not.
void PauseFromOutsideAgainstAllocation(Stage* stage) {
  const CUstream stream = stage->NewStream();
  stage->Make(1, stream);
  stage->Settle();
  stage->Play({[=] {
                 for (int i = 0; i < 2; ++i) stage->Make(1, stream);
               },
               [=] {
                 stage->world().pause_gate().Close();
                 Pause(stage, kFromOutside);
                 stage->SomeTime();
                 if (stage->world().gpu().chunks_held() > 0) scheduler().Fail("a new block is not paused");
                 Resume(stage, kFromOutside);
                 stage->world().pause_gate().Open();
               }});
  stage->Make(1, stream);
}

// The resume comes while the block, which no launch has named, is on its way off the GPU.
void ResumeAgainstDecommit(Stage* stage) {
  const CUstream stream = stage->NewStream();
  const size_t block = stage->Make(1, stream, false, kNotKept);
  stage->Settle();
  stage->Play({[=] {
                 PauseStats stats;
                 stage->world().residency().Pause(kAll, &stats).IgnoreError();
               },
               [=] {
                 for (int i = 0; i < 2; ++i) {
                   Resume(stage);
                   stage->Forget(block);
                   stage->Launch(stream, {block}, true, /*may_refuse=*/true);
                 }
               }});
  Resume(stage);
  stage->Forget(block);
}

// Two claims wait for the same chunks when the blocks are paused.
void PauseAgainstClaims(Stage* stage) {
  const CUstream stream = stage->NewStream();
  const CUstream other = stage->NewStream();
  const size_t first = stage->Make(2, stream);
  stage->Evict(first);
  stage->Settle();
  const size_t second = stage->Make(2, other);
  stage->Settle();
  stage->LaunchFor(other, second, 100'000);
  stage->Play({[=] { stage->Launch(stream, {first}, true, /*may_refuse=*/true); },
               [=] { stage->Launch(other, {second}, true, /*may_refuse=*/true); },
               [=] {
                 Pause(stage);
                 Resume(stage);
               }});
}

void PauseAgainstFree(Stage* stage) {
  const CUstream stream = stage->NewStream();
  const size_t block = stage->Make(1, stream);
  const size_t other = stage->Make(1, stream);
  stage->Settle();
  stage->Play({[=] {
                 stage->Free(block);
                 const size_t next = stage->Make(1, stream, /*unused=*/true);
                 stage->Launch(stream, {next}, true, /*may_refuse=*/true);
               },
               [=] {
                 Pause(stage, kAll, /*most_chunks=*/2);  // those of what comes meanwhile
                 Resume(stage);
               }});
  stage->Launch(stream, {other});
}

void PauseAgainstEviction(Stage* stage) {
  const CUstream stream = stage->NewStream();
  const size_t kept = stage->Make(1, stream);
  const size_t dropped = stage->Make(1, stream, false, kNotKept);
  stage->Settle();
  stage->Play({[=] {
                 stage->Evict(dropped);
                 stage->Evict(kept);
               },
               [=] {
                 Pause(stage);
                 const auto state = stage->Record(dropped).state;
                 if (state != allocator::BlockState::kEmpty)
                   scheduler().Fail("bytes are kept that need not be");
                 stage->Forget(dropped);
                 Resume(stage);
               }});
}

// By the job and from outside at once: each takes its own off. What one gives back may be on its way to the
// driver when the other returns.
void TwoPauses(Stage* stage) {
  const CUstream stream = stage->NewStream();
  const size_t block = stage->Make(1, stream);
  const size_t other = stage->Make(1, stream, false, {1, true});
  stage->Settle();
  stage->Play({[=] {
                 Pause(stage, {PausedBy::kJob, 1}, /*most_chunks=*/2);
                 Resume(stage, {PausedBy::kJob, 1});
                 stage->Launch(stream, {other});
               },
               [=] {
                 stage->world().pause_gate().Close();
                 Pause(stage, kFromOutside, /*most_chunks=*/2);
                 Resume(stage, kFromOutside);
                 stage->world().pause_gate().Open();
               }});
  stage->Launch(stream, {block});
}

// What comes back is paused again on its way. Chunks that were being made for it may go back a moment later.
void PauseAgainstReturn(Stage* stage) {
  const CUstream stream = stage->NewStream();
  for (int i = 0; i < 2; ++i) stage->Make(1, stream);
  stage->Settle();
  Pause(stage);
  stage->Play({[=] {
    Resume(stage);
    stage->SomeTime();
    Pause(stage, kAll, /*most_chunks=*/2);
    stage->Settle();
    if (stage->world().gpu().chunks_held() > 0)
      scheduler().Fail("a paused block has come back" + stage->world().Describe());
    Resume(stage, kAll, /*wait=*/true);
    if (stage->world().gpu().chunks_held() != 2)
      scheduler().Fail("a resume has returned, and a block is away");
  }});
}

// Nobody but the resume makes the device's thread look.
void ResumeAfterLong(Stage* stage) {
  const CUstream stream = stage->NewStream();
  const size_t block = stage->Make(1, stream);
  stage->Settle();
  Pause(stage);
  stage->Settle();
  stage->Play({[=] {
    Resume(stage, kAll, /*wait=*/true);
    scheduler().RecordEffect();
    stage->Launch(stream, {block});
  }});
}

}  // namespace

std::vector<Scene> PauseScenes() {
  return {
      {"pause_launch", SmallDevice(4, 8), PauseAgainstLaunch},
      {"pause_claim", SmallDevice(4, 8), PauseAgainstClaim},
      {"pause_drop_launch", SmallDevice(4, 8), PauseThatDropsAgainstLaunch},
      {"pause_drop_copy", SmallDevice(4, 8, true), PauseThatDropsACopy},
      {"outside_launch", SmallDevice(4, 8), PauseFromOutsideAgainstLaunch},
      {"outside_allocation", SmallDevice(4, 8), PauseFromOutsideAgainstAllocation},
      {"resume_decommit", SmallDevice(4, 8), ResumeAgainstDecommit},
      {"pause_claims", SmallDevice(2, 12), PauseAgainstClaims},
      {"pause_free", SmallDevice(4, 8), PauseAgainstFree},
      {"pause_eviction", SmallDevice(4, 8), PauseAgainstEviction},
      {"two_pauses", SmallDevice(4, 8), TwoPauses},
      {"pause_return", SmallDevice(4, 8, true), PauseAgainstReturn},
      {"resume_alone", SmallDevice(4, 8), ResumeAfterLong},
  };
}

}  // namespace spillway::simulation
