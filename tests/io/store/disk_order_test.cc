#include "io/store/disk_order.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/io/loop_mount.h"

namespace spillway::io {
namespace {

// A file system of the test's own: on any other, other processes may spill meanwhile. An object stands for a
// process: the locks are those of its open file.
TEST(DiskOrderTest, WhoBeganFirstIsRefusedLast) {
  LoopMount mount(64);
  if (!mount.mounted()) GTEST_SKIP() << "mounting a loop device is not permitted here";
  DiskOrder first(mount.path());
  EXPECT_FALSE(first.FirstOfSeveral()) << "it is alone";
  DiskOrder second(mount.path());
  EXPECT_TRUE(first.FirstOfSeveral());
  EXPECT_FALSE(second.FirstOfSeveral());
  {
    DiskOrder third(mount.path());
    EXPECT_TRUE(first.FirstOfSeveral());
    first.Close();
    EXPECT_TRUE(second.FirstOfSeveral());
    EXPECT_FALSE(first.FirstOfSeveral()) << "it has left";
  }
  EXPECT_FALSE(second.FirstOfSeveral());
}

TEST(DiskOrderTest, AFileSystemIsUsedWhileAProcessSpillsToIt) {
  LoopMount mount(64);
  if (!mount.mounted()) GTEST_SKIP() << "mounting a loop device is not permitted here";
  EXPECT_FALSE(DiskOrder::IsUsed(mount.path()));
  DiskOrder process(mount.path());
  EXPECT_TRUE(DiskOrder::IsUsed(mount.path()));
  EXPECT_FALSE(process.FirstOfSeveral()) << "who asks is not entered";
  process.Close();
  EXPECT_FALSE(DiskOrder::IsUsed(mount.path()));
}

// Ranks of one launcher look in the same moment, before any of them spills. None may take another's look for
// a process that spills.
TEST(DiskOrderTest, WhoAsksIsNotSeenByOthersWhoAsk) {
  LoopMount mount(64);
  if (!mount.mounted()) GTEST_SKIP() << "mounting a loop device is not permitted here";
  std::atomic<int> used = 0;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) used += DiskOrder::IsUsed(mount.path());
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(used, 0);
}

TEST(DiskOrderTest, WithoutADirectoryItIsAsIfAlone) {
  DiskOrder nowhere("/nonexistent/spill");
  EXPECT_FALSE(nowhere.FirstOfSeveral());
  EXPECT_FALSE(DiskOrder::IsUsed("/nonexistent/spill"));
  nowhere.Close();
}

}  // namespace
}  // namespace spillway::io
