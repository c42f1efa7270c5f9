#include "integration/engine/start_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/sizes.h"

namespace spillway::integration {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Settings by name, and the facts of a machine, which each test makes as it needs them.
class StartCheckTest : public ::testing::Test {
 protected:
  StartCheckTest() {
    facts_.host.machine_bytes = 23 * kGiB;
    facts_.device_bytes = {80 * kGiB, 40 * kGiB};
  }

  SettingSource Source() {
    SettingSource source;
    source.value = [this](const char* name) {
      const auto found = values_.find(name);
      return found == values_.end() ? nullptr : found->second.c_str();
    };
    return source;
  }

  Settings Read() {
    std::vector<std::string> ignored;
    auto settings = ReadSettings(Source(), &ignored);
    EXPECT_TRUE(settings.ok()) << settings.status();
    return *std::move(settings);
  }

  absl::Status Check() {
    warnings_.clear();
    return CheckStart(Read(), Source(), facts_, &warnings_);
  }

  std::string Words() { return std::string(Check().message()); }

  std::map<std::string, std::string> values_;
  MachineFacts facts_;
  std::vector<std::string> warnings_;
};

TEST_F(StartCheckTest, NothingSetIsAccepted) {
  EXPECT_TRUE(Check().ok());
  facts_ = {};
  EXPECT_TRUE(Check().ok()) << "what is not known is not held against a setting";
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(StartCheckTest, HostMemoryIsWithinTheMachine) {
  values_["host_memory"] = "23GiB";
  EXPECT_TRUE(Check().ok());
  values_["host_memory"] = "1TiB";
  EXPECT_EQ(Words(),
            "SPILLWAY_HOST_MEMORY=1TiB is invalid; expected: at most 23.00 GiB, which this machine "
            "has, or a share such as 60%");
  values_["host_memory"] = "100%";
  EXPECT_TRUE(Check().ok());
  facts_.host = {};
  values_["host_memory"] = "1TiB";
  EXPECT_TRUE(Check().ok());
}

TEST_F(StartCheckTest, HostMemoryIsWithinTheControlGroup) {
  facts_.host.group_bytes = 8 * kGiB;
  values_["host_memory"] = "8GiB";
  EXPECT_TRUE(Check().ok());
  values_["host_memory"] = "9GiB";
  EXPECT_THAT(Words(),
              HasSubstr("at most 8.00 GiB, which this process's control group may use (the machine has "
                        "23.00 GiB)"));
  facts_.host.group_bytes = 64 * kGiB;  // above the machine: it says nothing
  EXPECT_TRUE(Check().ok());
}

TEST_F(StartCheckTest, MoreHostMemoryThanIsAvailableCostsALine) {
  facts_.host.available_bytes = 6 * kGiB;
  values_["host_memory"] = "6GiB";
  EXPECT_TRUE(Check().ok());
  EXPECT_THAT(warnings_, IsEmpty());
  values_["host_memory"] = "7GiB";
  EXPECT_TRUE(Check().ok());
  EXPECT_THAT(warnings_,
              ElementsAre("the host tier may take 7.00 GiB, above the 6.00 GiB that are available to "
                          "this process now: beyond them the system ends processes (SPILLWAY_HOST_MEMORY)"));
}

TEST_F(StartCheckTest, TheTotalOfAMachineThatGrowsIsNoLimit) {
  facts_.host.grows_by = "virtio_mem";
  values_["host_memory"] = "64GiB";
  EXPECT_TRUE(Check().ok());
  EXPECT_THAT(warnings_, ElementsAre("the host tier may take 64.00 GiB, above the 23.00 GiB that this "
                                     "machine has now; its memory can grow (virtio_mem)"));
  values_["host_memory"] = "23GiB";
  EXPECT_TRUE(Check().ok());
  EXPECT_THAT(warnings_, IsEmpty());
  values_["host_memory"] = "100TiB";
  EXPECT_THAT(Words(), HasSubstr("at most 23.00 TiB, 1024 times what this machine has now, or a share"));
  values_["host_memory"] = "64GiB";
  facts_.host.group_bytes = 8 * kGiB;
  EXPECT_THAT(Words(), HasSubstr("which this process's control group may use")) << "a group does not grow";
  facts_.host.group_bytes = 32 * kGiB;
  facts_.host.grows_by = "virtio_mem";
  EXPECT_THAT(Words(), HasSubstr("at most 32.00 GiB, which this process's control group may use"))
      << "nor here";
}

TEST_F(StartCheckTest, TheBudgetIsWithinTheLargestDevice) {
  values_["gpu_memory"] = "80GiB";
  EXPECT_TRUE(Check().ok());
  values_["gpu_memory"] = "81GiB";
  EXPECT_THAT(Words(), HasSubstr("SPILLWAY_GPU_MEMORY=81GiB is invalid; expected: at most 80.00 GiB, which "
                                 "GPU 0 has"));
  values_["spillway"] = "observe";  // a budget to report about, which nothing is held to
  EXPECT_TRUE(Check().ok());
  values_.erase("spillway");
  facts_.device_bytes = {};
  EXPECT_TRUE(Check().ok());
}

TEST_F(StartCheckTest, ADirectoryThatWasNamedMustWork) {
  facts_.directories = {{"/x", "it is not writable", 0, 0, true}};
  EXPECT_TRUE(Check().ok()) << "the default directory is done without";
  values_["dirs"] = "/x";
  EXPECT_EQ(Words(),
            "SPILLWAY_DIRS=/x is invalid; expected: writable directories on a disk, or none (it is "
            "not writable)");
}

TEST_F(StartCheckTest, AReserveMustLeaveSpace) {
  facts_.directories = {{"/nvme0", "", 90 * kGiB, 100 * kGiB, true}};
  values_ = {{"dirs", "/nvme0"}, {"disk_reserve", "10TiB"}};
  EXPECT_EQ(Words(),
            "SPILLWAY_DISK_RESERVE=10TiB is invalid; expected: less than the free space of one of the "
            "spill directories; /nvme0 has 90.00 GiB free of 100.00 GiB, and the reserve is 10.00 TiB");
  EXPECT_TRUE(absl::IsInvalidArgument(Check()));
  values_["disk_reserve"] = "95GiB";
  EXPECT_TRUE(absl::IsUnavailable(Check())) << "space may come free yet";
  facts_.directories[0].alone = false;
  EXPECT_TRUE(Check().ok()) << "others have it, and give it back";
  EXPECT_THAT(warnings_,
              ElementsAre(HasSubstr("nothing can be spilled to disk there now: /nvme0 has 90.00 GiB")));
  values_["disk_reserve"] = "89GiB";
  EXPECT_TRUE(Check().ok());
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(StartCheckTest, OneDirectoryWithSpaceIsEnough) {
  facts_.directories = {{"/a", "", kGiB, 100 * kGiB, true}, {"/b", "", 50 * kGiB, 100 * kGiB, true}};
  values_["dirs"] = "/a,/b";
  EXPECT_TRUE(Check().ok());
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("/a has 1.00 GiB free")));
  facts_.directories.pop_back();
  EXPECT_THAT(Words(), HasSubstr("SPILLWAY_DIRS=/a,/b is invalid; expected: directories with more free space "
                                 "than the reserve (SPILLWAY_DISK_RESERVE); /a has 1.00 GiB free"));
}

TEST_F(StartCheckTest, TheDefaultDirectoryWithoutSpaceCostsALine) {
  facts_.directories = {{"/var/tmp", "", kGiB, 100 * kGiB, true}};
  EXPECT_TRUE(Check().ok());
  EXPECT_EQ(warnings_.size(), 1u);
}

TEST_F(StartCheckTest, AFileThatCannotBeUsedIsRefused) {
  values_["metrics"] = "/nope/m.json";
  facts_.files = {{"metrics", "the path of a file that can be written (/nope: no)"}};
  EXPECT_EQ(Words(),
            "SPILLWAY_METRICS=/nope/m.json is invalid; expected: the path of a file that can be "
            "written (/nope: no)");
}

// ---- Facts of the machine that the test runs on.

class InspectMachineTest : public StartCheckTest {
 protected:
  InspectMachineTest() {
    char name[] = "/var/tmp/spillway_start_XXXXXX";
    folder_ = ::mkdtemp(name);
  }
  ~InspectMachineTest() override { std::filesystem::remove_all(folder_); }

