#include "integration/report/iteration_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace spillway::integration {
namespace {

constexpr policy::Nanos kMilli = 1'000'000;

// Two layers of one weight each, with one activation each, and Adam's state; each kernel takes 1 ms, a step of
// the optimizer 2 ms. Tensors: 0, 1 weights; 2, 3 state; 4, 5 activations; 6, 7 gradients.
policy::Workload Training(const std::string& backward_name) {
  policy::Workload iteration;
  for (int i = 0; i < 4; ++i) iteration.tensors.push_back({100, true});
  for (int i = 0; i < 4; ++i) iteration.tensors.push_back({50, false});
  iteration.kernels = {{"gemm", kMilli, {0}, {4}, 0},
                       {"gemm", kMilli, {1, 4}, {5}, 0},
                       {"loss", kMilli, {5}, {5}, 80},
                       {backward_name, kMilli, {1, 4, 5}, {7}, 0},
                       {backward_name, kMilli, {0, 4, 7}, {6}, 0},
                       {"adam", 2 * kMilli, {0, 2, 6}, {0, 2}, 0},
                       {"adam", 3 * kMilli, {1, 3, 7}, {1, 3}, 0}};
  return iteration;
}

void ExpectPhases(const std::vector<IterationFacts::Phase>& phases, double backward, double optimizer) {
  ASSERT_EQ(phases.size(), 3u);
  EXPECT_EQ(phases[0].name, "forward");
  EXPECT_EQ(phases[0].from, 0);
  EXPECT_DOUBLE_EQ(phases[0].to, backward);
  EXPECT_EQ(phases[1].name, "backward");
  EXPECT_DOUBLE_EQ(phases[1].from, backward);
  EXPECT_DOUBLE_EQ(phases[1].to, optimizer);
  EXPECT_EQ(phases[2].name, "optimizer");
  EXPECT_DOUBLE_EQ(phases[2].from, optimizer);
  EXPECT_EQ(phases[2].to, 1);
}

TEST(FindPhasesTest, ByNamesAndByTheStateOfTheOptimiser) {
  const auto phases = FindPhases(Training("gemm_backward"), 0);
  ExpectPhases(phases, 0.3, 0.5);
  for (const auto& phase : phases) EXPECT_FALSE(phase.guessed) << phase.name;
}

TEST(FindPhasesTest, WithoutNamesTheBackwardPassBeginsWhereTheMostIsLive) {
  // At the loss both activations and its workspace are live: there the forward pass is over.
  const auto phases = FindPhases(Training("gemm"), 0);
  ExpectPhases(phases, 0.2, 0.5);
  EXPECT_TRUE(phases[0].guessed && phases[1].guessed);
  EXPECT_FALSE(phases[2].guessed) << "the optimizer is known by its state";
}

TEST(FindPhasesTest, WhereverTheRecordedIterationBegins) {
  policy::Workload iteration = Training("gemm_backward");
  std::rotate(iteration.kernels.begin(), iteration.kernels.begin() + 4, iteration.kernels.end());
  iteration.tensors[4].life = policy::TensorLife{3, 0};
  iteration.tensors[7].life = policy::TensorLife{6, 2};
  ExpectPhases(FindPhases(iteration, 3), 0.3, 0.5);
}

TEST(FindPhasesTest, AreNotToldWhereTheyAreNotKnown) {
  EXPECT_TRUE(FindPhases(Training("gemm_backward"), std::nullopt).empty()) << "no iteration was marked";
  EXPECT_TRUE(FindPhases(Training("gemm_backward"), 7).empty()) << "there is no such kernel";
  EXPECT_TRUE(FindPhases(policy::Workload(), 0).empty());
  policy::Workload forward = Training("gemm");
  forward.kernels.resize(1);
  EXPECT_TRUE(FindPhases(forward, 0).empty());
}

TEST(FindPhasesTest, AnOptimiserWithoutStateHasNoPhase) {
  policy::Workload iteration = Training("gemm_backward");
  for (size_t k : {5, 6}) iteration.kernels[k].inputs.erase(iteration.kernels[k].inputs.begin() + 1);
  for (size_t k : {5, 6}) iteration.kernels[k].outputs.pop_back();
  const auto phases = FindPhases(iteration, 0);
  ASSERT_EQ(phases.size(), 2u);
  EXPECT_DOUBLE_EQ(phases[1].from, 0.3);
  EXPECT_DOUBLE_EQ(phases[1].to, 1);
}

TEST(CostsOfKernelsTest, AreByNameAndForOneIteration) {
  policy::Workload iteration = Training("");
  const auto costs = CostsOfKernels(iteration);
  ASSERT_EQ(costs.size(), 3u);  // kernels without a name are left out
  EXPECT_EQ(costs[0].name, "adam");
  EXPECT_EQ(costs[0].launches, 2u);
  EXPECT_DOUBLE_EQ(*costs[0].seconds, 0.005);
  EXPECT_EQ(costs[1].name, "gemm");
  EXPECT_EQ(costs[1].launches, 2u);
}

}  // namespace
}  // namespace spillway::integration
