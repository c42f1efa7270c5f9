#include "integration/settings/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "integration/settings/environment.h"

namespace spillway::integration {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SettingsTest : public ::testing::Test {
 protected:
  SettingsTest() {
    source_.value = [this](const char* name) {
      const auto found = values_.find(name);
      return found == values_.end() ? nullptr : found->second.c_str();
    };
    source_.variable = [this](const char* name) {
      const auto found = launcher_.find(name);
      return found == launcher_.end() ? nullptr : found->second.c_str();
    };
    source_.described = [this](const char* name) {
      described_ = VariableOf(name);
      return described_.c_str();
    };
  }

  absl::StatusOr<Settings> Read(std::map<std::string, std::string> values) {
    values_ = std::move(values);
    warnings_.clear();
    return ReadSettings(source_, &warnings_);
  }
  std::string ErrorOf(const std::string& name, const std::string& value) {
    auto settings = Read({{name, value}});
    return settings.ok() ? "" : std::string(settings.status().message());
  }

  SettingSource source_;
  std::map<std::string, std::string> values_;
  std::map<std::string, std::string> launcher_;
  std::string described_;
  std::vector<std::string> warnings_;
};

TEST_F(SettingsTest, DefaultsAreThoseOfTheTable) {
  const Settings settings = Read({}).value();
  EXPECT_TRUE(settings.Enabled());
  EXPECT_FALSE(settings.gpu_memory);
  EXPECT_FALSE(settings.host_memory);
  EXPECT_FALSE(settings.dirs);
  EXPECT_FALSE(settings.OwnDirectories());
  EXPECT_FALSE(settings.disk_reserve);
  EXPECT_EQ(settings.policy, PolicyKind::kPlan);
  EXPECT_TRUE(settings.checksum);
  EXPECT_EQ(settings.on_full, OnFull::kSpill);
  EXPECT_FALSE(settings.Observes());
  EXPECT_EQ(settings.trust, Trust::kNormal);
  EXPECT_FALSE(settings.audit);
  EXPECT_EQ(settings.denylist, "");
  EXPECT_EQ(settings.report, "");
  EXPECT_EQ(settings.prometheus, "");
  EXPECT_EQ(settings.metrics, "");
  EXPECT_EQ(settings.trace, "");
  EXPECT_FALSE(settings.profile);
  EXPECT_EQ(settings.status, StatusLine::kOff);
  EXPECT_EQ(settings.log, os::LogLevel::kWarn);
  EXPECT_EQ(settings.ranks.size, 0) << "not known";
}

TEST_F(SettingsTest, ReadsEachSetting) {
  const Settings settings = Read({{"gpu_memory", "20GiB"},
                                  {"host_memory", "10%"},
                                  {"dirs", "/a:1GB,/b"},
                                  {"disk_reserve", "0"},
                                  {"policy", "LRU"},
                                  {"checksum", "off"},
                                  {"on_full", "error"},
                                  {"metrics", "/tmp/m.json"},
                                  {"trace", "/tmp/t.trace"},
                                  {"status", "signal"},
                                  {"log", "debug"}})
                                .value();
  EXPECT_EQ(settings.gpu_memory->bytes, uint64_t{20} << 30);
  EXPECT_EQ(settings.host_memory->Of(1000), 100u);
  EXPECT_EQ(settings.OwnDirectories()->size(), 2u);
  EXPECT_EQ(settings.disk_reserve->bytes, 0u);
  EXPECT_EQ(settings.policy, PolicyKind::kLru);
  EXPECT_FALSE(settings.checksum);
  EXPECT_EQ(settings.on_full, OnFull::kError);
  EXPECT_EQ(settings.metrics, "/tmp/m.json");
  EXPECT_EQ(settings.trace, "/tmp/t.trace");
  EXPECT_EQ(settings.status, StatusLine::kSignal);
  EXPECT_EQ(settings.log, os::LogLevel::kDebug);
}

TEST_F(SettingsTest, AWriteBudgetIsASizeForATime) {
  EXPECT_FALSE(Read({{"write_budget", "none"}})->write_budget);
  EXPECT_EQ(Read({{"write_budget", "0"}})->write_budget, WriteLimit());
  using std::chrono::hours;
  EXPECT_EQ(Read({{"write_budget", "2TB/day"}})->write_budget, (WriteLimit{2'000'000'000'000, hours(24)}));
  EXPECT_EQ(Read({{"write_budget", " 1.5GiB / H "}})->write_budget, (WriteLimit{3u << 29, hours(1)}));
  EXPECT_EQ(Read({{"write_budget", "14TB/week"}})->write_budget->interval, hours(7 * 24));
  EXPECT_EQ(Read({{"write_budget", "14TB/m"}})->write_budget->interval, hours(30 * 24));
  for (const char* wrong :
       {"2TB", "2TB/", "/day", "2TB/days", "1MB/day", "5%/day", "-2TB/day", "2TB/day/day", ""})
    EXPECT_THAT(ErrorOf("write_budget", wrong), HasSubstr("such as 2TB/day")) << wrong;
}

// A job may leave the folder that it began in before the first file is written, and again before the last.
TEST_F(SettingsTest, PathsOfFilesAreThoseOfTheFolderWhereTheyWereRead) {
  const std::string here = std::filesystem::current_path().string();
  EXPECT_EQ(*Read({{"profile", "p"}}).value().profile, here + "/p");
  EXPECT_EQ(*Read({{"profile", "off"}}).value().profile, "");
  const Settings settings = Read({{"metrics", "m.json"},
                                  {"report", "a/r-%p.json"},
                                  {"prometheus", "None"},
                                  {"trace", "/t.trace"},
                                  {"denylist", "list"}})
                                .value();
  EXPECT_EQ(settings.metrics, here + "/m.json");
  EXPECT_EQ(settings.report, here + "/a/r-%p.json");
  EXPECT_EQ(settings.prometheus, "");
  EXPECT_EQ(settings.trace, "/t.trace");
  EXPECT_EQ(settings.denylist, here + "/list");
  EXPECT_EQ(IndependentOfFolder("metrics", "m.json"), here + "/m.json");
  EXPECT_EQ(IndependentOfFolder("metrics", "none"), "none");
  EXPECT_EQ(IndependentOfFolder("metrics", ""), "");
  EXPECT_EQ(IndependentOfFolder("policy", "lru"), "lru");
  EXPECT_EQ(IndependentOfFolder("cuda_driver", "libcuda.so.1"), "libcuda.so.1") << "ld.so looks for it";
}

TEST_F(SettingsTest, HostMemoryMayBeNoneAndGpuMemoryMayNot) {
  EXPECT_EQ(Read({{"host_memory", "0"}})->host_memory->bytes, 0u);
  EXPECT_THAT(ErrorOf("gpu_memory", "0"), HasSubstr("at least 64MiB"));
  EXPECT_THAT(ErrorOf("gpu_memory", "63MiB"), HasSubstr("at least 64MiB"));
}

TEST_F(SettingsTest, AWrongValueNamesTheVariableTheValueAndWhatIsAccepted) {
  EXPECT_EQ(ErrorOf("gpu_memory", "lots"),
            "SPILLWAY_GPU_MEMORY=lots is invalid; expected: a size such as 20GiB or 500MB, or a share "
            "such as 60%");
  EXPECT_EQ(ErrorOf("policy", "fifo"), "SPILLWAY_POLICY=fifo is invalid; expected: plan or lru");
  const std::map<std::string, std::string> wrong = {
      {"spillway", "maybe"}, {"host_memory", "-1"}, {"dirs", "tmp"},      {"disk_reserve", "5%"},
      {"checksum", "yes"},   {"on_full", "panic"},  {"status", "SIGHUP"}, {"metrics", ""},
      {"log", "loud"},       {"io_model", "slow"},  {"wait_limit", "30"}, {"trace", ""},
  };
  for (const auto& [name, value] : wrong) {
    const std::string error = ErrorOf(name, value);
    EXPECT_THAT(error, HasSubstr(VariableOf(name) + "=" + value + " is invalid; expected: ")) << name;
  }
}

TEST_F(SettingsTest, TheModeIsOneOfThree) {
  EXPECT_TRUE(Read({{"spillway", "Observe"}})->Observes());
  EXPECT_TRUE(Read({{"spillway", "observe"}})->Enabled());
  EXPECT_FALSE(Read({{"spillway", "1"}})->Observes());
  EXPECT_FALSE(Read({{"spillway", "off"}})->Enabled());
  EXPECT_EQ(ErrorOf("spillway", "watch"), "SPILLWAY=watch is invalid; expected: on, off or observe");
}

TEST_F(SettingsTest, AnUnknownNameWarnsWithTheNearest) {
  source_.variables = {"PATH", "SPILLWAY", "SPILLWAY_GPU_MEMROY"};
  ASSERT_TRUE(Read({}).ok());
  EXPECT_THAT(
      warnings_,
      ElementsAre("SPILLWAY_GPU_MEMROY is unknown and ignored; the nearest name is SPILLWAY_GPU_MEMORY"));
}

TEST_F(SettingsTest, ARankTakesItsDirectories) {
  for (const auto& [rank, path] : std::map<std::string, std::string>{{"0", "/a"}, {"1", "/b"}, {"2", "/a"}}) {
    launcher_["LOCAL_RANK"] = rank;
    EXPECT_EQ(Read({{"dirs", "/a;/b"}})->OwnDirectories()->front().path, path);
    EXPECT_THAT(Read({{"dirs", "/a:1GB;/b,/c"}})->RankDirectories(),
                ElementsAre(ElementsAre("/a"), ElementsAre("/b", "/c")));
  }
  EXPECT_TRUE(Read({})->RankDirectories().empty());
  launcher_["LOCAL_WORLD_SIZE"] = "4";
  EXPECT_EQ(Read({})->ranks.size, 4);
  EXPECT_THAT(warnings_, IsEmpty());
  launcher_["LOCAL_WORLD_SIZE"] = "no";
  EXPECT_EQ(Read({})->ranks.size, 0);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("LOCAL_WORLD_SIZE=no")));
}

