// The report as text and as JSON: the same facts, and a shape that programs can rely on.

#include "integration/cli/doctor/doctor_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "nlohmann/json.hpp"
#include "tests/integration/cli/doctor/doctor_helpers.h"

namespace spillway::integration {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

DoctorReport ReportOf(const DoctorFacts& facts) {
  DoctorReport report{facts, Judge(facts), {}};
  if (!facts.installation_only) report.settings = ChooseSettings(facts);
  return report;
}

std::vector<std::string> KeysOf(const Json& json) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  return keys;
}

TEST(DoctorReportTest, VerdictsAndStatuses) {
  DoctorFacts facts = GoodFacts();
  EXPECT_EQ(VerdictText(ReportOf(facts)), "usable");
  EXPECT_EQ(ExitStatus(ReportOf(facts)), 0);
  facts.limits.membarrier = false;
  EXPECT_EQ(VerdictText(ReportOf(facts)), "usable, with 1 limit (marked --)");
  EXPECT_EQ(ExitStatus(ReportOf(facts)), 0);
  facts.driver = {};
  facts.driver.problem = "libcuda.so.1 is not found";
  EXPECT_EQ(VerdictText(ReportOf(facts)), "not usable: driver");
  EXPECT_EQ(ExitStatus(ReportOf(facts)), 1);
}

TEST(DoctorReportTest, Text) {
  DoctorFacts facts = GoodFacts();
  facts.limits.membarrier = false;
  const std::string text = ReportText(ReportOf(facts));
  EXPECT_THAT(text, HasSubstr("\n\nLimits\n  ok  locked memory"));
  EXPECT_THAT(text, HasSubstr("\n  --  membarrier"));
  EXPECT_THAT(text, HasSubstr("-> each launch costs some ns more\n"));
  EXPECT_THAT(text, HasSubstr("\n  export SPILLWAY_DIRS=/nvme0  # space for"));
  EXPECT_THAT(
      text,
      HasSubstr("\n  export PYTORCH_CUDA_ALLOC_CONF='backend:spillway,host_memory:50GiB,dirs:[/nvme0]'\n"));
  EXPECT_TRUE(text.ends_with("\n\nThis machine is usable, with 1 limit (marked --)\n"));
}

TEST(DoctorReportTest, JsonHasItsShape) {
  const Json json = Json::parse(ReportJson(ReportOf(GoodFacts())));
  EXPECT_EQ(json["format"], 1);
  EXPECT_THAT(KeysOf(json), ElementsAre("format", "verdict", "exit_status", "installation", "machine",
                                        "pytorch", "origins", "driver", "limits", "directories", "ranks",
                                        "start", "settings", "lines", "conf", "findings"));
  EXPECT_THAT(KeysOf(json["installation"]),
              ElementsAre("version", "directory", "missing", "engine_problem", "pytorch_served"));
  EXPECT_THAT(KeysOf(json["machine"]),
              ElementsAre("unserved", "kernel", "architecture", "container", "cpu", "cpus", "cpu_quota",
                          "numa_nodes", "memory_bytes", "group_memory_bytes", "available_bytes"));
  EXPECT_THAT(KeysOf(json["pytorch"]),
              ElementsAre("python", "problem", "version", "cuda", "package", "loads"));
  EXPECT_THAT(KeysOf(json["driver"]),
              ElementsAre("problem", "path", "found_by_loader", "version", "stand_in", "devices"));
  EXPECT_THAT(KeysOf(json["driver"]["devices"][0]),
              ElementsAre("problem", "name", "bytes", "free_bytes", "compute_capability",
                          "virtual_memory_management", "host_numa_memory", "numa_node", "link"));
  EXPECT_THAT(KeysOf(json["driver"]["devices"][0]["link"]),
              ElementsAre("problem", "copy_bytes", "in", "out", "both_in", "both_out"));
  EXPECT_THAT(KeysOf(json["limits"]),
              ElementsAre("locked_bytes", "open_files", "file_bytes", "address_bytes", "io_uring_problem",
                          "membarrier", "memory_maps", "shared_memory_bytes", "free_shared_memory_bytes"));
  EXPECT_THAT(KeysOf(json["directories"][0]),
              ElementsAre("path", "problem", "file_system", "dm_crypt", "drive", "free_bytes", "total_bytes",
                          "reserve_bytes", "space_bytes", "direct_io", "cached_because", "io_uring",
                          "rate_problem", "write", "read", "ended_by_space", "ended_by_limit"));
  EXPECT_THAT(KeysOf(json["directories"][0]["write"]),
              ElementsAre("bytes", "seconds", "bytes_per_second", "late_bytes_per_second"));
  EXPECT_THAT(KeysOf(json["ranks"]), ElementsAre("rank", "size", "launcher"));
  EXPECT_THAT(KeysOf(json["start"]), ElementsAre("refusal", "warnings"));
  EXPECT_THAT(KeysOf(json["settings"][0]), ElementsAre("name", "value", "given", "reason"));
  EXPECT_THAT(KeysOf(json["findings"][0]), ElementsAre("section", "what", "verdict", "found", "advice"));
}

