// core_simulation: random jobs against the simulated core, by seed.
//   core_simulation --seeds=FIRST..LAST --operations=N [--minutes=N] [--mutant=NAME] [--say]
//   core_simulation --scene=NAME|all [--departures=N] [--most=N] [--sample=SEED] [--schedule=PLACE:CHOICE,..]
//                   [--mutant=NAME]
//   core_simulation --scene=NAME|all --seeds=FIRST..LAST [--mutant=NAME]   schedules drawn by seed
//   core_simulation --mutants [--seeds=..] [--operations=N]   what catches each mutant, after how many seeds
// Stops at the first failure with exit code 1 and the one command that replays it; after --minutes, with the
// seeds that were played. Where a scene has more schedules than --most, --sample says which of them are
// played.

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/simulation/job.h"
#include "tests/simulation/mutants.h"
#include "tests/simulation/os.h"
#include "tests/simulation/scenes.h"
#include "tests/simulation/scheduler.h"
#include "tests/simulation/strategies.h"
#include "tests/simulation/world.h"

namespace spillway::simulation {
namespace {

struct Arguments {
  uint64_t first = 1, last = 1;
  bool seeds_given = false;
  int operations = 500;
  double minutes = 0;  // 0: until the last seed
  std::string mutant;
  bool say = false;
  std::string scene, schedule;
  int departures = 2;
  uint64_t most_schedules = 0;
  uint64_t sample = 1;
  bool all_mutants = false;
};

JobCounts RunSeed(const Arguments& arguments, uint64_t seed, uint64_t* steps) {
  Random random(seed);
  const WorldSettings world_settings = WorldSettings::Draw(&random);
  const JobSettings job_settings = JobSettings::Draw(&random, world_settings, arguments.operations);
  const std::string replay = "core_simulation --seeds=" + std::to_string(seed) + ".." + std::to_string(seed) +
                             " --operations=" + std::to_string(arguments.operations) +
                             (arguments.mutant.empty() ? "" : " --mutant=" + arguments.mutant);
  Scheduler::set_on_failure([&](const std::string&) {
    std::printf("seed %llu fails: %s; %s\nreplay: build/tests/%s\n", static_cast<unsigned long long>(seed),
                world_settings.Describe().c_str(), job_settings.Describe().c_str(), replay.c_str());
  });
  settings_of_os().say = nullptr;
  if (arguments.say) {
    std::printf("seed %llu: %s; %s\n", static_cast<unsigned long long>(seed),
                world_settings.Describe().c_str(), job_settings.Describe().c_str());
    settings_of_os().say = [](const std::string& text) { std::printf("  says: %s\n", text.c_str()); };
  }
  const std::unique_ptr<Strategy> strategy = DrawStrategy(&random);
  Scheduler::Options options;
  options.flush_one_in = 1 << random.Below(8);
  JobCounts counts;
  Scheduler scheduler(strategy.get(), &random, options);
  scheduler.Run([&] {
    World world(world_settings, &random);
    counts = RunJob(&world, job_settings, &random);
  });
  *steps += scheduler.steps();
  return counts;
}

uint64_t NumberAfter(const char* text, const char* name) {
  return std::strtoull(text + std::strlen(name), nullptr, 10);
}

bool Parse(int argc, char** argv, Arguments* arguments) {
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    if (text.starts_with("--seeds=")) {
      arguments->seeds_given = true;
      arguments->first = NumberAfter(argv[i], "--seeds=");
      const size_t dots = text.find("..");
      arguments->last = dots == std::string::npos ? arguments->first : NumberAfter(argv[i] + dots, "..");
    } else if (text.starts_with("--operations=")) {
      arguments->operations = static_cast<int>(NumberAfter(argv[i], "--operations="));
    } else if (text.starts_with("--minutes=")) {
      arguments->minutes = std::atof(argv[i] + std::strlen("--minutes="));
    } else if (text.starts_with("--sample=")) {
      arguments->sample = NumberAfter(argv[i], "--sample=");
    } else if (text.starts_with("--mutant=")) {
      arguments->mutant = text.substr(std::strlen("--mutant="));
    } else if (text.starts_with("--scene=")) {
      arguments->scene = text.substr(std::strlen("--scene="));
    } else if (text.starts_with("--schedule=")) {
      arguments->schedule = text.substr(std::strlen("--schedule="));
    } else if (text.starts_with("--departures=")) {
      arguments->departures = static_cast<int>(NumberAfter(argv[i], "--departures="));
    } else if (text.starts_with("--most=")) {
      arguments->most_schedules = NumberAfter(argv[i], "--most=");
    } else if (text == "--mutants") {
      arguments->all_mutants = true;
    } else if (text == "--say") {
      arguments->say = true;
    } else {
      std::fprintf(stderr, "what is %s?\n", argv[i]);
      return false;
    }
  }
  return true;
}

// abort() of the product, and the ends that a mutant may come to.
void Crashed(int signal) {
  if (Scheduler::current() != nullptr)
    Scheduler::current()->Fail("the process ends by signal " + std::to_string(signal));
  std::_Exit(1);
}

int RunScenes(const Arguments& arguments) {
  for (const Scene& scene : AllScenes()) {
    if (arguments.scene != "all" && arguments.scene != scene.name) continue;
    if (!arguments.schedule.empty()) {
      Replay(scene, arguments.schedule);
      continue;
    }
    if (arguments.seeds_given) {
      GoThroughSeeds(scene, arguments.first, arguments.last);
      continue;
    }
    const auto start = std::chrono::steady_clock::now();
    const SceneCounts counts =
        GoThrough(scene, arguments.departures, arguments.most_schedules, arguments.sample);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("%-24s %6llu points, %8llu schedules with at most %d departures%s, %.1f s\n", scene.name,
                static_cast<unsigned long long>(counts.points),
                static_cast<unsigned long long>(counts.schedules), arguments.departures,
                counts.all ? "" : " (a sample)", seconds);
    std::fflush(stdout);
  }
  return 0;
}

// Whether the run, in a process of its own, ends with a failure. One that takes longer than a minute has not.
bool Fails(const std::function<void()>& run) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, 1);
    dup2(nowhere, 2);
    alarm(60);
    run();
    std::_Exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status != 0 && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM);
}

