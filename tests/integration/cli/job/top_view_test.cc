#include "integration/cli/job/top_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spillway::integration {
namespace {

using nlohmann::json;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

json Answer(double seconds, double moved) {
  return {
      {"command", {"python", "train.py"}},
      {"rank", 3},
      {"lines", {"spillway: one", "spillway: two"}},
      {"figures",
       {{"seconds", seconds},
        {"resident_bytes", uint64_t{3} << 30},
        {"budget_in_force_bytes", uint64_t{4} << 30},
        {"host_tier_bytes", 2.5e9},
        {"disk_tier_bytes", 0},
        {"spilled_bytes", moved},
        {"fetched_bytes", moved / 2},
        {"disk_written_bytes", 0},
        {"disk_read_bytes", 0},
        {"lost_seconds", {{"chunks", seconds / 4}, {"arrival", seconds / 10}, {"run_ahead", 0}}},
        {"waits", {{"chunks", {{"longest_now_seconds", 12.0}}}, {"arrival", {{"longest_now_seconds", 0.2}}}}},
        {"devices", {{{"device", 0}}, {{"iteration", {{"seconds", 0.25}, {"percent_of_bound", 88.4}}}}}}}}};
}

TEST(TopTextTest, ARowHasRatesOfTheTimeBetweenTwoAnswers) {
  const std::string text = TopText({{4711, Answer(12, 8e9), Answer(10, 5e9), ""}}, 100);
  EXPECT_THAT(text,
              ContainsRegex(" 4711 +3 +3.00 GiB of 4.00 GiB +2.5G +0B +1.5G +750M +0B +0B +0.250 s +88 % +"
                            "25 % for GPU memory\n +python train.py\n"));
  EXPECT_THAT(text, HasSubstr("waits for chunks: 12 s\nspillway: one\nspillway: two\n"));
  EXPECT_THAT(text, Not(HasSubstr("arrival")));
}

TEST(TopTextTest, AJobThatIsPausedFromOutsideSaysSo) {
  json paused = Answer(12, 8e9);
  paused["figures"]["pause"] = {{"pauses", 1}, {"paused_now", true}};
  EXPECT_THAT(TopText({{4711, paused, Answer(10, 5e9), ""}}, 100), HasSubstr("  paused\n"));
  paused["figures"]["pause"]["paused_now"] = false;
  EXPECT_THAT(TopText({{4711, paused, Answer(10, 5e9), ""}}, 100), Not(HasSubstr("paused")));
}

TEST(TopTextTest, WhatIsNotKnownIsADash) {
  json early = Answer(1, 0);
  early["figures"].erase("devices");
  early["figures"].erase("lost_seconds");
  const std::string text = TopText({{1, early, nullptr, ""}}, 100);
  EXPECT_THAT(text, ContainsRegex(" - +- +- +- +- +- +-\n"));
}

TEST(TopTextTest, SeveralJobsHaveNoDetailsAndOneThatIsSilentHasWords) {
  const std::string text =
      TopText({{1, Answer(2, 0), Answer(1, 0), ""}, {2, nullptr, nullptr, "process 2 does not answer"}}, 100);
  EXPECT_THAT(text, HasSubstr("      2 process 2 does not answer\n"));
  EXPECT_THAT(text, Not(HasSubstr("spillway: one")));
}

TEST(TopTextTest, CommandsAndLinesAreCutToTheTerminal) {
  json answer = Answer(2, 0);
  answer["lines"] = {std::string(100, 'x')};
  answer["command"][0] = "pyt\033[2Jhon";
  const std::string text = TopText({{1, answer, Answer(1, 0), ""}}, 20);
  EXPECT_THAT(text, HasSubstr("\n        pyt?[2Jho...\n"));
  EXPECT_THAT(text, HasSubstr("\nxxxxxxxxxxxxxxxxx...\n"));
}

// Another version, or another program: nothing of it is relied on.
TEST(TopTextTest, StrangeAnswersAreShownAsFarAsTheyGo) {
  for (const json& strange :
       {json::object(), json{{"figures", 3}}, json{{"figures", {{"devices", 7}}}, {"command", "x"}},
        json{{"rank", "first"}, {"figures", {{"waits", {{"chunks", 3}}}}}, {"lines", {1, 2}}}})
    EXPECT_THAT(TopText({{5, strange, strange, ""}}, 80), HasSubstr("      5 ")) << strange;
}

}  // namespace
}  // namespace spillway::integration
