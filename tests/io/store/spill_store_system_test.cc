// SpillStore and the system around it: killed processes, forks, file size limits, full disks, containers that
// refuse io_uring. The program runs itself again where a test needs a process of its own.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <span>
#include <utility>

#include "io/engine/aligned_buffer.h"
#include "io/store/spill_store.h"
#include "tests/fakes/memory_engine.h"
#include "tests/fakes/wait_until.h"
#include "tests/io/loop_mount.h"
#include "tests/io/store_helpers.h"

namespace spillway::io {
namespace {

using ::testing::HasSubstr;

constexpr size_t kKilledSlots = 40;  // 80 MiB

// Runs this program with `arguments`; its standard output comes through `output`.
struct Child {
  pid_t pid = -1;
  int output = -1;

  explicit Child(std::vector<std::string> arguments) {
    int ends[2];
    if (pipe(ends) != 0) return;
    pid = fork();
    if (pid == 0) {
      dup2(ends[1], STDOUT_FILENO);
      close(ends[0]);
      close(ends[1]);
      std::vector<char*> argv = {const_cast<char*>("spill_store_system_test")};
      for (std::string& argument : arguments) argv.push_back(argument.data());
      argv.push_back(nullptr);
      execv("/proc/self/exe", argv.data());
      _exit(127);
    }
    close(ends[1]);
    output = ends[0];
  }
  ~Child() { close(output); }

  // Up to the first line's end, or what there was.
  std::string ReadLine() const {
    std::string line;
    char byte;
    while (read(output, &byte, 1) == 1 && byte != '\n') line += byte;
    return line;
  }

  int Wait() const {
    int status = 0;
    waitpid(pid, &status, 0);
    return status;
  }
};

// In a child of its own: spills without end until it is killed, and writes a line for each slot.
int SpillForEver(const std::string& path) {
  auto store = MakeStore(SmallOptions(path));
  const std::vector<SlotId> slots = Reserve(store.get(), kKilledSlots);
  AlignedBuffer data(kSlotBytes);
  for (uint64_t round = 0;; ++round) {
    FillPattern(data.data(), kSlotBytes, round);
    Waiter waiter;
    for (const SlotId slot : slots) {
      store->Write(slot, data.data(), kSlotBytes, [done = waiter.Expect()](absl::Status status) {
        std::puts(status.ok() ? "written" : "failed");
        std::fflush(stdout);
        done(std::move(status));
      });
    }
    waiter.WaitAll();
  }
}

// In a child of its own: refuses system calls of io_uring with `error`, from `first_call` on, and then
// spills.
int SpillWithoutUring(const std::string& path, int error, int first_call) {
  const auto at = [](size_t offset) { return static_cast<__u32>(offset); };
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at(offsetof(seccomp_data, nr))),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, static_cast<__u32>(first_call), 0, 2),
      BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, __NR_io_uring_register, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<__u32>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {std::size(filter), filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    std::puts("no seccomp");
    return 0;
  }
  SpillStoreOptions options = SmallOptions(path);
  options.engine = EngineKind::kUring;
  const absl::Status refused = SpillStore::Create(options).status();
  if (refused.ok() || refused.message().find(path) == absl::string_view::npos) return 1;
  options.engine = EngineKind::kAuto;
  auto store = MakeStore(options);
  AlignedBuffer data(kSlotBytes);
  AlignedBuffer back(kSlotBytes);
  FillPattern(data.data(), kSlotBytes, 1);
  const SlotId slot = Reserve(store.get(), 1)[0];
  if (!WriteSync(store.get(), slot, data.data(), kSlotBytes).ok()) return 2;
  if (!ReadSync(store.get(), slot, back.data(), kSlotBytes).ok()) return 3;
  if (std::memcmp(data.data(), back.data(), kSlotBytes) != 0) return 4;
  std::puts(store->stats().directories[0].engine);
  return 0;
}