  std::string Problem(const char* setting, const std::string& value) {
    values_[setting] = value;
    const MachineFacts facts = InspectMachine(Read());
    return facts.files.empty() ? "" : facts.files.front().accepted;
  }

  std::string folder_;
};

TEST_F(InspectMachineTest, AGoodDirectoryHasSpaceAndNothingIsLeftInIt) {
  values_["dirs"] = folder_;
  const MachineFacts facts = InspectMachine(Read());
  ASSERT_EQ(facts.directories.size(), 1u);
  EXPECT_EQ(facts.directories[0].problem, "");
  EXPECT_GT(facts.directories[0].total_bytes, facts.directories[0].free_bytes);
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  EXPECT_GT(facts.host.machine_bytes, 0u);
}

TEST_F(InspectMachineTest, DirectoriesThatCannotHoldSpillFilesSaySo) {
  for (const auto& [path, why] : std::map<std::string, std::string>{{"/dev/shm", "tmpfs"},
                                                                    {"/proc", "no file can be made in it"},
                                                                    {"/nope", "No such file or directory"},
                                                                    {"/etc/passwd", "Not a directory"}}) {
    values_["dirs"] = path;
    const MachineFacts facts = InspectMachine(Read());
    ASSERT_EQ(facts.directories.size(), 1u);
    EXPECT_THAT(facts.directories[0].problem, HasSubstr(why)) << path;
  }
}

TEST_F(InspectMachineTest, FilesAreTriedAndNothingIsLeft) {
  for (const char* setting : {"metrics", "trace"}) {
    EXPECT_EQ(Problem(setting, folder_ + "/%p.json"), "");
    EXPECT_TRUE(std::filesystem::is_empty(folder_));
    EXPECT_THAT(Problem(setting, folder_ + "/missing/x"), HasSubstr("No such file or directory"));
    EXPECT_THAT(Problem(setting, folder_), HasSubstr("is a directory"));
    EXPECT_THAT(Problem(setting, "/dev/null"), HasSubstr("is not a regular file"));
    EXPECT_NE(Problem(setting, "/proc/x.json"), "");
    values_.erase(setting);
  }
}

TEST_F(InspectMachineTest, ADenyListIsReadAndAnAuditMayMakeIt) {
  const std::string list = folder_ + "/list";
  EXPECT_THAT(Problem("denylist", list), HasSubstr("No such file or directory"));
  EXPECT_THAT(Problem("denylist", folder_), HasSubstr("is a directory"));
  values_["audit"] = "on";
  EXPECT_EQ(Problem("denylist", list), "");
  EXPECT_FALSE(std::filesystem::exists(list));
  std::ofstream(list) << "# none\n";
  EXPECT_EQ(Problem("denylist", list), "");
  std::ofstream(list) << "# a name is needed\ngood\nbad/name\n";
  EXPECT_THAT(Problem("denylist", list), HasSubstr("a deny list whose lines can be read (" + list + ":3: "));
}

TEST_F(InspectMachineTest, ADriverIsAFileWhereItIsAPath) {
  EXPECT_THAT(Problem("cuda_driver", "/nope/libcuda.so.1"), HasSubstr("No such file"));
  EXPECT_EQ(Problem("cuda_driver", "libcuda.so.1"), "");
}

// ---- What callers outside the engine ask.

std::string MessageFor(const std::map<std::string, std::string>& given) {
  const auto describe = [](const std::string& name) { return "--" + name; };
  return std::string(CheckGivenSettings(given, describe, {kGiB}).message());
}

TEST_F(StartCheckTest, EncryptionNeedsOpenSsl) {
  values_["encrypt"] = "on";
  EXPECT_EQ(InspectMachine(Read()).no_cipher, "") << "this machine has it";
  EXPECT_TRUE(Check().ok());
  facts_.no_cipher = "libcrypto.so.3: cannot open shared object file";
  EXPECT_EQ(Words(),
            "SPILLWAY_ENCRYPT=on is invalid; expected: on only where OpenSSL 3 can be loaded and its key "
            "locked in "
            "memory (libcrypto.so.3: cannot open shared object file)");
}

TEST(CheckGivenSettingsTest, NamesWhatIsWrongAsTheCallerCallsIt) {
  EXPECT_EQ(MessageFor({}), "");
  EXPECT_THAT(MessageFor({{"policy", "fifo"}}), HasSubstr("--policy=fifo is invalid; expected: plan or lru"));
  EXPECT_THAT(MessageFor({{"gpu_memory", "2GiB"}}),
              HasSubstr("--gpu_memory=2GiB is invalid; expected: at most "
                        "1.00 GiB"));
  EXPECT_THAT(MessageFor({{"dirs", "/nope"}}), HasSubstr("--dirs=/nope is invalid"));
  EXPECT_EQ(MessageFor({{"spillway", "off"}, {"dirs", "/nope"}}), "") << "off is as if it were not there";
}

TEST(CheckGivenSettingsTest, ReadsTheEnvironmentForTheRest) {
  ::setenv("SPILLWAY_POLICY", "fifo", 1);
  EXPECT_THAT(MessageFor({}), HasSubstr("SPILLWAY_POLICY=fifo is invalid"));
  EXPECT_EQ(MessageFor({{"policy", "lru"}}), "") << "what is given wins";
  ::setenv("SPILLWAY_POLICY", "", 1);
  EXPECT_EQ(MessageFor({}), "");
  ::unsetenv("SPILLWAY_POLICY");
}

TEST(CheckGivenSettingsTest, ReadsTheUsersFileForTheRest) {
  const std::string path = ::testing::TempDir() + "/spillway_given.conf";
  std::ofstream(path) << "policy = fifo\n";
  const char* const before = ::getenv("SPILLWAY_CONF");
  const std::string kept = before == nullptr ? "" : before;
  ::setenv("SPILLWAY_CONF", path.c_str(), 1);
  EXPECT_THAT(MessageFor({}), HasSubstr(path + ":1: policy=fifo is invalid; expected: plan or lru"));
  EXPECT_EQ(MessageFor({{"policy", "lru"}}), "") << "what is given wins";
  std::ofstream(path) << "policy\n";
  EXPECT_THAT(MessageFor({}), HasSubstr(path + ":1: expected NAME=VALUE"));
  EXPECT_EQ(MessageFor({{"spillway", "off"}}), "");
  ::setenv("SPILLWAY_CONF", kept.c_str(), 1);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace spillway::integration
