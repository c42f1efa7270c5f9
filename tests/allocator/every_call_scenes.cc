#include "tests/allocator/every_call_scenes.h"

#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <utility>

#include "allocator/memory/test_points.h"
#include "tests/allocator/core_fixture.h"
#include "tests/fakes/wait_until.h"

namespace spillway::allocator {
namespace {

size_t CountEntries(const char* folder) {
  size_t count = 0;
  DIR* const open = opendir(folder);
  if (open == nullptr) return 0;
  while (readdir(open) != nullptr) ++count;
  closedir(open);
  return count;
}

// Our own threads that still run; the stand-in's are called otherwise.
std::vector<std::string> OurThreads() {
  std::vector<std::string> names;
  DIR* const tasks = opendir("/proc/self/task");
  while (const dirent* entry = readdir(tasks)) {
    const std::string path = std::string("/proc/self/task/") + entry->d_name + "/comm";
    char name[32] = "";
    if (std::FILE* file = std::fopen(path.c_str(), "re")) {
      if (std::fgets(name, sizeof(name), file) == nullptr) name[0] = '\0';
      std::fclose(file);
    }
    if (std::strncmp(name, "spill", 5) == 0) names.push_back(std::string(name, std::strcspn(name, "\n")));
  }
  closedir(tasks);
  return names;
}

struct Scene {
  const char* name;
  uint64_t host_bytes;
  bool hash;
  void (*prepare)(Stage& stage);  // before calls count; null: they count from the start of the device on
  void (*act)(Stage& stage);
  void (*set)(CoreSetup& setup) = nullptr;  // what it needs beside the common setup
};

void AddOne(Stage& stage) { stage.Add(); }
void AddAndEvict(Stage& stage) {
  stage.Add();
  stage.Evict(0);
}

constexpr uint64_t kRoomy = 4 << 20;
const Scene kScenes[] = {
    {"start", kRoomy, true, nullptr, [](Stage& stage) { stage.Add(); }},
    {"growth", 512 << 10, false, [](Stage&) {},
     [](Stage& stage) {
       for (int i = 0; i < 8; ++i) stage.Add();  // 2 MiB on a device of 1 MiB with half a MiB of host memory
     }},
    {"evict to host", kRoomy, false, &AddOne, [](Stage& stage) { stage.Evict(0); }},
    {"evict to disk", 0, false, &AddOne, [](Stage& stage) { stage.Evict(0); }},
    {"fault from host", kRoomy, false, &AddAndEvict, [](Stage& stage) { stage.Check(0); }},
    {"fault from disk", 0, false, &AddAndEvict, [](Stage& stage) { stage.Check(0); }},
    {"prefetch from host", kRoomy, false, &AddAndEvict, [](Stage& stage) { stage.Prefetch(0); }},
    {"prefetch from disk", 0, false, &AddAndEvict, [](Stage& stage) { stage.Prefetch(0); }},
    {"prefetch taken back", 0, false, &AddAndEvict, [](Stage& stage) { stage.PrefetchInVain(0); }},
    {"early copy", kRoomy, true,
     [](Stage& stage) {
       stage.AwaitHash();
       stage.Add();
     },
     [](Stage& stage) {
       stage.CopyOut(0);
       stage.Fill(0, 77);  // the copy is void
     }},
    {"clean drop", kRoomy, true,
     [](Stage& stage) {
       stage.AwaitHash();
       stage.Add();
       stage.Evict(0);
       stage.Check(0);
       stage.Settle();
     },
     [](Stage& stage) { stage.Evict(0); }},
    {"pin", 0, false, &AddAndEvict, [](Stage& stage) { stage.Pin(0); }},
    {"demotion", 1 << 20, false,
     [](Stage& stage) {
       for (int block = 0; block < 3; ++block) {
         stage.Add();
         stage.Evict(block);
       }
       stage.Add();
     },
     [](Stage& stage) { stage.Demote(3); }, [](CoreSetup& setup) { setup.idle_nanos = 1'000'000; }},
    {"larger handles", kRoomy, false,
     [](Stage& stage) {
       for (int i = 0; i < 3; ++i) stage.Add();
       for (int i = 0; i < 2; ++i) stage.FreeLast();
     },
     [](Stage& stage) {
       stage.Add(2 * Stage::kBlock);
       stage.ExpectOtherHandles();
     }},
    {"smaller handles", kRoomy, false, [](Stage& stage) { stage.Add(2 * Stage::kBlock); },
     [](Stage& stage) {
       for (int i = 0; i < 4; ++i) stage.Add();  // the first block leaves, and its handle with it
       stage.Check(0);
       stage.ExpectOtherHandles();
     }},
    {"link", kRoomy, false, &AddOne, [](Stage& stage) { stage.MeasureLink(0); },
     [](CoreSetup& setup) { setup.measure_link = true; }},
    {"verified eviction", kRoomy, true,
     [](Stage& stage) {
       stage.AwaitHash();
       stage.Add();
     },
     [](Stage& stage) {
       stage.Evict(0);
       stage.ExpectVerified();
     },
     [](CoreSetup& setup) { setup.verify_always = true; }},
    {"verified fetch", kRoomy, true,
     [](Stage& stage) {
       stage.AwaitHash();
       stage.Add();
     },
     [](Stage& stage) {
       stage.Evict(0);
       stage.Check(0);
       stage.ExpectComparedFetch();
     },
     [](CoreSetup& setup) { setup.verify_arrivals = true; }},
    {"mapped where it lies", kRoomy, true,
     [](Stage& stage) {
       stage.AwaitHash();
       stage.Add();
     },
     [](Stage& stage) {
       stage.Evict(0);
       stage.Check(0);
       stage.Evict(0);
       stage.FreeLast();
     },
     [](CoreSetup& setup) { setup.reach = setup.soft = true; }},
    {"exit", kRoomy, true,
     [](Stage& stage) {
       stage.AwaitHash();
       for (int i = 0; i < 8; ++i) stage.Add();
     },
     [](Stage& stage) {
       stage.device()->Shutdown();
       stage.device().disk()->Shutdown();
     }},
};

std::string killing_point;  // where KillAt ends the process

void KillAt(const char* point) {
  if (killing_point == point) kill(getpid(), SIGKILL);
}

void Play(const Scene& scene, const CoreSetup& setup, const Failure& failure, Report* report) {
  Stage stage(setup, failure, report);
  if (scene.prepare == nullptr) stage.Arm();
  if (!stage.Start()) return stage.AfterAct();
  if (scene.prepare != nullptr) {
    scene.prepare(stage);
    if (report->outcome != "success") stage.Problem("before any failure: " + report->outcome);
    stage.Arm();
  }
  if (!failure.point.empty()) {
    killing_point = failure.point;
    delay_function.store(&KillAt);
  }
  scene.act(stage);
  stage.AfterAct();
  if (std::strcmp(scene.name, "exit") != 0) {
    stage.Settle();
    if (stage.stuck()) return;
    stage.CheckAll();
    stage.Settle();
    stage.FreeAll();
  }
  fakes::Disarm();
  stage.DropDevice();
}

}  // namespace

std::vector<std::string> SceneNames() {
  std::vector<std::string> names;
  for (const Scene& scene : kScenes) names.push_back(scene.name);
  return names;
}

Report PlayScene(const std::string& name, const std::string& directory, const Failure& failure) {
  Report report;
  report.outcome = "success";
  const CudaDriver* const driver = fakes::CountedDriver(CoreDevice::Driver(), CoreDevice::Context());
  FixedHashCode hash;
  for (const Scene& scene : kScenes) {
    if (name != scene.name) continue;
    CoreSetup setup;
    setup.budget_bytes = 1 << 20;
    setup.host_bytes = scene.host_bytes;
    setup.directory = directory;
    setup.growth_bytes = 4 << 20;
    setup.request_timeout = std::chrono::seconds(2);
    // A thread that a busy drive holds at the end is waited for, since none may be left.
    setup.shutdown_timeout = 2 * Stage::kLongestWait;
    setup.grow_ahead = scene.prepare != nullptr && name != "growth";
    setup.driver = driver;
    setup.may_fail = true;
    setup.hash_code = scene.hash ? &hash : nullptr;
    if (scene.set != nullptr) scene.set(setup);
    // The stand-in keeps its file of host memory.
    const size_t descriptors = CountEntries("/proc/self/fd") + (setup.reach ? 1 : 0);
    try {
      Play(scene, setup, failure, &report);
    } catch (
        const std::exception& error) {  // the core throws nothing; its standard library does without threads
      fakes::Disarm();
      report.reached = fakes::Reached();
      report.problems.push_back(std::string("an exception: ") + error.what());
    }
    if (!tests::WaitUntil([] { return OurThreads().empty(); }, Stage::kLongestWait)) {
      for (const std::string& thread : OurThreads())
        report.problems.push_back("thread " + thread + " still runs");
    }
    const size_t now = CountEntries("/proc/self/fd");
    if (now > descriptors)
      report.problems.push_back(std::to_string(now - descriptors) + " descriptors are still open");
  }
  return report;
}

}  // namespace spillway::allocator
