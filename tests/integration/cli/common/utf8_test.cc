#include "integration/cli/common/utf8.h"

#include <gtest/gtest.h>

namespace spillway::integration {
namespace {

constexpr char kLost[] = "\xEF\xBF\xBD";

TEST(Utf8Test, KeepsWhatIsUtf8) {
  for (const char* text :
       {"", "plain", "\xC3\xA9", "\xE2\x86\x92", "\xF0\x9F\x98\x80", "\xED\x9F\xBF", "\xF4\x8F\xBF\xBF"})
    EXPECT_EQ(ValidUtf8(text), text);
}

TEST(Utf8Test, ReplacesEachByteThatIsNone) {
  const std::string lost = kLost;
  EXPECT_EQ(ValidUtf8("a\xFF"
                      "b"),
            "a" + lost + "b");
  EXPECT_EQ(ValidUtf8("\xE2\x86"), lost + lost);                        // cut off
  EXPECT_EQ(ValidUtf8("\xC0\xAF"), lost + lost);                        // longer than needed
  EXPECT_EQ(ValidUtf8("\xE0\x80\xAF"), lost + lost + lost);             // likewise
  EXPECT_EQ(ValidUtf8("\xED\xA0\x80"), lost + lost + lost);             // a surrogate
  EXPECT_EQ(ValidUtf8("\xF4\x90\x80\x80"), lost + lost + lost + lost);  // above U+10FFFF
  EXPECT_EQ(ValidUtf8("\xF0\x80\x80\x80"), lost + lost + lost + lost);
  EXPECT_EQ(ValidUtf8("\x80z"), lost + "z");
}

TEST(Utf8Test, ATerminalGetsNoControls) {
  EXPECT_EQ(WithoutControls("a\x1b[2Jb\n\x7F\r"), "a?[2Jb???");
  EXPECT_EQ(WithoutControls("\xC2\x9B"
                            "2J"),
            "?2J");                                                    // CSI in one character
  EXPECT_EQ(WithoutControls("\xC2\xA0\xC3\x9B"), "\xC2\xA0\xC3\x9B");  // these are letters
  EXPECT_EQ(WithoutControls("\xC2"), "\xC2");
}

TEST(Utf8Test, KeepsBytesOfZero) {
  const std::string text("a\0b", 3);
  EXPECT_EQ(ValidUtf8(text), text);
}

}  // namespace
}  // namespace spillway::integration
