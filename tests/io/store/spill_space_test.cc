// The space side of SpillStore: caps, reserve, growth, striping, reuse, wrong directories and wrong use.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>

#include "io/engine/aligned_buffer.h"
#include "io/store/spill_store.h"
#include "tests/fakes/memory_engine.h"
#include "tests/fakes/wait_until.h"
#include "tests/io/store_helpers.h"

namespace spillway::io {
namespace {

using ::testing::HasSubstr;

TEST(SpillStoreSpaceTest, ReservesAllOrNothingWithinTheCap) {
  TestDirectory directory;
  SpillStoreOptions options = SmallOptions(directory.path());
  options.directories[0].cap_bytes = 20 * kSlotBytes + 12345;  // clipped to whole slots
  auto store = MakeStore(options);
  EXPECT_EQ(store->space().free_bytes, 20u * kSlotBytes);
  const absl::Status above = store->ReserveSlots(21).status();
  EXPECT_TRUE(absl::IsResourceExhausted(above));
  EXPECT_THAT(std::string(above.message()), HasSubstr("that its cap of 40 MiB lets grow by 40 MiB more"));
  EXPECT_EQ(store->stats().slots_in_use, 0u);
  const std::vector<SlotId> slots = Reserve(store.get(), 20);
  const absl::Status status = store->ReserveSlots(1).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr(directory.path()));
  EXPECT_THAT(std::string(status.message()), HasSubstr("that its cap of "));
  EXPECT_EQ(store->space().free_bytes, 0u);
  EXPECT_EQ(store->space().total_bytes, 20u * kSlotBytes);
  EXPECT_EQ(store->stats().file_bytes, 20u * kSlotBytes);
  store->ReleaseSlot(slots[3]);
  EXPECT_EQ(Reserve(store.get(), 1)[0], slots[3]);
}

// Slots go to a fast drive as long as its file has any: it grows before it has none.
TEST(SpillStoreSpaceTest, EachDirectoryHasFreeSlotsAhead) {
  TestDirectory slow, fast;
  SpillStoreOptions options = SmallOptions(slow.path());
  options.directories.push_back({fast.path()});
  options.growth_bytes = 64 * kSlotBytes;
  auto store = MakeStore(options);
  store->GuessSpeed(0, {.write = 1e8, .read = 1e8});
  store->GuessSpeed(1, {.write = 3e8, .read = 3e8});
  std::array<int, 2> taken = {};
  for (int block = 0; block < 20; ++block) {
    for (const SlotId slot : Reserve(store.get(), 16)) ++taken[slot.directory];
    EXPECT_TRUE(tests::WaitUntil([&] {
      return std::ranges::all_of(store->stats().directories, [](const DirectoryStats& now) {
        return now.file_bytes / kSlotBytes - now.slots_in_use >= 12;
      });
    })) << block;
  }
  EXPECT_NEAR(taken[1], 3 * taken[0], 40) << taken[0];
}

TEST(SpillStoreSpaceTest, ADemandThatCannotBeMetTakesNoSpace) {
  TestDirectory directory;
  auto store = MakeStore(SmallOptions(directory.path()));
  EXPECT_TRUE(absl::IsResourceExhausted(store->ReserveSlots(size_t{1} << 34).status()));
  EXPECT_EQ(store->stats().file_bytes, 0u);
}

TEST(SpillStoreSpaceTest, LeavesTheReserveFree) {
  TestDirectory directory;
  SpillStoreOptions options = SmallOptions(directory.path());
  options.disk_reserve_bytes = UINT64_MAX / 2;
  auto store = MakeStore(options);
  EXPECT_EQ(store->space().total_bytes, 0u);
  EXPECT_TRUE(absl::IsResourceExhausted(store->ReserveSlots(1).status()));
  EXPECT_TRUE(store->ReserveSlots(0).ok());
}

TEST(SpillStoreSpaceTest, CountsAFileSystemOnceThatHoldsTwoDirectories) {
  TestDirectory first;
  TestDirectory second;
  SpillStoreOptions one = SmallOptions(first.path());
  const uint64_t alone = MakeStore(one)->space().free_bytes;
  one.directories.push_back(SpillDirectory{second.path(), 0});
  const uint64_t both = MakeStore(one)->space().free_bytes;
  EXPECT_LT(both, alone + alone / 2);
}

// Descriptors of this process that hold a lock.
size_t LockedDescriptors() {
  size_t found = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fdinfo")) {
    std::ifstream file(entry.path());
    const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (text.find("OFDLCK") != std::string::npos) ++found;
  }
  return found;
}

