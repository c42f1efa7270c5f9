#include "policy/estimate/attention.h"

#include <algorithm>

#include "tests/policy/estimate/estimate_fixture.h"

namespace spillway::policy {
namespace {

constexpr uint64_t kTokens = 2048;

class AttentionTest : public EstimateFixture {
 protected:
  explicit AttentionTest(bool autocast = false) : EstimateFixture(autocast) {}

  // 2 sequences of 2,048 tokens; 4 heads of 64, or of another width.
  TapeResult Run(AttentionForm form, bool causal, uint64_t key_heads = 4, bool masked = false,
                 uint64_t width = 64) {
    const AttentionShape shape{2, kTokens, kTokens, 4, key_heads, width, causal, false, form};
    const Variable q = Input(4 * width), k = Input(width * key_heads), v = Input(width * key_heads);
    tape_.StartIteration();
    {
      const Variable mask =
          masked ? operators_.Constant("mask", kTokens * kTokens, NumberType::kBool) : Variable{};
      const Variable y = Attention(&operators_, q, k, v, mask, shape);
      EXPECT_EQ(y.tensor.elements, q.tensor.elements);
      Backward(y);
    }
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(weights_.all()[i].gradient.elements, weights_.all()[i].value.tensor.elements);
    }
    return tape_.Finish();
  }
};

class AttentionAutocastTest : public AttentionTest {
 protected:
  AttentionAutocastTest() : AttentionTest(true) {}
};

long CountOf(const TapeResult& result, const char* name) {
  return std::count_if(result.workload.kernels.begin(), result.workload.kernels.end(),
                       [name](const WorkloadKernel& kernel) { return kernel.name == name; });
}

constexpr double kProduct = 2.0 * 2 * 4 * 2048 * 2048 * 64;
constexpr Bytes kScores = Bytes{4} * 2 * 4 * 2048 * 2048;

TEST_F(AttentionTest, FlashHasNoScores) {
  const TapeResult result = Run(AttentionForm::kFlash, false);
  EXPECT_EQ(OperationsOf(result), 2 * kProduct * 3.5);
  EXPECT_LT(result.peak_allocated, kScores);
}

TEST_F(AttentionTest, CausalIsHalf) {
  EXPECT_EQ(OperationsOf(Run(AttentionForm::kFlash, true)), kProduct * 3.5);
}

// Two products forward and four backward. Scores and their softmax forward; two gradients more on the way back.
TEST_F(AttentionTest, MathKeepsTheScores) {
  const TapeResult result = Run(AttentionForm::kMath, true);
  EXPECT_EQ(OperationsOf(result), 6 * kProduct);
  EXPECT_GT(result.peak_allocated, 3 * kScores);
  EXPECT_LT(result.peak_allocated, 5 * kScores);
}

TEST_F(AttentionTest, SharedKeysHaveTheirGradientsSummedUp) {
  const auto names = NamesOf(Run(AttentionForm::kFlash, true, 1));
  EXPECT_EQ(std::count(names.begin(), names.end(), "sum"), 2);
}

TEST_F(AttentionTest, SharedKeysAreRepeated) {
  const auto names = NamesOf(Run(AttentionForm::kMath, true, 1));
  EXPECT_EQ(std::count(names.begin(), names.end(), "repeat"), 2);
  EXPECT_EQ(std::count(names.begin(), names.end(), "sum"), 2);
}

// PyTorch's memory-efficient kernel, the only one for fp32, wants as many heads for keys as for queries.
TEST_F(AttentionTest, SharedKeysInFp32HaveScores) {
  EXPECT_EQ(OperationsOf(Run(AttentionForm::kSdpa, true, 1)), 6 * kProduct);
}

TEST_F(AttentionTest, AsManyKeysInFp32HaveNone) {
  EXPECT_EQ(OperationsOf(Run(AttentionForm::kSdpa, true, 4)), kProduct * 3.5);
}

TEST_F(AttentionAutocastTest, SharedKeysInBf16HaveNone) {
  const TapeResult result = Run(AttentionForm::kSdpa, true, 1);
  EXPECT_EQ(OperationsOf(result), kProduct * 3.5);
  EXPECT_EQ(CountOf(result, "repeat"), 0);
}

// A mask makes transformers repeat keys and values, and one kernel serves fp32, which leaves nothing out.
TEST_F(AttentionTest, AMaskLetsKeysBeRepeated) {
  const TapeResult result = Run(AttentionForm::kSdpa, true, 1, true);
  EXPECT_EQ(CountOf(result, "repeat"), 2);
  EXPECT_EQ(CountOf(result, "softmax"), 0);
  EXPECT_EQ(OperationsOf(result), 2 * kProduct * 3.5);
}

TEST_F(AttentionAutocastTest, HeadsOf256AreNotRepeated) {
  EXPECT_EQ(CountOf(Run(AttentionForm::kSdpa, true, 1, false, 256), "repeat"), 0);
}

TEST_F(AttentionAutocastTest, WiderHeadsAreRepeated) {
  EXPECT_EQ(CountOf(Run(AttentionForm::kSdpa, true, 1, false, 320), "repeat"), 2);
}

// Repeated keys are copies already: queries alone are copied for the products, and the result; on the way back
// the gradients of three views are.
TEST_F(AttentionTest, MathTakesRepeatedKeysAsTheyAre) {
  const TapeResult masked = Run(AttentionForm::kMath, true, 1, true);
  EXPECT_EQ(CountOf(masked, "repeat"), 2);
  EXPECT_EQ(CountOf(masked, "tril"), 0);
  EXPECT_EQ(CountOf(masked, "clone"), 2 + 3);
  EXPECT_EQ(OperationsOf(masked), 6 * kProduct);
}

// Numbers of the queries' type are made of a mask for each sequence, and kept for the backward pass.
TEST_F(AttentionTest, AMaskIsKeptAsNumbers) {
  const AttentionShape shape{2, kTokens, kTokens, 4, 4, 64, true, false, AttentionForm::kSdpa};
  const Variable q = Input(256), k = Input(256), v = Input(256);
  tape_.StartIteration();
  const Variable mask = operators_.Constant("mask", kTokens * kTokens, NumberType::kBool);
  const Variable y = Attention(&operators_, q, k, v, mask, shape);
  const TapeResult result = tape_.Finish();
  const auto made = std::find_if(result.workload.kernels.begin(), result.workload.kernels.end(),
                                 [](const WorkloadKernel& kernel) { return kernel.name == "where"; });
  ASSERT_NE(made, result.workload.kernels.end());
  const WorkloadTensor& numbers = result.workload.tensors[made->outputs[0]];
  EXPECT_EQ(numbers.bytes, Bytes{4} * 2 * kTokens * kTokens);
  EXPECT_TRUE(numbers.persistent);  // until the backward pass, which has not run
}

// A bias of numbers is cast as queries are.
TEST_F(AttentionAutocastTest, ABiasIsCast) {
  const AttentionShape shape{2, kTokens, kTokens, 4, 4, 64, false, false, AttentionForm::kSdpa};
  const Variable q = Input(256), k = Input(256), v = Input(256);
  Parameter* const bias = weights_.New(4 * kTokens, kTokens);
  tape_.StartIteration();
  Backward(Attention(&operators_, q, k, v, bias->value, shape));
  EXPECT_EQ(bias->gradient.type, NumberType::kFp32);
  EXPECT_GE(CountOf(tape_.Finish(), "to_copy"), 8);  // q, k, v, the bias, and back
}

}  // namespace
}  // namespace spillway::policy
