// What SpillStore lets be promised: bytes that are there, on disks that other processes fill, that run full,
// that close, and that are shared. Small file systems of the test's own stand for the disks.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "io/engine/aligned_buffer.h"
#include "io/store/spill_store.h"
#include "tests/fakes/wait_until.h"
#include "tests/io/disk_fixture.h"

namespace spillway::io {
namespace {

using ::testing::HasSubstr;

// Takes all that is free, as another user of the disk.
class Filler {
 public:
  explicit Filler(const std::string& directory) : path_(directory + "/filler") {
    const int fd = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    off_t size = 0;
    for (off_t step = 64 << 20; fd >= 0 && step >= 4096; step /= 2) {
      while (posix_fallocate(fd, size, step) == 0) size += step;
    }
    filled_ = size > 0;
    close(fd);
  }
  ~Filler() { Remove(); }
  void Remove() { unlink(path_.c_str()); }
  bool filled() const { return filled_; }

 private:
  const std::string path_;
  bool filled_ = false;
};

// Writes and reads all `slots` at once.
void ExpectUsable(SpillStore* store, const std::vector<SlotId>& slots) {
  AlignedBuffer data(kSlotBytes);
  FillPattern(data.data(), kSlotBytes, 7);
  Waiter writes;
  for (const SlotId slot : slots) store->Write(slot, data.data(), kSlotBytes, writes.Expect());
  for (const absl::Status& status : writes.WaitAll()) EXPECT_TRUE(status.ok()) << status;
  AlignedBuffer back(kSlotBytes);
  for (const SlotId slot : slots) {
    ASSERT_TRUE(ReadSync(store, slot, back.data(), kSlotBytes).ok());
    ASSERT_EQ(std::memcmp(back.data(), data.data(), kSlotBytes), 0);
  }
}

// In a process of its own: takes capacity and keeps it until it is killed.
int Hold(const std::string& path, uint64_t bytes) {
  auto store = MakeStore(DiskOptions(path));
  const bool ok = store->GrowTo(bytes).ok();
  // Blocks that were written are freed later than such that were only allocated.
  AlignedBuffer data(kSlotBytes);
  for (int i = 0; ok && i < 64; ++i) {
    WriteSync(store.get(), Reserve(store.get(), 1)[0], data.data(), kSlotBytes).IgnoreError();
  }
  const char said = ok ? 'y' : 'n';
  if (write(STDOUT_FILENO, &said, 1) != 1) return 1;
  pause();
  return 0;
}

using SpillGrowthTest = DiskTest;

TEST_F(SpillGrowthTest, WhatOthersTookIsNotPromisedAndWhatWasPromisedCanBeWritten) {
  MOUNT_OR_SKIP(256);
  auto store = MakeStore(DiskOptions(path()));
  EXPECT_EQ(store->capacity_bytes(), 0u) << "free space promises nothing";
  ASSERT_TRUE(store->GrowTo(64 * kMiB).ok());
  Filler others(path());
  ASSERT_TRUE(others.filled());
  // Also ends what is being grown ahead of need.
  const absl::Status refused = store->GrowTo(kGiB);
  const uint64_t capacity = store->capacity_bytes();
  EXPECT_GE(capacity, 64 * kMiB);
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr(path()));
  EXPECT_TRUE(absl::IsResourceExhausted(store->GrowTo(capacity + kSlotBytes)));
  EXPECT_EQ(store->capacity_bytes(), capacity);
  // The disk has not a byte more, and none is needed.
  ExpectUsable(store.get(), Reserve(store.get(), capacity / kSlotBytes));
  const absl::Status more = store->TakeSlots(1).status();
  EXPECT_TRUE(absl::IsResourceExhausted(more) || absl::IsUnavailable(more)) << more;
  others.Remove();
  EXPECT_TRUE(tests::WaitUntil([&] { return store->GrowTo(capacity + 32 * kMiB).ok(); }));
}

// btrfs counts allocated space as free until its next commit.
TEST_F(SpillGrowthTest, TheReserveStaysOnBtrfs) {
  MOUNT_OR_SKIP({.mebibytes = 3072, .type = "btrfs"});
  SpillStoreOptions options = DiskOptions(path());
  options.disk_reserve_bytes = kGiB;
  options.growth_bytes = 256 * kMiB;
  auto store = MakeStore(options);
  uint64_t wanted = 0;
  while (store->GrowTo(wanted + 256 * kMiB).ok()) wanted += 256 * kMiB;
  EXPECT_GE(wanted, kGiB);
  ASSERT_TRUE(LoopMount::Runs("sync -f " + path()));
  EXPECT_GE(FreeBytes(path()), 1000 * kMiB);
}

TEST_F(SpillGrowthTest, TakingSlotsNeverWaitsAndHasFilesGrown) {
  MOUNT_OR_SKIP(128);
  auto store = MakeStore(DiskOptions(path()));
  EXPECT_TRUE(absl::IsUnavailable(store->TakeSlots(4).status()));
  EXPECT_TRUE(tests::WaitUntil([&] { return store->TakeSlots(4).ok(); }));
}

// ext4 without extents has no fallocate, as ext2 and ext3.
TEST_F(SpillGrowthTest, WhereFallocateIsMissingFilesGrowByWriting) {
  MOUNT_OR_SKIP(256, "^extent,^64bit");
  const uint64_t free = FreeBytes(path());
  auto store = MakeStore(DiskOptions(path()));
  ASSERT_TRUE(store->GrowTo(64 * kMiB).ok());
  EXPECT_LE(FreeBytes(path()), free - 64 * kMiB) << "the blocks are there, not only the size";
  Filler others(path());
  ASSERT_TRUE(others.filled());
  EXPECT_TRUE(absl::IsResourceExhausted(store->GrowTo(kGiB)));
  ExpectUsable(store.get(), Reserve(store.get(), 64 * kMiB / kSlotBytes));
}

// Two jobs on one disk of 3 GiB.
TEST_F(SpillGrowthTest, TwoJobsThatFitBothHaveTheirCapacity) {
  MOUNT_OR_SKIP(3072);
  auto first = MakeStore(DiskOptions(path()));
  auto second = MakeStore(DiskOptions(path()));
  std::thread other([&] {
    for (uint64_t bytes = 0; bytes <= 1229 * kMiB; bytes += 48 * kMiB)
      EXPECT_TRUE(second->GrowTo(bytes).ok());
  });
  for (uint64_t bytes = 0; bytes <= 1229 * kMiB; bytes += 48 * kMiB) EXPECT_TRUE(first->GrowTo(bytes).ok());
  other.join();
}

TEST_F(SpillGrowthTest, OfTwoJobsThatDoNotFitTheFirstHasItsCapacityOnceTheOtherIsRefused) {
  MOUNT_OR_SKIP(3072);
  auto first = MakeStore(DiskOptions(path()));
  auto second = MakeStore(DiskOptions(path()));
  // The second is at most a step ahead, or it could have all before the first has begun.
  std::atomic<uint64_t> most_for_second{0};
  const auto allow = [&most_for_second](uint64_t bytes) {
    most_for_second = bytes;
    most_for_second.notify_one();
  };
  absl::Status refused;
  std::thread other([&] {
    for (uint64_t bytes = 0; bytes <= 2048 * kMiB && refused.ok(); bytes += 48 * kMiB) {
      for (uint64_t most; (most = most_for_second.load()) < bytes;) most_for_second.wait(most);
      refused = second->GrowTo(bytes);
    }
    second->Shutdown();  // as a job that ends for want of memory
  });
  absl::Status granted;
  for (uint64_t bytes = 0; bytes <= 2048 * kMiB && granted.ok(); bytes += 48 * kMiB) {
    allow(bytes + 48 * kMiB);
    granted = first->GrowTo(bytes);
  }
  allow(UINT64_MAX);
  other.join();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_TRUE(granted.ok()) << granted;
}

TEST_F(SpillGrowthTest, WhatWasGrownAndIsNotNeededGoesBackWhenTheDiskRunsShort) {
  MOUNT_OR_SKIP(512);
  auto first = MakeStore(DiskOptions(path()));
  PromisedCapacity owner(300 * kMiB);
  first->SetOwner(&owner);
  ASSERT_TRUE(first->GrowTo(300 * kMiB).ok());
  auto second = MakeStore(DiskOptions(path()));
  EXPECT_TRUE(absl::IsResourceExhausted(second->GrowTo(300 * kMiB)));
  EXPECT_GE(first->capacity_bytes(), 300 * kMiB) << "what is promised stays";
  owner.promised_bytes = 50 * kMiB;  // a batch was too large, and is halved
  EXPECT_TRUE(tests::WaitUntil([&] { return second->GrowTo(300 * kMiB).ok(); }));
  EXPECT_GE(first->capacity_bytes(), 50 * kMiB);
  first->SetOwner(nullptr);
}

// ext4 frees the space of a killed process at its next commit, some seconds later.
TEST_F(SpillGrowthTest, ARestartRightAfterAKillHasTheCapacityThatTheFirstHad) {
  MOUNT_OR_SKIP(3072);
  const uint64_t free = FreeBytes(path());
  const uint64_t wanted = free / 100 * 95;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ready[1], STDOUT_FILENO);
    close(ready[0]);
    close(ready[1]);
    execl("/proc/self/exe", "spill_growth_test", "--hold", path().c_str(), std::to_string(wanted).c_str(),
          nullptr);
    _exit(127);
  }
  close(ready[1]);
  char ok = 0;
  EXPECT_EQ(read(ready[0], &ok, 1), 1);
  EXPECT_EQ(ok, 'y');
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  SpillStoreOptions options = DiskOptions(path());
  options.late_frees = tests::kPatience;
  const auto start = std::chrono::steady_clock::now();
  auto store = MakeStore(options);
  const absl::Status grown = store->GrowTo(wanted);
  EXPECT_TRUE(grown.ok()) << grown;
  EXPECT_LT(std::chrono::steady_clock::now() - start, tests::kPatience);
}

