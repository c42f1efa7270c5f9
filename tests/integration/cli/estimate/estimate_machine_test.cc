#include "integration/cli/estimate/estimate_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spillway::integration {
namespace {

using ::testing::HasSubstr;

constexpr char kFile[] =
    R"({"name": "mine", "source": "measured", "gpu_memory_bytes": 8e9, "workspace_bytes": 0,
  "matmul_fp32_per_s": [1e10, 2e10], "matmul_bf16_per_s": [3e10, 4e10], "memory_bytes_per_s": [1e9, 2e9],
  "launch_us": [20, 10], "pcie_in_bytes_per_s": 3e9, "pcie_out_bytes_per_s": 4e9,
  "ssd_read_bytes_per_s": 5e8, "ssd_write_bytes_per_s": 6e8})";

std::string ErrorWith(const std::string& from, const std::string& to) {
  std::string text = kFile;
  const auto machine = ParseMachine(text.replace(text.find(from), from.size(), to));
  return machine.ok() ? "" : std::string(machine.status().message());
}

TEST(EstimateMachineTest, HasPublishedOnesWhoseRangesAreAssumed) {
  for (const char* name : {"a100", "h100", "h200", "rtx4090"}) {
    const auto machine = NamedMachine(name);
    ASSERT_TRUE(machine.ok()) << name;
    for (const Range range : {machine->matmul_fp32, machine->matmul_bf16, machine->memory})
      EXPECT_LT(range.low, range.high) << name;
    EXPECT_GT(machine->launch_us.low, machine->launch_us.high);
    EXPECT_THAT(machine->source, HasSubstr("assumed"));
    EXPECT_THAT(MachineNames(), HasSubstr(name));
  }
  EXPECT_THAT(std::string(NamedMachine("tpu").status().message()),
              HasSubstr("gpu=tpu is invalid; expected: a100, h100"));
}

TEST(EstimateMachineTest, ReadsAMeasuredOne) {
  const auto machine = ParseMachine(kFile);
  ASSERT_TRUE(machine.ok()) << machine.status();
  EXPECT_EQ(machine->name, "mine");
  EXPECT_EQ(machine->gpu_memory, 8'000'000'000u);
  EXPECT_EQ(machine->matmul_bf16.high, 4e10);
  EXPECT_EQ(machine->launch_us.low, 20);
  EXPECT_EQ(machine->ssd_write, 6e8);
}

TEST(EstimateMachineTest, SaysWhichKeyIsWrong) {
  EXPECT_THAT(ErrorWith("pcie_in_bytes_per_s", "pcie"), HasSubstr("pcie_in_bytes_per_s is missing"));
  EXPECT_THAT(ErrorWith("[1e9, 2e9]", "1e9"),
              HasSubstr("memory_bytes_per_s is missing or invalid; expected: ["));
  EXPECT_THAT(ErrorWith("[3e10, 4e10]", "[3e10, -1]"), HasSubstr("matmul_bf16_per_s"));
  EXPECT_THAT(ErrorWith("8e9", "\"much\""), HasSubstr("gpu_memory_bytes"));
  EXPECT_THAT(std::string(ParseMachine("12").status().message()), HasSubstr("no JSON object"));
}

TEST(EstimateMachineTest, TakesNoRangeThatIsReversed) {
  EXPECT_THAT(ErrorWith("[1e9, 2e9]", "[2e9, 1e9]"),
              HasSubstr("is invalid; expected: [slowest, fastest], the smaller number first"));
  EXPECT_THAT(ErrorWith("[1e10, 2e10]", "[2e10, 1e10]"), HasSubstr("matmul_fp32_per_s=["));
  EXPECT_THAT(ErrorWith("[3e10, 4e10]", "[5e10, 4e10]"), HasSubstr("matmul_bf16_per_s=["));
  EXPECT_THAT(
      ErrorWith("[20, 10]", "[10, 20]"),
      HasSubstr("launch_us=[10,20] is invalid; expected: [slowest, fastest], the larger number"));
  EXPECT_EQ(ErrorWith("[20, 10]", "[10, 10]"), "");
}

}  // namespace
}  // namespace spillway::integration
