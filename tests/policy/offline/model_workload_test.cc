#include "policy/offline/model_workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "policy/model/lifetimes.h"

namespace spillway::policy {
namespace {

using ::testing::HasSubstr;

ModelOptions Parsed(const std::string& text) {
  auto options = ParseModel(text);
  EXPECT_TRUE(options.ok()) << options.status();
  return options.ok() ? *options : ModelOptions{};
}

std::string ErrorOf(const std::string& text) {
  const auto options = ParseModel(text);
  return options.ok() ? "" : std::string(options.status().message());
}

double PersistentBytes(const Workload& workload) {
  double bytes = 0;
  for (const WorkloadTensor& tensor : workload.tensors)
    bytes += tensor.persistent ? static_cast<double>(tensor.bytes) : 0;
  return bytes;
}

TEST(ModelWorkloadTest, ReadsItsSettings) {
  const ModelOptions options = Parsed(
      "llama3-70b:layers=2,batch=3,sequence=128,micro_batches=4,tensor_parallel=2,precision=fp32,tflops=50,"
      "bandwidth=2e12");
  EXPECT_EQ(options.layers, 2u);
  EXPECT_EQ(options.batch, 3u);
  EXPECT_EQ(options.sequence, 128u);
  EXPECT_EQ(options.micro_batches, 4u);
  EXPECT_EQ(options.tensor_parallel, 2u);
  EXPECT_EQ(options.precision, ModelPrecision::kFp32);
  EXPECT_EQ(options.flops, 50e12);
  EXPECT_EQ(options.bandwidth, 2e12);
}

TEST(ModelWorkloadTest, SaysWhatItDoesNotAccept) {
  EXPECT_TRUE(absl::IsNotFound(ParseModel("gpt5").status()));
  EXPECT_THAT(ErrorOf("gpt5"), HasSubstr("llama3-8b"));
  EXPECT_THAT(ErrorOf("granite-20b"), HasSubstr("is no model; there are granite-3b, "));  // no Llama
  for (const char* wrong : {"layers=0", "layers", "color=1", "precision=int4", "tensor_parallel=3",
                            "batch=-1", "tflops=0", "bandwidth=nan"})
    EXPECT_THAT(ErrorOf(std::string("llama3-8b:") + wrong), HasSubstr("expected")) << wrong;
  EXPECT_THAT(ErrorOf("llama3-8b:micro_batches=1000000"), HasSubstr("too large"));
}

// Parameters of the published models: 8.03e9, 70.55e9, 8.05e9 (norms, a few hundred thousand, are left out).
TEST(ModelWorkloadTest, HoldsTheModelsParameters) {
  EXPECT_NEAR(PersistentBytes(MakeModelWorkload(Parsed("llama3-8b"))) / 16, 8.03e9, 0.01e9);
  EXPECT_NEAR(PersistentBytes(MakeModelWorkload(Parsed("llama3-70b:precision=fp32"))) / 16, 70.55e9, 0.05e9);
  EXPECT_NEAR(PersistentBytes(MakeModelWorkload(Parsed("granite-code-8b"))) / 16, 8.05e9, 0.01e9);
  EXPECT_NEAR(PersistentBytes(MakeModelWorkload(Parsed("llama3-70b:tensor_parallel=2"))) / 8, 70.55e9,
              0.05e9);
}

TEST(ModelWorkloadTest, TakesTheNamesOfTheEstimate) {
  for (const auto& [name, other] : {std::pair("granite-8b:layers=2", "granite-code-8b:layers=2"),
                                    std::pair("llama-70b:layers=2", "llama3-70b:layers=2"),
                                    std::pair("llama-8b:layers=2", "llama3-8b:layers=2")})
    EXPECT_EQ(PersistentBytes(MakeModelWorkload(Parsed(name))),
              PersistentBytes(MakeModelWorkload(Parsed(other))));
}

// 6 operations for each parameter and token, but for the embedding, which multiplies nothing; attention
// beside it.
TEST(ModelWorkloadTest, TakesTheTimeOfItsOperations) {
  const Workload workload =
      MakeModelWorkload(Parsed("llama3-70b:sequence=2048,batch=4,tflops=100,bandwidth=1e17"));
  const double tokens = 4 * 2048, multiplied = 70.55e9 - 8192.0 * 128256;
  const double attention = 7.0 * tokens * 2048 * 8192 * 80;
  EXPECT_NEAR(static_cast<double>(workload.IdealTime()) / 1e9, (6 * multiplied * tokens + attention) / 100e12,
              0.05);
}

TEST(ModelWorkloadTest, IsAValidWorkloadThatGrowsByMicroBatches) {
  const Workload one = MakeModelWorkload(Parsed("granite-code-8b:layers=2"));
  const Workload two = MakeModelWorkload(Parsed("granite-code-8b:layers=2,micro_batches=2"));
  EXPECT_TRUE(CheckWorkload(one).ok());
  EXPECT_TRUE(CheckWorkload(two).ok());
  const size_t updates = 2 * 7 + 1;
  EXPECT_EQ(two.kernels.size() - updates, 2 * (one.kernels.size() - updates));
  EXPECT_EQ(FindLifetimes(one).PeakLive(), FindLifetimes(two).PeakLive());
  // The first micro-batch overwrites gradients, the second adds to them.
  const auto reads_what_it_writes = [](const Workload& workload) {
    size_t count = 0;
    for (const WorkloadKernel& kernel : workload.kernels) {
      if (kernel.name != "MatMul_BackwardWeight") continue;
      count += std::count(kernel.inputs.begin(), kernel.inputs.end(), kernel.outputs[0]);
    }
    return count;
  };
  EXPECT_EQ(reads_what_it_writes(one), 0u);
  EXPECT_EQ(reads_what_it_writes(two), updates);
}

}  // namespace
}  // namespace spillway::policy
