#include "tests/allocator/every_call_scenes.h"

#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <utility>

#include "allocator/memory/test_points.h"
#include "tests/allocator/core_fixture.h"

namespace spillway::allocator {
namespace {

using fakes::FailMode;

constexpr uint64_t kBlock = 256 << 10;  // 4 chunks
constexpr int kPatience = 5'000;        // polls of a millisecond: no wait of the core is that long here

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

// One scene under way: the device, the blocks with what must be in them, and what was seen.
class Stage {
 public:
  Stage(const CoreSetup& setup, Failure failure, Report* report)
      : setup_(setup), failure_(std::move(failure)), report_(report) {}

  bool Start() {
    absl::StatusOr<std::unique_ptr<CoreDevice>> device = CoreDevice::Create(setup_);
    if (device.ok()) {
      device_ = *std::move(device);
      return true;
    }
    Refused("start", device.status());
    return false;
  }
  CoreDevice& device() { return *device_; }
  void DropDevice() { device_ = nullptr; }

  // From here on calls count, and one fails.
  void Arm() { fakes::Arm(failure_.call, failure_.nth, failure_.mode); }
  // A failure that comes once is over; one that goes on, goes on.
  void AfterAct() {
    report_->counts = fakes::Counts();
    report_->reached = fakes::Reached();
    if (failure_.mode != FailMode::kFromThenOn) fakes::Disarm();
  }

  void Problem(const std::string& what) { report_->problems.push_back(what); }
  void Refused(const std::string& what, const absl::Status& status) {
    if (status.message().empty()) Problem(what + ": refused without a word");
    if (report_->outcome == "success")
      report_->outcome = what + ": " + std::string(status.message().substr(0, 200));
  }

  // ---- Steps. Each may be refused.

