// The machine and the limits of a process, from a made-up root and from this process itself.

#include "integration/cli/doctor/machine_facts.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/sizes.h"

namespace spillway::integration {
namespace {

namespace fs = std::filesystem;

class MachineFactsTest : public ::testing::Test {
 protected:
  MachineFactsTest() {
    char name[] = "/tmp/spillway_facts_XXXXXX";
    root_ = ::mkdtemp(name);
    Write("/proc/meminfo", "MemTotal:  33554432 kB\nMemAvailable:   16777216 kB\n");
    Write("/proc/cpuinfo", "processor\t: 0\nmodel name\t: Made-up CPU 9000\n");
  }
  ~MachineFactsTest() override { fs::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }

  std::string root_;
};

TEST_F(MachineFactsTest, ReadsProcessorMemoryAndNodes) {
  for (const char* node : {"node0", "node1"})
    fs::create_directories(root_ + "/sys/devices/system/node/" + node);
  fs::create_directories(root_ + "/sys/devices/system/node/power");
  const SystemFacts facts = InspectSystem(root_);
  EXPECT_EQ(facts.cpu, "Made-up CPU 9000");
  EXPECT_EQ(facts.numa_nodes, 2);
  EXPECT_GT(facts.cpus, 0);
  EXPECT_EQ(facts.memory.machine_bytes, 32768 * kMiB);
  EXPECT_EQ(facts.memory.available_bytes, 16384 * kMiB);
  EXPECT_EQ(facts.cpu_quota, 0);
  EXPECT_EQ(facts.container, "");
}

TEST_F(MachineFactsTest, NothingReadableIsNotKnown) {
  const SystemFacts facts = InspectSystem(root_ + "/none");
  EXPECT_EQ(facts.memory.available_bytes, 0u);
  EXPECT_EQ(facts.memory.machine_bytes, 0u);
  EXPECT_EQ(facts.cpu, "");
  const LimitFacts limits = InspectLimits(root_ + "/none");
  EXPECT_EQ(limits.memory_maps, 0u);
  EXPECT_EQ(limits.shared_memory, 0u);
}

TEST_F(MachineFactsTest, AControlGroupAndItsParentLimitMemoryAndTime) {
  Write("/proc/self/cgroup", "0::/jobs/one\n");
  Write("/sys/fs/cgroup/jobs/one/memory.max", std::to_string(64 * kMiB));
  Write("/sys/fs/cgroup/jobs/one/memory.current", std::to_string(16 * kMiB));
  Write("/sys/fs/cgroup/jobs/one/cpu.max", "max 100000\n");
  Write("/sys/fs/cgroup/jobs/cpu.max", "250000 100000\n");
  const SystemFacts facts = InspectSystem(root_);
  EXPECT_EQ(facts.memory.group_bytes, 64 * kMiB);
  EXPECT_EQ(facts.memory.available_bytes, 48 * kMiB);
  EXPECT_EQ(facts.cpu_quota, 2.5);
}

TEST_F(MachineFactsTest, AControlGroupOfVersion1LimitsTime) {
  Write("/proc/self/cgroup", "3:cpu,cpuacct:/jobs\n2:cpuset:/jobs\n");
  Write("/sys/fs/cgroup/cpu/jobs/cpu.cfs_quota_us", "50000\n");
  Write("/sys/fs/cgroup/cpu/jobs/cpu.cfs_period_us", "100000\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(InspectSystem(root_).cpu_quota, 0.5);
}

TEST_F(MachineFactsTest, KnowsContainers) {
  Write("/proc/self/cgroup", "0::/kubepods/burstable/pod1/abc\n");
  EXPECT_EQ(InspectSystem(root_).container, "kubernetes");
  Write("/run/.containerenv", "");
  EXPECT_EQ(InspectSystem(root_).container, "podman");
  Write("/.dockerenv", "");
  EXPECT_EQ(InspectSystem(root_).container, "docker");
}

TEST_F(MachineFactsTest, ReadsLimits) {
  Write("/proc/sys/vm/max_map_count", "1048576\n");
  fs::create_directories(root_ + "/dev/shm");
  const LimitFacts facts = InspectLimits(root_);
  EXPECT_EQ(facts.memory_maps, 1048576u);
  EXPECT_GT(facts.shared_memory, 0u);
  struct rlimit limit = {};
  ASSERT_EQ(::getrlimit(RLIMIT_MEMLOCK, &limit), 0);
  EXPECT_EQ(facts.locked_bytes, limit.rlim_cur == RLIM_INFINITY ? kUnlimited : limit.rlim_cur);
}

TEST_F(MachineFactsTest, KnowsNvidiasModule) {
  EXPECT_FALSE(HasKernelModule(root_));
  Write("/proc/driver/nvidia/version", "NVRM version\n");
  EXPECT_TRUE(HasKernelModule(root_));
}

TEST(CountCpusTest, AKernelWithMoreCpusThanASetOfTheLibrarysTakes) {
  const AskForCpus ask = [](size_t bytes, cpu_set_t* set) {
    if (bytes < 4096 / 8) {
      errno = EINVAL;
      return -1;
    }
    for (const int cpu : {0, 1500, 4095}) CPU_SET_S(cpu, bytes, set);
    return 0;
  };
  EXPECT_EQ(CountCpus(ask), 3);
  const auto refuse = [](int error) {
    return CountCpus([error](size_t, cpu_set_t*) {
      errno = error;
      return -1;
    });
  };
  EXPECT_EQ(refuse(EINVAL), 0);
  EXPECT_EQ(refuse(EPERM), 0);
}

TEST(WhyUnservedTest, OtherMachinesAreNamed) {
  EXPECT_EQ(WhyUnserved("x86_64", "6.1.0-18-amd64"), "");
  EXPECT_EQ(WhyUnserved("aarch64", "6.1.0"), "only Linux on x86_64 is supported, this is aarch64");
  EXPECT_EQ(WhyUnserved("x86_64", "5.15.0-Microsoft-standard-WSL2"),
            "WSL is not supported, only Linux with NVIDIA's own driver");
}

TEST(WhyNoRingTest, TellsWhoRefuses) {
  EXPECT_EQ(WhyNoRing(EPERM, "2"), "the administrator has switched it off (kernel.io_uring_disabled is 2)");
  EXPECT_EQ(WhyNoRing(EPERM, "0"),
            "a filter of system calls refuses it, as the default profile of container engines does");
  EXPECT_EQ(WhyNoRing(EPERM, ""), WhyNoRing(EPERM, "0"));
  EXPECT_EQ(WhyNoRing(ENOSYS, ""), "this kernel has no io_uring, or a filter of system calls blocks it");
  EXPECT_EQ(WhyNoRing(ENOMEM, ""), "the limit of locked memory is too small for a ring (ulimit -l)");
  EXPECT_EQ(WhyNoRing(EMFILE, ""), "Too many open files");
}

}  // namespace
}  // namespace spillway::integration
