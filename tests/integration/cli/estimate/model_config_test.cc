#include "integration/cli/estimate/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

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
  EXPECT_FALSE(ParseModelConfig(With(kLlama, "llama", "mistral"))->scaled_residual);
}

// MistralConfig: a window of 4,096, which null takes away; 8 heads for keys, which null makes as many as
// others; no biases.
TEST(ModelConfigTest, ReadsMistralAndItsDefaults) {
  const std::string text =
      R"({"model_type": "mistral", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
      "num_attention_heads": 16, "vocab_size": 96, "attention_bias": true, "mlp_bias": true})";
  const auto shape = ParseModelConfig(text);
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_EQ(shape->key_heads, 8u);
  EXPECT_EQ(shape->window, 4096u);
  EXPECT_FALSE(shape->attention_bias || shape->feed_forward_bias);
  EXPECT_EQ(ParseModelConfig(With(text, "{", R"({"sliding_window": 512, )"))->window, 512u);
  EXPECT_EQ(ParseModelConfig(With(text, "{", R"({"sliding_window": null, )"))->window, 0u);
  EXPECT_EQ(ParseModelConfig(With(text, "{", R"({"num_key_value_heads": null, )"))->key_heads, 16u);
  EXPECT_THAT(ErrorOf(With(text, "{", R"({"sliding_window": 0, )")), HasSubstr("sliding_window=0"));
  EXPECT_EQ(ParseModelConfig(With(text, "mistral", "llama"))->window, 0u);
}

TEST(ModelConfigTest, ReadsGpt2AndItsDefaults) {
  const std::string text =
      R"({"model_type": "gpt2", "n_embd": 64, "n_layer": 3, "n_head": 4, "n_inner": null, "vocab_size": 96})";
  const auto shape = ParseModelConfig(text);
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_EQ(shape->wide, 256u);
  EXPECT_EQ(shape->positions, 1024u);
  EXPECT_TRUE(shape->tied && shape->dropout && shape->attention_dropout && shape->embedding_dropout);
  EXPECT_FALSE(ParseModelConfig(With(text, "{", R"({"embd_pdrop": 0, )"))->embedding_dropout);
  const auto residual = ParseModelConfig(With(text, "{", R"({"resid_pdrop": 0.0, )"));
  EXPECT_TRUE(!residual->dropout && residual->embedding_dropout);
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
  EXPECT_EQ(t5->activation, policy::Activation::kGeluNew);
  EXPECT_THAT(ErrorOf(With(text, "gated-gelu", "swish")),
              HasSubstr("feed_forward_proj=swish is invalid"));
  EXPECT_EQ(ParseModelConfig(With(text, "gated-gelu", "relu"))->activation, policy::Activation::kFromResult);
  EXPECT_EQ(ParseModelConfig(With(text, "gated-gelu", "gated-silu"))->activation, policy::Activation::kFused);
}

// T5Config ties always. What says untied is given no scale before its head, and a file that T5Config has
// written says this by another key.
TEST(ModelConfigTest, T5IsAlwaysTied) {
  const std::string text = R"({"model_type": "t5", "d_model": 64, "d_ff": 128, "d_kv": 16, "num_heads": 4,
    "num_layers": 2, "vocab_size": 96})";
  EXPECT_TRUE(ParseModelConfig(text)->tied && ParseModelConfig(text)->scaled_head);
  const auto untied = ParseModelConfig(With(text, "{", R"({"tie_word_embeddings": false, )"));
  EXPECT_TRUE(untied->tied && !untied->scaled_head);
  const auto written =
      ParseModelConfig(With(text, "{", R"({"tie_word_embeddings": true, "scale_decoder_outputs": false, )"));
  EXPECT_TRUE(written->tied && !written->scaled_head);
}

TEST(ModelConfigTest, KnowsWhichActivationsKeepTheirResult) {
  for (const char* name : {"relu", "tanh"})
    EXPECT_EQ(
        ParseModelConfig(With(kLlama, "{", absl::StrCat(R"({"hidden_act": ")", name, R"(", )")))->activation,
        policy::Activation::kFromResult);
  for (const char* name : {"gelu", "gelu_pytorch_tanh", "silu"})
    EXPECT_EQ(
        ParseModelConfig(With(kLlama, "{", absl::StrCat(R"({"hidden_act": ")", name, R"(", )")))->activation,
        policy::Activation::kFused);
}

TEST(ModelConfigTest, SaysWhatIsWrong) {
  EXPECT_THAT(ErrorOf("hidden_size: 64"), HasSubstr("no JSON object"));
  EXPECT_THAT(ErrorOf("[]"), HasSubstr("no JSON object"));
  EXPECT_THAT(ErrorOf("{}"), HasSubstr("model_type=(missing) is invalid; expected: bert, gpt2"));
  EXPECT_THAT(ErrorOf(With(kLlama, "llama", "mamba")), HasSubstr("model_type=mamba"));
  EXPECT_THAT(ErrorOf(With(kLlama, "\"vocab_size\": 96", "\"x\": 0")), HasSubstr("vocab_size is missing"));
  EXPECT_THAT(ErrorOf(With(kLlama, "96", "-96")),
              HasSubstr("vocab_size=-96 is invalid; expected: a positive"));
  EXPECT_THAT(ErrorOf(With(kLlama, "96", "1e300")), HasSubstr("vocab_size="));
  EXPECT_THAT(ErrorOf(With(kLlama, "96", "96.5")), HasSubstr("vocab_size=96.5"));
  EXPECT_THAT(ErrorOf(With(kLlama, "96", "\"many\"")), HasSubstr("vocab_size=\"many\""));
  EXPECT_THAT(ErrorOf(With(kLlama, "96", "99999999999")), HasSubstr("vocabulary = 99999999999"));
  EXPECT_THAT(ErrorOf(With(kLlama, "\"num_attention_heads\": 4", "\"num_attention_heads\": 5")),
              HasSubstr("hidden_size=64 is invalid; expected: a multiple of num_attention_heads = 5"));
  EXPECT_THAT(ErrorOf(With(kLlama, "{", R"({"hidden_act": "snake", )")), HasSubstr("hidden_act=snake"));
  EXPECT_THAT(ErrorOf(With(kLlama, "{", R"({"attention_dropout": 2, )")), HasSubstr("a probability"));
  EXPECT_THAT(ErrorOf(With(kLlama, "{", R"({"tie_word_embeddings": "no", )")), HasSubstr("true or false"));
}

}  // namespace
}  // namespace spillway::integration
