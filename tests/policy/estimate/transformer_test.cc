#include "policy/estimate/transformer.h"

#include <algorithm>
#include <tuple>

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
  shape.dropout = shape.attention_dropout = shape.embedding_dropout = family != Family::kLlama;
  shape.scaled_head = family == Family::kT5;
  return shape;
}

enum class Numbers : uint8_t { kFp32, kBf16, kAutocast };

// A model of numbers of a kind, on a tape of its own.
struct Model {
  Model(const ModelShape& shape, Numbers numbers)
      : operators(&tape, &graph, numbers == Numbers::kAutocast),
        weights(&tape, &graph, numbers == Numbers::kBf16 ? NumberType::kBf16 : NumberType::kFp32, {}),
        model(shape, &operators, &weights) {}

  void Train(const Batch& batch) {
    const Variable loss = model.Loss(batch);
    operators.EndAutocast();
    Tensor ones = tape.New(1, NumberType::kFp32);
    graph.Backward(loss, std::move(ones));
  }

  DeviceTape tape;  // outlives all that holds tensors
  Autograd graph{&tape};
  Operators operators;
  Weights weights;
  TransformerModel model;
};

// The names of an iteration's launches.
std::vector<std::string> Trained(const ModelShape& shape, const Batch& batch,
                                 Numbers numbers = Numbers::kFp32) {
  Model model(shape, numbers);
  model.tape.StartIteration();
  model.Train(batch);
  std::vector<std::string> names;
  for (const WorkloadKernel& kernel : model.tape.Finish().workload.kernels) names.push_back(kernel.name);
  return names;
}

long CountOf(const std::vector<std::string>& names, const char* name) {
  return std::count(names.begin(), names.end(), name);
}

class TransformerTest : public ::testing::TestWithParam<std::tuple<Family, Numbers>> {};

// Every weight is made, counted as Parameters() counts it, and gets a gradient of its size and type: in each
// form of attention, with a feed-forward layer of each form, with heads that share keys and with a window.
TEST_P(TransformerTest, EveryWeightIsCountedAndTrained) {
  const auto [family, numbers] = GetParam();
  for (int what = 0; what < 5; ++what) {
    ModelShape shape = ShapeOf(family);
    if (what == 1) shape.gated = !shape.gated;
    if (what == 2) shape.gated = shape.attention_bias = shape.feed_forward_bias = true;
    if (what == 3) shape.activation = Activation::kGeluNew;
    if (what == 4) {
      shape.key_heads = family == Family::kLlama || family == Family::kGpt2 ? 2 : 4;
      shape.window = family == Family::kLlama ? 16 : 0;
      shape.activation = Activation::kFromResult;
      shape.tied = !shape.tied;
    }
    ASSERT_TRUE(CheckShape(shape).ok());
    Model model(shape, numbers);
    uint64_t elements = 0;
    for (const Parameter& parameter : model.weights.all()) elements += parameter.value.tensor.elements;
    EXPECT_EQ(elements, shape.Parameters()) << what;
    for (const AttentionForm form : {AttentionForm::kSdpa, AttentionForm::kFlash, AttentionForm::kMath}) {
      for (const bool checkpointing : {false, true}) {
        model.Train({2, 32, 16, form, checkpointing});
        for (Parameter& parameter : model.weights.all()) {
          EXPECT_EQ(parameter.gradient.elements, parameter.value.tensor.elements) << what;
          EXPECT_EQ(parameter.gradient.type, parameter.value.tensor.type) << what;
          parameter.gradient = {};
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, TransformerTest,
    ::testing::Combine(::testing::Values(Family::kLlama, Family::kGpt2, Family::kBert, Family::kT5),
                       ::testing::Values(Numbers::kFp32, Numbers::kBf16, Numbers::kAutocast)));

constexpr Batch kBatch = {2, 32, 16, AttentionForm::kSdpa, false};

// 6 operations for each weight of a product and token (forward 2, backward 4), and attention's.
TEST(LlamaTest, OperationsAreSixPerWeightAndToken) {
  Model model(ShapeOf(Family::kLlama), Numbers::kFp32);
  model.tape.StartIteration();
  model.Train(kBatch);
  const double products = 2.0 * (4 * 64 * 64 + 3 * 64 * 128) + 64 * 96;
  const double attention = 2 * 3.5 * 0.5 * 2 * (2.0 * 2 * 4 * 32 * 32 * 16);
  double operations = 0;
  for (const LaunchCost& cost : model.tape.Finish().costs) operations += cost.operations;
  EXPECT_EQ(operations, 6 * products * 64 + attention);
}

// One mask for all layers, and in each the numbers of it, where a sequence reaches the window.
TEST(LlamaTest, AWindowHasAMaskWhereASequenceReachesIt) {
  ModelShape shape = ShapeOf(Family::kLlama);
  for (const uint64_t window : {0, 32, 33}) {
    shape.window = window;
    const auto names = Trained(shape, kBatch);
    EXPECT_EQ(CountOf(names, "mask"), window == 32 ? 1 : 0);
    EXPECT_EQ(CountOf(names, "where"), window == 32 ? 2 : 0);
  }
  shape.window = 32;
  EXPECT_EQ(CountOf(Trained(shape, {2, 32, 16, AttentionForm::kFlash, false}), "mask"), 0);
  EXPECT_EQ(CountOf(Trained(shape, {2, 32, 16, AttentionForm::kMath, false}), "where"), 2);
}

TEST(Gpt2Test, EmbeddingsHaveADropoutOfTheirOwn) {
  ModelShape shape = ShapeOf(Family::kGpt2);
  shape.dropout = shape.attention_dropout = shape.embedding_dropout = false;
  EXPECT_EQ(CountOf(Trained(shape, kBatch), "native_dropout"), 0);
  shape.embedding_dropout = true;
  EXPECT_EQ(CountOf(Trained(shape, kBatch), "native_dropout"), 1);
}

// The activation of BERT's head is that of its layers: 2 + 1 tangents, forward and backward.
TEST(BertTest, TheHeadHasTheModelsActivation) {
  ModelShape shape = ShapeOf(Family::kBert);
  EXPECT_EQ(CountOf(Trained(shape, kBatch), "tanh"), 0);
  shape.activation = Activation::kGeluNew;
  EXPECT_EQ(CountOf(Trained(shape, kBatch), "tanh"), 2 * 3);
}

TEST(T5Test, TheHeadIsScaledWhereTheModelSaysSo) {
  ModelShape shape = ShapeOf(Family::kT5);
  const auto scaled = Trained(shape, kBatch);
  shape.scaled_head = false;
  EXPECT_EQ(CountOf(scaled, "mul") - CountOf(Trained(shape, kBatch), "mul"), 2);  // forward and backward
}

// The zeros that attention to the encoder adds are made once for all layers.
TEST(T5Test, ZerosAreMadeOnce) { EXPECT_EQ(CountOf(Trained(ShapeOf(Family::kT5), kBatch), "zeros"), 1); }

}  // namespace
}  // namespace spillway::policy
