#include "io/disk_order.h"

#include <gtest/gtest.h>

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
  EXPECT_TRUE(first.Alone());
  DiskOrder second(mount.path());
  EXPECT_FALSE(first.Alone());
  EXPECT_FALSE(second.Alone());
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

TEST(DiskOrderTest, WithoutADirectoryItIsAsIfAlone) {
  DiskOrder nowhere("/nonexistent/spill");
  EXPECT_FALSE(nowhere.FirstOfSeveral());
  EXPECT_TRUE(nowhere.Alone());
  nowhere.Close();
}

}  // namespace
}  // namespace spillway::io
