#include "integration/engine/machine.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "tests/sizes.h"

namespace spillway::integration {
namespace {

namespace fs = std::filesystem;

// A made-up root with /proc and /sys/fs/cgroup.
class MachineTest : public ::testing::Test {
 protected:
  MachineTest() {
    char name[] = "/tmp/spillway_machine_XXXXXX";
    root_ = ::mkdtemp(name);
    Write("/proc/meminfo", "MemTotal:  33554432 kB\nMemAvailable:   16777216 kB\n");  // 16 GiB
  }
  ~MachineTest() override { fs::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }

  std::string root_;
};

TEST_F(MachineTest, TakesWhatTheSystemHas) { EXPECT_EQ(AvailableHostMemory(root_), 16 * kGiB); }

TEST_F(MachineTest, NothingReadableIsZero) { EXPECT_EQ(AvailableHostMemory(root_ + "/none"), 0u); }

TEST_F(MachineTest, AControlGroupOfVersion2LimitsAndItsParentToo) {
  Write("/proc/self/cgroup", "0::/jobs/one\n");
  Write("/sys/fs/cgroup/jobs/one/memory.max", "max\n");
  Write("/sys/fs/cgroup/jobs/one/memory.current", "1\n");
  EXPECT_EQ(AvailableHostMemory(root_), 16 * kGiB);
  Write("/sys/fs/cgroup/jobs/memory.max", std::to_string(8 * kGiB));
  Write("/sys/fs/cgroup/jobs/memory.current", std::to_string(3 * kGiB));
  EXPECT_EQ(AvailableHostMemory(root_), 5 * kGiB);
  Write("/sys/fs/cgroup/jobs/memory.stat", "anon 5\ninactive_file " + std::to_string(kGiB) + "\n");
  EXPECT_EQ(AvailableHostMemory(root_), 6 * kGiB);
  Write("/sys/fs/cgroup/jobs/one/memory.max", std::to_string(2 * kGiB));
  Write("/sys/fs/cgroup/jobs/one/memory.current", std::to_string(3 * kGiB));
  EXPECT_EQ(AvailableHostMemory(root_), 0u);
  EXPECT_EQ(WholeHostMemory(root_).group_bytes, 2 * kGiB) << "used or not";
}

TEST_F(MachineTest, AMachineThatCanGrowSaysByWhat) {
  EXPECT_EQ(WholeHostMemory(root_).grows_by, "");
  Write("/proc/version", "Linux version 6.1.0-18-amd64 (gcc-12) #1 SMP PREEMPT_DYNAMIC Debian\n");
  for (const char* driver :
       {"virtio/drivers/virtio_balloon", "virtio/drivers/virtio_mem", "vmbus/drivers/hv_balloon"}) {
    const std::string folder = std::string("/sys/bus/") + driver;
    Write(folder + "/bind", "");
    fs::create_symlink("../../../../module", root_ + folder + "/module");
    EXPECT_EQ(WholeHostMemory(root_).grows_by, "") << "a driver without a device";
    fs::create_symlink("../../../../devices/x", root_ + folder + "/virtio3");
    EXPECT_EQ(WholeHostMemory(root_).grows_by, fs::path(driver).filename());
    fs::remove_all(root_ + folder);
  }
  Write("/sys/devices/system/xen_memory/xen_memory0/info/current_kb", "1048576\n");
  EXPECT_EQ(WholeHostMemory(root_).grows_by, "xen_memory");
  fs::remove_all(root_ + "/sys/devices");
  for (const char* release : {"4.4.0", "4.19.0-gvisor"}) {
    Write("/proc/version",
          std::string("Linux version ") + release + " #1 SMP Sun Jan 10 15:06:54 PST 2016\n");
    EXPECT_EQ(WholeHostMemory(root_).grows_by, "gVisor");
  }
}

TEST_F(MachineTest, TheWholeMemoryIsTheMachinesAndTheGroups) {
  EXPECT_EQ(WholeHostMemory(root_).machine_bytes, 32 * kGiB);
  EXPECT_EQ(WholeHostMemory(root_).group_bytes, 0u);
  EXPECT_EQ(WholeHostMemory(root_ + "/none").machine_bytes, 0u);
}

TEST_F(MachineTest, AControlGroupOfVersion1Limits) {
  Write("/proc/self/cgroup", "4:cpu,cpuacct:/x\n3:memory:/docker/abc\n");
  Write("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", std::to_string(4 * kGiB));
  Write("/sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", std::to_string(kGiB));
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(AvailableHostMemory(root_), 3 * kGiB);
  EXPECT_EQ(WholeHostMemory(root_).group_bytes, 4 * kGiB);
}

TEST_F(MachineTest, InAContainerItsOwnGroupIsTheRoot) {
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/memory.max", std::to_string(2 * kGiB));
  Write("/sys/fs/cgroup/memory.current", std::to_string(kGiB));
  EXPECT_EQ(AvailableHostMemory(root_), kGiB);
}

TEST_F(MachineTest, ControlGroupsAreGivenWithTheirParents) {
  const auto folders = [&](const std::string& controller) {
    std::vector<std::string> found;
    for (const ControlGroup& group : ControlGroups(controller, root_))
      found.push_back(group.folder.substr(root_.size()) + (group.second_version ? " 2" : " 1"));
    return found;
  };
  Write("/proc/self/cgroup", "4:cpu,cpuacct:/a/b\n3:memory_other:/x\nno line\n0::/\n");
  using Found = std::vector<std::string>;
  EXPECT_EQ(folders("cpu"), Found({"/sys/fs/cgroup/cpu/a/b 1", "/sys/fs/cgroup/cpu/a 1",
                                   "/sys/fs/cgroup/cpu 1", "/sys/fs/cgroup 2"}));
  EXPECT_EQ(folders("memory"), Found({"/sys/fs/cgroup 2"}));
}

TEST_F(MachineTest, TheFirstWritableDiskDirectoryIsTaken) {
  EXPECT_EQ(FirstDiskDirectory({"", "relative", root_ + "/none", root_, "/tmp"}), root_);
  EXPECT_EQ(FirstDiskDirectory({"/dev/shm"}), "");  // a tmpfs, or not there at all
}

TEST_F(MachineTest, ADirectoryIsCheckedInWords) {
  Write("/file", "");
  EXPECT_TRUE(CheckDirectory(root_).ok());
  EXPECT_FALSE(CheckDirectory(root_ + "/file").ok());
  EXPECT_EQ(CheckDirectory(root_ + "/none").code(), absl::StatusCode::kNotFound);
}

TEST_F(MachineTest, RanksShareWhatTheirListsShare) {
  const std::string first = root_ + "/first";
  const std::string second = root_ + "/second";
  Write("/first/x", "");
  Write("/second/x", "");
  const auto expect = [&](const std::string& path, const std::vector<std::vector<std::string>>& lists,
                          int ranks, int sharers) { EXPECT_EQ(RanksThatShare(path, lists, ranks), sharers); };
  expect(first, {}, 4, 4);  // the default directory
  expect(first, {}, 1, 1);
  expect(first, {{first, second}}, 3, 3);
  expect(first, {{first}, {second}}, 2, 1);  // directories of their own on one disk
  expect(first, {{first}, {second}}, 5, 3);  // ranks 0, 2 and 4
  expect(second, {{first}, {second}}, 5, 2);
  expect(first, {{first}, {"/proc"}}, 2, 1);
  expect(first, {{first + "/."}, {first}}, 2, 2);
  expect("/none", {{"/none"}, {first}}, 2, 1);
}

}  // namespace
}  // namespace spillway::integration
