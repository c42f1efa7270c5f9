#include "integration/cli/common/json_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spillway::integration {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class JsonFieldsTest : public ::testing::Test {
 protected:
  JsonFields Of(const char* text) {
    json_ = nlohmann::json::parse(text);
    return JsonFields(json_, "at", &status_);
  }
  std::string Message() const { return std::string(status_.message()); }

  nlohmann::json json_;
  absl::Status status_;
};

TEST_F(JsonFieldsTest, ReadsEachType) {
  const JsonFields fields =
      Of(R"({"n": 1.5, "b": true, "t": "x", "list": [1, 2], "o": {"a": 3}, "i": [-1, 1]})");
  EXPECT_EQ(fields.Number("n"), 1.5);
  EXPECT_EQ(fields.Bool("b"), true);
  EXPECT_EQ(fields.Text("t"), "x");
  EXPECT_THAT(fields.Numbers("list"), ElementsAre(1, 2));
  EXPECT_EQ(fields.Object("o")->Number("a"), 3);
  EXPECT_THAT(fields.Object("o")->NumberMembers(), ElementsAre(std::make_pair("a", 3.0)));
  EXPECT_THAT(fields.Indexes("i", 2), ElementsAre(std::nullopt, 1u));
  EXPECT_TRUE(status_.ok());
}

TEST_F(JsonFieldsTest, WhatIsAbsentIsNoError) {
  const JsonFields fields = Of("{}");
  EXPECT_FALSE(fields.Number("n") || fields.Bool("b") || fields.Object("o") || fields.Has("x"));
  EXPECT_THAT(fields.Text("t"), IsEmpty());
  EXPECT_THAT(fields.Texts("t"), IsEmpty());
  EXPECT_THAT(fields.Numbers("list"), IsEmpty());
  EXPECT_THAT(fields.Indexes("i", 1), IsEmpty());
  EXPECT_THAT(fields.Objects("o"), IsEmpty());
  EXPECT_TRUE(status_.ok());
}

TEST_F(JsonFieldsTest, TheFirstErrorIsKept) {
  const JsonFields fields = Of(R"({"n": "x", "list": 3, "o": {"deep": [1, {}]}})");
  EXPECT_FALSE(fields.Object("o")->Number("deep"));
  EXPECT_FALSE(fields.Number("n"));
  EXPECT_THAT(fields.Numbers("list"), IsEmpty());
  EXPECT_EQ(Message(), "at.o.deep is of type array; expected: a number of 0 or more");
}

TEST_F(JsonFieldsTest, AnIndexBeyondItsListIsAnError) {
  EXPECT_THAT(Of(R"({"i": [0, 2]})").Indexes("i", 2), ElementsAre(0u));
  EXPECT_EQ(Message(), "at.i[1] is 2; expected: a whole number below 2, the length of its list");
}

TEST_F(JsonFieldsTest, ColumnsOfOtherLengthsAreAnError) {
  Of(R"({"a": [1, 2], "c": [1, 2, 3]})").CheckEqualRows({"a", "b", "c"});
  EXPECT_EQ(Message(), "at.c is a list of 3; expected: 2, as of at.a");
}

}  // namespace
}  // namespace spillway::integration
