#include "policy/estimate/transformer.h"

#include "tests/policy/estimate/estimate_fixture.h"

namespace spillway::policy {
namespace {

ModelShape ShapeOf(Family family) {
  ModelShape shape{.family = family,
                   .layers = 2,
                   .width = 64,
                   .wide = 128,
                   .heads = 4,
                   .key_heads = 4,
                   .head_width = 16,
                   .vocabulary = 96};
  shape.gated = family == Family::kLlama;
  shape.tied = family != Family::kLlama;
  const bool learned = family == Family::kGpt2 || family == Family::kBert;
  shape.positions = learned ? 32 : 0;
  shape.attention_bias = shape.feed_forward_bias = learned;
  shape.token_types = family == Family::kBert ? 2 : 0;
  shape.decoder_layers = family == Family::kT5 ? 2 : 0;
  shape.buckets = family == Family::kT5 ? 8 : 0;
  shape.dropout = shape.attention_dropout = family != Family::kLlama;
  return shape;
}

class TransformerTest : public EstimateFixture, public ::testing::WithParamInterface<Family> {};

// Every weight is made, counted as Parameters() counts it, and gets a gradient of its size.
TEST_P(TransformerTest, EveryWeightIsCountedAndTrained) {
  const ModelShape shape = ShapeOf(GetParam());
  ASSERT_TRUE(CheckShape(shape).ok());
  TransformerModel model(shape, &operators_, &weights_);
  uint64_t elements = 0;
  for (const Parameter& parameter : weights_.all()) elements += parameter.value.tensor.elements;
  EXPECT_EQ(elements, shape.Parameters());
  for (const AttentionForm form : {AttentionForm::kFlash, AttentionForm::kMath}) {
    for (const bool checkpointing : {false, true}) {
      Backward(model.Loss({2, 32, 16, form, checkpointing}));
      for (Parameter& parameter : weights_.all()) {
        EXPECT_EQ(parameter.gradient.elements, parameter.value.tensor.elements);
        parameter.gradient = {};
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TransformerTest,
                         ::testing::Values(Family::kLlama, Family::kGpt2, Family::kBert, Family::kT5));

class LlamaTest : public EstimateFixture {};

// 6 operations for each weight of a product and token (forward 2, backward 4), and attention's.
TEST_F(LlamaTest, OperationsAreSixPerWeightAndToken) {
  const ModelShape shape = ShapeOf(Family::kLlama);
  TransformerModel model(shape, &operators_, &weights_);
  tape_.StartIteration();
  Backward(model.Loss({2, 32, 0, AttentionForm::kFlash, false}));
  const double products = 2.0 * (4 * 64 * 64 + 3 * 64 * 128) + 64 * 96;
  const double attention = 2 * 3.5 * 0.5 * 2 * (2.0 * 2 * 4 * 32 * 32 * 16);
  EXPECT_EQ(OperationsOf(tape_.Finish()), 6 * products * 64 + attention);
}

}  // namespace
}  // namespace spillway::policy