  // A new block with a content of its own; -1 when it was refused.
  int Add() {
    const absl::StatusOr<CUdeviceptr> address = device()->Allocate(kBlock, {nullptr, false});
    if (!address.ok()) {
      Refused("allocation", address.status());
      return -1;
    }
    blocks_.push_back({*address, 0, false});
    const int block = static_cast<int>(blocks_.size()) - 1;
    Fill(block, 100 + block);
    return block;
  }
  void Fill(int block, uint64_t version) {
    if (block < 0) return;
    const CUresult result = device().Launch(nullptr, {blocks_[block].address},
                                            [=](const auto& a) { CoreDevice::Fill(a[0], kBlock, version); });
    if (!Launched("launch", result)) return;
    blocks_[block].version = version;
    blocks_[block].filled = Ended();
  }
  // A kernel that reads the block and compares.
  void Check(int block) {
    if (block < 0 || !blocks_[block].filled) return;
    auto wrong = std::make_shared<std::atomic<int64_t>>(-1);
    const uint64_t version = blocks_[block].version;
    const CUresult result = device().Launch(nullptr, {blocks_[block].address}, [=](const auto& a) {
      wrong->store(static_cast<int64_t>(CoreDevice::Differences(a[0], kBlock, version)));
    });
    if (!Launched("launch", result) || !Ended()) return;
    if (wrong->load() != 0)
      Problem("block " + std::to_string(block) + ": " + std::to_string(wrong->load()) + " words are wrong");
  }
  void CheckAll() {
    for (size_t block = 0; block < blocks_.size(); ++block) Check(static_cast<int>(block));
  }
  void Evict(int block) {
    if (block < 0) return;
    Settle();
    {
      const TableLock lock(device()->core()->table);
      Block* const record = At(block);
      if (record->state != BlockState::kResident || record->eviction.job != nullptr || record->pins != 0)
        return;
      device()->evictor()->StartLocked(lock, {record});
    }
    device()->thread()->Wake();
    Settle();
  }
  void CopyOut(int block) {
    if (block < 0) return;
    {
      const TableLock lock(device()->core()->table);
      if (At(block)->state != BlockState::kResident || At(block)->eviction.job != nullptr) return;
      device()->evictor()->CopyOutLocked(lock, At(block), policy::PlanTier::kHost);
    }
    device()->thread()->Wake();
    Settle();
  }
  void Prefetch(int block) {
    if (block < 0) return;
    Begin(block);
    device()->thread()->Wake();
    Settle();
  }
  void Begin(int block, bool in_vain = false) {
    ScopedContext scope(CoreDevice::Driver(), CoreDevice::Context());
    {
      const TableLock lock(device()->core()->table);
      if (At(block)->state != BlockState::kSpilled) return;
      std::vector<ChunkHandle> chunks;
      if (device()->charges()->chunks(lock).TakeFree(At(block)->chunks, &chunks) < At(block)->chunks) {
        device()->charges()->chunks(lock).Give(&chunks);
        return;
      }
      device()->faulter()->BeginLocked(lock, At(block), std::move(chunks), /*prefetch=*/true);
      if (in_vain) Faulter::CancelLocked(lock, At(block));
    }
    const absl::Status started = device()->faulter()->Start(At(block));
    if (!started.ok()) Refused("prefetch", started);
  }
  // A prefetch that is taken back before its reads have begun.
  void PrefetchInVain(int block) {
    if (block < 0) return;
    Begin(block, /*in_vain=*/true);
    device()->thread()->Wake();
    Settle();
    if (failure_.call.empty() && device()->Stats().prefetches_cancelled == 0)
      Problem("nothing was taken back");
  }
  void Hold(int block) {
    if (block < 0) return;
    AccessSet set;
    device().addresses().Collect(blocks_[block].address, &set);
    std::vector<HeldBlock> held;
    const absl::Status status = device()->Hold(set, HoldReason::kPointerTable, &held);
    if (!status.ok()) Refused("hold", status);
    const BlockState state = State(block);
    if (status.ok() && state != BlockState::kResident && state != BlockState::kFaulting)
      Problem("a held block is not on the GPU, nor on its way there");
    device()->EndHold(held, HoldReason::kPointerTable, {});
  }
  void AwaitHash() {
    device()->hash()->Begin();
    for (int i = 0; i < kPatience && device()->hash()->Get() == nullptr; ++i) usleep(1000);
  }

  // The core has given the device up: nothing moves any more, and what was under way stays as it is.
  bool DeviceLost() { return device()->core()->error.first() != CUDA_SUCCESS; }

  // Waits until nothing is on its way, or the device is lost.
  void Settle() {
    for (int i = 0; i < kPatience && !stuck_ && !DeviceLost(); ++i) {
      bool moving = false;
      {
        const TableLock lock(device()->core()->table);
        for (const Known& block : blocks_) {
          const Block& record = device()->core()->table.at(device().addresses().Find(block.address));
          moving |= record.eviction.job != nullptr || record.fetch.job != nullptr || record.memory.mapping;
        }
      }
      if (!moving) return;
      usleep(1000);
    }
    if (DeviceLost()) return;
    if (report_->problems.empty()) Problem("something is still on its way after 5 s");
    stuck_ = true;
  }
  bool stuck() const { return stuck_; }

