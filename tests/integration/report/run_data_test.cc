#include "integration/report/run_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/escaping.h"

namespace spillway::integration {
namespace {

using allocator::BlockId;
using allocator::MoveKind;
using allocator::StallCause;
using nlohmann::json;

class RunDataTest : public ::testing::Test {
 protected:
  RunDataTest() {
    facts_.command = {"python", "train.py"};
    facts_.pid = 42;
    facts_.origin_nanos = 1'000'000'000'000;
    facts_.settings = {{"gpu_memory", "20GiB", "SPILLWAY_GPU_MEMORY"}};
    facts_.directories = {"/nvme0"};
    device_.device = 1;
    device_.blocks_bytes = 400;
    device_.process_bytes = 100;
    device_.reserve_bytes = 30;
    device_.taken_bytes = 20;
    data_.facts = &facts_;
    data_.device = &device_;
    data_.metrics = R"({"spilled_bytes":7})";
    data_.disk_capacity = {900};
    data_.memory = &memory_;
    data_.transfers = &transfers_;
  }
  json Parsed() const { return json::parse(RunDataJson(data_)); }

  RunFacts facts_;
  ReportedDevice device_;
  TimeSeries memory_{static_cast<size_t>(MemoryFigure::kCount), Merge::kMaximum, 0.5, 8};
  TimeSeries transfers_{4, Merge::kSum, 0.5, 8};
  RunData data_;
};

TEST_F(RunDataTest, SaysWhatIsKnownAndLeavesOutWhatIsNot) {
  const json data = Parsed();
  EXPECT_EQ(data["format"], "spillway-report");
  EXPECT_EQ(data["version"], 1);
  EXPECT_EQ(data["job"]["command"], json({"python", "train.py"}));
  EXPECT_EQ(data["job"]["device_index"], 1);
  EXPECT_EQ(data["job"]["ended"], false);
  EXPECT_FALSE(data["job"].contains("framework"));
  EXPECT_FALSE(data["job"].contains("local_size"));
  EXPECT_EQ(data["settings"]["gpu_memory"]["from"], "SPILLWAY_GPU_MEMORY");
  EXPECT_EQ(data["capacity"]["gpu_bytes"], 500);
  EXPECT_EQ(data["capacity"]["gpu_blocks_bytes"], 400);
  EXPECT_EQ(data["capacity"]["gpu_reserve_bytes"], 30);
  EXPECT_EQ(data["capacity"]["gpu_taken_bytes"], 20);
  EXPECT_EQ(data["capacity"]["disks"][0], json({{"directory", "/nvme0"}, {"bytes", 900}}));
  EXPECT_EQ(data["figures"]["spilled_bytes"], 7);
  for (const char* key : {"advice", "phases", "active", "iteration", "power", "pauses"})
    EXPECT_FALSE(data.contains(key)) << key;
  EXPECT_EQ(data["moves"]["start_s"], json::array());
  EXPECT_EQ(data["dropped"]["moves"], 0);
}

TEST_F(RunDataTest, WhatIsKnownOfDrivesAndTheAdvice) {
  facts_.drives = {{"nvme0n1", 8}};
  data_.advice = "lost time: ...; what would help most: a larger SPILLWAY_HOST_MEMORY";
  const json data = Parsed();
  EXPECT_EQ(data["capacity"]["disks"][0]["drive"], "nvme0n1");
  EXPECT_EQ(data["capacity"]["disks"][0]["ranks"], 8);
  EXPECT_EQ(data["advice"], data_.advice);
}

TEST_F(RunDataTest, APauseThatLastsHasNoEnd) {
  const int64_t origin = facts_.origin_nanos;
  data_.pauses = {
      {origin + 1'000'000'000, origin + 1'250'000'000, origin + 3'000'000'000, allocator::PausedBy::kJob,
       "cache", 1, 2, 3, 4},
      {origin + 5'000'000'000, origin + 5'500'000'000, 0, allocator::PausedBy::kOutside, "", 0, 9, 0, 0},
      {origin, origin, 0, allocator::PausedBy::kIdle, "", 0, 9, 0, 0}};
  const json pauses = Parsed()["pauses"];
  EXPECT_EQ(pauses[0], json({{"start_s", 1.0},
                             {"leaving_s", 0.25},
                             {"seconds", 2.0},
                             {"by", "job"},
                             {"region", "cache"},
                             {"clean_bytes", 1},
                             {"host_bytes", 2},
                             {"disk_bytes", 3},
                             {"dropped_bytes", 4}}));
  EXPECT_EQ(pauses[1]["by"], "outside");
  EXPECT_EQ(pauses[2]["by"], "idle");
  EXPECT_FALSE(pauses[1].contains("seconds"));
  EXPECT_FALSE(pauses[1].contains("region"));
}

TEST_F(RunDataTest, MovesAndStallsAreColumns) {
  const int64_t origin = facts_.origin_nanos;
  data_.motion.moves = {
      {MoveKind::kGpuToHost, BlockId(1, 5), 4096, origin + 1'500'000'000, origin + 1'750'000'000},
      {MoveKind::kDiskToGpu, BlockId(1, 6), 8192, origin - 1'000, origin + 2'000}};
  data_.motion.stalls = {
      {StallCause::kArrival, BlockId(1, 5), 11, origin + 2'000'000'000, 30'000'000, 10'000'000},
      {StallCause::kChunks, BlockId(), 12, origin, 1'000, 0},
      {StallCause::kGpuArrival, BlockId(1, 9), 13, origin, 1'000, 1'000}};
  data_.motion.moves_dropped = 3;
  data_.kernel_names = {{11, "gemm"}, {13, "gemm"}, {12, ""}};
  const json data = Parsed();
  EXPECT_EQ(data["moves"]["start_s"], json({1.5, -0.000001}));
  EXPECT_EQ(data["moves"]["seconds"], json({0.25, 0.000003}));
  EXPECT_EQ(data["moves"]["bytes"], json({4096, 8192}));
  EXPECT_EQ(data["moves"]["block"], json({5, 6}));
  EXPECT_EQ(data["move_kinds"][data["moves"]["kind"][1].get<size_t>()], "disk_to_gpu");
  EXPECT_EQ(data["stalls"]["seconds"][0], 0.03);
  EXPECT_EQ(data["stalls"]["lost_s"][0], 0.01);
  EXPECT_EQ(data["stall_causes"][data["stalls"]["cause"][0].get<size_t>()], "arrival");
  EXPECT_EQ(data["kernels"], json({"gemm"}));
  EXPECT_EQ(data["stalls"]["kernel"], json({0, -1, 0}));
  EXPECT_EQ(data["stalls"]["block"], json({5, -1, 9}));
  EXPECT_EQ(data["dropped"]["moves"], 3);
}

TEST_F(RunDataTest, SeriesAndIterations) {
  memory_.Add(0.2, std::array<uint64_t, 5>{1, 2, 3, 4, 5});
  memory_.Add(0.7, std::array<uint64_t, 5>{6, 7, 8, 9, 10});
  transfers_.Add(0.7, std::array<uint64_t, 4>{1, 2, 3, 4});
  data_.iterations = {{0.25, 0.5, IterationKind::kMarked}, {0.75, 0.125, IterationKind::kRepeated}};
  const json data = Parsed();
  EXPECT_EQ(data["memory"]["every_s"], 0.5);
  EXPECT_EQ(data["memory"]["gpu_bytes"], json({1, 6}));
  EXPECT_EQ(data["memory"]["live_bytes"], json({5, 10}));
  EXPECT_EQ(data["transfers"]["to_gpu_bytes"], json({0, 2}));
  EXPECT_EQ(data["transfers"]["disks"][0]["directory"], "/nvme0");
  EXPECT_EQ(data["transfers"]["disks"][0]["read_bytes"], json({0, 4}));
  EXPECT_EQ(data["iterations"]["seconds"], json({0.5, 0.125}));
  EXPECT_EQ(data["iteration_kinds"][data["iterations"]["kind"][1].get<size_t>()], "repeated");
}

TEST_F(RunDataTest, WhatIsKnownOfTheIterationAndOfPower) {
  data_.iteration =
      IterationFacts{std::string("a\0b", 3), 0.017, {{"forward", 0, 0.25}, {"backward", 0.25, 1}}};
  data_.power = Power{.gpu_joules = 12.5, .cpu_joules = std::nullopt, .source = "nvml"};
  data_.largest_blocks = {{BlockId(1, 5), 4096, {100, 2'000'000'000}, "gemm"}, {BlockId(1, 6), 1, {}, ""}};
  data_.costliest_kernels = {{"gemm", 4, 0.5, 0.25}, {"stalled", std::nullopt, std::nullopt, 1}};
  const json data = Parsed();
  std::string file;
  ASSERT_TRUE(absl::Base64Unescape(data["iteration"].get<std::string>(), &file));
  EXPECT_EQ(file, std::string("a\0b", 3));
  EXPECT_EQ(data["active"]["share"], 0.017);
  EXPECT_EQ(data["phases"][1]["from"], 0.25);
  EXPECT_EQ(data["power"], json({{"gpu_joules", 12.5}, {"source", "nvml"}}));
  EXPECT_EQ(data["largest_blocks"][0]["stalled_s"], 2);
  EXPECT_FALSE(data["largest_blocks"][1].contains("last_kernel"));
  EXPECT_EQ(data["costliest_kernels"][0]["launches"], 4);
  EXPECT_FALSE(data["costliest_kernels"][1].contains("seconds"));
}

TEST_F(RunDataTest, WordsOfTheUserNeedNotBeUtf8) {
  facts_.command = {"caf\xe9", "\"quoted\"\n"};
  facts_.directories = {"/tmp/\xff"};
  data_.kernel_names = {{1, "k\x80"}};
  data_.motion.stalls = {{StallCause::kArrival, BlockId(), 1, 0, 0, 0}};
  EXPECT_EQ(Parsed()["job"]["command"][1], "\"quoted\"\n");
}

// A process has 0.35 s for its end, of which this may take a part.
TEST_F(RunDataTest, AHundredThousandMovesAreFewMegabytes) {
  constexpr int64_t kMoves = 100'000;
  for (int64_t i = 0; i < kMoves; ++i) {
    const int64_t at = facts_.origin_nanos + i * 36'123'456;
    data_.motion.moves.push_back(
        {MoveKind::kHostToGpu, BlockId(1, 10'000 + i % 5000), 64 << 20, at, at + 9'876'543});
  }
  const std::string text = RunDataJson(data_);
  EXPECT_LT(text.size(), 6u << 20);
  const json data = json::parse(text);
  for (const char* column : {"start_s", "seconds", "bytes", "block", "kind"})
    EXPECT_EQ(data["moves"][column].size(), static_cast<size_t>(kMoves)) << column;
  EXPECT_DOUBLE_EQ(data["moves"]["start_s"][kMoves - 1].get<double>(), 3612.309477) << "to a microsecond";
  EXPECT_DOUBLE_EQ(data["moves"]["seconds"][kMoves - 1].get<double>(), 0.009877);
  EXPECT_EQ(data["moves"]["block"][kMoves - 1], 14'999);
}

}  // namespace
}  // namespace spillway::integration