TEST(DoctorReportTest, JsonSaysWhatTheFactsSay) {
  DoctorFacts facts = GoodFacts();
  facts.limits.locked_bytes = 65536;
  const Json json = Json::parse(ReportJson(ReportOf(facts)));
  EXPECT_EQ(json["verdict"], "limited");
  EXPECT_EQ(json["exit_status"], 0);
  EXPECT_EQ(json["limits"]["locked_bytes"], 65536);
  EXPECT_TRUE(json["limits"]["open_files"].is_null()) << "no limit";
  EXPECT_EQ(json["driver"]["devices"][0]["link"]["both_in"]["bytes_per_second"], 11e9);
  EXPECT_EQ(json["driver"]["devices"][0]["compute_capability"], 8.0);
  EXPECT_EQ(json["directories"][0]["space_bytes"], 450 * kGiB);
  EXPECT_EQ(json["settings"][1]["name"], "host_memory");
  EXPECT_EQ(json["conf"], "backend:spillway,host_memory:50GiB,dirs:[/nvme0]");
  facts.disks.front().rate_problem = "not asked for";
  EXPECT_FALSE(Json::parse(ReportJson(ReportOf(facts)))["directories"][0].contains("write"));
}

TEST(DoctorReportTest, WhatIsNotKnownIsNull) {
  DoctorFacts facts;
  DeviceFacts& device = facts.driver.devices.emplace_back();
  device.problem = "making a context: out of memory";
  DiskFacts& disk = facts.disks.emplace_back();
  disk.start.problem = disk.rate_problem = "it cannot be used";
  const Json json = Json::parse(ReportJson(ReportOf(facts)));
  for (const char* key :
       {"cpus", "cpu_quota", "numa_nodes", "memory_bytes", "group_memory_bytes", "available_bytes"})
    EXPECT_TRUE(json["machine"][key].is_null()) << key;
  EXPECT_TRUE(json["limits"]["memory_maps"].is_null());
  EXPECT_TRUE(json["driver"]["version"].is_null());
  for (const char* key : {"bytes", "free_bytes", "numa_node"})
    EXPECT_TRUE(json["driver"]["devices"][0][key].is_null()) << key;
  EXPECT_EQ(json["driver"]["devices"][0]["link"]["problem"], "the GPU is not used");
  for (const char* key : {"free_bytes", "total_bytes"})
    EXPECT_TRUE(json["directories"][0][key].is_null()) << key;
}

TEST(DoctorReportTest, WhatEndedTheWriting) {
  DoctorFacts facts = GoodFacts();
  const auto ended = [&facts](io::WriteEnd end) {
    facts.disks.front().rates.end = end;
    const Json disk = Json::parse(ReportJson(ReportOf(facts)))["directories"][0];
    return std::pair<bool, bool>(disk["ended_by_space"], disk["ended_by_limit"]);
  };
  EXPECT_EQ(ended(io::WriteEnd::kTime), std::make_pair(false, false));
  EXPECT_EQ(ended(io::WriteEnd::kSpace), std::make_pair(true, false));
  EXPECT_EQ(ended(io::WriteEnd::kLimit), std::make_pair(false, true));
}

TEST(DoctorReportTest, OnlyTheInstallation) {
  DoctorFacts facts = GoodFacts();
  facts.installation_only = true;
  const Json json = Json::parse(ReportJson(ReportOf(facts)));
  EXPECT_THAT(KeysOf(json), ElementsAre("format", "verdict", "exit_status", "installation", "machine",
                                        "pytorch", "origins", "findings"));
  EXPECT_EQ(ReportText(ReportOf(facts)).find("Settings to copy"), std::string::npos);
}

TEST(DoctorReportTest, TextThatIsNoUtf8DoesNotThrow) {
  DoctorFacts facts = GoodFacts();
  facts.driver.devices.front().name = "GPU \xff";
  EXPECT_TRUE(Json::accept(ReportJson(ReportOf(facts))));
}

}  // namespace
}  // namespace spillway::integration
