#include "integration/cli/report/report_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spillway::integration {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string File(const std::string& members) {
  return R"({"format": "spillway-report", "version": 1)" + (members.empty() ? "" : ", " + members) + "}";
}

std::string ErrorOfReport(const std::string& text) {
  const auto data = ParseReport(text);
  return data.ok() ? "no error" : std::string(data.status().message());
}

TEST(ReportDataTest, WhatIsAbsentIsNotKnown) {
  const auto data = ParseReport(File(""));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_FALSE(data->job.seconds || data->job.ended || data->metrics.spilled_bytes || data->active_share);
  EXPECT_FALSE(data->memory || data->moves || data->stalls || data->power || data->capacity.disks);
  EXPECT_TRUE(data->iteration.empty());
}

TEST(ReportDataTest, NullIsAbsent) {
  const auto data = ParseReport(File(R"("job": {"seconds": null}, "power": null)"));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_FALSE(data->job.seconds || data->power);
}

TEST(ReportDataTest, NoDiskIsNotTheSameAsNotKnown) {
  const auto data = ParseReport(File(R"("capacity": {"disks": []})"));
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_TRUE(data->capacity.disks.has_value());
  EXPECT_TRUE(data->capacity.disks->empty());
}

TEST(ReportDataTest, MetricsAreThoseOfTheDevice) {
  const std::string members =
      R"("job": {"device_index": 1}, "figures": {"spilled_bytes": 30, "disk_written_bytes": 7,
      "devices": [{"device": 0, "spilled_bytes": 10},
                  {"device": 1, "spilled_bytes": 20, "bytes_per_second": {"host_in": 5},
                   "link": {"in": 25, "out": 24, "in_both": 12, "out_both": 23}, "iteration": {"seconds": 2}, "lost_seconds": {"chunks": 1.5}}]})";
  const auto data = ParseReport(File(members));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->metrics.spilled_bytes, 20);
  EXPECT_EQ(data->metrics.disk_written_bytes, 7);  // of all devices
  EXPECT_EQ(data->metrics.host_in, 5);
  ASSERT_TRUE(data->metrics.link);
  EXPECT_EQ(data->metrics.link->in, 25);
  EXPECT_EQ(data->metrics.link->out, 24);
  EXPECT_EQ(data->metrics.link->in_both, 12);
  EXPECT_EQ(data->metrics.link->out_both, 23);
  EXPECT_EQ(data->metrics.iteration_s, 2);
  EXPECT_THAT(data->metrics.lost_seconds, ElementsAre(std::make_pair("chunks", 1.5)));
  EXPECT_EQ(data->metrics.devices, 2u);
}

// As of a rank that uses GPU 1 alone: its place in the list is not its number.
TEST(ReportDataTest, ADevicesEntryIsFoundByItsNumber) {
  const std::string devices =
      R"("devices": [{"device": 3, "spilled_bytes": 30},
                     {"device": 1, "spilled_bytes": 10, "bytes_per_second": {"host_in": 5}}])";
  const auto one = ParseReport(File(R"("job": {"device_index": 1}, "figures": {)" + devices + "}"));
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->metrics.spilled_bytes, 10);
  EXPECT_EQ(one->metrics.host_in, 5);
  const auto none =
      ParseReport(File(R"("job": {"device_index": 0}, "figures": {"spilled_bytes": 40, )" + devices + "}"));
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->metrics.spilled_bytes, 40) << "of all devices, not another's";
  EXPECT_FALSE(none->metrics.host_in);
}

TEST(ReportDataTest, MetricsOfDirectoriesAreThoseOfAllDevices) {
  const auto data = ParseReport(
      File(R"("figures": {"directories": [{"path": "/a", "engine": "threads", "direct": false, "errors": 2,
      "written_tb_per_day": 1.5, "closed": true, "why_closed": "does not answer"}, {"path": "/b"}], "devices": [{"device": 0}]})"));
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_EQ(data->metrics.directories.size(), 2u);
  const ReportDirectory& first = data->metrics.directories[0];
  EXPECT_EQ(first.engine, "threads");
  EXPECT_EQ(first.direct, false);
  EXPECT_EQ(first.errors, 2);
  EXPECT_EQ(first.written_tb_per_day, 1.5);
  EXPECT_EQ(first.closed, true);
  EXPECT_EQ(first.why_closed, "does not answer");
  EXPECT_FALSE(data->metrics.directories[1].direct || data->metrics.directories[1].closures);
}

TEST(ReportDataTest, ADirectoryNamesItsDriveAndWhoWritesToIt) {
  const auto data = ParseReport(File(
      R"("capacity": {"disks": [{"directory": "/a", "drive": "nvme0n1", "ranks": 8}, {"directory": "/b"}]})"));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->capacity.disks->at(0).drive, "nvme0n1");
  EXPECT_EQ(data->capacity.disks->at(0).ranks, 8);
  EXPECT_EQ(data->capacity.disks->at(1).drive, "");
  EXPECT_FALSE(data->capacity.disks->at(1).ranks);
}

