// What is made of each fact. Each test spoils one thing of a machine on which all is well.

#include "integration/cli/doctor/judgement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/cli/doctor/doctor_helpers.h"

namespace spillway::integration {
namespace {

using ::testing::HasSubstr;

Finding FindingOf(const DoctorFacts& facts, const std::string& what) {
  for (const Finding& finding : Judge(facts)) {
    if (finding.what == what) return finding;
  }
  return {"", Verdict::kGood, what, "is not among the findings", ""};
}

TEST(JudgementTest, AGoodMachineIsGood) {
  for (const Finding& finding : Judge(GoodFacts())) {
    EXPECT_EQ(finding.verdict, Verdict::kGood) << finding.what << ": " << finding.found;
    EXPECT_EQ(finding.advice, "") << finding.what;
  }
  EXPECT_EQ(Worst(Judge(GoodFacts())), Verdict::kGood);
}

TEST(JudgementTest, SectionsFollowEachOther) {
  std::vector<std::string> sections;
  for (const Finding& finding : Judge(GoodFacts())) {
    if (sections.empty() || sections.back() != finding.section) sections.push_back(finding.section);
  }
  EXPECT_THAT(sections, ::testing::ElementsAre("Installation", "Machine", "PyTorch", "Driver and GPUs",
                                               "Limits", "Disk", "Settings"));
}

TEST(JudgementTest, OnlyTheInstallationWhereThatIsAskedFor) {
  DoctorFacts facts = GoodFacts();
  facts.driver.problem = "libcuda.so.1 is not found";
  facts.installation_only = true;
  EXPECT_EQ(Worst(Judge(facts)), Verdict::kGood);
  EXPECT_EQ(FindingOf(facts, "driver").found, "is not among the findings");
}

TEST(JudgementTest, AnInstallationThatCannotServe) {
  DoctorFacts facts = GoodFacts();
  facts.installation.engine_problem = "libabsl_base.so.20220623: cannot open shared object file";
  EXPECT_EQ(FindingOf(facts, "engine").verdict, Verdict::kBad);
  EXPECT_THAT(FindingOf(facts, "engine").found,
              HasSubstr("cannot be opened, jobs would run without Spillway: libabsl_base.so.20220623"));
  facts.installation.missing = {"/opt/lib/libspillway.so"};
  EXPECT_EQ(FindingOf(facts, "libraries").verdict, Verdict::kBad);
  EXPECT_EQ(FindingOf(facts, "engine").found, "is not among the findings")
      << "what is not there is not opened";
  facts = GoodFacts();
  facts.installation.served = {};
  EXPECT_EQ(FindingOf(facts, "libraries").verdict, Verdict::kBad);
}

TEST(JudgementTest, AnotherKindOfMachine) {
  DoctorFacts facts = GoodFacts();
  facts.system.unserved = "WSL is not supported, only Linux with NVIDIA's own driver";
  EXPECT_EQ(FindingOf(facts, "system").verdict, Verdict::kBad);
  EXPECT_THAT(FindingOf(facts, "system").found, HasSubstr("WSL is not supported"));
}

TEST(JudgementTest, HostMemory) {
  DoctorFacts facts = GoodFacts();
  facts.system.memory.group_bytes = 600 * kMiB;
  facts.system.memory.available_bytes = 48 * kMiB;
  EXPECT_EQ(FindingOf(facts, "host memory").verdict, Verdict::kLimited);
  EXPECT_EQ(FindingOf(facts, "host memory").found,
            "128.00 GiB, 48.00 MiB available to this process (its control group may use 600.00 MiB)");
  facts.system.memory.available_bytes = 0;
  EXPECT_EQ(FindingOf(facts, "host memory").advice, "set SPILLWAY_HOST_MEMORY");
}

TEST(JudgementTest, PyTorch) {
  DoctorFacts facts = GoodFacts();
  facts.torch.minor = "2.3";
  EXPECT_EQ(FindingOf(facts, "PyTorch").verdict, Verdict::kBad);
  EXPECT_THAT(FindingOf(facts, "PyTorch").advice, HasSubstr("served here: 2.11, 2.15"));
  facts = GoodFacts();
  facts.torch.version = "2.11.0a0+50eac81.nv25.09";
  EXPECT_EQ(FindingOf(facts, "PyTorch").verdict, Verdict::kLimited);
  EXPECT_THAT(FindingOf(facts, "PyTorch").found, HasSubstr("a development build"));
  facts.torch.cuda = "";
  EXPECT_EQ(FindingOf(facts, "PyTorch").advice, "install a PyTorch with CUDA");
  facts.torch = {"/usr/bin/python3", false, "PyTorch is not installed in it", "", "", "", "", false};
  EXPECT_EQ(FindingOf(facts, "PyTorch").verdict, Verdict::kLimited) << "nobody has said that it is this one";
  facts.torch.named = true;
  EXPECT_EQ(FindingOf(facts, "PyTorch").verdict, Verdict::kBad);
  EXPECT_EQ(FindingOf(facts, "loading").found, "is not among the findings");
}

TEST(JudgementTest, Loading) {
  DoctorFacts facts = GoodFacts();
  facts.given.named_in_conf = true;
  EXPECT_EQ(FindingOf(facts, "loading").verdict, Verdict::kBad);
  facts.torch.loads = true;
  EXPECT_EQ(FindingOf(facts, "loading").verdict, Verdict::kGood);
  facts.given.off = true;
  EXPECT_EQ(FindingOf(facts, "loading").verdict, Verdict::kLimited);
}

TEST(JudgementTest, TheDriver) {
  DoctorFacts facts = GoodFacts();
  facts.driver.version = 12020;
  EXPECT_EQ(FindingOf(facts, "driver").verdict, Verdict::kBad);
  EXPECT_EQ(FindingOf(facts, "driver").found, "CUDA 12.2");
  facts.driver.version = 13000;
  facts.driver.path = "/usr/local/nvidia/lib64/libcuda.so.1";
  EXPECT_EQ(FindingOf(facts, "driver").verdict, Verdict::kGood);
  EXPECT_EQ(FindingOf(facts, "driver").found, "CUDA 13.0, /usr/local/nvidia/lib64/libcuda.so.1");
  facts.driver.by_loader = false;
  EXPECT_EQ(FindingOf(facts, "driver").verdict, Verdict::kLimited);
  EXPECT_THAT(FindingOf(facts, "driver").advice, HasSubstr("LD_LIBRARY_PATH"));
  facts.driver.devices.clear();
  EXPECT_EQ(FindingOf(facts, "GPUs").verdict, Verdict::kBad);
  facts.driver = {};
  facts.driver.problem = "libcuda.so.1 is not found";
  facts.driver.advice = "install NVIDIA's driver";
  EXPECT_EQ(FindingOf(facts, "driver").verdict, Verdict::kBad);
  EXPECT_EQ(FindingOf(facts, "driver").advice, "install NVIDIA's driver");
}

TEST(JudgementTest, AGpuThatIsNotUsedIsALimitWhereAnotherIs) {
  DoctorFacts facts = GoodFacts();
  facts.driver.devices.push_back(facts.driver.devices.front());
  facts.driver.devices.back().maps = false;
  EXPECT_EQ(FindingOf(facts, "GPU 0").verdict, Verdict::kGood);
  EXPECT_EQ(FindingOf(facts, "GPU 1").verdict, Verdict::kLimited);
  facts.driver.devices.front().problem = "making a context: CUDA_ERROR_OUT_OF_MEMORY";
  EXPECT_EQ(FindingOf(facts, "GPU 0").verdict, Verdict::kBad);
  EXPECT_EQ(FindingOf(facts, "GPU 1").verdict, Verdict::kBad);
}

TEST(JudgementTest, AGpuBeforeTuringIsNotUsed) {
  DoctorFacts facts = GoodFacts();
  facts.driver.devices.front().capability = 70;
  EXPECT_EQ(FindingOf(facts, "GPU 0").verdict, Verdict::kBad);
  EXPECT_THAT(FindingOf(facts, "GPU 0").advice,
              HasSubstr("compute capability is 7.0, and 7.5 or later is needed"));
  facts.driver.devices.front().capability = 75;
  EXPECT_EQ(FindingOf(facts, "GPU 0").verdict, Verdict::kGood);
}

TEST(JudgementTest, TheLink) {
  DoctorFacts facts = GoodFacts();
  EXPECT_EQ(FindingOf(facts, "link of GPU 0").found,
            "to the GPU 25.00 GB/s, from it 25.00 GB/s; at once 11.00 GB/s and 24.00 GB/s (copies of 64.00 "
            "MiB, 1.0 s each)");
  facts.driver.stand_in = true;
  EXPECT_THAT(FindingOf(facts, "link of GPU 0").found, HasSubstr("rates of the stand-in, not of a GPU"));
  facts.driver.devices.front().link.problem = "pinning host memory: CUDA_ERROR_OUT_OF_MEMORY";
  EXPECT_EQ(FindingOf(facts, "link of GPU 0").verdict, Verdict::kLimited);
}

TEST(JudgementTest, Limits) {
  const auto verdict_of = [](const char* what, const auto& spoil) {
    DoctorFacts facts = GoodFacts();
    spoil(&facts.limits);
    const Finding finding = FindingOf(facts, what);
    return finding.advice.empty() ? Verdict::kGood : finding.verdict;
  };
  const auto limited = [&](const char* what, const auto& spoil) {
    EXPECT_EQ(verdict_of(what, spoil), Verdict::kLimited) << what;
  };
  limited("locked memory", [](LimitFacts* it) { it->locked_bytes = 64 << 10; });
  limited("open files", [](LimitFacts* it) { it->open_files = 64; });
  limited("file size", [](LimitFacts* it) { it->file_bytes = kGiB; });
  limited("address space", [](LimitFacts* it) { it->address_bytes = 64 * kGiB; });
  limited("io_uring", [](LimitFacts* it) { it->io_uring_problem = "switched off"; });
  limited("membarrier", [](LimitFacts* it) { it->membarrier = false; });
  limited("memory maps", [](LimitFacts* it) { it->memory_maps = 1000; });
  limited("/dev/shm", [](LimitFacts* it) { it->shared_memory = 64 * kMiB; });
  limited("/dev/shm", [](LimitFacts* it) { it->shared_memory = 0; });
  EXPECT_EQ(verdict_of("locked memory", [](LimitFacts* it) { it->locked_bytes = 8 * kMiB; }), Verdict::kGood);
}

TEST(JudgementTest, ADirectoryThatCannotBeUsed) {
  DoctorFacts facts = GoodFacts();
  facts.disks.front().start.problem = "spill directory /nvme0: Read-only file system";
  EXPECT_EQ(FindingOf(facts, "directory /nvme0").verdict, Verdict::kLimited) << "the default one";
  facts.dirs_named = true;
  EXPECT_EQ(FindingOf(facts, "directory /nvme0").verdict, Verdict::kBad);
  EXPECT_EQ(FindingOf(facts, "directory /nvme0").advice, "choose others with SPILLWAY_DIRS");
  facts.disks.clear();
  EXPECT_EQ(FindingOf(facts, "directory").found, "none, as the settings say");
  facts.dirs_named = false;
  EXPECT_EQ(FindingOf(facts, "directory").verdict, Verdict::kLimited);
}

TEST(JudgementTest, ADiskThatIsNotUsedIsNoLimit) {
  DoctorFacts facts = GoodFacts();
  facts.disks.clear();
  facts.disk_unused = "SPILLWAY=observe moves nothing";
  EXPECT_EQ(FindingOf(facts, "directory").verdict, Verdict::kGood);
  EXPECT_EQ(FindingOf(facts, "directory").found, "none is used: SPILLWAY=observe moves nothing");
}

TEST(JudgementTest, ARingThatDoesNotWorkInOneDirectory) {
  DoctorFacts facts = GoodFacts();
  facts.disks.front().io_uring = false;
  facts.disks.front().io_uring_problem = "read: Operation not supported";
  EXPECT_EQ(FindingOf(facts, "directory /nvme0").advice,
            "worker threads are used: read: Operation not supported");
  facts.limits.io_uring_problem = "switched off";
  EXPECT_EQ(FindingOf(facts, "directory /nvme0").verdict, Verdict::kGood) << "said once";
}

TEST(JudgementTest, AFullDisk) {
  DoctorFacts facts = GoodFacts();
  facts.disks.front().start.free_bytes = 40 * kGiB;
  EXPECT_EQ(FindingOf(facts, "directory /nvme0").verdict, Verdict::kLimited);
  EXPECT_THAT(FindingOf(facts, "directory /nvme0").found,
              HasSubstr("space to spill to 0 B after a reserve of 50.00 GiB"));
}

TEST(JudgementTest, DiskRates) {
  DoctorFacts facts = GoodFacts();
  EXPECT_EQ(
      FindingOf(facts, "rates of /nvme0").found,
      "writes 3.00 GB/s (16.76 GiB in 6.0 s, 3.00 GB/s in the second half), reads 6.00 GB/s (22.35 GiB in "
      "4.0 s, 6.00 GB/s in the second half); a day of writing at that rate is 259.2 TB");
  facts.rated_writes = 600'000'000'000'000;
  EXPECT_THAT(FindingOf(facts, "rates of /nvme0").found,
              HasSubstr(", and 2.3 such days are the 600 TB that the drive is rated for"));
  // Fast while its cache lasts.
  facts.disks.front().rates.write.late_bytes_per_second = 100e6;
  EXPECT_EQ(FindingOf(facts, "rates of /nvme0").verdict, Verdict::kLimited);
  EXPECT_THAT(FindingOf(facts, "rates of /nvme0").advice, HasSubstr("slow: 1 GiB takes 10.7 s"));
  io::DiskRates& rates = facts.disks.front().rates;
  rates.end = io::WriteEnd::kSpace;
  EXPECT_THAT(FindingOf(facts, "rates of /nvme0").found,
              HasSubstr("writing stopped at the end of the free space"));
  rates.end = io::WriteEnd::kLimit;
  EXPECT_THAT(FindingOf(facts, "rates of /nvme0").found,
              HasSubstr("writing stopped at a limit: a cache may have made it faster"));
  rates.write.bytes = 32 * kGiB;
  EXPECT_EQ(FindingOf(facts, "rates of /nvme0").found.find("cache"), std::string::npos)
      << "that is more than a cache holds";
}

TEST(JudgementTest, RatesThatWereNotMeasured) {
  DoctorFacts facts = GoodFacts();
  facts.disks.front().rate_problem = "not asked for";
  EXPECT_EQ(FindingOf(facts, "rates of /nvme0").verdict, Verdict::kGood);
  facts.disks.front().rate_problem = "no space to measure in: 0 B beyond the reserve";
  EXPECT_EQ(FindingOf(facts, "rates of /nvme0").verdict, Verdict::kLimited);
}

TEST(JudgementTest, TheBufferedDisk) {
  DoctorFacts facts = GoodFacts();
  facts.disks.front().direct_io = false;
  facts.disks.front().cached_because = "O_DIRECT is refused";
  EXPECT_EQ(FindingOf(facts, "directory /nvme0").verdict, Verdict::kLimited);
  EXPECT_THAT(FindingOf(facts, "directory /nvme0").advice,
              HasSubstr("O_DIRECT is refused: writes pass the page cache"));
  EXPECT_THAT(FindingOf(facts, "rates of /nvme0").found, HasSubstr("memory may have made it faster"));
}

TEST(JudgementTest, WhatIsKnownOfAFileSystem) {
  DoctorFacts facts = GoodFacts();
  facts.disks.front().file_system = "overlay";
  facts.disks.front().known = "a container's own layer";
  EXPECT_EQ(FindingOf(facts, "kind of /nvme0").found, "overlay: a container's own layer");
}

TEST(JudgementTest, WhetherADiskIsEncrypted) {
  DoctorFacts facts = GoodFacts();
  EXPECT_THAT(FindingOf(facts, "directory /nvme0").found, ::testing::Not(HasSubstr("encrypted")));
  facts.disks.front().encryption = Encryption::kNone;
  EXPECT_THAT(FindingOf(facts, "directory /nvme0").found, HasSubstr("not encrypted by dm-crypt"));
  facts.disks.front().encryption = Encryption::kDmCrypt;
  EXPECT_THAT(FindingOf(facts, "directory /nvme0").found, HasSubstr(", encrypted (dm-crypt)"));
}

TEST(JudgementTest, AFasterDiskThanTheDefaultOne) {
  DoctorFacts facts = GoodFacts();
  facts.faster_mount = MountFacts{"/scratch", "xfs", "nvme1n1", DriveKind::kNvme, 900 * kGiB};
  const Finding finding = FindingOf(facts, "faster disk");
  EXPECT_EQ(finding.verdict, Verdict::kLimited);
  EXPECT_EQ(finding.found, "/scratch (xfs on nvme1n1, 900.00 GiB beyond the reserve) lies on an NVMe drive");
  EXPECT_THAT(finding.advice, HasSubstr("SPILLWAY_DIRS"));
}

TEST(JudgementTest, TheStart) {
  DoctorFacts facts = GoodFacts();
  facts.refusal = "SPILLWAY_HOST_MEMORY=1TiB is invalid; expected: at most 128.00 GiB";
  facts.warnings = {"SPILLWAY_HOST_MEMROY is unknown and ignored"};
  EXPECT_EQ(FindingOf(facts, "start").verdict, Verdict::kBad);
  EXPECT_EQ(FindingOf(facts, "start").found, "a job is refused: " + facts.refusal);
  EXPECT_EQ(FindingOf(facts, "warning").verdict, Verdict::kLimited);
  facts = GoodFacts();
  facts.given.off = true;
  EXPECT_EQ(FindingOf(facts, "start").found, "SPILLWAY=off: nothing is checked");
}

TEST(JudgementTest, Rates) {
  EXPECT_EQ(RateText(12.345e9), "12.35 GB/s");
  EXPECT_EQ(RateText(450e6), "450 MB/s");
  EXPECT_STREQ(NameOf(Verdict::kBad), "bad");
}

}  // namespace
}  // namespace spillway::integration
