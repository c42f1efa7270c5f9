#include "integration/cli/page/report_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spillway::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ReportModel Model() {
  ReportModel model;
  model.title = "train.py";
  model.verdict = {"It ran.", "Nothing moved."};
  Section section{"a", "A section", {"Words."}, {"What is missing."}, {}, {}, {}};
  section.metrics = {{"x", "one", 1.5, Unit::kSeconds, ""}, {"y", "another", {}, Unit::kBytes, "no file"}};
  Table table{"t", "A table", {{"name", {}}, {"µs", Unit::kCount}}, {}};
  table.rows = {{TextCell("first"), NumberCell(1)}, {TextCell("ß"), NumberCell(1234)}, {TextCell("cut")}};
  section.tables = {table};
  model.sections = {section};
  return model;
}

TEST(ReportTextTest, SaysAllButTheCharts) {
  EXPECT_EQ(ReportText(Model()), R"(spillway report: train.py
It ran.
Nothing moved.

A section
  Words.
  one      1.50 s
  another  not known (no file)
  What is missing.

  A table
  name      µs
  first      1
  ß      1,234
  cut
)");
}

TEST(ReportTextTest, NoNameReachesTheTerminalAsACommand) {
  ReportModel model = Model();
  model.title =
      "\x1b[31mred\xc2\x9b"
      "2J";
  model.sections[0].tables[0].rows[0][0].text = "a\r\nb\x7f";
  const std::string text = ReportText(model);
  EXPECT_THAT(text, HasSubstr("?[31mred?2J"));
  EXPECT_THAT(text, HasSubstr("a??b?"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace spillway::integration
