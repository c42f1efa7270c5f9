#include "integration/cli/report/chrome_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

namespace spillway::integration {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json Data() {
  return json::parse(R"({
    "format": "spillway-report", "version": 1,
    "job": {"pid": 42, "rank": 3, "device_index": 1, "seconds": 2.0},
    "memory": {"every_s": 0.5, "gpu_bytes": [1, 2], "host_bytes": [3, 4], "disk_bytes": [5, 6], "live_bytes": [9, 12]},
    "transfers": {"every_s": 0.5, "to_host_bytes": [100, 0], "to_gpu_bytes": [0, 50], "disks": []},
    "iterations": {"start_s": [0.5], "seconds": [1.0], "kind": [0]}, "iteration_kinds": ["marked", "repeated"],
    "moves": {"start_s": [0.3, 0.1, 0.2, 0.25], "seconds": [0.1, 0.15, 0.1, 0.000001],
              "bytes": [4096, 8192, 1, 2], "block": [7, 8, 9, 10], "kind": [0, 0, 0, 1]},
    "move_kinds": ["gpu_to_host", "host_to_gpu"],
    "stalls": {"start_s": [0.2], "seconds": [0.05], "lost_s": [0.04], "cause": [1], "kernel": [0], "block": [-1]},
    "stall_causes": ["chunks", "arrival"], "kernels": ["gemm"],
    "dropped": {"moves": 0, "stalls": 0}})");
}

json EventsOf(const json& data) {
  const auto text = ChromeTrace(data.dump());
  EXPECT_TRUE(text.ok()) << text.status();
  return json::parse(*text)["traceEvents"];
}

json WithPhase(const json& events, const std::string& phase) {
  json found = json::array();
  for (const json& event : events) {
    if (event["ph"] == phase) found.push_back(event);
  }
  return found;
}

// What Perfetto and chrome://tracing ask of each kind of event.
TEST(ChromeTraceTest, EveryEventHasWhatItsKindMustHave) {
  const json events = EventsOf(Data());
  ASSERT_FALSE(events.empty());
  for (const json& event : events) {
    EXPECT_TRUE(event["name"].is_string() && !event["name"].get<std::string>().empty()) << event;
    EXPECT_EQ(event["pid"], 42) << event;
    EXPECT_TRUE(event["tid"].is_number_integer()) << event;
    EXPECT_TRUE(event["ts"].is_number() && event["ts"] >= 0) << event;
    const std::string phase = event["ph"];
    if (phase == "X") {
      EXPECT_TRUE(event["dur"].is_number() && event["dur"] >= 0) << event;
    } else if (phase == "C") {
      for (const auto& value : event["args"].items()) EXPECT_TRUE(value.value().is_number()) << event;
    } else {
      EXPECT_EQ(phase, "M") << event;
      EXPECT_TRUE(event["args"].is_object()) << event;
    }
  }
}

TEST(ChromeTraceTest, TimesAreMicrosecondsAndNothingIsLost) {
  const json complete = WithPhase(EventsOf(Data()), "X");
  ASSERT_EQ(complete.size(), 6u);  // an iteration, a stall, four moves
  std::map<std::string, json> by_name;
  for (const json& event : complete) by_name[event["name"]] = event;
  EXPECT_EQ(by_name["iteration"]["ts"], 500000);
  EXPECT_EQ(by_name["iteration"]["dur"], 1000000);
  EXPECT_EQ(by_name["arrival"]["args"]["kernel"], "gemm");
  EXPECT_FALSE(by_name["arrival"]["args"].contains("block"));
  EXPECT_EQ(by_name["block 7"]["cat"], "gpu_to_host");
  EXPECT_EQ(by_name["block 7"]["args"]["bytes"], 4096);
  EXPECT_EQ(by_name["block 10"]["dur"], 1);
}

TEST(ChromeTraceTest, APauseThatLastsEndsWithTheFile) {
  json data = Data();
  data["job"]["seconds"] = 9.0;
  data["pauses"] = {
      {{"start_s", 1.0}, {"leaving_s", 0.5}, {"seconds", 2.0}, {"by", "job"}, {"region", "cache"}},
      {{"start_s", 5.0}, {"leaving_s", 0.5}, {"by", "outside"}}};
  std::vector<json> pauses;
  for (const json& event : WithPhase(EventsOf(data), "X")) {
    if (event["cat"] == "pauses") pauses.push_back(event);
  }
  ASSERT_EQ(pauses.size(), 2u);
  EXPECT_EQ(pauses[0]["dur"], 2'000'000);
  EXPECT_EQ(pauses[0]["args"]["region"], "cache");
  EXPECT_EQ(pauses[1]["dur"], 4'000'000);
  data["pauses"][0].erase("start_s");
  EXPECT_FALSE(ChromeTrace(data.dump()).ok());
}