// ---- Directories that close.

Fault WriteFault(int error, uint64_t count) {
  Fault fault;
  fault.kind = FaultKind::kErrno;
  fault.op = IoOp::kWrite;
  fault.error = error;
  fault.count = count;
  return fault;
}

TEST(ClosedDirectoryTest, ADirectoryThatClosesForErrorsHasNoCapacityAtOnce) {
  TestDirectory bad;
  TestDirectory good;
  SpillStoreOptions options = SmallOptions(bad.path());
  options.directories.push_back({good.path(), 0});
  options.retry_time = std::chrono::milliseconds(10);
  options.wrap_engine = [](std::unique_ptr<IoEngine> inner, size_t directory) {
    FaultPlan plan;
    if (directory == 0) plan.faults = {WriteFault(EIO, UINT64_MAX)};
    return MakeFaultyEngine(std::move(inner), plan);
  };
  auto store = MakeStore(options);
  ASSERT_TRUE(store->GrowTo(64 * kMiB).ok());
  const std::vector<SlotId> slots = Reserve(store.get(), 32);
  AlignedBuffer data(kSlotBytes);
  for (const SlotId slot : slots) {
    if (slot.directory == 0) WriteSync(store.get(), slot, data.data(), kPageBytes).IgnoreError();
  }
  const uint64_t after = store->capacity_bytes();
  const SpillStoreStats stats = store->stats();
  EXPECT_TRUE(stats.directories[0].closed);
  EXPECT_LE(after, stats.directories[1].file_bytes);
  EXPECT_TRUE(store->GrowTo(64 * kMiB).ok()) << "the other one makes up for it";
}

TEST(ClosedDirectoryTest, ADirectoryThatClosesFullComesBackWithTheSpace) {
  TestDirectory directory;
  auto store = MakeStore(FaultyOptions(directory.path(), WriteFault(ENOSPC, 1)));
  ASSERT_TRUE(store->GrowTo(16 * kMiB).ok());
  const SlotId slot = Reserve(store.get(), 1)[0];
  AlignedBuffer data(kSlotBytes);
  EXPECT_TRUE(absl::IsResourceExhausted(WriteSync(store.get(), slot, data.data(), kPageBytes)));
  EXPECT_EQ(store->capacity_bytes(), 0u);
  EXPECT_TRUE(tests::WaitUntil([&] { return store->capacity_bytes() >= 16 * kMiB; }));
  EXPECT_TRUE(WriteSync(store.get(), slot, data.data(), kPageBytes).ok());
}

}  // namespace
}  // namespace spillway::io

int main(int argc, char** argv) {
  if (argc == 4 && std::strcmp(argv[1], "--hold") == 0) {
    return spillway::io::Hold(argv[2], std::strtoull(argv[3], nullptr, 10));
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
