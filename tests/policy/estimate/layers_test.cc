#include "policy/estimate/layers.h"

#include <algorithm>

#include "tests/policy/estimate/estimate_fixture.h"

namespace spillway::policy {
namespace {

using LayersTest = EstimateFixture;

TEST_F(LayersTest, FrozenWeightsHaveNoGradients) {
  Weights frozen(&tape_, &graph_, NumberType::kBf16, 8);
  const LinearWeights layer = NewLinear(&frozen, 256, 512, true);
  EXPECT_FALSE(layer.weight->value.NeedsGradient());
  EXPECT_EQ(layer.down->value.tensor.elements, 256u * 8);
  EXPECT_EQ(layer.up->value.tensor.elements, 8u * 512);
  EXPECT_EQ(layer.up->value.tensor.type, NumberType::kFp32);
  Backward(Apply(&operators_, layer, {tape_.New(kRows * 256, NumberType::kBf16)}));
  EXPECT_FALSE(layer.weight->gradient);
  EXPECT_TRUE(layer.down->gradient);
  EXPECT_TRUE(layer.up->gradient);
}

TEST_F(LayersTest, ANormKeepsTheTypeOfItsInput) {
  Parameter* const weight = weights_.New(1, 256);
  const Variable y = RmsNorm(&operators_, Input(256), weight);
  EXPECT_EQ(y.tensor.type, NumberType::kFp32);
  Backward(y);
  EXPECT_EQ(weight->gradient.elements, 256u);
}

// What a feed-forward layer leaves behind for its backward pass, in blocks that move.
Bytes KeptWith(Activation activation) {
  DeviceTape tape;
  Autograd graph(&tape);
  Operators operators(&tape, &graph, false);
  Weights weights(&tape, &graph, NumberType::kFp32, 0);
  FeedForwardWeights layer = NewFeedForward(
      &weights, {.family = Family::kGpt2, .width = 256, .wide = 256, .activation = activation});
  const Variable x = weights.New(kRows, 256)->value;
  tape.StartIteration();
  const Variable y = FeedForward(&operators, layer, x, false);
  const TapeResult result = tape.Finish();
  Bytes kept = 0;
  for (const WorkloadTensor& tensor : result.workload.tensors) kept += tensor.persistent ? tensor.bytes : 0;
  return kept;
}

// One kernel keeps its input; the formula keeps that, half of it, the tangent and one more than that, of which
// the last product keeps two. Each has 4 MiB.
TEST_F(LayersTest, GeluWrittenOutKeepsThreeTensorsMore) {
  EXPECT_EQ(KeptWith(Activation::kGeluNew) - KeptWith(Activation::kFused), 3u * 4 * kRows * 256);
}

TEST_F(LayersTest, AGatedLayerHasThreeProducts) {
  const ModelShape shape{.width = 256, .wide = 1024, .gated = true};
  const FeedForwardWeights layer = NewFeedForward(&weights_, shape);
  const Variable x = Input(256);
  tape_.StartIteration();
  Backward(FeedForward(&operators_, layer, x, false));
  EXPECT_EQ(OperationsOf(tape_.Finish()), 3 * 3 * 2.0 * kRows * 256 * 1024);
}

// One product of a width of queries, keys and values; or three.
TEST_F(LayersTest, AttentionHasItsProducts) {
  const AttentionShape attention{2, 2048, 2048, 4, 1, 64, true, false, AttentionForm::kFlash};
  for (const Family family : {Family::kGpt2, Family::kLlama}) {
    const ModelShape shape{.family = family, .width = 256, .heads = 4, .key_heads = 1, .head_width = 64};
    const AttentionWeights layer = NewAttention(&weights_, shape);
    EXPECT_EQ(layer.all.weight != nullptr, family == Family::kGpt2);
    const Variable x = Input(256);
    const Variable y = SelfAttention(&operators_, layer, x, x, {}, {}, attention);
    EXPECT_EQ(y.tensor.elements, x.tensor.elements);
    Backward(y);
    EXPECT_TRUE(layer.out.weight->gradient);
  }
}

}  // namespace
}  // namespace spillway::policy