// A second entry in the order of processes would make a process that is alone wait for itself.
TEST(SpillStoreSpaceTest, EntersAFileSystemOnceThatHoldsTwoDirectories) {
  TestDirectory first;
  TestDirectory second;
  SpillStoreOptions options = SmallOptions(first.path());
  options.directories.push_back(SpillDirectory{second.path(), 0});
  const size_t before = LockedDescriptors();
  auto store = MakeStore(options);
  EXPECT_EQ(LockedDescriptors(), before + 1);
}

TEST(SpillStoreSpaceTest, GrowsAheadInTheBackground) {
  TestDirectory directory;
  auto store = MakeStore(SmallOptions(directory.path()));  // steps of 16 slots
  ASSERT_TRUE(store->ReserveSlots(10).ok());
  EXPECT_TRUE(tests::WaitUntil([&] { return store->stats().file_bytes >= 18u * kSlotBytes; }));
  EXPECT_EQ(store->stats().file_bytes, 18u * kSlotBytes);  // what was asked for, and half a step
}

TEST(SpillStoreSpaceTest, SpreadsSlotsOverDirectories) {
  TestDirectory first;
  TestDirectory second;
  SpillStoreOptions options = SmallOptions(first.path());
  options.directories.push_back(SpillDirectory{second.path(), 0});
  auto store = MakeStore(options);
  size_t in_first = 0;
  for (const SlotId slot : Reserve(store.get(), 16)) in_first += slot.directory == 0 ? 1 : 0;
  EXPECT_EQ(in_first, 8u);
}

TEST(SpillStoreSpaceTest, UsesTheOtherDirectoryWhenOneIsAtItsCap) {
  TestDirectory first;
  TestDirectory second;
  SpillStoreOptions options = SmallOptions(first.path());
  options.directories[0].cap_bytes = 2 * kSlotBytes;
  options.directories.push_back(SpillDirectory{second.path(), 0});
  auto store = MakeStore(options);
  size_t in_first = 0;
  for (const SlotId slot : Reserve(store.get(), 40)) in_first += slot.directory == 0 ? 1 : 0;
  EXPECT_EQ(in_first, 2u);
}

