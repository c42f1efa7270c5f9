// What metrics and summary say of a spill directory's health.

#include "integration/engine/directory_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/engine/figures_helpers.h"

namespace spillway::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// One directory without trouble, and one that is closed.
Figures WithDirectories() {
  Figures figures = TwoDevices();
  io::DirectoryStats good;
  good.path = "/good";
  io::DirectoryStats sick;
  sick.path = "/si\"ck";
  sick.errors = 3;
  sick.checksum_mismatches = 1;
  sick.closed = true;
  sick.why_closed = "does not answer";
  sick.times_closed = 2;
  figures.disk.directories = {good, sick};
  return figures;
}

TEST(MetricsJsonTest, SaysHowEachDirectoryDoes) {
  const auto json = nlohmann::json::parse(MetricsJson(WithDirectories()))["directories"];
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[0]["path"], "/good");
  EXPECT_EQ(json[0]["closed"], false);
  EXPECT_EQ(json[1]["errors"], 3);
  EXPECT_EQ(json[1]["mismatches"], 1);
  EXPECT_EQ(json[1]["why_closed"], "does not answer");
  EXPECT_EQ(json[1]["closures"], 2);
}

TEST(SummaryTest, NamesDirectoriesThatHadTrouble) {
  const std::string text = Summary(WithDirectories());
  EXPECT_THAT(text,
              HasSubstr("; /si\"ck: failed transfers: 3, wrong checksums: 1, closures: 2, closed now: it "
                        "does not answer"));
  EXPECT_THAT(text, Not(HasSubstr("/good")));
}

}  // namespace
}  // namespace spillway::integration
