#include "policy/estimate/model_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spillway::policy {
namespace {

using ::testing::HasSubstr;

uint64_t ParametersOf(const char* name) {
  const auto shape = NamedShape(name);
  EXPECT_TRUE(shape.ok() && CheckShape(*shape).ok()) << name;
  return shape.ok() ? shape->Parameters() : 0;
}

// The numbers that their authors publish: 8.03 and 70.55e9 (Llama 3), 3.48, 8.05, 20.07 and 33.7e9 (Granite
// code models).
TEST(ModelShapeTest, PublishedModelsHaveTheirParameters) {
  EXPECT_NEAR(static_cast<double>(ParametersOf("llama-8b")), 8.0303e9, 1e6);
  EXPECT_NEAR(static_cast<double>(ParametersOf("llama-70b")), 70.5537e9, 1e6);
  EXPECT_NEAR(static_cast<double>(ParametersOf("granite-3b")), 3.48e9, 0.01e9);
  EXPECT_NEAR(static_cast<double>(ParametersOf("granite-8b")), 8.05e9, 0.01e9);
  EXPECT_NEAR(static_cast<double>(ParametersOf("granite-20b")), 20.07e9, 0.01e9);
  EXPECT_NEAR(static_cast<double>(ParametersOf("granite-34b")), 33.7e9, 0.1e9);
}

// The sum by hand: embedding 8 x 4, one layer of 4 products of 4 x 4, 3 of 4 x 6, two norms, a norm, the
// head.
TEST(ModelShapeTest, CountsASmallModel) {
  ModelShape shape{.layers = 1,
                   .width = 4,
                   .wide = 6,
                   .heads = 2,
                   .key_heads = 2,
                   .head_width = 2,
                   .vocabulary = 8,
                   .gated = true};
  EXPECT_EQ(shape.Parameters(), 32u + 64 + 72 + 8 + 4 + 32);
  shape.tied = true;
  EXPECT_EQ(shape.Parameters(), 32u + 64 + 72 + 8 + 4);
  shape.key_heads = 1;
  EXPECT_EQ(shape.Parameters(), 32u + 48 + 72 + 8 + 4);
  shape.feed_forward_bias = true;  // gate and up 6 each, down 4
  EXPECT_EQ(shape.Parameters(), 32u + 48 + 72 + 16 + 8 + 4);
  shape.attention_bias = true;  // q 4, k and v 2 each, out 4
  EXPECT_EQ(shape.Parameters(), 32u + 48 + 12 + 72 + 16 + 8 + 4);
}

// Llamas with biases: 32 x (4 x 2,560 + 2 x 10,240 + 2,560) and 36 x (4,096 + 2 x 1,024 + 4,096 + 2 x 14,336 +
// 4,096) parameters more than without.
TEST(ModelShapeTest, SmallGranitesHaveBiases) {
  for (const auto& [name, biases] : {std::pair("granite-3b", 1064960u), std::pair("granite-8b", 1548288u)}) {
    ModelShape without = *NamedShape(name);
    without.attention_bias = without.feed_forward_bias = false;
    EXPECT_EQ(ParametersOf(name) - without.Parameters(), biases) << name;
  }
}

TEST(ModelShapeTest, SaysWhichSizeIsWrong) {
  ModelShape shape = *NamedShape("llama-8b");
  shape.layers = 0;
  EXPECT_THAT(std::string(CheckShape(shape).message()), HasSubstr("layers = 0 is invalid; expected: 1 to"));
  shape = *NamedShape("llama-8b");
  shape.width = ~uint64_t{0};
  EXPECT_FALSE(CheckShape(shape).ok());
  shape = *NamedShape("llama-8b");
  shape.heads = shape.key_heads = shape.head_width = 1 << 20;
  EXPECT_THAT(std::string(CheckShape(shape).message()), HasSubstr("heads x head width = 1099511627776"));
  shape = *NamedShape("llama-8b");
  shape.key_heads = 3;
  EXPECT_THAT(std::string(CheckShape(shape).message()), HasSubstr("a multiple"));
  shape = *NamedShape("llama-8b");
  shape.positions = ~uint64_t{0};
  EXPECT_FALSE(CheckShape(shape).ok());
}

TEST(ModelShapeTest, NamesWhatThereIs) {
  EXPECT_TRUE(absl::IsNotFound(NamedShape("llama-9b").status()));
  EXPECT_THAT(std::string(NamedShape("llama-9b").status().message()), HasSubstr("granite-20b"));
  EXPECT_THAT(ShapeNames(), HasSubstr("llama-8b (llama3-8b)"));
  EXPECT_EQ(ShapeNames(Family::kGpt2), "granite-20b, granite-34b");
  EXPECT_EQ(ShapeNames(Family::kBert), "");
}

TEST(ModelShapeTest, SomeModelsGoByTwoNames) {
  for (const auto& [name, other] : {std::pair("granite-8b", "granite-code-8b"),
                                    std::pair("llama-70b", "llama3-70b"), std::pair("llama-8b", "llama3-8b")})
    EXPECT_EQ(ParametersOf(name), ParametersOf(other));
}

}  // namespace
}  // namespace spillway::policy