// Stops the process in the first call that waits for a request. The disk answers a little after it goes on:
// not to calls that only look.
class StoppingEngine : public IoEngine {
 public:
  explicit StoppingEngine(std::unique_ptr<IoEngine> inner) : inner_(std::move(inner)) {}
  const char* name() const override { return inner_->name(); }
  size_t capacity() const override { return inner_->capacity(); }
  void Submit(std::span<const IoRequest> requests) override {
    submitted_ = true;
    inner_->Submit(requests);
  }
  size_t Poll(std::span<IoResult> results, std::chrono::nanoseconds timeout) override {
    if (timeout == std::chrono::nanoseconds::zero()) return 0;
    if (!submitted_ || std::exchange(was_stopped_, true)) return inner_->Poll(results, timeout);
    raise(SIGSTOP);  // of this thread, so that it goes no further
    return 0;
  }
  void Wake() override { inner_->Wake(); }
  bool Stop(std::chrono::nanoseconds timeout) override { return inner_->Stop(timeout); }

 private:
  const std::unique_ptr<IoEngine> inner_;
  bool submitted_ = false;
  bool was_stopped_ = false;
};

constexpr auto kSilence = std::chrono::milliseconds(500);  // of a disk, before a request is given up
constexpr auto kStop =
    std::chrono::milliseconds(1500);  // more than that, and as a stop is told from a busy machine

// In a child of its own: spills one page, and stops meanwhile.
int SpillWhileStopped(const std::string& path) {
  SpillStoreOptions options = SmallOptions(path);
  options.engine = EngineKind::kThreads;
  options.request_timeout = kSilence;
  // In memory: a file on a busy machine may be silent for longer than that.
  options.wrap_engine = [](std::unique_ptr<IoEngine> inner, size_t) {
    return std::make_unique<StoppingEngine>(MakeMemoryEngine({.capacity = inner->capacity()}));
  };
  auto store = MakeStore(options);
  const SlotId slot = Reserve(store.get(), 1)[0];
  AlignedBuffer data(kPageBytes);
  FillPattern(data.data(), kPageBytes, 1);
  Waiter waiter;
  store->Write(slot, data.data(), kPageBytes, waiter.Expect());
  const absl::Status status = waiter.WaitAll()[0];
  std::puts(store->stats().directories[0].closed ? "bad" : status.ToString().c_str());
  std::fflush(stdout);
  return 0;
}

// True once at least `bytes` are free in `path`; the kernel frees a dead process's blocks soon, not at once.
bool SpaceComesBack(const std::string& path, uint64_t bytes) {
  return tests::WaitUntil([&] { return FreeBytes(path) >= bytes; });
}

TEST(SpillStoreSystemTest, NothingRemainsAfterSigkillAtARandomMoment) {
  LoopMount mount(256);
  TestDirectory directory;
  const std::string path = mount.mounted() ? mount.path() : directory.path();
  // On a disk shared with others only the size of the file itself can be told from their noise.
  const uint64_t slack = mount.mounted() ? 1u << 20 : 60u << 20;
  const auto files = [&path] {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      count += entry.path().filename() == "lost+found" ? 0 : 1;
    }
    return count;
  };
  std::mt19937 random(20240229);
  for (int round = 0; round < 6; ++round) {
    const uint64_t before = FreeBytes(path);
    Child child({"--spill", path});
    for (size_t slots = kKilledSlots + random() % kKilledSlots; slots > 0; --slots) {
      ASSERT_EQ(child.ReadLine(), "written");
    }
    EXPECT_LT(FreeBytes(path) + (64u << 20), before + (mount.mounted() ? 0 : slack));
    ASSERT_EQ(kill(child.pid, SIGKILL), 0);
    child.Wait();
    EXPECT_EQ(files(), 0u);
    EXPECT_TRUE(SpaceComesBack(path, before - slack)) << FreeBytes(path) << " of " << before;
  }
}

