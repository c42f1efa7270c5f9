// Which settings are chosen, and that a job with them is let through.

#include "integration/cli/doctor/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "integration/engine/sizing.h"
#include "integration/engine/start_check.h"
#include "tests/integration/cli/doctor/doctor_helpers.h"

namespace spillway::integration {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ChosenSetting Find(const DoctorFacts& facts, const std::string& name) {
  for (const ChosenSetting& setting : ChooseSettings(facts)) {
    if (setting.name == name) return setting;
  }
  return {name, "is not chosen", "", false};
}

// What the check at the start says to the settings that are chosen, on the machine of these facts.
absl::Status StartWith(const DoctorFacts& facts) {
  const std::map<std::string, std::string> values = ValuesOf(ChooseSettings(facts));
  SettingSource source;
  source.value = [&values](const char* name) -> const char* {
    const auto found = values.find(name);
    return found == values.end() ? nullptr : found->second.c_str();
  };
  source.variable = [](const char*) -> const char* { return nullptr; };
  std::vector<std::string> warnings;
  const auto settings = ReadSettings(source, &warnings);
  if (!settings.ok()) return settings.status();
  MachineFacts machine;
  machine.host = facts.system.memory;
  for (const DeviceFacts& device : facts.driver.devices) machine.device_bytes.push_back(device.bytes);
  for (const DiskFacts& disk : facts.disks) {
    const auto named = settings->OwnDirectories();
    for (const DirectoryEntry& entry : named.value_or(std::vector<DirectoryEntry>())) {
      if (entry.path == disk.start.path) machine.directories.push_back(disk.start);
    }
  }
  return CheckStart(*settings, source, machine, &warnings);
}

TEST(ChoiceTest, AGoodMachine) {
  const DoctorFacts facts = GoodFacts();
  EXPECT_EQ(Find(facts, "gpu_memory").value, "") << "a job finds out itself what is free";
  EXPECT_THAT(Find(facts, "gpu_memory").reason,
              HasSubstr("now that is on GPU 0 77.00 GiB of 80.00 GiB (75.46 GiB for blocks, 1.54 GiB for "
                        "other memory of the "
                        "process; a reserve of 1.00 GiB, 2.00 GiB in use before)"));
  EXPECT_EQ(Find(facts, "dirs").value, "/nvme0");
  EXPECT_EQ(Find(facts, "dirs").reason, "space for 450.00 GiB, 3.00 GB/s in the slower direction");
  EXPECT_EQ(Find(facts, "disk_reserve").value, "is not chosen");
  EXPECT_TRUE(StartWith(facts).ok()) << StartWith(facts);
}

TEST(ChoiceTest, HostMemoryIsAQuarterBesideFastDisks) {
  DoctorFacts facts = GoodFacts();
  facts.disks.front() = GoodDisk("/nvme0", 1, 10e9);
  EXPECT_EQ(Find(facts, "host_memory").value, "25GiB");
  EXPECT_EQ(Find(facts, "host_memory").reason, "a quarter of the 100.00 GiB available");
  facts.ranks.size = 8;
  EXPECT_THAT(Find(facts, "host_memory").reason, HasSubstr("for all 8 ranks of the node, each 3.12 GiB"));
}

TEST(ChoiceTest, LimitsOfTheOperatorBoundWhatIsChosen) {
  DoctorFacts facts = GoodFacts();
  facts.most_host_memory = Size{.percent = 10};
  facts.most_gpu_memory = Size{.percent = 50};
  EXPECT_EQ(Find(facts, "host_memory").value, "10GiB");
  EXPECT_THAT(Find(facts, "host_memory").reason,
              HasSubstr("the limit of /etc/spillway.conf; without it half of"));
  EXPECT_THAT(
      Find(facts, "gpu_memory").reason,
      HasSubstr(
          "now that is on GPU 0 40.00 GiB of 80.00 GiB (39.20 GiB for blocks, 820.00 MiB for other memory of "
          "the process)"));
  facts.most_host_memory = Size{.bytes = uint64_t{90} << 30};
  EXPECT_EQ(Find(facts, "host_memory").value, "50GiB") << "the limit is above it";
}

TEST(ChoiceTest, HostMemoryIsHalfWhereTheDisksAreSlowBesideTheLink) {
  DoctorFacts facts = GoodFacts();
  EXPECT_EQ(Find(facts, "host_memory").value, "50GiB");
  EXPECT_THAT(Find(facts, "host_memory").reason,
              HasSubstr("since the disks do 3.00 GB/s where the link does 11.00 GB/s"));
  facts.driver.stand_in = true;
  EXPECT_EQ(Find(facts, "host_memory").value, "25GiB") << "a stand-in's link says nothing";
  facts.disks.clear();
  EXPECT_EQ(Find(facts, "host_memory").value, "50GiB");
  EXPECT_EQ(Find(facts, "dirs").value, "none");
}

TEST(ChoiceTest, ATinyControlGroup) {
  DoctorFacts facts = GoodFacts();
  facts.system.memory.group_bytes = 128 * kMiB;
  facts.system.memory.available_bytes = 100 * kMiB;
  EXPECT_EQ(Find(facts, "host_memory").value, "0");
  EXPECT_THAT(Find(facts, "host_memory").reason, HasSubstr("48 MiB of staging"));
  EXPECT_TRUE(StartWith(facts).ok());
  facts.disk_unused = "SPILLWAY=observe moves nothing";
  facts.disks.clear();
  EXPECT_EQ(Find(facts, "host_memory").reason, "only 100.00 MiB are available: too little for a host tier");
  facts.disk_unused.clear();
  EXPECT_EQ(Find(facts, "host_memory").value, "0");
  EXPECT_EQ(Find(facts, "host_memory").reason,
            "only 100.00 MiB are available: with no disk either, a job has its GPU's memory alone");
  facts.system.memory.available_bytes = 0;
  EXPECT_EQ(Find(facts, "host_memory").value, "");
}

TEST(ChoiceTest, WhatTheUserHasSetStaysWhereItWorks) {
  DoctorFacts facts = GoodFacts();
  facts.dirs_named = true;
  facts.given.values = {{"gpu_memory", "20GiB"},
                        {"host_memory", "60%"},
                        {"dirs", "/nvme0:2TiB"},
                        {"disk_reserve", "1GiB"},
                        {"policy", "lru"}};
  for (const ChosenSetting& setting : ChooseSettings(facts)) {
    EXPECT_EQ(setting.value, facts.given.values[setting.name]);
    EXPECT_TRUE(setting.given) << setting.name;
  }
  EXPECT_EQ(ChooseSettings(facts).size(), 5u);
  EXPECT_TRUE(StartWith(facts).ok());
}

TEST(ChoiceTest, WhatAJobWouldBeRefusedForIsReplaced) {
  DoctorFacts facts = GoodFacts();
  facts.given.values = {{"gpu_memory", "200GiB"}, {"host_memory", "1TiB"}};
  EXPECT_EQ(Find(facts, "gpu_memory").value, "");
  EXPECT_THAT(Find(facts, "gpu_memory").reason, HasSubstr("200GiB is more than a GPU has"));
  EXPECT_TRUE(Find(facts, "gpu_memory").dropped) << "the shell may have it";
  EXPECT_EQ(Find(facts, "host_memory").value, "50GiB");
  EXPECT_FALSE(Find(facts, "host_memory").given);
  EXPECT_TRUE(StartWith(facts).ok());
}

TEST(ChoiceTest, DirectoriesThatWorkAreTaken) {
  DoctorFacts facts = GoodFacts();
  facts.dirs_named = true;
  facts.given.values["dirs"] = "/nvme0,/ro,/again,/slow,/nvme1";
  facts.disks = {GoodDisk("/nvme0", 1), GoodDisk("/ro", 2), GoodDisk("/again", 1),
                 GoodDisk("/slow", 3, 100e6), GoodDisk("/nvme1", 4)};
  facts.disks[1].start.problem = "Read-only file system";
  facts.disks[4].cap_bytes = 200 * kGiB;
  EXPECT_EQ(Find(facts, "dirs").value, "/nvme0,/nvme1:200GiB");
  EXPECT_EQ(
      Find(facts, "dirs").reason,
      "space for 650.00 GiB, 6.00 GB/s in the slower direction; without /ro: it cannot be used; without "
      "/again: its file system is there already; without /slow: 100 MB/s beside 3.00 GB/s");
  EXPECT_TRUE(StartWith(facts).ok());
}

TEST(ChoiceTest, ADiskThatIsNearlyFull) {
  DoctorFacts facts = GoodFacts();
  facts.disks.front().start.free_bytes = 12 * kGiB;
  facts.disks.front().rate_problem = "no space to measure in";
  EXPECT_EQ(Find(facts, "disk_reserve").value, "1GiB");
  EXPECT_EQ(Find(facts, "disk_reserve").reason,
            "a reserve of 50.00 GiB leaves nothing of the 12.00 GiB that are free in /nvme0");
  EXPECT_EQ(Find(facts, "dirs").value, "/nvme0");
  EXPECT_THAT(Find(facts, "dirs").reason, HasSubstr("space for 11.00 GiB"));
  EXPECT_TRUE(StartWith(facts).ok());
  facts.disks.front().start.free_bytes = 1500 * kMiB;
  EXPECT_EQ(Find(facts, "disk_reserve").value, "is not chosen");
  EXPECT_EQ(Find(facts, "dirs").value, "none");
  EXPECT_EQ(Find(facts, "dirs").reason,
            "without /nvme0: a reserve of 50.00 GiB leaves nothing of the 1.46 GiB that are free");
  EXPECT_TRUE(StartWith(facts).ok());
}

TEST(ChoiceTest, AReserveOfTheUsersIsNeverMadeSmaller) {
  DoctorFacts facts = GoodFacts();
  facts.disks.front().start.free_bytes = 40 * kGiB;
  facts.given.values = {{"disk_reserve", "50GiB"}, {"dirs", "/nvme0"}};
  facts.dirs_named = true;
  EXPECT_EQ(Find(facts, "disk_reserve").value, "50GiB");
  EXPECT_TRUE(Find(facts, "disk_reserve").given);
  EXPECT_EQ(Find(facts, "dirs").value, "none");
  EXPECT_EQ(Find(facts, "dirs").reason,
            "without /nvme0: a reserve of 50.00 GiB leaves nothing of the 40.00 GiB that are free");
  EXPECT_TRUE(StartWith(facts).ok()) << StartWith(facts);
}

TEST(ChoiceTest, TheListsOfOtherRanksStay) {
  DoctorFacts facts = GoodFacts();
  facts.dirs_named = true;
  facts.ranks.rank = 4;
  facts.given.values["dirs"] = "/nvme0,/ro;/ro,/nvme1:2TiB;/nvme2";
  facts.disks = {GoodDisk("/ro", 2), GoodDisk("/nvme1", 3)};
  facts.disks[0].start.problem = "Read-only file system";
  facts.disks[1].cap_bytes = 2048 * kGiB;
  EXPECT_EQ(Find(facts, "dirs").value, "/nvme0;/nvme1:2048GiB;/nvme2");
  EXPECT_THAT(Find(facts, "dirs").reason,
              HasSubstr("without /ro: it cannot be used; with the lists of the other ranks"));
  EXPECT_TRUE(StartWith(facts).ok()) << StartWith(facts);
  // What is slow or there twice for this rank may be all that another has.
  facts.given.values["dirs"] = "/again;/nvme0,/again";
  facts.ranks.rank = 1;
  facts.disks = {GoodDisk("/nvme0", 1), GoodDisk("/again", 1)};
  EXPECT_EQ(Find(facts, "dirs").value, "/again;/nvme0");
  // No list can be empty.
  facts.disks[0].start.problem = facts.disks[1].start.problem = "Read-only file system";
  EXPECT_EQ(Find(facts, "dirs").value, "none");
}

TEST(ChoiceTest, FilesThatAJobWouldBeRefusedForAreUnset) {
  DoctorFacts facts = GoodFacts();
  facts.given.values = {{"metrics", "/none/x.json"}, {"trace", "/tmp/x.csv"}};
  facts.files = {
      {"metrics", "the path of a file that can be written (/none/x.json: No such file or directory)"}};
  EXPECT_EQ(Find(facts, "metrics").value, "");
  EXPECT_TRUE(Find(facts, "metrics").dropped);
  EXPECT_EQ(
      Find(facts, "metrics").reason,
      "/none/x.json is invalid; expected: the path of a file that can be written (/none/x.json: No such "
      "file or directory)");
  EXPECT_EQ(Find(facts, "trace").value, "/tmp/x.csv");
  EXPECT_EQ(ConfText(ChooseSettings(facts), "").find("metrics"), std::string::npos);
}

TEST(ChoiceTest, DirectoriesThatCannotBeUsedAreUnsetWhereNothingIsEvicted) {
  DoctorFacts facts = GoodFacts();
  facts.dirs_named = true;
  facts.disk_unused = "SPILLWAY=observe moves nothing";
  facts.given.values = {{"spillway", "observe"}, {"dirs", "/nvme0,/ro"}};
  facts.disks = {GoodDisk("/nvme0", 1), GoodDisk("/ro", 1)};
  EXPECT_EQ(Find(facts, "dirs").value, "/nvme0,/ro") << "a job takes both";
  facts.disks[1].start.problem = "Read-only file system";
  EXPECT_EQ(Find(facts, "dirs").value, "");
  EXPECT_TRUE(Find(facts, "dirs").dropped);
  EXPECT_EQ(Find(facts, "dirs").reason, "SPILLWAY=observe moves nothing; without /ro: it cannot be used");
  EXPECT_TRUE(StartWith(facts).ok()) << StartWith(facts);
}

TEST(ChoiceTest, WhereNothingIsEvictedNoDiskIsChosen) {
  DoctorFacts facts = GoodFacts();
  facts.disks.clear();
  facts.disk_unused = "SPILLWAY=observe moves nothing";
  facts.given.values["spillway"] = "observe";
  EXPECT_EQ(Find(facts, "dirs").value, "is not chosen");
  EXPECT_EQ(Find(facts, "host_memory").value, "25GiB");
  EXPECT_EQ(Find(facts, "spillway").value, "observe");
}

TEST(ChoiceTest, WithoutAGpu) {
  DoctorFacts facts = GoodFacts();
  facts.driver = {};
  facts.driver.problem = "libcuda.so.1 is not found";
  EXPECT_EQ(Find(facts, "gpu_memory").value, "");
  EXPECT_EQ(Find(facts, "host_memory").value, "25GiB");
  EXPECT_TRUE(StartWith(facts).ok());
}

TEST(ChoiceTest, Lines) {
  const std::vector<ChosenSetting> settings = {
      {"gpu_memory", "", "why not", false},       {"host_memory", "5GiB", "why", false},
      {"dirs", "/a b,/c", "space", false},        {"spillway", "observe", "as given", true},
      {"io_model", "read:1e9", "as given", true}, {"metrics", "", "no folder", false, true}};
  EXPECT_THAT(
      ExportLines(settings),
      ElementsAre("# SPILLWAY_GPU_MEMORY stays unset: why not", "export SPILLWAY_HOST_MEMORY=5GiB  # why",
                  "export SPILLWAY_DIRS='/a b,/c'  # space", "export SPILLWAY=observe  # as given",
                  "export SPILLWAY_IO_MODEL=read:1e9  # as given", "unset SPILLWAY_METRICS  # no folder"));
  EXPECT_EQ(ConfText(settings, ""), "backend:spillway,host_memory:5GiB,dirs:[/a b,/c],io_model:[read:1e9]");
  EXPECT_EQ(ConfText({}, "max_split_size_mb:64"), "backend:spillway,max_split_size_mb:64");
  EXPECT_EQ(ShellWord("it's"), "'it'\\''s'");
  EXPECT_EQ(ShellWord("plain-1.2,/x:y%"), "plain-1.2,/x:y%");
  EXPECT_EQ(ValuesOf(settings).count("gpu_memory"), 0u);
}

}  // namespace
}  // namespace spillway::integration
