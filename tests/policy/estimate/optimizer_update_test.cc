#include "policy/estimate/optimizer_update.h"

#include <gmock/gmock.h>

#include "tests/policy/estimate/estimate_fixture.h"

namespace spillway::policy {
namespace {

using ::testing::HasSubstr;

class OptimizerUpdateTest : public EstimateFixture {
 protected:
  // Three weights of 4 MiB with gradients; what the second update takes.
  TapeResult Run(Optimizer optimizer, size_t count = 3, uint64_t elements = 1 << 20) {
    for (size_t i = 0; i < count; ++i) {
      Parameter* const one = weights_.New(1, elements);
      one->gradient = tape_.NewAs(elements, NumberType::kFp32, Term::kGradients);
    }
    weights_.New(1, elements);  // without a gradient: left alone
    Update(&tape_, optimizer, &weights_.all());
    tape_.StartIteration();
    Update(&tape_, optimizer, &weights_.all());
    return tape_.Finish();
  }
  static double BytesOf(const TapeResult& result) {
    double bytes = 0;
    for (const LaunchCost& cost : result.costs) bytes += cost.bytes;
    return bytes;
  }
  static Bytes StateOf(const TapeResult& result) {
    return result.terms[static_cast<size_t>(Term::kOptimizer)];
  }
};

constexpr Bytes kAll = 3 * 4 << 20;  // of three weights

TEST_F(OptimizerUpdateTest, FusedAdamWReadsFourAndWritesThree) {
  const TapeResult result = Run(Optimizer::kAdamWFused);
  EXPECT_EQ(result.workload.kernels.size(), 1u);
  EXPECT_EQ(BytesOf(result), 7.0 * kAll);
  EXPECT_EQ(StateOf(result), 2 * kAll);
  EXPECT_EQ(result.peak_allocated, (4 + 1.0 / 3) * kAll);
}

// The roots of the second moments are a whole list beside the others.
TEST_F(OptimizerUpdateTest, AdamWOverListsNeedsACopyOfTheWeights) {
  const TapeResult result = Run(Optimizer::kAdamW);
  EXPECT_EQ(result.terms[static_cast<size_t>(Term::kOptimizerTemporaries)], kAll);
  EXPECT_EQ(result.workload.kernels.size(), 8u);
}

TEST_F(OptimizerUpdateTest, AdamWOneByOneNeedsTwoOfTheLargest) {
  const TapeResult result = Run(Optimizer::kAdamWLoop);
  EXPECT_EQ(result.terms[static_cast<size_t>(Term::kOptimizerTemporaries)], 2 * kAll / 3);
}

TEST_F(OptimizerUpdateTest, SgdHasNoState) { EXPECT_EQ(StateOf(Run(Optimizer::kSgd)), 0u); }

TEST_F(OptimizerUpdateTest, MomentumIsOneState) { EXPECT_EQ(StateOf(Run(Optimizer::kSgdMomentum)), kAll); }

// 320 x 65,536 elements a launch: 50 million elements take three.
TEST_F(OptimizerUpdateTest, LaunchesAreLimited) {
  EXPECT_EQ(Run(Optimizer::kSgd, 1, 50'000'000).workload.kernels.size(), 3u);
}

TEST_F(OptimizerUpdateTest, ClippingReadsAndScalesGradients) {
  Parameter* const one = weights_.New(1, 1 << 20);
  one->gradient = tape_.New(1 << 20, NumberType::kFp32);
  tape_.StartIteration();
  ClipGradients(&tape_, &weights_.all());
  EXPECT_EQ(BytesOf(tape_.Finish()), 3.0 * (4 << 20));
}

TEST_F(OptimizerUpdateTest, WithoutGradientsNothingHappens) {
  weights_.New(1, 100);
  tape_.StartIteration();
  ClipGradients(&tape_, &weights_.all());
  Update(&tape_, Optimizer::kAdamW, &weights_.all());
  EXPECT_TRUE(tape_.Finish().workload.kernels.empty());
}

TEST_F(OptimizerUpdateTest, ReadsItsNames) {
  EXPECT_EQ(*ParseOptimizer("adamw-fused"), Optimizer::kAdamWFused);
  EXPECT_THAT(std::string(ParseOptimizer("lion").status().message()),
              HasSubstr("--optimizer=lion is invalid; expected: sgd, sgd-momentum, adamw"));
}

}  // namespace
}  // namespace spillway::policy
