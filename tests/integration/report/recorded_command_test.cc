#include "integration/report/recorded_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spillway::integration {
namespace {

using ::testing::ElementsAre;

TEST(NamesASecretTest, JudgesTheLastWord) {
  for (const char* name :
       {"--api-key", "--hf-token", "HF_TOKEN", "--accessToken", "AWS_SECRET_ACCESS_KEY", "--password",
        "+wandb.api_key", "--client_secret", "key", "--APIKEY", "--db.passwd"})
    EXPECT_TRUE(NamesASecret(name)) << name;
  for (const char* name : {"--max-tokens", "--tokenizer", "--token-file", "--key-dim", "--monkey", "--keys",
                           "", "--", "-k", "train.py", "--num_key_value_heads"})
    EXPECT_FALSE(NamesASecret(name)) << name;
}

TEST(RecordedCommandTest, HasNoSecretsValue) {
  EXPECT_THAT(RecordedCommand({"env", "WANDB_API_KEY=abc", "python", "train.py", "--hf-token", "hf_1",
                               "--api-key=k=2", "--max-tokens", "512", "--lr", "1e-3", "wandb.password=x"}),
              ElementsAre("env", "WANDB_API_KEY=***", "python", "train.py", "--hf-token", "***",
                          "--api-key=***", "--max-tokens", "512", "--lr", "1e-3", "wandb.password=***"));
  EXPECT_THAT(RecordedCommand({"x", "--token", "--lr", "1"}), ElementsAre("x", "--token", "--lr", "1"));
  EXPECT_THAT(RecordedCommand({"x", "--token"}), ElementsAre("x", "--token"));
}

TEST(RecordedCommandTest, IsCut) {
  std::vector<std::string> many(100, std::string(1000, 'x'));
  many = RecordedCommand(many);
  EXPECT_EQ(many.size(), 64u);
  EXPECT_EQ(many[0].size(), 256u);
}

}  // namespace
}  // namespace spillway::integration
