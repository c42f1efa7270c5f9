// The reserve: what the user says, else a part of the disk that depends on who else watches it.

#include "io/store/disk_reserve.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/io/store_helpers.h"
#include "tests/sizes.h"

namespace spillway::io {
namespace {

TEST(DiskReserveTest, IsWhatIsAskedForOrTheDefault) {
  EXPECT_EQ(ReserveOf(100 * kGiB, kGiB), kGiB);
  EXPECT_EQ(ReserveOf(100 * kGiB, 0), DefaultReserve(100 * kGiB, InPod()));
  EXPECT_EQ(DefaultReserve(100 * kGiB, false), 10 * kGiB);
  EXPECT_EQ(DefaultReserve(1000 * kGiB, false), 50 * kGiB);
}

// The kubelet ends pods when less than 10 % is free.
TEST(DiskReserveTest, StaysAboveTheLineOfAKubelet) {
  EXPECT_EQ(DefaultReserve(1000 * kGiB, true), 120 * kGiB);
  EXPECT_EQ(DefaultReserve(50 * kGiB, true), 10 * kGiB);
}

// A /proc of the test's own.
std::string RootWith(const TestDirectory& directory, const std::string& groups, const std::string& mounts) {
  std::filesystem::create_directories(directory.path() + "/proc/self");
  std::ofstream(directory.path() + "/proc/self/cgroup") << groups;
  std::ofstream(directory.path() + "/proc/self/mountinfo") << mounts;
  return directory.path();
}

TEST(DiskReserveTest, APodIsKnownByItsControlGroupsOrItsMounts) {
  TestDirectory directory;
  const std::string mount = "611 600 0:50 / / rw - overlay overlay rw\n";
  EXPECT_FALSE(InPod(RootWith(directory, "0::/user.slice/session-1.scope\n", mount)));
  EXPECT_TRUE(InPod(RootWith(directory, "0::/kubepods.slice/kubepods-pod1.slice\n", mount)));
  EXPECT_TRUE(InPod(RootWith(directory, "11:memory:/kubepods/besteffort/pod1\n", mount)));
  const std::string hosts =
      "620 611 259:1 /var/lib/kubelet/pods/1-2/etc-hosts /etc/hosts rw - ext4 /dev/sda1 rw\n";
  EXPECT_TRUE(InPod(RootWith(directory, "0::/\n", mount + hosts)));
  EXPECT_FALSE(InPod(directory.path() + "/none"));
}

}  // namespace
}  // namespace spillway::io
