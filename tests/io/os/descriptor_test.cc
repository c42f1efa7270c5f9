#include "io/os/descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>

namespace spillway::os {
namespace {

bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

TEST(DescriptorTest, ClosesWhatItOwnsAndNothingElse) {
  const int kept = open("/dev/null", O_RDONLY);
  int closed = -1;
  {
    Descriptor one(open("/dev/null", O_RDONLY)), released(kept);
    closed = one.get();
    EXPECT_TRUE(IsOpen(closed));
    EXPECT_EQ(released.Release(), kept);
    EXPECT_EQ(released.get(), -1);
    const Descriptor none(-1);
  }
  EXPECT_FALSE(IsOpen(closed));
  EXPECT_TRUE(IsOpen(kept));
  close(kept);
}

}  // namespace
}  // namespace spillway::os
