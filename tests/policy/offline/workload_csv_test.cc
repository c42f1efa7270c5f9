#include "policy/offline/workload_csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/policy/workload_helpers.h"

namespace spillway::policy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kTensors[] = "tensor_id,size_bytes,persistent\n0,4096,1\n1,8192,0\n";
constexpr char kKernels[] =
    "kernel_id,name,duration_us,inputs,outputs,workspace_bytes\n0,Make,1.5,0,1,4096\n1,Use,0.25,0 1,,0\n";

std::string KernelError(const std::string& kernels, const std::string& tensors = kTensors) {
  const auto workload = ParseCsvWorkload(kernels, tensors);
  return workload.ok() ? "" : std::string(workload.status().message());
}

TEST(WorkloadCsvTest, ReadsCsv) {
  const auto workload = ParseCsvWorkload(kKernels, kTensors);
  ASSERT_TRUE(workload.ok()) << workload.status();
  EXPECT_EQ(workload->tensors[0].bytes, 4096u);
  EXPECT_TRUE(workload->tensors[0].persistent);
  EXPECT_FALSE(workload->tensors[1].persistent);
  EXPECT_EQ(workload->kernels[0].name, "Make");
  EXPECT_EQ(workload->kernels[0].duration, 1500);
  EXPECT_EQ(workload->kernels[0].workspace_bytes, 4096u);
  EXPECT_THAT(workload->kernels[1].inputs, ElementsAre(0, 1));
  EXPECT_EQ(workload->IdealTime(), 1750);
}

TEST(WorkloadCsvTest, ErrorsNameFileLineAndOffset) {
  std::string kernels = kKernels;
  kernels.replace(kernels.find("0.25"), 4, "soon");
  const size_t line = std::string(kKernels).find("1,Use");
  EXPECT_EQ(KernelError(kernels), "kernels.csv:3: not a number (offset " + std::to_string(line) + ")");
  EXPECT_THAT(KernelError("kernel_id,name\n"), HasSubstr("no column 'duration_us'"));
  EXPECT_THAT(KernelError(""), HasSubstr("empty"));
  EXPECT_THAT(KernelError("kernel_id,name,duration_us,inputs,outputs,workspace_bytes\n"),
              HasSubstr("no kernels"));
  EXPECT_THAT(KernelError(kKernels, "tensor_id,size_bytes,persistent\n0,0,1\n"), HasSubstr("tensors.csv:2"));
  EXPECT_THAT(KernelError(kKernels, "tensor_id,size_bytes,persistent\n0,8,1\n"),
              HasSubstr("tensor 1 does not exist"));
  EXPECT_THAT(KernelError(kKernels, "tensor_id,size_bytes,persistent\n1,8,1\n"), HasSubstr("0, 1, 2"));
  std::string negative = kKernels;
  negative.replace(negative.find("1.5"), 3, "-1 ");
  EXPECT_THAT(KernelError(negative), HasSubstr("out of range"));
}

TEST(WorkloadCsvTest, CsvSurvivesBothWays) {
  const Workload workload = G10Workload("bert-256");
  const auto again = ParseCsvWorkload(KernelsCsv(workload), TensorsCsv(workload));
  ASSERT_TRUE(again.ok()) << again.status();
  ExpectSame(workload, *again);
}

}  // namespace
}  // namespace spillway::policy