  // Frees everything and looks for what is left. Objects of the driver cannot be given back when it refuses everything.
  void FreeAll() {
    const bool refuses = Sticky() || DeviceLost() || failure_.mode == FailMode::kFromThenOn;
    for (const Known& block : blocks_) {
      if (const absl::Status freed = device()->Free(block.address); !freed.ok()) Refused("free", freed);
    }
    if (const absl::Status emptied = device()->EmptyCache(); !emptied.ok()) Refused("empty_cache", emptied);
    if (DeviceLost()) return blocks_.clear();  // copies may still be under way: what they use is kept
    for (int i = 0; i < 3000 && (PiecesOut() || SlotsOut() != 0); ++i) usleep(1000);
    if (PiecesOut()) Problem("pieces of host memory were not given back");
    if (SlotsOut() != 0) Problem(std::to_string(SlotsOut()) + " slots were not given back");
    blocks_.clear();
    if (refuses) return;
    // What the failing call itself would have given back, and the device that it took along.
    const bool lost = failure_.mode == FailMode::kOnce && report_->reached &&
                      (failure_.call == "cuMemUnmap" || failure_.call == "cuMemRelease");
    const fakes::DriverObjects objects = fakes::Objects();
    if (objects.mapped != 0 && !lost) Problem(std::to_string(objects.mapped) + " bytes are still mapped");
    if (objects.chunks != 0 && !lost) Problem(std::to_string(objects.chunks) + " chunks were not given back");
    if (!lost) device()->CheckInvariants();
  }

 private:
  struct Known {
    CUdeviceptr address;
    uint64_t version;
    bool filled;  // its kernel has run
  };

  Block* At(int block) {
    return &device()->core()->table.at(device().addresses().Find(blocks_[block].address));
  }
  BlockState State(int block) {
    const TableLock lock(device()->core()->table);
    return At(block)->state;
  }
  bool Sticky() const { return failure_.mode == FailMode::kSticky && fakes::Reached(); }
  bool Launched(const char* what, CUresult result) {
    if (result == CUDA_SUCCESS) return true;
    std::string words = device()->LastError();
    const bool coded = result == fakes::kPlainError || result == fakes::kStickyError;
    if (coded && words.empty()) words = "the driver's error " + std::to_string(result);
    if (words.empty()) Problem(std::string(what) + " answered " + std::to_string(result) + " without a word");
    Refused(what, absl::InternalError(words));
    return false;
  }
  // Whether what was launched has run.
  bool Ended() {
    ScopedContext scope(CoreDevice::Driver(), CoreDevice::Context());
    return CoreDevice::Driver()->cuCtxSynchronize() == CUDA_SUCCESS;
  }
  bool PiecesOut() {
    HostPool& host = device().host();
    bool out = host.storage_in_use() != 0;
    for (HostUse use : {HostUse::kEvictStaging, HostUse::kFaultStaging})
      out |= host.Free(use) != host.Limit(use);
    return out;
  }
  uint64_t SlotsOut() { return device().disk() == nullptr ? 0 : device().disk()->stats().slots_in_use; }

  const CoreSetup setup_;
  const Failure failure_;
  Report* const report_;
  std::unique_ptr<CoreDevice> device_;
  std::vector<Known> blocks_;
  bool stuck_ = false;  // nothing is to be expected any more
};

struct Scene {
  const char* name;
  uint64_t host_bytes;
  bool hash;
  void (*prepare)(Stage& stage);  // before calls count; null: they count from the start of the device on
  void (*act)(Stage& stage);
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
    {"hold", 0, false, &AddAndEvict, [](Stage& stage) { stage.Hold(0); }},
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
    setup.grow_ahead = scene.prepare != nullptr && name != "growth";
    setup.driver = driver;
    setup.may_fail = true;
    setup.hash_code = scene.hash ? &hash : nullptr;
    const size_t descriptors = CountEntries("/proc/self/fd");
    try {
      Play(scene, setup, failure, &report);
    } catch (
        const std::exception& error) {  // the core throws nothing; its standard library does without threads
      fakes::Disarm();
      report.reached = fakes::Reached();
      report.problems.push_back(std::string("an exception: ") + error.what());
    }
    for (int i = 0; i < 3000 && !OurThreads().empty(); ++i) usleep(1000);
    for (const std::string& thread : OurThreads())
      report.problems.push_back("thread " + thread + " still runs");
    const size_t now = CountEntries("/proc/self/fd");
    if (now > descriptors)
      report.problems.push_back(std::to_string(now - descriptors) + " descriptors are still open");
  }
  return report;
}

}  // namespace spillway::allocator
