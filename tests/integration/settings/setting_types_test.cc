#include "integration/settings/setting_types.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spillway::integration::setting_type {
namespace {

using ::testing::ElementsAre;

enum class Color : uint8_t { kOn, kOff, kGreen };

TEST(WordsOfTest, AreThoseOfTheColumn) {
  EXPECT_THAT(WordsOf("plan or lru"), ElementsAre("plan", "lru"));
  EXPECT_THAT(WordsOf("off, error, warn, info or debug"),
              ElementsAre("off", "error", "warn", "info", "debug"));
}

TEST(WordTest, IsTheEnumeratorAtThePlaceOfTheWord) {
  EXPECT_EQ(Word<Color>::Read("Green", "on, off or green").value(), Color::kGreen);
  EXPECT_EQ(Word<Color>::Read("1", "on, off or green").status().message(), "on, off or green");
}

TEST(SwitchOrWordTest, TakesNumbersForOnAndOff) {
  EXPECT_EQ(SwitchOrWord<Color>::Read("1", "on, off or green").value(), Color::kOn);
  EXPECT_EQ(SwitchOrWord<Color>::Read("0", "on, off or green").value(), Color::kOff);
  EXPECT_EQ(SwitchOrWord<Color>::Read("green", "on, off or green").value(), Color::kGreen);
  EXPECT_EQ(SwitchOrWord<Color>::Read("2", "on, off or green").status().message(), "on, off or green");
}

TEST(SizeTypesTest, DifferInSharesAndInTheLeast) {
  EXPECT_EQ(PlainSize::Read("0", "").value()->bytes, 0u);
  EXPECT_FALSE(PlainSize::Read("5%", "").ok());
  EXPECT_EQ(Share::Read("5%", "").value()->percent, 5);
  EXPECT_EQ(Share::Read("0", "").value()->bytes, 0u);
  EXPECT_EQ(ShareAboveZero::Read("64MiB", "").value()->bytes, uint64_t{64} << 20);
  EXPECT_EQ(ShareAboveZero::Read("1%", "").value()->percent, 1);
  EXPECT_FALSE(ShareAboveZero::Read("63MiB", "").ok());
  EXPECT_EQ(PlainSize::Read("2MiB", "").value()->bytes, kMinSize);
  EXPECT_EQ(Share::Read("2MiB", "").value()->bytes, kMinSize);
  for (const char* text : {"1", "20", "2000KiB", "0.5"}) {
    EXPECT_FALSE(PlainSize::Read(text, "").ok()) << text;
    EXPECT_FALSE(Share::Read(text, "").ok()) << text;
    EXPECT_FALSE(ShareAboveZero::Read(text, "").ok()) << text;
  }
}

TEST(PathTypesTest, DifferInNone) {
  for (const char* text : {"none", "None", " NONE ", "off", "OFF", "0"})
    EXPECT_EQ(PathOrNone::Read(text, "").value(), "") << text;
  for (const char* text : {"on", "On", "1"})
    EXPECT_EQ(PathOrNone::Read(text, "").status().message(), "a path, or none") << text;
  EXPECT_EQ(PathOrNone::Read("./on", "").value(), "./on");
  EXPECT_EQ(PathOrNone::Read("/a b", "").value(), "/a b");
  for (const char* text : {"", "a\nb"}) {
    EXPECT_FALSE(PathOrNone::Read(text, "").ok());
    EXPECT_EQ(UnjudgedPath::Read(text, "").value(), text);
  }
}

TEST(PathTypesTest, OffIsNotWhatNobodyHasSet) {
  for (const char* text : {"none", " OFF ", "0"}) EXPECT_EQ(PathOrOff::Read(text, "").value(), "") << text;
  EXPECT_EQ(PathOrOff::Read("/a b", "").value(), "/a b");
  for (const char* text : {"on", "1", "", "a\nb"})
    EXPECT_EQ(PathOrOff::Read(text, "").status().message(), "a path, or off") << text;
  EXPECT_FALSE(Default<PathOrOff>("a file", "a path, or off"));
}

TEST(DefaultTest, IsEmptyWhereATypeHasThat) {
  EXPECT_FALSE(Default<Share>("a quarter", "a size or a share"));
  EXPECT_FALSE(Default<Directories>("/var/tmp", "directories"));
  EXPECT_EQ(Default<UnjudgedPath>("as it is found", "a path"), "");
}

TEST(DefaultTest, IsReadWhereATypeHasNot) {
  EXPECT_TRUE(Default<Switch>("on", ""));
  EXPECT_EQ(Default<Word<Color>>("green", "on, off or green"), Color::kGreen);
  EXPECT_EQ(Default<Duration>("30s", ""), std::chrono::seconds(30));
  EXPECT_FALSE(Default<ModelledDisk>("none", "").Limits());
}

}  // namespace
}  // namespace spillway::integration::setting_type
