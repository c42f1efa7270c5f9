#include "policy/trace/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policy/trace/workload_file.h"
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

void ExpectSame(const Workload& a, const Workload& b) {
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  ASSERT_EQ(a.kernels.size(), b.kernels.size());
  for (size_t t = 0; t < a.tensors.size(); ++t) {
    EXPECT_EQ(a.tensors[t].bytes, b.tensors[t].bytes);
    EXPECT_EQ(a.tensors[t].persistent, b.tensors[t].persistent);
  }
  for (size_t k = 0; k < a.kernels.size(); ++k) {
    EXPECT_EQ(a.kernels[k].name, b.kernels[k].name);
    EXPECT_EQ(a.kernels[k].duration, b.kernels[k].duration);
    EXPECT_EQ(a.kernels[k].inputs, b.kernels[k].inputs);
    EXPECT_EQ(a.kernels[k].outputs, b.kernels[k].outputs);
    EXPECT_EQ(a.kernels[k].workspace_bytes, b.kernels[k].workspace_bytes);
  }
}

TEST(WorkloadTest, ReadsCsv) {
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

TEST(WorkloadTest, ErrorsNameFileLineAndOffset) {
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

TEST(WorkloadTest, CsvSurvivesBothWays) {
  const Workload workload = G10Workload("bert-256");
  const auto again = ParseCsvWorkload(KernelsCsv(workload), TensorsCsv(workload));
  ASSERT_TRUE(again.ok()) << again.status();
  ExpectSame(workload, *again);
}

TEST(WorkloadTest, ChecksWhatReadersRelyOn) {
  Workload workload = MountainWorkload();
  EXPECT_TRUE(CheckWorkload(workload).ok());
  workload.kernels[3].inputs = {1, 0};
  EXPECT_THAT(std::string(CheckWorkload(workload).message()),
              HasSubstr("kernel 3: tensors are not ascending"));
  workload.kernels[3].inputs = {2};
  EXPECT_THAT(std::string(CheckWorkload(workload).message()), HasSubstr("tensor 2 does not exist"));
  workload.kernels[3].inputs = {};
  workload.kernels[4].duration = -1;
  EXPECT_FALSE(CheckWorkload(workload).ok());
  workload.kernels.clear();
  EXPECT_FALSE(CheckWorkload(workload).ok());
}

TEST(WorkloadFileTest, SurvivesBothWaysAndIsSmall) {
  const Workload workload = G10Workload("resnet152-1280");
  const std::string bytes = EncodeWorkload(workload);
  const auto again = DecodeWorkload(bytes);
  ASSERT_TRUE(again.ok()) << again.status();
  ExpectSame(workload, *again);
  EXPECT_LT(bytes.size(), KernelsCsv(workload).size() + TensorsCsv(workload).size());
}

TEST(WorkloadFileTest, EveryCutIsAnErrorWithItsOffset) {
  const std::string bytes = EncodeWorkload(MountainWorkload());
  for (size_t size = 0; size < bytes.size(); ++size) {
    const auto workload = DecodeWorkload(bytes.substr(0, size));
    ASSERT_FALSE(workload.ok()) << size;
    EXPECT_THAT(std::string(workload.status().message()), HasSubstr("at offset "));
  }
}

TEST(WorkloadFileTest, EveryChangedByteIsAnError) {
  const std::string bytes = EncodeWorkload(MountainWorkload());
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      EXPECT_FALSE(DecodeWorkload(damaged).ok()) << i << " bit " << bit;
    }
  }
}

TEST(WorkloadFileTest, ForeignFilesAndOtherVersionsAreToldApart) {
  EXPECT_THAT(std::string(DecodeWorkload("PK\x03\x04 something else").status().message()),
              HasSubstr("at offset 0: no Spillway trace"));
  std::string bytes = EncodeWorkload(MountainWorkload());
  bytes[8] = 9;
  EXPECT_THAT(std::string(DecodeWorkload(bytes).status().message()), HasSubstr("at offset 8: version 9"));
  EXPECT_THAT(std::string(DecodeWorkload(EncodeWorkload(MountainWorkload()) + "x").status().message()),
              HasSubstr("at offset "));
}

}  // namespace
}  // namespace spillway::policy