// The first of `first` .. `last` that fails, tried in batches; 0: none.
uint64_t FirstFailing(uint64_t first, uint64_t last, const std::function<void(uint64_t, uint64_t)>& run) {
  constexpr uint64_t kBatch = 64;
  for (uint64_t from = first; from <= last; from += kBatch) {
    const uint64_t to = std::min(last, from + kBatch - 1);
    if (!Fails([&] { run(from, to); })) continue;
    for (uint64_t seed = from; seed <= to; ++seed) {
      if (Fails([&] { run(seed, seed); })) return seed;
    }
  }
  return 0;
}

// What catches the mutant: all schedules of a scene with one departure; random jobs; else random schedules of
// a scene.
struct Caught {
  std::string by_schedules, by_job_seeds, by_scene_seeds;
  bool any() const { return !by_schedules.empty() || !by_scene_seeds.empty() || !by_job_seeds.empty(); }
};

Caught TryMutant(Arguments arguments, const std::string& mutant) {
  arguments.mutant = mutant;
  SetMutant(mutant);
  Caught caught;
  // A rule of pauses is looked for in their scenes, each other one in the rest.
  const std::vector<Scene> of_pauses = PauseScenes();
  const auto others_end = AllScenes().end() - static_cast<std::ptrdiff_t>(of_pauses.size());
  const std::vector<Scene> others(AllScenes().begin(), others_end);
  const std::vector<Scene>& scenes = IsOfPauses(mutant) ? of_pauses : others;
  for (const Scene& scene : scenes) {
    if (caught.by_schedules.empty() && Fails([&] { GoThrough(scene, 1, 0, 1); }))
      caught.by_schedules = scene.name;
  }
  const auto jobs = [&](uint64_t from, uint64_t to) {
    uint64_t steps = 0;
    for (uint64_t seed = from; seed <= to; ++seed) RunSeed(arguments, seed, &steps);
  };
  // Where a scene has caught it, jobs are given fewer tries.
  const uint64_t last = caught.any() ? std::min(arguments.last, arguments.first + 499) : arguments.last;
  if (const uint64_t seed = FirstFailing(arguments.first, last, jobs)) {
    caught.by_job_seeds = std::to_string(seed - arguments.first + 1);
  }
  constexpr uint64_t kSceneSeeds = 10'000;
  for (const Scene& scene : scenes) {
    if (caught.any()) break;
    const auto run = [&](uint64_t from, uint64_t to) { GoThroughSeeds(scene, from, to); };
    if (const uint64_t seed = FirstFailing(1, kSceneSeeds, run)) {
      caught.by_scene_seeds = std::string(scene.name) + ", " + std::to_string(seed);
    }
  }
  return caught;
}