TEST(SpillStoreSystemTest, AStoppedProcessDoesNotTakeItsDiskForSilent) {
  TestDirectory directory;
  Child child({"--stopped", directory.path()});
  int status = 0;
  ASSERT_EQ(waitpid(child.pid, &status, WUNTRACED), child.pid);
  ASSERT_TRUE(WIFSTOPPED(status));
  const auto goes_on = std::chrono::steady_clock::now() + kStop;
  EXPECT_TRUE(tests::WaitUntil([goes_on] { return std::chrono::steady_clock::now() >= goes_on; }));
  ASSERT_EQ(kill(child.pid, SIGCONT), 0);
  EXPECT_EQ(child.ReadLine(), "OK");
  EXPECT_EQ(child.Wait(), 0);
}

TEST(SpillStoreSystemTest, FallsBackToThreadsWhereUringIsRefused) {
  TestDirectory directory;
  for (const int first_call : {__NR_io_uring_setup, __NR_io_uring_enter, __NR_io_uring_register}) {
    for (const int error : {EPERM, ENOSYS, EOPNOTSUPP, EACCES}) {
      Child child({"--no-uring", directory.path(), std::to_string(error), std::to_string(first_call)});
      const std::string engine = child.ReadLine();
      const int status = child.Wait();
      if (engine == "no seccomp") GTEST_SKIP() << "a seccomp filter cannot be installed here";
      EXPECT_EQ(status, 0) << error << " from call " << first_call;
      EXPECT_EQ(engine, "threads");
    }
  }
}

class SpillStoreLimitTest : public ::testing::TestWithParam<EngineKind> {
 protected:
  void SetUp() override { ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before_), 0); }
  void TearDown() override { setrlimit(RLIMIT_FSIZE, &before_); }

  void Limit(uint64_t bytes) {
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }

  SpillStoreOptions Options() {
    SpillStoreOptions options = SmallOptions(directory_.path());
    options.engine = GetParam();
    options.shutdown_timeout = tests::kPatience;  // descriptors are counted
    return options;
  }

  TestDirectory directory_;
  rlimit before_{};
};

INSTANTIATE_TEST_SUITE_P(Engines, SpillStoreLimitTest,
                         ::testing::Values(EngineKind::kThreads, EngineKind::kUring), [](const auto& tested) {
                           return tested.param == EngineKind::kThreads ? "Threads" : "Uring";
                         });

TEST_P(SpillStoreLimitTest, GrowsOnlyToTheFileSizeLimit) {
  Limit(10 * kSlotBytes + kPageBytes);
  auto store = MakeStore(Options());
  EXPECT_EQ(Reserve(store.get(), 10).size(), 10u);
  const absl::Status status = store->ReserveSlots(1).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("(ulimit -f) keeps from growing"));
}

// The signal that the kernel sends with EFBIG would end the job.
TEST_P(SpillStoreLimitTest, AWriteOverTheLimitIsAnErrorAndNothingElse) {
  auto store = MakeStore(Options());
  const std::vector<SlotId> slots = Reserve(store.get(), 4);
  AlignedBuffer data(kSlotBytes);
  AlignedBuffer back(kSlotBytes);
  FillPattern(data.data(), kSlotBytes, 1);
  ASSERT_TRUE(WriteSync(store.get(), slots[0], data.data(), kSlotBytes).ok());
  Limit(kSlotBytes + kSlotBytes / 2 + 5 * kPageBytes);  // in the middle of a request: short, then EFBIG
  const absl::Status status = WriteSync(store.get(), slots[1], data.data(), kSlotBytes);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_GE(store->stats().retries, 1u);
  EXPECT_TRUE(absl::IsFailedPrecondition(ReadSync(store.get(), slots[1], back.data(), kSlotBytes)));
  ASSERT_TRUE(ReadSync(store.get(), slots[0], back.data(), kSlotBytes).ok());
  EXPECT_EQ(std::memcmp(data.data(), back.data(), kSlotBytes), 0);
}