TEST(ReportDataTest, OtherFilesAndVersionsAreRefused) {
  EXPECT_THAT(ErrorOfReport(""), HasSubstr("damaged or cut off at byte 1 of 0"));
  EXPECT_THAT(ErrorOfReport(File("").substr(0, 20)), HasSubstr("damaged or cut off at byte 21 of 20"));
  EXPECT_THAT(ErrorOfReport("[1]"), HasSubstr("no data of a run"));
  EXPECT_THAT(ErrorOfReport(R"({"spilled_bytes": 1})"), HasSubstr("no data of a run"));
  EXPECT_THAT(ErrorOfReport(R"({"format": "spillway-report", "version": 2})"),
              HasSubstr("version 2; expected: 1. It was written by a later version of Spillway"));
  EXPECT_THAT(ErrorOfReport(R"({"format": "spillway-report", "version": "1"})"),
              HasSubstr("version unknown; expected: 1"));
  EXPECT_THAT(ErrorOfReport(R"({"format": "spillway-report"})"), HasSubstr("version unknown; expected: 1"));
}

TEST(ReportDataTest, WrongFieldsAreNamed) {
  const std::pair<const char*, const char*> wrong[] = {
      {R"("job": 3)", "job is 3; expected: an object"},
      {R"("job": {"seconds": "3"})", "job.seconds is of type string; expected: a number of 0 or more"},
      {R"("job": {"seconds": -1})", "job.seconds is -1; expected: a number of 0 or more"},
      {R"("job": {"seconds": 1e999})", "damaged"},
      {R"("job": {"ended": 1})", "job.ended is 1; expected: true or false"},
      {R"("job": {"command": "x"})", "job.command is of type string; expected: a list of strings"},
      {R"("job": {"command": [1]})", "job.command[0] is 1; expected: a string"},
      {R"("memory": {"gpu_bytes": [1]})", "memory.every_s is absent or 0; expected: seconds above 0"},
      {R"("memory": {"every_s": 1, "gpu_bytes": [1, "2"]})", "memory.gpu_bytes[1] is of type string"},
      {R"("memory": {"every_s": 1, "gpu_bytes": [1, 2], "host_bytes": [1]})",
       "memory.host_bytes is a list of 1; expected: 2, as of memory.gpu_bytes"},
      {R"("iterations": {"start_s": [1]})", "iterations.start_s is without the other column"},
      {R"("moves": {"start_s": [1], "seconds": [1], "bytes": [1], "kind": [2]}, "move_kinds": ["a", "b"])",
       "moves.kind[0] is 2; expected: a whole number below 2"},
      {R"("moves": {"start_s": [1], "seconds": [1], "bytes": [1], "kind": [-1]}, "move_kinds": ["a"])",
       "moves.kind is -1 somewhere"},
      {R"("moves": {"start_s": [1], "seconds": [1], "kind": [0]}, "move_kinds": ["a"])",
       "moves.bytes is absent; expected: a list"},
      {R"("stalls": {"start_s": [1], "seconds": [1], "cause": [0], "kernel": [0, 0]}, "stall_causes": ["a"], "kernels": ["k"])",
       "stalls.kernel is a list of 2; expected: 1"},
      {R"("largest_blocks": {})", "largest_blocks is of type object; expected: a list of objects"},
      {R"("largest_blocks": [3])", "largest_blocks[0] is 3; expected: an object"},
      {R"("settings": {"dirs": 1})", "settings.dirs is 1; expected: an object"},
      {R"("figures": {"directories": [{"errors": "2"}]})", "figures.directories[0].errors is of type string"},
      {R"("figures": {"devices": [{"device": 0, "lost_seconds": {"chunks": "x"}}]})",
       "figures.devices[0].lost_seconds.chunks is of type string"},
      {R"("iteration": "%%%")", "iteration is damaged; expected: the base64 of a trace file"},
  };
  for (const auto& [members, words] : wrong)
    EXPECT_THAT(ErrorOfReport(File(members)), HasSubstr(words)) << members;
}

TEST(ReportDataTest, BytesThatAreNoUtf8AreReplaced) {
  const auto data = ParseReport(File("\"job\": {\"host\": \"a\xFF\"}"));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->job.host, "a\xEF\xBF\xBD");
}

TEST(ReportDataTest, AKernelThatIsNotKnownIsNone) {
  const auto data = ParseReport(File(
      R"("stalls": {"start_s": [1, 2], "seconds": [1, 1], "cause": [0, 0], "kernel": [-1, 0]}, "stall_causes": ["a"],
         "kernels": ["k"])"));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(data->stalls->kernel, ElementsAre(std::nullopt, 0u));
}

}  // namespace
}  // namespace spillway::integration
