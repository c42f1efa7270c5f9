#include "policy/estimate/layers.h"

#include <algorithm>

#include "tests/policy/estimate/estimate_fixture.h"

namespace spillway::policy {
namespace {

using LayersTest = EstimateFixture;

TEST_F(LayersTest, FrozenWeightsHaveNoGradients) {
  Weights frozen(&tape_, &graph_, NumberType::kBf16, {8});
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

TEST_F(LayersTest, AdaptersHaveDropoutWhereItIsAskedFor) {
  for (const bool dropout : {false, true}) {
    DeviceTape tape;
    Operators operators(&tape, &graph_, false);
    Weights weights(&tape, &graph_, NumberType::kFp32, {8, dropout});
    const LinearWeights layer = NewLinear(&weights, 256, 512, false);
    const Variable x{tape.New(kRows * 256, NumberType::kFp32)};
    tape.StartIteration();
    Apply(&operators, layer, x);
    const auto names = NamesOf(tape.Finish());
    EXPECT_EQ(std::count(names.begin(), names.end(), "native_dropout"), dropout ? 1 : 0);
  }
}

// The result is bf16, although it is computed in fp32; its gradient is that of its input again.
TEST_F(LayersTest, ANormKeepsTheTypeOfItsInput) {
  Weights half(&tape_, &graph_, NumberType::kBf16, {});
  Parameter* const x = half.New(kRows, 256);
  Parameter* const weight = half.New(1, 256);
  for (const RmsForm form : {RmsForm::kLlama, RmsForm::kT5}) {
    const Variable y = RmsNorm(&operators_, x->value, weight, form);
    EXPECT_EQ(y.tensor.type, NumberType::kBf16);
    Backward(y);
    EXPECT_EQ(x->gradient.type, NumberType::kBf16);
    EXPECT_EQ(weight->gradient.type, NumberType::kBf16);
    EXPECT_EQ(weight->gradient.elements, 256u);
  }
}

// T5 scales the bf16 input itself, so that this is kept beside its fp32 form, and converts by its weight.
TEST_F(LayersTest, T5sNormConvertsToTheTypeOfItsWeight) {
  const Variable x = operators_.To(Input(256), NumberType::kBf16);
  Parameter* const weight = weights_.New(1, 256);
  for (const RmsForm form : {RmsForm::kLlama, RmsForm::kT5}) {
    Variable given = operators_.Scale(x);
    const std::weak_ptr<Storage> watched = given.tensor.storage;
    const Variable y = RmsNorm(&operators_, given, weight, form);
    given = {};
    EXPECT_EQ(watched.expired(), form == RmsForm::kLlama);
    EXPECT_EQ(y.tensor.type, NumberType::kFp32);  // the product with an fp32 weight
  }
}

// Returns the bytes that a feed-forward layer keeps for its backward pass, in blocks that move.
Bytes KeptWith(Activation activation, bool autocast = false) {
  DeviceTape tape;
  Autograd graph(&tape);
  Operators operators(&tape, &graph, autocast);
  Weights weights(&tape, &graph, NumberType::kFp32, {});
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

// The result, which the product that follows keeps anyway.
TEST_F(LayersTest, ReluAndTanhKeepTheirResultAlone) {
  EXPECT_EQ(KeptWith(Activation::kFused) - KeptWith(Activation::kFromResult), 1u * 4 * kRows * 256);
}

// The input of the power, the tangent and one more than that are of 4 bytes, half of the input of 2; one kernel
// keeps its input of 2.
TEST_F(LayersTest, GeluWrittenOutIsWideUnderAutocast) {
  EXPECT_EQ(KeptWith(Activation::kGeluNew, true) - KeptWith(Activation::kFused, true),
            (3u * 4 + 2 - 2) * kRows * 256);
}

// T5 gives the last product what has the type of its weight, which autocast converts back.
TEST(FeedForwardTest, T5ConvertsBeforeTheLastProduct) {
  for (const Family family : {Family::kGpt2, Family::kT5}) {
    DeviceTape tape;
    Autograd graph(&tape);
    Operators operators(&tape, &graph, true);
    Weights weights(&tape, &graph, NumberType::kFp32, {});
    const FeedForwardWeights layer = NewFeedForward(&weights, {.family = family, .width = 256, .wide = 256});
    const Variable x{tape.New(kRows * 256, NumberType::kBf16)};
    tape.StartIteration();
    FeedForward(&operators, layer, x, false);
    size_t conversions = 0;
    for (const WorkloadKernel& kernel : tape.Finish().workload.kernels)
      conversions += kernel.name == "to_copy";
    EXPECT_EQ(conversions, family == Family::kT5 ? 4u : 2u);  // two weights; to fp32 and back
  }
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
