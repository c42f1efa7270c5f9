#include "io/store/range_lock.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

namespace spillway::io {
namespace {

// Two open files of one name stand for two processes: the locks are those of an open file.
class RangeLockTest : public ::testing::Test {
 protected:
  RangeLockTest() {
    FILE* file = std::tmpfile();
    const std::string again = "/proc/self/fd/" + std::to_string(fileno(file));
    mine_ = dup(fileno(file));
    other_ = open(again.c_str(), O_RDWR | O_CLOEXEC);
    std::fclose(file);
  }
  ~RangeLockTest() override {
    close(mine_);
    close(other_);
  }

  // F_UNLCK: the other process could have these bytes.
  int HeldBytes(int64_t from, int64_t bytes) const {
    struct flock lock = LockOf(F_WRLCK, from, bytes);
    EXPECT_EQ(fcntl(other_, F_OFD_GETLK, &lock), 0);
    return lock.l_type;
  }

  int mine_ = -1, other_ = -1;
};

TEST_F(RangeLockTest, LocksTheBytesThatItNamesAndNoOthers) {
  struct flock lock = LockOf(F_WRLCK, 100, 10);
  ASSERT_EQ(fcntl(mine_, F_OFD_SETLK, &lock), 0);
  EXPECT_EQ(HeldBytes(0, 100), F_UNLCK);
  EXPECT_EQ(HeldBytes(99, 2), F_WRLCK);
  EXPECT_EQ(HeldBytes(109, 1), F_WRLCK);
  EXPECT_EQ(HeldBytes(110, 1), F_UNLCK);
}

TEST_F(RangeLockTest, NoBytesMeansToTheEndOfAllOffsets) {
  struct flock lock = LockOf(F_RDLCK, 7, 0);
  ASSERT_EQ(fcntl(mine_, F_OFD_SETLK, &lock), 0);
  EXPECT_EQ(HeldBytes(int64_t{1} << 40, 1), F_RDLCK);
  EXPECT_EQ(HeldBytes(0, 7), F_UNLCK);
  lock = LockOf(F_UNLCK, 8, 0);
  ASSERT_EQ(fcntl(mine_, F_OFD_SETLK, &lock), 0);
  EXPECT_EQ(HeldBytes(7, 1), F_RDLCK);
  EXPECT_EQ(HeldBytes(8, 0), F_UNLCK);
}

}  // namespace
}  // namespace spillway::io
