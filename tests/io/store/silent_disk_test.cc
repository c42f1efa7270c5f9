// Disks that do not answer: file systems that are frozen, and engines that lose requests. What waits for one
// has a name and an end, and nothing else waits with it.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "io/engine/aligned_buffer.h"
#include "io/os/wait.h"
#include "tests/fakes/faulty_engine.h"
#include "tests/fakes/memory_engine.h"
#include "tests/fakes/wait_until.h"
#include "tests/io/disk_fixture.h"

namespace spillway::io {
namespace {

using ::testing::HasSubstr;

// Should the test end before it thaws, another process does, at the latest after a minute: the kernel would
// keep ours for ever.
class Freeze {
 public:
  explicit Freeze(const std::string& path) : path_(path) {
    frozen_ = std::system(("fsfreeze -f " + path_ + " >/dev/null 2>&1").c_str()) == 0;
    if (!frozen_) return;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return;
    guard_ = fork();
    if (guard_ != 0) {
      close(ends[0]);
      lives_ = ends[1];
      return;
    }
    for (int fd = 0; fd < 256; ++fd) {
      if (fd != ends[0]) close(fd);
    }
    pollfd test_ended = {.fd = ends[0], .events = POLLIN, .revents = 0};
    poll(&test_ended, 1, 60'000);
    execlp("fsfreeze", "fsfreeze", "-u", path_.c_str(), nullptr);
    _exit(127);
  }
  ~Freeze() { Thaw(); }
  void Thaw() {
    if (!frozen_ || std::system(("fsfreeze -u " + path_).c_str()) != 0) return;
    frozen_ = false;
    if (guard_ < 0) return;
    kill(guard_, SIGKILL);
    waitpid(guard_, nullptr, 0);
    close(lives_);
  }
  bool frozen() const { return frozen_; }

 private:
  const std::string path_;
  bool frozen_ = false;
  pid_t guard_ = -1;
  int lives_ = -1;  // the end of a pipe to the guard, which is closed when this process ends
};

bool WaitsFor(const os::WaitList& waits, os::WaitKind kind, const std::string& subject) {
  for (const os::WaitList::Entry& entry : waits.UnderWay()) {
    if (entry.kind == kind && entry.subject.find(subject) != std::string::npos) return true;
  }
  return false;
}

using SilentDiskTest = DiskTest;

TEST_F(SilentDiskTest, GrowthOnADiskThatDoesNotAnswerIsAWaitThatNamesItAndEnds) {
  MOUNT_OR_SKIP(128);
  os::WaitList waits(
      os::Clock::System(), [](const std::string&) {}, std::chrono::seconds(2));
  SpillStoreOptions options = DiskOptions(path());
  options.waits = &waits;
  auto store = MakeStore(options);
  Freeze freeze(path());
  if (!freeze.frozen()) GTEST_SKIP() << "freezing a file system is not permitted here";
  absl::Status grown;
  std::thread caller([&] { grown = store->GrowTo(64 * kMiB); });
  EXPECT_TRUE(
      tests::WaitUntil([&] { return WaitsFor(waits, os::WaitKind::kDiskGrowth, path() + " (loop"); }));
  caller.join();
  EXPECT_TRUE(absl::IsDeadlineExceeded(grown)) << grown;
  EXPECT_THAT(std::string(grown.message()), HasSubstr(path()));
  EXPECT_TRUE(absl::IsUnavailable(store->TakeSlots(1).status()));  // and does not wait
  const auto start = std::chrono::steady_clock::now();
  store->Shutdown();
  // Less than the 30 s after which a request is given up.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  freeze.Thaw();
}

TEST_F(SilentDiskTest, AnotherDiskMakesUpForOneThatDoesNotAnswer) {
  MOUNT_OR_SKIP(128);
  TestDirectory answers;
  SpillStoreOptions options = DiskOptions(path());
  options.directories.push_back({answers.path(), 0});
  auto store = MakeStore(options);
  Freeze freeze(path());
  if (!freeze.frozen()) GTEST_SKIP() << "freezing a file system is not permitted here";
  EXPECT_TRUE(store->GrowTo(64 * kMiB).ok());
  freeze.Thaw();
}

class FrozenTransferTest : public DiskTest, public ::testing::WithParamInterface<EngineKind> {};

INSTANTIATE_TEST_SUITE_P(Engines, FrozenTransferTest,
                         ::testing::Values(EngineKind::kThreads, EngineKind::kUring));

TEST_P(FrozenTransferTest, ARequestWithoutAnswerIsAWaitAndTheEndDoesNotJoinIt) {
  MOUNT_OR_SKIP(128);
  os::WaitList waits(os::Clock::System(), [](const std::string&) {});
  SpillStoreOptions options = DiskOptions(path());
  options.waits = &waits;
  options.engine = GetParam();
  absl::StatusOr<std::unique_ptr<SpillStore>> made = SpillStore::Create(options);
  if (!made.ok()) GTEST_SKIP() << made.status();
  std::unique_ptr<SpillStore> store = *std::move(made);
  const SlotId slot = Reserve(store.get(), 1)[0];
  Freeze freeze(path());
  if (!freeze.frozen()) GTEST_SKIP() << "freezing a file system is not permitted here";
  // Never freed: what is stuck is not waited for, and may still read it.
  auto* const data = new AlignedBuffer(kSlotBytes);
  Waiter waiter;
  store->Write(slot, data->data(), kSlotBytes, waiter.Expect());
  EXPECT_TRUE(tests::WaitUntil(
      [&] { return WaitsFor(waits, os::WaitKind::kDrive, "a write to " + path() + " (loop"); }));
  const auto start = std::chrono::steady_clock::now();
  store->Shutdown();
  // Less than the 30 s after which a request is given up.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  EXPECT_FALSE(waiter.WaitAll()[0].ok());
  freeze.Thaw();
}

// A frozen file system reads, and keeps writes until it thaws.
TEST_P(FrozenTransferTest, ReadsOfGoodSlotsGetPastWritesWithoutAnswer) {
  MOUNT_OR_SKIP(128);
  SpillStoreOptions options = DiskOptions(path());
  options.engine = GetParam();
  absl::StatusOr<std::unique_ptr<SpillStore>> made = SpillStore::Create(options);
  if (!made.ok()) GTEST_SKIP() << made.status();
  std::unique_ptr<SpillStore> store = *std::move(made);
  AlignedBuffer data(kSlotBytes);
  FillPattern(data.data(), kSlotBytes, 1);
  const std::vector<SlotId> slots = Reserve(store.get(), 12);
  for (size_t i = 0; i < 2; ++i) ASSERT_TRUE(WriteSync(store.get(), slots[i], data.data(), kSlotBytes).ok());
  Freeze freeze(path());
  if (!freeze.frozen()) GTEST_SKIP() << "freezing a file system is not permitted here";
  Waiter writes;
  for (size_t i = 2; i < slots.size(); ++i) store->Write(slots[i], data.data(), kSlotBytes, writes.Expect());
  AlignedBuffer back(kSlotBytes);
  for (int round = 0; round < 20; ++round) {  // so that all writes have begun that may
    std::memset(back.data(), 0, kSlotBytes);
    Waiter read;
    store->Read(slots[round % 2], back.data(), kSlotBytes, Priority::kDemand, read.Expect());
    ASSERT_TRUE(read.WaitAll()[0].ok());
    EXPECT_EQ(std::memcmp(back.data(), data.data(), kSlotBytes), 0);
  }
  freeze.Thaw();
  for (const absl::Status& status : writes.WaitAll()) EXPECT_TRUE(status.ok()) << status;
}

TEST(DriveWaitTest, TheFirstAnswerOfADirectoryIsAWaitThatNamesItAndEnds) {
  TestDirectory directory;
  os::WaitList waits(os::Clock::System(), [](const std::string&) {});
  SpillStoreOptions options = SmallOptions(directory.path());
  options.waits = &waits;
  options.probe_timeout = std::chrono::seconds(1);
  options.wrap_probed_engine = [](const std::unique_ptr<IoEngine>&) {
    FaultPlan plan;
    plan.faults = {Fault{.kind = FaultKind::kNever}};
    return MakeFaultyEngine(MakeMemoryEngine({}), plan);
  };
  absl::Status created;
  std::thread caller([&] { created = SpillStore::Create(options).status(); });
  EXPECT_TRUE(tests::WaitUntil(
      [&] { return WaitsFor(waits, os::WaitKind::kDrive, "the first answer of " + directory.path()); }));
  caller.join();
  EXPECT_TRUE(absl::IsDeadlineExceeded(created)) << created;
  EXPECT_TRUE(waits.UnderWay().empty());
}

TEST(DriveWaitTest, ARequestThatTakesLongNamesDriveAndDirectoryUntilItIsGivenUp) {
  TestDirectory directory;
  os::WaitList waits(os::Clock::System(), [](const std::string&) {});
  Fault never;
  never.kind = FaultKind::kNever;
  SpillStoreOptions options = FaultyOptions(directory.path(), never);
  options.waits = &waits;
  options.request_timeout = std::chrono::seconds(3);
  auto store = MakeStore(options);
  const SlotId slot = Reserve(store.get(), 1)[0];
  AlignedBuffer data(kSlotBytes);
  Waiter waiter;
  store->Write(slot, data.data(), kPageBytes, waiter.Expect());
  EXPECT_TRUE(tests::WaitUntil(
      [&] { return WaitsFor(waits, os::WaitKind::kDrive, "a write to " + directory.path()); }));
  EXPECT_TRUE(absl::IsDeadlineExceeded(waiter.WaitAll()[0]));
  EXPECT_TRUE(tests::WaitUntil([&] { return waits.UnderWay().empty(); }));
  EXPECT_EQ(waits.Metrics()[static_cast<size_t>(os::WaitKind::kDrive)].ended, 2u);  // with that of the start
  EXPECT_EQ(store->capacity_bytes(), 0u);
}

}  // namespace
}  // namespace spillway::io