TEST(SettingTableTest, EachSettingStandsOnceWithAllItsWords) {
  std::set<std::string> names;
  for (const SettingRow& row : SettingTable()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    for (const std::string text : {row.fallback, row.accepted, row.meaning}) EXPECT_NE(text, "") << row.name;
  }
  EXPECT_TRUE(names.contains("spillway"));
  EXPECT_TRUE(names.contains("gpu_memory"));
}

TEST(UnknownSettingsTest, NameTheNearest) {
  EXPECT_THAT(
      UnknownSettings({"SPILLWAY_GPU_MEMROY"}),
      ElementsAre("SPILLWAY_GPU_MEMROY is unknown and ignored; the nearest name is SPILLWAY_GPU_MEMORY"));
}

TEST(UnknownSettingsTest, AreNeitherOursNorOthers) {
  EXPECT_THAT(UnknownSettings({"PATH", "SPILLWAY", "SPILLWAY_DIRS", "SPILLWAY_PYTHON",
                               "SPILLWAY_ALLOC_CONF_ORIGINAL", "SPILLWAYS_DIRS"}),
              IsEmpty());
}

TEST_F(SettingsTest, ARefusalNamesSourceAndValue) {
  values_["dirs"] = "/a";
  EXPECT_EQ(NotAccepted(source_, "dirs", "b"), "SPILLWAY_DIRS=/a is invalid; expected: b");
  EXPECT_EQ(NotAccepted(source_, "log", "b"), "SPILLWAY_LOG is invalid; expected: b");
  EXPECT_EQ(NotAccepted({}, "log", "b"), "SPILLWAY_LOG is invalid; expected: b");
}

