#include "integration/cli/common/near_words.h"

#include <gtest/gtest.h>

namespace spillway::integration {
namespace {

TEST(EditDistanceTest, CountsEachKindOfChangeOnce) {
  EXPECT_EQ(EditDistance("", ""), 0u);
  EXPECT_EQ(EditDistance("report", "report"), 0u);
  EXPECT_EQ(EditDistance("doctr", "doctor"), 1u);
  EXPECT_EQ(EditDistance("doctoor", "doctor"), 1u);
  EXPECT_EQ(EditDistance("doktor", "doctor"), 1u);
  EXPECT_EQ(EditDistance("dcotor", "doctor"), 1u);
  EXPECT_EQ(EditDistance("", "run"), 3u);
  EXPECT_EQ(EditDistance("ca", "abc"), 3u) << "no part is changed twice";
  EXPECT_EQ(EditDistance("simulate", "estimate"), 4u);
}

TEST(NearestWordTest, IsTheNearestOrNone) {
  const std::vector<std::string> words = {"run", "doctor", "report", "simulate", "estimate"};
  EXPECT_EQ(NearestWord("doctr", words), "doctor");
  EXPECT_EQ(NearestWord("reprot", words), "report");
  EXPECT_EQ(NearestWord("simulation", words), "simulate");
  EXPECT_EQ(NearestWord("nvidia-smi", words), "");
  EXPECT_EQ(NearestWord("xy", words), "");
  EXPECT_EQ(NearestWord("", words), "");
}

TEST(MeantWordTest, IsOfTheSubcommandThatWasNamed) {
  CLI::App app;
  app.require_subcommand(1);
  std::string value;
  CLI::App* const run = app.add_subcommand("run");
  run->add_option("--gpu-memory", value);
  app.add_subcommand("report")->add_option("--output", value);
  const auto meant = [&](std::vector<std::string> words) {
    std::ranges::reverse(words);
    EXPECT_THROW(app.parse(words), CLI::ParseError);
    return MeantWord(app);
  };
  EXPECT_EQ(meant({"rnu"}), "run");
  EXPECT_EQ(meant({"run", "--gpu-memroy", "1GiB"}), "--gpu-memory");
  EXPECT_EQ(meant({"run", "--gpu-memroy=1GiB"}), "--gpu-memory");
  EXPECT_EQ(meant({"run", "--outptu", "x"}), "") << "of another one";
  EXPECT_EQ(meant({"report", "--outptu", "x"}), "--output");
  EXPECT_EQ(meant({}), "");
}

}  // namespace
}  // namespace spillway::integration
