#include "io/os/per_thread.h"

#include <gtest/gtest.h>

#include <thread>

namespace spillway::os {
namespace {

struct Count {
  int value = 0;
};
struct OtherCount {
  int value = 0;
};

TEST(PerThreadTest, IsOneForEachThreadAndType) {
  PerThread<Count>().value = 3;
  EXPECT_EQ(PerThread<OtherCount>().value, 0);
  int in_other = -1;
  std::thread([&in_other] { in_other = PerThread<Count>().value++; }).join();
  EXPECT_EQ(in_other, 0);
  EXPECT_EQ(PerThread<Count>().value, 3);
}

}  // namespace
}  // namespace spillway::os
