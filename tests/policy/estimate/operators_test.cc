#include "policy/estimate/operators.h"

#include <gmock/gmock.h>

#include "tests/policy/estimate/estimate_fixture.h"

namespace spillway::policy {
namespace {

using ::testing::ElementsAre;

using OperatorsTest = EstimateFixture;
using OperatorsAutocastTest = AutocastFixture;

// Forward one product, backward two, each of 2 x rows x in x out operations; the bias is summed up.
TEST_F(OperatorsTest, ALinearLayerIsThreeProducts) {
  tape_.StartIteration();
  const Variable x = Input(256);
  Parameter* const weight = weights_.New(256, 512);
  Parameter* const bias = weights_.New(1, 512);
  Backward(operators_.Linear(x, weight, bias));
  EXPECT_EQ(weight->gradient.elements, 256u * 512);
  EXPECT_EQ(bias->gradient.elements, 512u);
  const TapeResult result = tape_.Finish();
  EXPECT_THAT(NamesOf(result), ElementsAre("addmm", "mm", "mm", "sum"));
  EXPECT_EQ(OperationsOf(result), 3 * 2.0 * kRows * 256 * 512);
}

TEST_F(OperatorsTest, WithoutGradientsALinearLayerKeepsNothing) {
  graph_.Enable(false);
  const Variable y = operators_.Linear(Input(256), weights_.New(256, 512), nullptr);
  EXPECT_FALSE(y.NeedsGradient());
}

// A mask of bytes beside the result; one tensor more on the way back.
TEST_F(OperatorsTest, DropoutKeepsAMask) {
  const Variable x = Input(256);
  tape_.StartIteration();
  { const Variable y = operators_.Dropout(x, true); }
  const TapeResult result = tape_.Finish();
  EXPECT_EQ(result.costs[0].bytes, kRows * 256 * (4 + 4 + 1.0));
  EXPECT_EQ(operators_.Dropout(x, false).node, x.node);
}

TEST_F(OperatorsTest, APartsGradientsAreJoined) {
  const Variable x = Input(3 * 256);
  tape_.StartIteration();
  const auto parts = operators_.Split(x, {kRows * 256, kRows * 256, kRows * 256});
  EXPECT_EQ(parts[1].tensor.storage, x.tensor.storage);
  const Variable sum = operators_.Add(operators_.Add(parts[0], parts[1]), parts[2]);
  Backward(sum);
  EXPECT_EQ(weights_.all()[0].gradient.elements, kRows * 3 * 256);
  EXPECT_THAT(NamesOf(tape_.Finish()), ElementsAre("add", "add", "cat"));
}

TEST_F(OperatorsTest, WhatIsRepeatedHasItsGradientSummedUp) {
  const Variable x = Input(256);
  Parameter* const scale = weights_.New(1, 256);
  tape_.StartIteration();
  Backward(operators_.Multiply(x, scale->value));
  EXPECT_EQ(scale->gradient.elements, 256u);
  EXPECT_THAT(NamesOf(tape_.Finish()), ElementsAre("mul", "mul", "mul", "sum"));
}

// fp32 logits, their log-softmax, and two gradients of that size, of which one is there at a time but for the
// step between them.
TEST_F(OperatorsTest, TheLossHasFourTensorsOfTheLogitsSize) {
  const Variable logits = Input(1024);
  const Bytes before = 4 * kRows * 1024;
  Backward(operators_.CrossEntropy(logits, kRows));
  EXPECT_NEAR(static_cast<double>(tape_.Finish().peak_allocated), 4.0 * before, 1e5);
}

TEST_F(OperatorsTest, ACheckpointRunsItsLayerTwice) {
  const Variable x = Input(1024);
  Parameter* const a = weights_.New(1024, 1024);
  Parameter* const b = weights_.New(1024, 1024);
  const auto layer = [this, a, b](const std::vector<Variable>& given) {
    return operators_.Linear(operators_.Linear(given[0], a, nullptr), b, nullptr);
  };
  tape_.StartIteration();
  Backward(operators_.Checkpoint({x}, layer));
  EXPECT_TRUE(weights_.all()[0].gradient);
  EXPECT_TRUE(a->gradient);
  const TapeResult result = tape_.Finish();
  EXPECT_EQ(OperationsOf(result), (2 * 2 + 2 * 2) * 2.0 * kRows * 1024 * 1024);  // forward twice
}

// It stays until its backward pass has run; the tensors in between go at once.
TEST_F(OperatorsTest, ACheckpointKeepsItsInputAlone) {
  Parameter* const a = weights_.New(1024, 1024);
  Parameter* const b = weights_.New(1024, 1024);
  for (const bool checkpointed : {false, true}) {
    std::vector<std::weak_ptr<Storage>> between;
    const auto layer = [&](const std::vector<Variable>& given) {
      const Variable y = operators_.Linear(given[0], a, nullptr);
      between.push_back(y.tensor.storage);
      return operators_.Linear(y, b, nullptr);
    };
    Variable x = operators_.Scale(Input(1024));
    const std::weak_ptr<Storage> input = x.tensor.storage;
    const Variable y = checkpointed ? operators_.Checkpoint({x}, layer) : layer({x});
    x = {};
    EXPECT_FALSE(input.expired());
    EXPECT_EQ(between[0].expired(), checkpointed);
    Backward(y);
    EXPECT_TRUE(input.expired());
    EXPECT_EQ(between.size(), checkpointed ? 2u : 1u);
    EXPECT_TRUE(between.back().expired());
  }
}

TEST_F(OperatorsAutocastTest, CastsOfWeightsAreMadeOnce) {
  const Variable x = Input(256);
  Parameter* const weight = weights_.New(256, 256);
  tape_.StartIteration();
  const Variable y = operators_.Linear(operators_.Linear(x, weight, nullptr), weight, nullptr);
  EXPECT_EQ(y.tensor.type, NumberType::kBf16);
  operators_.EndAutocast();
  const Variable z = operators_.Linear(y, weight, nullptr);
  EXPECT_THAT(NamesOf(tape_.Finish()),
              ElementsAre("to_copy", "to_copy", "mm", "mm", "to_copy", "mm"));  // x and the weight; again
}

TEST_F(OperatorsAutocastTest, GradientsOfCastWeightsAreWide) {
  Parameter* const weight = weights_.New(256, 256);
  Backward(operators_.Linear(Input(256), weight, nullptr));
  EXPECT_EQ(weight->gradient.type, NumberType::kFp32);
}

}  // namespace
}  // namespace spillway::policy