class LimitedSettingsTest : public SettingsTest {
 protected:
  LimitedSettingsTest() {
    source_.limit = [this](const char* name) {
      const auto found = limits_.find(name);
      return found == limits_.end() ? nullptr : found->second.c_str();
    };
    source_.limit_described = [this](const char* name) {
      described_limit_ = std::string("/etc/spillway.conf:9: ") + name;
      return described_limit_.c_str();
    };
  }
  std::map<std::string, std::string> limits_;
  std::string described_limit_;
};

TEST_F(LimitedSettingsTest, ALimitLowersAValueAndSaysSo) {
  limits_ = {{"host_memory", "4GiB"}, {"gpu_memory", "60%"}, {"write_budget", "2TB/day"}};
  const Settings settings =
      Read({{"host_memory", "8GiB"}, {"gpu_memory", "70%"}, {"write_budget", "3TB/day"}}).value();
  EXPECT_EQ(settings.host_memory->bytes, uint64_t{4} << 30);
  EXPECT_EQ(settings.gpu_memory->percent, 60);
  EXPECT_EQ(settings.write_budget->bytes, 2'000'000'000'000u);
  EXPECT_THAT(
      warnings_,
      ElementsAre(
          "SPILLWAY_GPU_MEMORY=70% is lowered by a limit: /etc/spillway.conf:9: gpu_memory=60%",
          "SPILLWAY_HOST_MEMORY=8GiB is lowered by a limit: /etc/spillway.conf:9: host_memory=4GiB",
          "SPILLWAY_WRITE_BUDGET=3TB/day is lowered by a limit: /etc/spillway.conf:9: write_budget=2TB/day"));
}

TEST_F(LimitedSettingsTest, WhatIsBelowStaysWithoutAWord) {
  limits_ = {{"host_memory", "4GiB"}, {"gpu_memory", "60%"}, {"write_budget", "2TB/day"}};
  const Settings settings = Read({{"host_memory", "4GiB"}, {"gpu_memory", "1GiB"}}).value();
  EXPECT_EQ(settings.host_memory->bytes, uint64_t{4} << 30);
  EXPECT_EQ(settings.gpu_memory->bytes, uint64_t{1} << 30) << "a share and bytes are compared later";
  EXPECT_EQ(settings.most_gpu_memory->percent, 60);
  EXPECT_EQ(settings.write_budget->bytes, 2'000'000'000'000u) << "nobody asked for more";
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(LimitedSettingsTest, WithoutAValueTheDefaultIsLimitedWhereItIsKnown) {
  limits_ = {{"host_memory", "4GiB"}, {"gpu_memory", "60%"}};
  const Settings settings = Read({}).value();
  EXPECT_FALSE(settings.host_memory);
  EXPECT_FALSE(settings.gpu_memory);
  EXPECT_EQ(settings.most_host_memory->bytes, uint64_t{4} << 30);
}

TEST_F(LimitedSettingsTest, AWrongLimitIsRefused) {
  limits_ = {{"host_memory", "lots"}};
  const absl::Status status = Read({}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("/etc/spillway.conf:9: host_memory=lots is invalid; expected: "));
}

}  // namespace
}  // namespace spillway::integration
