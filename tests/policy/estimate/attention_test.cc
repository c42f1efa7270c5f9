#include "policy/estimate/attention.h"

#include <algorithm>

#include "tests/policy/estimate/estimate_fixture.h"

namespace spillway::policy {
namespace {

class AttentionTest : public EstimateFixture {
 protected:
  // 2 sequences of 2,048 tokens; 4 heads of 64.
  TapeResult Run(AttentionForm form, bool causal, uint64_t key_heads = 4) {
    const AttentionShape shape{2, 2048, 2048, 4, key_heads, 64, causal, false, form};
    const Variable q = Input(256), k = Input(64 * key_heads), v = Input(64 * key_heads);
    tape_.StartIteration();
    {
      const Variable y = Attention(&operators_, q, k, v, {}, shape);
      EXPECT_EQ(y.tensor.elements, q.tensor.elements);
      Backward(y);
    }
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(weights_.all()[i].gradient.elements, weights_.all()[i].value.tensor.elements);
    }
    return tape_.Finish();
  }
};

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

}  // namespace
}  // namespace spillway::policy
