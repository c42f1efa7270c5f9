#include "tests/simulation/thread_pauses.h"

#include <algorithm>

#include "tests/simulation/scheduler.h"

namespace spillway::simulation {

using allocator::PausedBy;
using allocator::PinReason;

allocator::BlockRegion ThreadPauses::AnyRegion() {
  if (settings_.pause_one_in == 0) return {};
  const uint32_t tag = random_.Below(3);
  return {tag, tag == 0 || !random_.OneIn(3)};
}

bool ThreadPauses::Step(CUdeviceptr block, const std::vector<CUstream>& streams) {
  model_.CheckAway();
  if (settings_.pause_one_in == 0) return false;
  // While something is paused, many launches are refused: not for long.
  if (random_.OneIn(6) && model_.job_pauses()) {
    model_.Resume(AnyScope(), random_.OneIn(3));
    return true;
  }
  if (random_.OneIn(100)) {
    pinned_.empty() ? Pin(block) : Unpin(streams);
    return true;
  }
  if (!random_.OneIn(settings_.pause_one_in)) return false;
  model_.Pause(AnyScope());
  return true;
}

// Refused where the block is paused, or where launches would not fit beside it.
void ThreadPauses::Pin(CUdeviceptr block) {
  if (settings_.large_sets) return;  // a first launch that is too large beside what stays may be refused
  allocator::AccessSet set;
  world_.addresses().Collect(block, &set);
  world_.residency().Pin(set, PinReason::kUnknownCall, &pinned_).IgnoreError();
}

void ThreadPauses::Unpin(const std::vector<CUstream>& streams) {
  if (pinned_.empty()) return;
  allocator::EscapedUsers users;
  for (CUstream stream : streams) users.streams.push_back({stream, false});
  world_.residency().Unpin(pinned_, PinReason::kUnknownCall, users);
  pinned_.clear();
}

void ThreadPauses::BeforeLaunch(const std::vector<CUdeviceptr>& blocks) {
  blocks_ = blocks;
  changes_ = model_.changes();
  signals_ = world_.pause_gate().signals();
  was_paused_ = std::ranges::any_of(blocks_, [&](CUdeviceptr block) { return model_.MayBePaused(block); });
}

bool ThreadPauses::MayBeRefused() const {
  return was_paused_ || changes_ != model_.changes() || signals_ != world_.pause_gate().signals() ||
         std::ranges::any_of(blocks_, [&](CUdeviceptr block) { return model_.MayBePaused(block); });
}

namespace {

constexpr allocator::PauseScope kByOthers = {PausedBy::kOutside, 0};
constexpr allocator::PauseScope kForIdleness = {PausedBy::kIdle, 0};

void PassTime(Random* random, uint32_t most_doublings) {
  scheduler().SleepUntil(scheduler().now() + (int64_t{1'000} << random->Below(most_doublings)));
  scheduler().RecordEffect();
  scheduler().RecordProgress();
}

void PlayIdle(World* world, PauseModel* model, Random* random, const std::function<bool()>& ended) {
  while (!ended()) {
    PassTime(random, 13);
    world->share().Leave();
    model->Pause(kForIdleness);
    const bool left = world->share().Left();
    PassTime(random, 10);
    if (!left || random->OneIn(3)) model->Resume(kForIdleness, /*wait=*/false);
  }
}

void PlayOutside(World* world, PauseModel* model, Random* random, const std::function<bool()>& ended) {
  while (!ended()) {
    PassTime(random, 13);
    world->pause_gate().Close();
    model->Pause(kByOthers);
    PassTime(random, 10);
    model->Resume(kByOthers, /*wait=*/random->OneIn(4));
    world->pause_gate().Open();
  }
}

}  // namespace

std::vector<Task*> StartOthers(World* world, const JobSettings& settings, PauseModel* model, Random* random,
                               const std::function<bool()>& ended) {
  std::vector<Task*> tasks;
  const auto start = [&](const char* name, auto play) {
    tasks.push_back(
        scheduler().Start(name, TaskKind::kApplication, [=] { play(world, model, random, ended); }));
  };
  world->share().set_resume([model] { model->Resume(kForIdleness, /*wait=*/false); });
  world->pause_gate().set_signal_one_in(settings.signals ? 4 : 0);
  if (settings.outside_pauses) start("outside", PlayOutside);
  if (settings.idle) start("idleness", PlayIdle);
  return tasks;
}

}  // namespace spillway::simulation