TEST(SpillStoreSystemTest, AFullDiskIsResourceExhaustedAndKeepsWhatItHolds) {
  LoopMount mount(64);
  if (!mount.mounted()) GTEST_SKIP() << "mounting a loop device is not permitted here";
  SpillStoreOptions options = SmallOptions(mount.path());
  options.disk_reserve_bytes = 1;  // the file system itself is the limit
  options.growth_bytes = 1u << 30;
  auto store = MakeStore(options);
  std::vector<SlotId> slots;
  while (true) {
    absl::StatusOr<std::vector<SlotId>> more = store->ReserveSlots(1);
    if (!more.ok()) {
      EXPECT_TRUE(absl::IsResourceExhausted(more.status())) << more.status();
      break;
    }
    slots.push_back((*more)[0]);
  }
  EXPECT_GE(slots.size(), 20u);
  EXPECT_EQ(store->stats().file_bytes, slots.size() * kSlotBytes);
  AlignedBuffer data(kSlotBytes);
  for (size_t i = 0; i < slots.size(); ++i) {
    FillPattern(data.data(), kSlotBytes, i);
    ASSERT_TRUE(WriteSync(store.get(), slots[i], data.data(), kSlotBytes).ok());
  }
  AlignedBuffer back(kSlotBytes);
  for (size_t i = 0; i < slots.size(); ++i) {
    FillPattern(data.data(), kSlotBytes, i);
    ASSERT_TRUE(ReadSync(store.get(), slots[i], back.data(), kSlotBytes).ok());
    ASSERT_EQ(std::memcmp(data.data(), back.data(), kSlotBytes), 0);
  }
  store->Shutdown();
  EXPECT_TRUE(SpaceComesBack(mount.path(), slots.size() * kSlotBytes));
}

size_t OpenDescriptors() {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    static_cast<void>(entry);
    ++count;
  }
  return count;
}

// In the forked child: as the child handler of the product does it.
int AbandonInChild(SpillStore* store, size_t descriptors_before) {
  store->AbandonAfterFork();
  if (OpenDescriptors() > descriptors_before) return 1;
  store->~SpillStore();
  return 0;
}

TEST_P(SpillStoreLimitTest, AForkedChildHoldsNoSpaceAndDisturbsNobody) {
  const size_t descriptors = OpenDescriptors();
  auto store = MakeStore(Options());
  const std::vector<SlotId> slots = Reserve(store.get(), 8);
  AlignedBuffer data(kSlotBytes);
  AlignedBuffer back(kSlotBytes);
  FillPattern(data.data(), kSlotBytes, 1);
  Waiter waiter;
  for (const SlotId slot : slots) store->Write(slot, data.data(), kSlotBytes, waiter.Expect());
  const pid_t child = fork();  // in the middle of the writes
  if (child == 0) _exit(AbandonInChild(store.get(), descriptors));
  for (const absl::Status& status : waiter.WaitAll()) EXPECT_TRUE(status.ok()) << status;
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  for (const SlotId slot : slots) {
    ASSERT_TRUE(ReadSync(store.get(), slot, back.data(), kSlotBytes).ok());
    ASSERT_EQ(std::memcmp(data.data(), back.data(), kSlotBytes), 0);
  }
  store.reset();
  EXPECT_EQ(OpenDescriptors(), descriptors);
}

TEST(SpillStoreSystemTest, SpaceIsFreeAgainWhileAForkedChildLives) {
  LoopMount mount(128);
  if (!mount.mounted()) GTEST_SKIP() << "mounting a loop device is not permitted here";
  const uint64_t before = FreeBytes(mount.path());
  auto store = MakeStore(SmallOptions(mount.path()));
  Reserve(store.get(), 32);
  ASSERT_LT(FreeBytes(mount.path()), before - (60u << 20));
  const pid_t child = fork();
  if (child == 0) {
    store->AbandonAfterFork();
    pause();
    _exit(0);
  }
  store.reset();
  EXPECT_TRUE(SpaceComesBack(mount.path(), before - (1u << 20)));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace spillway::io

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--spill") == 0) return spillway::io::SpillForEver(argv[2]);
  if (argc == 3 && std::strcmp(argv[1], "--stopped") == 0) return spillway::io::SpillWhileStopped(argv[2]);
  if (argc == 5 && std::strcmp(argv[1], "--no-uring") == 0) {
    return spillway::io::SpillWithoutUring(argv[2], std::atoi(argv[3]), std::atoi(argv[4]));
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
