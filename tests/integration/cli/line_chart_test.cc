#include "integration/cli/line_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace spillway::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

LineChart TwoLines() {
  LineChart chart;
  chart.title = "a < b";
  chart.x_title = "memory, GiB";
  chart.y_title = "percent";
  chart.x = {1, 2, 3};
  chart.lines = {{"plan", {40, 60, 100}}, {"lru", {std::nullopt, 20, 50}}};
  chart.gap_words = "too little memory";
  return chart;
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(LineChartTest, DrawsAMarkForEachValueAndNamesEachLine) {
  const std::string svg = SvgOf(TwoLines());
  EXPECT_THAT(svg, ::testing::StartsWith("<svg "));
  EXPECT_THAT(svg, ::testing::EndsWith("</svg>\n"));
  EXPECT_EQ(Count(svg, "<title>plan: "), 3u);
  EXPECT_EQ(Count(svg, "<title>lru: "), 2u);
  EXPECT_THAT(svg, HasSubstr("plan: 60.00 at 2"));
  for (const char* name : {"memory, GiB", "percent", "class=\"line0\"", "class=\"line1\""}) {
    EXPECT_THAT(svg, HasSubstr(name));
  }
}

TEST(LineChartTest, TextOfTheJobIsNoMarkup) {
  EXPECT_THAT(SvgOf(TwoLines()), HasSubstr("a &lt; b"));
  EXPECT_THAT(SvgOf(TwoLines()), Not(HasSubstr("a < b")));
  EXPECT_EQ(HtmlEscape("<a href=\"x\">&"), "&lt;a href=&quot;x&quot;&gt;&amp;");
}

TEST(LineChartTest, APlaceWhereNoLineHasAValueIsMarked) {
  LineChart chart = TwoLines();
  EXPECT_EQ(Count(SvgOf(chart), "too little memory"), 0u);
  chart.lines[0].values[0] = std::nullopt;
  EXPECT_EQ(Count(SvgOf(chart), "too little memory"), 1u);
}

TEST(LineChartTest, OneValueOrNoneIsStillAChart) {
  LineChart chart = TwoLines();
  chart.x = {1};
  chart.lines = {{"plan", {std::nullopt}}};
  EXPECT_THAT(SvgOf(chart), Not(HasSubstr("nan")));
  EXPECT_EQ(SvgOf(LineChart()), "");
}

}  // namespace
}  // namespace spillway::integration