TEST(SpillStoreSpaceTest, ConcurrentReservationsNeverShareASlot) {
  TestDirectory directory;
  SpillStoreOptions options = SmallOptions(directory.path());
  options.directories[0].cap_bytes = 64 * kSlotBytes;
  auto store = MakeStore(options);
  std::vector<std::thread> threads;
  std::vector<std::vector<SlotId>> taken(4);
  for (size_t t = 0; t < taken.size(); ++t) {
    threads.emplace_back([&store, &mine = taken[t]] {
      while (true) {
        absl::StatusOr<std::vector<SlotId>> slots = store->ReserveSlots(3);
        if (!slots.ok()) return;
        mine.insert(mine.end(), slots->begin(), slots->end());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<uint32_t> all;
  size_t count = 0;
  for (const std::vector<SlotId>& mine : taken) {
    for (const SlotId slot : mine) all.insert(slot.index);
    count += mine.size();
  }
  EXPECT_EQ(count, 63u);
  EXPECT_EQ(all.size(), 63u);
}

TEST(SpillStoreSpaceTest, ShutdownFreesThoseWhoWaitForSlots) {
  TestDirectory directory;
  auto store = MakeStore(SmallOptions(directory.path()));
  std::thread waiter([&store] {
    while (store->ReserveSlots(4).ok()) {
    }
  });
  store->Shutdown();
  waiter.join();
  store->Shutdown();  // again: nothing
  EXPECT_EQ(store->space().total_bytes, 0u);
}

std::string CreateError(const std::string& path, bool any_file_system = false) {
  SpillStoreOptions options = SmallOptions(path);
  options.allow_any_file_system = any_file_system;
  return std::string(SpillStore::Create(options).status().message());
}

TEST(SpillStoreSpaceTest, RefusesUnsuitableDirectoriesByName) {
  TestDirectory directory;
  EXPECT_THAT(CreateError(directory.path() + "/none"), HasSubstr(directory.path() + "/none"));
  EXPECT_THAT(CreateError(directory.path() + "/none"), HasSubstr("expected: an existing directory"));
  EXPECT_THAT(CreateError("/dev/null"), HasSubstr("/dev/null"));
  const std::string open_to_all = directory.path() + "/open";
  ASSERT_EQ(mkdir(open_to_all.c_str(), 0777), 0);
  ASSERT_EQ(chmod(open_to_all.c_str(), 0777), 0);
  EXPECT_THAT(CreateError(open_to_all), HasSubstr("sticky"));
  ASSERT_EQ(chmod(open_to_all.c_str(), 01777), 0);
  EXPECT_EQ(CreateError(open_to_all), "");
  rmdir(open_to_all.c_str());
}

TEST(SpillStoreSpaceTest, RefusesMemoryAsADiskUnlessForced) {
  std::string path = "/dev/shm/spillway-test-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) GTEST_SKIP() << "no /dev/shm here";
  EXPECT_THAT(CreateError(path), HasSubstr("tmpfs"));
  EXPECT_EQ(CreateError(path, true), "");
  rmdir(path.c_str());
}

TEST(SpillStoreSpaceTest, RefusesWrongOptions) {
  SpillStoreOptions options;
  EXPECT_TRUE(absl::IsInvalidArgument(SpillStore::Create(options).status()));
  options.directories.push_back({"/tmp", 0});
  options.request_bytes = 1000;
  EXPECT_TRUE(absl::IsInvalidArgument(SpillStore::Create(options).status()));
  TestDirectory directory;
  SpillStoreOptions hasty = SmallOptions(directory.path());
  hasty.shutdown_timeout = std::chrono::nanoseconds::zero();
  EXPECT_TRUE(absl::IsInvalidArgument(SpillStore::Create(hasty).status()));
  SpillStoreOptions faulty = SmallOptions(directory.path());
  faulty.faults = {{.directory = 1, .reads = true, .error = EIO, .for_nanos = 1}};
  const absl::Status status = SpillStore::Create(faulty).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_NE(std::string(status.message()).find("directory 1; there are 1"), std::string::npos) << status;
}

// A slot that is written while it is read, given back while it is busy, or given back twice would lose a
// block.
TEST(SpillStoreSpaceDeathTest, WrongUseStopsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto make = [](const std::string& path) {
    SpillStoreOptions options = SmallOptions(path);
    options.wrap_engine = [](std::unique_ptr<IoEngine>, size_t) {
      MemoryEngineOptions memory;
      memory.latency = std::chrono::seconds(5);
      return MakeMemoryEngine(memory);
    };
    return MakeStore(options);
  };
  TestDirectory directory;
  static AlignedBuffer data(kSlotBytes);
  EXPECT_DEATH(
      {
        auto store = make(directory.path());
        const SlotId slot = Reserve(store.get(), 1)[0];
        store->Write(slot, data.data(), kSlotBytes, [](const absl::Status&) {});
        store->ReleaseSlot(slot);
      },
      "CHECK failed");
  EXPECT_DEATH(
      {
        auto store = make(directory.path());
        const SlotId slot = Reserve(store.get(), 1)[0];
        store->ReleaseSlot(slot);
        store->ReleaseSlot(slot);
      },
      "CHECK failed");
  EXPECT_DEATH(
      {
        auto store = make(directory.path());
        const SlotId slot = Reserve(store.get(), 1)[0];
        store->Write(slot, data.data() + 1, kPageBytes, [](const absl::Status&) {});
      },
      "CHECK failed");
}

}  // namespace
}  // namespace spillway::io