// Viewers take events of one row that overlap as nested, and drop what crosses.
TEST(ChromeTraceTest, EventsOfOneRowDoNotOverlapAndEachRowHasAName) {
  const json events = EventsOf(Data());
  std::map<int, double> ends;
  for (const json& event : WithPhase(events, "X")) {
    const int row = event["tid"];
    EXPECT_GE(event["ts"].get<double>(), ends[row]) << event;
    ends[row] = event["ts"].get<double>() + event["dur"].get<double>();
  }
  std::set<int> named;
  for (const json& event : WithPhase(events, "M")) {
    if (event["name"] == "thread_name") named.insert(event["tid"].get<int>());
  }
  for (const auto& [row, end] : ends) EXPECT_TRUE(named.contains(row)) << row;
  EXPECT_EQ(ends.size(), 5u);  // iterations, stalls, two of moves off the GPU, one of moves back
  EXPECT_EQ(WithPhase(events, "M")[0]["args"]["name"], "spillway, GPU 1, rank 3");
}

// Start and length are rounded each for itself: the second iteration seems to begin before the first has
// ended.
TEST(ChromeTraceTest, IterationsThatFollowEachOtherLieInOneRow) {
  json data = Data();
  data["iterations"] = {{"start_s", {0.1, 0.2}}, {"seconds", {0.100001, 0.05}}, {"kind", {0, 0}}};
  json iterations = json::array();
  for (const json& event : WithPhase(EventsOf(data), "X")) {
    if (event["cat"] == "iterations") iterations.push_back(event);
  }
  ASSERT_EQ(iterations.size(), 2u);
  EXPECT_EQ(iterations[0]["tid"], iterations[1]["tid"]);
  EXPECT_EQ(iterations[1]["ts"], 200001);
  EXPECT_EQ(iterations[1]["dur"], 49999);
}

TEST(ChromeTraceTest, CountersAreMemoryAndTransfers) {
  const json counters = WithPhase(EventsOf(Data()), "C");
  ASSERT_EQ(counters.size(), 4u);
  EXPECT_EQ(counters[1]["ts"], 500000);
  EXPECT_EQ(counters[1]["args"], json({{"gpu", 2}, {"host", 4}, {"disk", 6}}));
  EXPECT_EQ(counters[2]["args"]["off the GPU"], 200);  // 100 bytes in half a second
}

TEST(ChromeTraceTest, ManyMovesAtOnceKeepToTheirRows) {
  json data = Data();
  json& moves = data["moves"];
  for (auto& column : moves) column = json::array();
  for (int i = 0; i < 200; ++i) {
    moves["start_s"].push_back(0.001 * i);
    moves["seconds"].push_back(10);
    moves["bytes"].push_back(1);
    moves["block"].push_back(i);
    moves["kind"].push_back(0);
  }
  std::set<int> rows;
  std::map<int, double> ends;
  for (const json& event : WithPhase(EventsOf(data), "X")) {
    if (event.value("cat", "") != "gpu_to_host") continue;
    const int row = event["tid"];
    rows.insert(row);
    EXPECT_GE(event["ts"].get<double>(), ends[row]);
    ends[row] = event["ts"].get<double>() + event["dur"].get<double>();
  }
  EXPECT_EQ(rows.size(), 64u);
}

TEST(ChromeTraceTest, OtherDataIsRefusedInWords) {
  const auto words = [](const std::string& text) {
    const auto result = ChromeTrace(text);
    EXPECT_TRUE(absl::IsInvalidArgument(result.status())) << text;
    return std::string(result.status().message());
  };
  EXPECT_THAT(words("{"), HasSubstr("damaged or cut off at byte 2 of 1"));
  EXPECT_THAT(words("[1]"), HasSubstr("no data of a run"));
  EXPECT_THAT(words(R"({"spilled_bytes": 1})"), HasSubstr("no data of a run"));
  EXPECT_THAT(words(R"({"format": 3})"), HasSubstr("no data of a run"));
  json data = Data();
  data["version"] = 2;
  EXPECT_THAT(words(data.dump()), HasSubstr("; expected: 1"));
  data = Data();
  data.erase("moves");
  EXPECT_THAT(words(data.dump()), HasSubstr("moves"));
  data = Data();
  data["moves"]["bytes"].push_back(1);
  EXPECT_THAT(words(data.dump()), HasSubstr("moves.bytes is not as long"));
  data = Data();
  data["moves"]["kind"][0] = 9;
  EXPECT_FALSE(words(data.dump()).empty());
}

}  // namespace
}  // namespace spillway::integration
