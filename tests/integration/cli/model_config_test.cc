#include "integration/cli/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spillway::integration {
namespace {

using ::testing::HasSubstr;

constexpr char kLlama[] = R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 96})";

std::string ErrorOf(const std::string& text) {
  const auto shape = ParseModelConfig(text);
  return shape.ok() ? "" : std::string(shape.status().message());
}

std::string With(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

TEST(ModelConfigTest, ReadsADecoder) {
  const auto shape = ParseModelConfig(kLlama);
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_EQ(shape->layers, 2u);
  EXPECT_EQ(shape->key_heads, 2u);
  EXPECT_EQ(shape->head_width, 16u);
  EXPECT_TRUE(shape->gated);
  EXPECT_FALSE(shape->tied);
  EXPECT_FALSE(shape->attention_dropout);
  EXPECT_FALSE(shape->scaled_residual);
  EXPECT_TRUE(ParseModelConfig(With(kLlama, "llama", "granite"))->scaled_residual);
  EXPECT_TRUE(ParseModelConfig(With(kLlama, "llama", "mistral")).ok());
}

TEST(ModelConfigTest, ReadsGpt2AndItsDefaults) {
  const std::string text =
      R"({"model_type": "gpt2", "n_embd": 64, "n_layer": 3, "n_head": 4, "n_inner": null, "vocab_size": 96})";
  const auto shape = ParseModelConfig(text);
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_EQ(shape->wide, 256u);
  EXPECT_EQ(shape->positions, 1024u);
  EXPECT_TRUE(shape->tied && shape->dropout && shape->attention_dropout);
  EXPECT_EQ(shape->activation, policy::Activation::kGeluNew);
  const auto many = ParseModelConfig(With(text, "gpt2", "gpt_bigcode"));
  ASSERT_TRUE(many.ok()) << many.status();
  EXPECT_EQ(many->key_heads, 1u);
  EXPECT_EQ(many->activation, policy::Activation::kFused);
}

TEST(ModelConfigTest, ReadsAnEncoderAndBoth) {
  const auto bert = ParseModelConfig(With(kLlama, "llama", "bert"));
  ASSERT_TRUE(bert.ok()) << bert.status();
  EXPECT_EQ(bert->key_heads, 4u);
  EXPECT_EQ(bert->token_types, 2u);
  const std::string text = R"({"model_type": "t5", "d_model": 64, "d_ff": 128, "d_kv": 16, "num_heads": 4,
    "num_layers": 2, "vocab_size": 96, "feed_forward_proj": "gated-gelu"})";
  const auto t5 = ParseModelConfig(text);
  ASSERT_TRUE(t5.ok()) << t5.status();
  EXPECT_EQ(t5->decoder_layers, 2u);
  EXPECT_EQ(t5->buckets, 32u);
  EXPECT_TRUE(t5->gated);
  EXPECT_THAT(ErrorOf(With(text, "gated-gelu", "swish")),
              HasSubstr("feed_forward_proj=swish is not accepted"));
}

TEST(ModelConfigTest, SaysWhatIsWrong) {
  EXPECT_THAT(ErrorOf("hidden_size: 64"), HasSubstr("no JSON object"));
  EXPECT_THAT(ErrorOf("[]"), HasSubstr("no JSON object"));
  EXPECT_THAT(ErrorOf("{}"), HasSubstr("model_type=(missing) is not accepted; accepted: bert, gpt2"));
  EXPECT_THAT(ErrorOf(With(kLlama, "llama", "mamba")), HasSubstr("model_type=mamba"));
  EXPECT_THAT(ErrorOf(With(kLlama, "\"vocab_size\": 96", "\"x\": 0")), HasSubstr("vocab_size is missing"));
  EXPECT_THAT(ErrorOf(With(kLlama, "96", "-96")),
              HasSubstr("vocab_size=-96 is not accepted; accepted: a positive"));
  EXPECT_THAT(ErrorOf(With(kLlama, "96", "1e300")), HasSubstr("vocab_size="));
  EXPECT_THAT(ErrorOf(With(kLlama, "96", "96.5")), HasSubstr("vocab_size=96.5"));
  EXPECT_THAT(ErrorOf(With(kLlama, "96", "\"many\"")), HasSubstr("vocab_size=\"many\""));
  EXPECT_THAT(ErrorOf(With(kLlama, "96", "99999999999")), HasSubstr("vocabulary = 99999999999"));
  EXPECT_THAT(ErrorOf(With(kLlama, "\"num_attention_heads\": 4", "\"num_attention_heads\": 5")),
              HasSubstr("hidden_size=64 is not accepted; accepted: a multiple of num_attention_heads = 5"));
  EXPECT_THAT(ErrorOf(With(kLlama, "{", R"({"hidden_act": "snake", )")), HasSubstr("hidden_act=snake"));
  EXPECT_THAT(ErrorOf(With(kLlama, "{", R"({"attention_dropout": 2, )")), HasSubstr("a probability"));
  EXPECT_THAT(ErrorOf(With(kLlama, "{", R"({"tie_word_embeddings": "no", )")), HasSubstr("true or false"));
}

}  // namespace
}  // namespace spillway::integration