int TryMutants(const Arguments& arguments) {
  int missed = 0;
  std::printf(
      "| mutant | all schedules with one departure of | random jobs, seeds | random schedules of, seeds "
      "|\n|---|---|---|---|\n");
  for (const std::string& mutant : AllMutants()) {
    if (!arguments.mutant.empty() && mutant != arguments.mutant) continue;
    const Caught caught = TryMutant(arguments, mutant);
    std::printf("| `%s` | %s | %s | %s |\n", mutant.c_str(), caught.by_schedules.c_str(),
                caught.by_job_seeds.c_str(), caught.by_scene_seeds.c_str());
    std::fflush(stdout);
    missed += !caught.any();
  }
  std::printf("%d not caught\n", missed);
  return missed == 0 ? 0 : 1;
}

int Main(int argc, char** argv) {
  Arguments arguments;
  if (!Parse(argc, argv, &arguments)) return 2;
  if (!arguments.mutant.empty() && !SetMutant(arguments.mutant)) {
    std::fprintf(stderr, "no mutant %s\n", arguments.mutant.c_str());
    return 2;
  }
  std::signal(SIGABRT, Crashed);
  std::signal(SIGSEGV, Crashed);
  if (!arguments.scene.empty()) return RunScenes(arguments);
  if (arguments.all_mutants) return TryMutants(arguments);
  JobCounts sum;
  uint64_t steps = 0;
  const auto start = std::chrono::steady_clock::now();
  const auto seconds_since = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  uint64_t seed = arguments.first;
  do {
    sum.Add(RunSeed(arguments, seed++, &steps));
  } while (seed <= arguments.last && (arguments.minutes == 0 || seconds_since() < arguments.minutes * 60));
  std::printf(
      "seeds %llu..%llu: %llu operations, %llu launches (%llu refused), %llu allocations refused, %llu "
      "switch "
      "points, "
      "%llu evictions, %llu cancelled, %llu faults, %llu clean drops, %llu early copies, %llu bytes to disk, "
      "%llu pauses, %llu launches that reached host memory, %llu soft evictions, %llu hidden uses, %llu "
      "verified "
      "fetches (%llu with wrong bytes), %.1f s\n",
      static_cast<unsigned long long>(arguments.first), static_cast<unsigned long long>(seed - 1),
      static_cast<unsigned long long>(sum.operations), static_cast<unsigned long long>(sum.launches),
      static_cast<unsigned long long>(sum.refused_launches),
      static_cast<unsigned long long>(sum.refused_allocations), static_cast<unsigned long long>(steps),
      static_cast<unsigned long long>(sum.evictions), static_cast<unsigned long long>(sum.cancelled),
      static_cast<unsigned long long>(sum.faults), static_cast<unsigned long long>(sum.clean_drops),
      static_cast<unsigned long long>(sum.early_copies), static_cast<unsigned long long>(sum.disk_bytes),
      static_cast<unsigned long long>(sum.pauses), static_cast<unsigned long long>(sum.reached_launches),
      static_cast<unsigned long long>(sum.soft_evictions), static_cast<unsigned long long>(sum.hidden_uses),
      static_cast<unsigned long long>(sum.verified_fetches),
      static_cast<unsigned long long>(sum.wrong_arrivals), seconds_since());
  return 0;
}

}  // namespace
}  // namespace spillway::simulation

int main(int argc, char** argv) { return spillway::simulation::Main(argc, argv); }
