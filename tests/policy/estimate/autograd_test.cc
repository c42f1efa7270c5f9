#include "policy/estimate/autograd.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace spillway::policy {
namespace {

using ::testing::ElementsAre;

constexpr uint64_t kElements = 1 << 20;

class AutogradTest : public ::testing::Test {
 protected:
  // An operation that keeps nothing, notes its name when its backward runs, and hands its gradient on.
  Variable Step(const std::string& name, const std::vector<Variable>& inputs) {
    Tensor y = tape_.New(kElements, NumberType::kFp32);
    const size_t count = inputs.size();
    return {y, graph_.NewNode(inputs, 1, [this, name, count](std::vector<Tensor>& dy) {
              order_.push_back(name);
              return std::vector<Tensor>(count, dy[0]);
            })};
  }
  Variable Leaf(Tensor* gradient, uint32_t key) {
    return {tape_.New(kElements, NumberType::kFp32), graph_.NewLeaf(gradient, key)};
  }
  std::vector<std::string> Launched() {
    std::vector<std::string> names;
    for (const WorkloadKernel& kernel : tape_.Finish().workload.kernels) names.push_back(kernel.name);
    return names;
  }

  DeviceTape tape_;
  Autograd graph_{&tape_};
  std::vector<std::string> order_;
};

TEST_F(AutogradTest, TheLatestOperationComesFirst) {
  Tensor gradient;
  const Variable leaf = Leaf(&gradient, 0);
  const Variable a = Step("a", {leaf}), b = Step("b", {leaf}), c = Step("c", {a, b});
  graph_.Backward(c, tape_.New(kElements, NumberType::kFp32));
  EXPECT_THAT(order_, ElementsAre("c", "b", "a"));
  EXPECT_TRUE(gradient);
}

TEST_F(AutogradTest, WithoutALeafNothingIsKept) {
  const Variable x{tape_.New(kElements, NumberType::kFp32)};
  EXPECT_FALSE(Step("a", {x}).NeedsGradient());
  Tensor gradient;
  const Variable leaf = Leaf(&gradient, 0);
  graph_.Enable(false);
  EXPECT_FALSE(Step("b", {leaf}).NeedsGradient());
}

// Two uses hand the same block to one leaf: the first is copied, as somebody else reads it; the second added.
TEST_F(AutogradTest, GradientsAreAddedUp) {
  tape_.StartIteration();
  Tensor gradient;
  {
    const Variable leaf = Leaf(&gradient, 0);
    graph_.Backward(Step("twice", {leaf, leaf}), tape_.New(kElements, NumberType::kFp32));
  }
  EXPECT_THAT(Launched(), ElementsAre("clone", "add_"));
  gradient = {};
}

TEST_F(AutogradTest, AnOnlyGradientIsTakenOver) {
  tape_.StartIteration();
  Tensor gradient;
  {
    const Variable leaf = Leaf(&gradient, 0);
    graph_.Backward(Step("once", {leaf}), tape_.New(kElements, NumberType::kFp32));
  }
  EXPECT_THAT(Launched(), ElementsAre());
  gradient = {};
}

TEST_F(AutogradTest, WhatIsKeptGoesWhenItsBackwardHasRun) {
  Tensor gradient;
  const Variable leaf = Leaf(&gradient, 0);
  Tensor kept = tape_.New(kElements, NumberType::kFp32);
  const std::weak_ptr<Storage> watched = kept.storage;
  Variable y{
      tape_.New(kElements, NumberType::kFp32),
      graph_.NewNode({leaf}, 1, [kept](std::vector<Tensor>& dy) { return std::vector<Tensor>{dy[0]}; })};
  kept = {};
  EXPECT_FALSE(watched.expired());
  graph_.Backward(y, tape_.New(kElements, NumberType::kFp32));
  EXPECT_TRUE(watched.expired());  // although y is still there
}

TEST_F(AutogradTest, AGradientOfAnotherTypeIsConverted) {
  tape_.StartIteration();
  Tensor gradient;
  {
    const Variable half{tape_.New(kElements, NumberType::kBf16), graph_.NewLeaf(&gradient, 0)};
    graph_.Backward(Step("wide", {half}), tape_.New(kElements, NumberType::kFp32));
  }
  EXPECT_EQ(gradient.type, NumberType::kBf16);
  EXPECT_THAT(Launched(), ElementsAre("to_copy"));
  gradient = {};
}

}  // namespace
}  // namespace spillway::policy
