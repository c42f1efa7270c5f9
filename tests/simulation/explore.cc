// Going through the schedules of a scene. The plain schedule lets the current task go on until it cannot,
// then the next one in turn. Each further schedule departs from an earlier one at a later point.

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tests/simulation/os.h"
#include "tests/simulation/scenes.h"
#include "tests/simulation/scheduler.h"
#include "tests/simulation/strategies.h"

namespace spillway::simulation {
namespace {

struct Departure {
  uint32_t point = 0;
  uint32_t choice = 0;  // 1: the next task in turn after the one that would go on, and so on
};

class ScriptStrategy : public Strategy {
 public:
  explicit ScriptStrategy(std::vector<Departure> departures) : departures_(std::move(departures)) {}

  Task* Pick(const std::vector<Task*>& runnable, Task* current) override {
    size_t plain = 0;
    if (current != nullptr) {
      while (runnable[plain] != current) ++plain;
    } else {
      while (plain < runnable.size() && runnable[plain]->id <= last_) ++plain;
      if (plain == runnable.size()) plain = 0;
    }
    size_t chosen = plain;
    if (playing && current == nullptr && runnable.size() > 1) {
      chosen = (plain + Departs(static_cast<uint32_t>(runnable.size() - 1))) % runnable.size();
    }
    last_ = runnable[chosen]->id;
    return runnable[chosen];
  }
  uint32_t Choose(uint32_t) override { return 0; }
  // A preemption: another task goes on, for as long as a polling task may be delayed. The device's own
  // streams and drives are not preempted: whether they go on is chosen where other tasks wait for them.
  int64_t Nap(const Task& current) override {
    if (!playing || current.name.starts_with("stream") || current.name.starts_with("disk") || current.id == 0)
      return 0;
    return Departs(1) != 0 ? 20'000'000 : 0;
  }

  std::vector<uint8_t> alternatives;  // by point
  static bool playing;

 private:
  // The choice at this point: 0, the plain one, unless the script says otherwise.
  uint32_t Departs(uint32_t choices) {
    const auto point = static_cast<uint32_t>(alternatives.size());
    alternatives.push_back(static_cast<uint8_t>(choices));
    if (next_ == departures_.size() || departures_[next_].point != point) return 0;
    return departures_[next_++].choice;
  }

  const std::vector<Departure> departures_;
  size_t next_ = 0;
  int last_ = -1;
};

bool ScriptStrategy::playing = false;

std::string TextOf(const std::vector<Departure>& departures) {
  std::string text;
  for (const Departure& departure : departures) {
    text +=
        (text.empty() ? "" : ",") + std::to_string(departure.point) + ":" + std::to_string(departure.choice);
  }
  return text.empty() ? "plain" : text;
}

std::vector<uint8_t> RunOnce(const Scene& scene, const std::vector<Departure>& departures) {
  Random random(1);
  ScriptStrategy strategy(departures);
  ScriptStrategy::playing = false;
  Scheduler::set_on_failure([&](const std::string&) {
    std::printf("scene %s fails\nreplay: build/tests/core_simulation --scene=%s --schedule=%s\n", scene.name,
                scene.name, TextOf(departures).c_str());
  });
  Scheduler::Options options;
  options.most_steps = 5'000'000;
  options.flush_one_in = 1 << 30;  // stores stay in their buffers for as long as they may
  Scheduler scheduler(&strategy, &random, options);
  scheduler.Run([&] {
    Stage stage(scene.settings, &random);
    scene.act(&stage);
    stage.Settle();
    stage.CompareAll();
  });
  return strategy.alternatives;
}

}  // namespace

void Stage::Play(const std::vector<std::function<void()>>& parts) {
  std::vector<Task*> tasks;
  for (const auto& part : parts) {
    tasks.push_back(scheduler().Start("part " + std::to_string(tasks.size()), TaskKind::kApplication, part));
  }
  ScriptStrategy::playing = true;
  for (Task* task : tasks) scheduler().Join(task);
  ScriptStrategy::playing = false;
}

SceneCounts GoThrough(const Scene& scene, int departures, uint64_t most, uint64_t sample) {
  SceneCounts counts;
  Random random(sample);
  std::vector<std::vector<Departure>> level = {{}};
  for (int more = departures; !level.empty(); --more) {
    std::vector<std::vector<Departure>> next;
    for (const std::vector<Departure>& script : level) {
      const std::vector<uint8_t> alternatives = RunOnce(scene, script);
      ++counts.schedules;
      if (script.empty()) counts.points = alternatives.size();
      if (more == 0) continue;
      std::vector<Departure> choices;
      for (uint32_t point = script.empty() ? 0 : script.back().point + 1; point < alternatives.size();
           ++point) {
        for (uint32_t choice = 1; choice <= alternatives[point]; ++choice) choices.push_back({point, choice});
      }
      const uint64_t share = most == 0 ? choices.size() : std::max<uint64_t>(1, most / level.size());
      counts.all &= choices.size() <= share;
      for (uint64_t i = 0; i < std::min<uint64_t>(share, choices.size()); ++i) {
        std::swap(choices[i], choices[i + random.Below(static_cast<uint32_t>(choices.size() - i))]);
        next.push_back(script);
        next.back().push_back(choices[i]);
      }
    }
    level = std::move(next);
  }
  return counts;
}

void GoThroughSeeds(const Scene& scene, uint64_t first, uint64_t last) {
  for (uint64_t seed = first; seed <= last; ++seed) {
    Random random(seed);
    const std::unique_ptr<Strategy> strategy = DrawStrategy(&random);
    Scheduler::set_on_failure([&](const std::string&) {
      std::printf("scene %s fails\nreplay: build/tests/core_simulation --scene=%s --seeds=%llu..%llu\n",
                  scene.name, scene.name, static_cast<unsigned long long>(seed),
                  static_cast<unsigned long long>(seed));
    });
    Scheduler::Options options;
    options.flush_one_in = 1 << random.Below(8);
    WorldSettings settings = scene.settings;
    settings.slow_gpu_one_in = static_cast<int>(random.Below(4));
    settings.preempt_at_points_one_in = static_cast<int>(2 * random.Below(4));
    Scheduler scheduler(strategy.get(), &random, options);
    scheduler.Run([&] {
      Stage stage(settings, &random);
      scene.act(&stage);
      stage.Settle();
      stage.CompareAll();
    });
  }
}

void Replay(const Scene& scene, const std::string& schedule) {
  std::vector<Departure> script;
  const char* at = schedule.c_str();
  while (schedule != "plain" && *at != 0) {
    char* end = nullptr;
    Departure departure;
    departure.point = static_cast<uint32_t>(std::strtoul(at, &end, 10));
    departure.choice = static_cast<uint32_t>(std::strtoul(end + 1, &end, 10));
    script.push_back(departure);
    at = *end == ',' ? end + 1 : end;
  }
  settings_of_os().say = [](const std::string& text) { std::printf("  says: %s\n", text.c_str()); };
  RunOnce(scene, script);
}

}  // namespace spillway::simulation
