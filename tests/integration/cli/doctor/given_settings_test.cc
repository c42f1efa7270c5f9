// Options win over variables, variables over keys; each is called what it is.

#include "integration/cli/doctor/given_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace spillway::integration {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr char kConf[] = "PYTORCH_CUDA_ALLOC_CONF";

class GivenSettingsTest : public ::testing::Test {
 protected:
  GivenSettingsTest() { Clear(); }
  ~GivenSettingsTest() override { Clear(); }
  static void Clear() {
    for (const char* name :
         {kConf, "PYTORCH_ALLOC_CONF", "SPILLWAY_HOST_MEMORY", "SPILLWAY_POLICY", "SPILLWAY",
          "SPILLWAY_DISK_RESERVE", "SPILLWAY_PROFILE", "SPILLWAY_ALLOC_CONF_ORIGINAL"})
      ::unsetenv(name);
    ::setenv("SPILLWAY_CONF", "none", 1);
  }
};

TEST_F(GivenSettingsTest, WhoWins) {
  ::setenv(kConf,
           "backend:spillway,host_memory:1GiB,policy:lru,disk_reserve:3GiB, dirs : [/a,/b:2TiB] "
           ",,roundup:[256:1,>:4]",
           1);
  ::setenv("SPILLWAY_HOST_MEMORY", "2GiB", 1);
  ::setenv("SPILLWAY_POLICY", "plan", 1);
  const std::map<std::string, std::string> options = {{"policy", "neither"}};
  const GivenSettings given = CollectSettings(options);
  EXPECT_TRUE(given.named_in_conf);
  EXPECT_EQ(given.kept_conf, "roundup:[256:1,>:4]");
  EXPECT_THAT(given.values, ElementsAre(Pair("dirs", "/a,/b:2TiB"), Pair("disk_reserve", "3GiB"),
                                        Pair("host_memory", "2GiB"), Pair("policy", "neither")));
  const SettingSource source = SourceOf(given, options);
  EXPECT_STREQ(source.value("policy"), "neither");
  EXPECT_STREQ(source.described("policy"), "--policy");
  EXPECT_STREQ(source.described("host_memory"), "SPILLWAY_HOST_MEMORY");
  EXPECT_STREQ(source.described("disk_reserve"), "disk_reserve in PYTORCH_CUDA_ALLOC_CONF");
  EXPECT_STREQ(source.described("gpu_memory"), "SPILLWAY_GPU_MEMORY");
  EXPECT_EQ(source.value("gpu_memory"), nullptr);
}

TEST_F(GivenSettingsTest, FilesCountLast) {
  const std::string path = ::testing::TempDir() + "/spillway_given_settings.conf";
  std::ofstream(path) << "disk_reserve = 5GiB\nhost_memory = 5GiB\npolicy = lru\n";
  ::setenv("SPILLWAY_CONF", path.c_str(), 1);
  ::setenv(kConf, "backend:spillway,host_memory:1GiB", 1);
  ::setenv("SPILLWAY_POLICY", "plan", 1);
  const GivenSettings given = CollectSettings({});
  EXPECT_TRUE(CheckConf(given).ok());
  EXPECT_THAT(given.values,
              ElementsAre(Pair("disk_reserve", "5GiB"), Pair("host_memory", "1GiB"), Pair("policy", "plan")));
  EXPECT_THAT(
      OriginLines(OriginsOf(SourceOf(given, {}))),
      ElementsAre("host_memory=1GiB by host_memory in PYTORCH_CUDA_ALLOC_CONF",
                  "disk_reserve=5GiB by " + path + ":1: disk_reserve", "policy=plan by SPILLWAY_POLICY"));
  std::ofstream(path) << "log\n";
  EXPECT_THAT(std::string(CheckConf(CollectSettings({})).message()),
              HasSubstr(path + ":1: expected NAME=VALUE"));
  ::setenv("SPILLWAY", "off", 1);
  EXPECT_TRUE(CheckConf(CollectSettings({})).ok());
  std::filesystem::remove(path);
}

