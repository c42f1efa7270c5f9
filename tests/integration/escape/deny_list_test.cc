#include "integration/escape/deny_list.h"

#include <gtest/gtest.h>

namespace spillway::integration {
namespace {

std::string ErrorOf(std::string_view text) {
  DenyList list;
  return std::string(list.Add(text, "list").message());
}

TEST(DenyListTest, MatchesWholeNamesAndTrailingStars) {
  DenyList list;
  ASSERT_TRUE(
      list.Add("# head\n\n  exact  # why\nfront* \r\n\twith lib.so.1\nother lib*\n* all.so", "list").ok());
  EXPECT_EQ(list.entries().size(), 5u);
  EXPECT_NE(list.Match("exact", ""), nullptr);
  EXPECT_EQ(list.Match("exactly", ""), nullptr);
  EXPECT_EQ(list.Match("exac", ""), nullptr);
  EXPECT_NE(list.Match("front", "any.so"), nullptr);
  EXPECT_NE(list.Match("front_and_more", ""), nullptr);
  EXPECT_EQ(list.Match("with", ""), nullptr) << "the library is not known";
  EXPECT_NE(list.Match("with", "lib.so.1"), nullptr);
  EXPECT_EQ(list.Match("with", "lib.so.12"), nullptr);
  EXPECT_NE(list.Match("other", "lib.so.12"), nullptr);
  EXPECT_NE(list.Match("anything", "all.so"), nullptr);
  EXPECT_EQ(list.Match("anything", "one.so"), nullptr);
  EXPECT_EQ(list.Match("", ""), nullptr);
  EXPECT_TRUE(list.NamesLibraries());
  EXPECT_EQ(list.Match("exact", "")->origin, "list:3");
}

TEST(DenyListTest, RefusesBadLinesWithPlaceAndWhatIsAccepted) {
  for (const char* bad :
       {"one two three", "a*b", "name lib*so", "na/me", "name /usr/lib.so", "con\x01trol"}) {
    const std::string error = ErrorOf(std::string("good\n# c\n") + bad + "\n");
    EXPECT_EQ(error.rfind("list:3: ", 0), 0u) << error;
    EXPECT_NE(error.find("accepted: "), std::string::npos) << error;
  }
  EXPECT_LT(ErrorOf(std::string(100'000, 'x') + "*y").size(), 400u);
  EXPECT_EQ(ErrorOf(""), "");
  EXPECT_EQ(ErrorOf("\n\n#\n"), "");
}

TEST(DenyListTest, ShippedListIsGood) {
  DenyList list;
  EXPECT_TRUE(list.Add(DenyList::Shipped(), "shipped").ok());
}

TEST(DenyListTest, LinesAreReadBack) {
  DenyList list;
  ASSERT_TRUE(
      list.Add(DenyListLine("_Z3foov", "libfoo.so", "audit: foo(int *, void)") + DenyListLine("bar", "", ""),
               "list")
          .ok());
  EXPECT_NE(list.Match("_Z3foov", "libfoo.so"), nullptr);
  EXPECT_NE(list.Match("bar", ""), nullptr);
  EXPECT_EQ(list.entries().size(), 2u);
}

}  // namespace
}  // namespace spillway::integration