TEST(OriginLinesTest, NamesLimits) {
  EXPECT_THAT(
      OriginLines(
          {{"gpu_memory", "", "", "60%", "/etc/spillway.conf:2: gpu_memory"},
           {"host_memory", "1GiB", "SPILLWAY_HOST_MEMORY", "2GiB", "/etc/spillway.conf:3: host_memory"}}),
      ElementsAre(
          "gpu_memory at most 60% by /etc/spillway.conf:2: gpu_memory",
          "host_memory=1GiB by SPILLWAY_HOST_MEMORY; at most 2GiB by /etc/spillway.conf:3: host_memory"));
}

TEST_F(GivenSettingsTest, TheOtherVariable) {
  ::setenv(kConf, "backend:native,max_split_size_mb:64", 1);
  EXPECT_TRUE(CollectSettings({}).values.empty());
  EXPECT_FALSE(CollectSettings({}).named_in_conf);
  ::unsetenv(kConf);
  ::setenv("PYTORCH_ALLOC_CONF", "backend:spillway,host_memory:1GiB", 1);
  const GivenSettings given = CollectSettings({});
  EXPECT_THAT(given.values, ElementsAre(Pair("host_memory", "1GiB")));
  EXPECT_STREQ(SourceOf(given, {}).described("host_memory"), "host_memory in PYTORCH_ALLOC_CONF");
}

TEST_F(GivenSettingsTest, ForAKeyInBothTheOlderVariableCounts) {
  ::setenv(kConf, "policy:lru", 1);
  ::setenv("PYTORCH_ALLOC_CONF", "backend:spillway,policy:plan", 1);
  const GivenSettings given = CollectSettings({});
  EXPECT_THAT(given.values, ElementsAre(Pair("policy", "lru")));
  EXPECT_TRUE(given.named_in_conf);
  EXPECT_STREQ(SourceOf(given, {}).described("policy"), "policy in PYTORCH_CUDA_ALLOC_CONF");
}

// As in a child of a job: `python -m spillway` is one.
TEST_F(GivenSettingsTest, TheOriginalCountsWhereOurKeysWereTaken) {
  ::setenv("SPILLWAY_ALLOC_CONF_ORIGINAL", "backend:spillway,policy:lru,max_split_size_mb:64", 1);
  ::setenv(kConf, "max_split_size_mb:64", 1);
  const GivenSettings given = CollectSettings({});
  EXPECT_THAT(given.values, ElementsAre(Pair("policy", "lru")));
  EXPECT_TRUE(given.named_in_conf);
  EXPECT_EQ(given.kept_conf, "max_split_size_mb:64");
  EXPECT_STREQ(SourceOf(given, {}).described("policy"), "policy in SPILLWAY_ALLOC_CONF_ORIGINAL");
}

TEST_F(GivenSettingsTest, AnEmptyVariableIsAsIfItWereNotSet) {
  ::setenv("SPILLWAY_HOST_MEMORY", "", 1);
  EXPECT_TRUE(CollectSettings({}).values.empty());
}

// What a job's start refuses; tests/integration/preload/conf_check_test.py has the words of each.
TEST_F(GivenSettingsTest, SlipsAreRefused) {
  for (const char* text :
       {"backend:spillway,host_memroy:20GiB", "backend:spillway,nonsense", "dirs:/a,/b", "backend:spilway"}) {
    ::setenv(kConf, text, 1);
    const absl::Status status = CheckConf(CollectSettings({}));
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("in PYTORCH_CUDA_ALLOC_CONF")) << text;
    EXPECT_TRUE(CheckConf(CollectSettings({{"spillway", "off"}})).ok()) << text;
  }
  ::setenv(kConf, "host_memroy:1GiB", 1);
  EXPECT_TRUE(CheckConf(CollectSettings({})).ok()) << "PyTorch's to judge";
  ::setenv("PYTORCH_ALLOC_CONF", "backend:spillway", 1);
  EXPECT_FALSE(CheckConf(CollectSettings({})).ok()) << "the other variable names the backend";
  ::setenv(kConf, "dirs:[/a,/b],max_split_size_mb:64", 1);
  EXPECT_TRUE(CheckConf(CollectSettings({})).ok());
}

}  // namespace
}  // namespace spillway::integration
