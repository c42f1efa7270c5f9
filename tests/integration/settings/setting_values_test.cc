#include "integration/settings/setting_values.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace spillway::integration {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

uint64_t BytesOf(std::string_view text) {
  auto size = ParseSize(text, Percent::kAccepted);
  EXPECT_TRUE(size.ok()) << text << ": " << size.status();
  return size.ok() ? size->bytes : 0;
}

TEST(ParseSizeTest, ReadsBinaryAndDecimalUnits) {
  EXPECT_EQ(BytesOf("20GiB"), 20 * kGiB);
  EXPECT_EQ(BytesOf("500MB"), 500'000'000u);
  EXPECT_EQ(BytesOf("500 mb"), 500'000'000u);
  EXPECT_EQ(BytesOf(" 1.5TiB "), 1536 * kGiB);
  EXPECT_EQ(BytesOf("2G"), 2 * kGiB);
  EXPECT_EQ(BytesOf("64k"), 65536u);
  EXPECT_EQ(BytesOf("4096"), 4096u);
  EXPECT_EQ(BytesOf("4096B"), 4096u);
  EXPECT_EQ(BytesOf("0"), 0u);
}

TEST(ParseSizeTest, ReadsShares) {
  auto share = ParseSize("60%", Percent::kAccepted);
  ASSERT_TRUE(share.ok());
  EXPECT_EQ(share->Of(1000), 600u);
  EXPECT_EQ(ParseSize("100%", Percent::kAccepted)->Of(kGiB), kGiB);
  EXPECT_EQ(ParseSize("12.5 %", Percent::kAccepted)->Of(1000), 125u);
}

TEST(ParseSizeTest, RefusesEveryWrongForm) {
  for (const char* text :
       {"",       " ",    "GiB",    "20 apples",   "-1GiB", "-0",   "1e3", "1GiB2", "nan", "inf",  "0x10",
        "20GiBB", "20GI", "1,5GiB", "99999999TiB", "0%",    "101%", "-5%", "%",     "5%%", "+5GiB"}) {
    EXPECT_FALSE(ParseSize(text, Percent::kAccepted).ok()) << text;
  }
  EXPECT_FALSE(ParseSize("60%", Percent::kRefused).ok());
}

TEST(ParseSizeTest, RefusesPartsOfAByte) {
  for (const char* text : {"0.1", "0.6", "1.5", "20.5B", "0.0001KB", "0.0000001MiB"}) {
    const auto size = ParseSize(text, Percent::kAccepted);
    ASSERT_FALSE(size.ok()) << text;
    EXPECT_NE(size.status().message().find("whole bytes; or a share such as 60%"), std::string::npos);
    EXPECT_FALSE(ParseSize(text, Percent::kRefused).ok()) << text;
  }
  EXPECT_EQ(BytesOf("4096.0"), 4096u);
  EXPECT_EQ(BytesOf("0.5KiB"), 512u);
  EXPECT_EQ(BytesOf("1.1KiB"), 1126u) << "with a unit, parts of a byte are nobody's intent";
  EXPECT_EQ(BytesOf("0.0GiB"), 0u);
}

TEST(ParseSwitchTest, TakesFourWordsInAnyCase) {
  EXPECT_EQ(ParseSwitch("on").value(), true);
  EXPECT_EQ(ParseSwitch("1").value(), true);
  EXPECT_EQ(ParseSwitch("OFF").value(), false);
  EXPECT_EQ(ParseSwitch(" 0 ").value(), false);
  for (const char* text : {"", "yes", "true", "2", "onn"}) EXPECT_FALSE(ParseSwitch(text).ok()) << text;
}

TEST(ParseWordTest, NamesTheChoices) {
  EXPECT_EQ(ParseWord("LRU", {"plan", "lru"}).value(), 1u);
  const auto refused = ParseWord("fifo", {"plan", "lru"});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().message(), "plan or lru");
}

TEST(ParseDirectoriesTest, ReadsCapsAndRanks) {
  const auto ranks = ParseDirectories("/a, /b:2TiB;/c:500MB").value();
  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_EQ(ranks[0], (std::vector<DirectoryEntry>{{"/a", 0}, {"/b", 2048 * kGiB}}));
  EXPECT_EQ(ranks[1], (std::vector<DirectoryEntry>{{"/c", 500'000'000}}));
}

TEST(ParseDirectoriesTest, NoneIsOneEmptyList) {
  const auto ranks = ParseDirectories("None").value();
  ASSERT_EQ(ranks.size(), 1u);
  EXPECT_TRUE(ranks[0].empty());
}

TEST(ParseDirectoriesTest, RefusesEveryWrongForm) {
  for (const char* text : {"", ",", "/a,", ";/a", "/a;", "relative", "/a:", "/a:big", "/a:60%", "/a:0",
                           "/a:0.5", "/a:500", "/a:1MiB", ":2TiB", "/a,/a", "none,/a"}) {
    EXPECT_FALSE(ParseDirectories(text).ok()) << text;
  }
}

TEST(ParseDurationTest, ReadsNumbersWithUnits) {
  using std::chrono::nanoseconds;
  EXPECT_EQ(*ParseDuration("30s"), nanoseconds(30'000'000'000));
  EXPECT_EQ(*ParseDuration(" 1.5 min "), nanoseconds(90'000'000'000));
  EXPECT_EQ(*ParseDuration("250ms"), nanoseconds(250'000'000));
  EXPECT_EQ(*ParseDuration("2H"), nanoseconds(7'200'000'000'000));
  EXPECT_EQ(*ParseDuration("none"), nanoseconds::zero());
}

TEST(ParseDurationTest, RefusesEveryWrongForm) {
  for (const char* text :
       {"", "30", "s", "-5s", "0s", "10us", "9000h", "30 seconds", "30s5", "nan s", "inf s"}) {
    EXPECT_FALSE(ParseDuration(text).ok()) << text;
  }
}

TEST(ParseDiskModelsTest, ReadsRatesAndLatency) {
  const auto models = ParseDiskModels("read:1.2e9,write:800MB,latency:80us");
  ASSERT_TRUE(models.ok()) << models.status();
  EXPECT_EQ(models->all.read_bytes_per_second, 1.2e9);
  EXPECT_EQ(models->all.write_bytes_per_second, 8e8);
  EXPECT_EQ(models->all.latency_nanos, 80'000);
  EXPECT_EQ(models->Of(3).read_bytes_per_second, 1.2e9);
  EXPECT_EQ(ParseDiskModels(" Latency : 0.5 ms ")->all.latency_nanos, 500'000);
  EXPECT_EQ(ParseDiskModels("read:1GiB")->all.write_bytes_per_second, 0) << "what is left out is not limited";
  EXPECT_FALSE(ParseDiskModels("none")->Limits());
}

TEST(ParseDiskModelsTest, ReadsThemOfOneDirectory) {
  const auto models = ParseDiskModels("1@read:300MB, latency:80us,0@read:100MB,1@latency:1ms");
  ASSERT_TRUE(models.ok()) << models.status();
  EXPECT_TRUE(models->Limits());
  EXPECT_EQ(models->Of(0).read_bytes_per_second, 1e8);
  EXPECT_EQ(models->Of(0).latency_nanos, 80'000);
  EXPECT_EQ(models->Of(1).read_bytes_per_second, 3e8);
  EXPECT_EQ(models->Of(1).latency_nanos, 1'000'000);
  EXPECT_EQ(models->Of(2).read_bytes_per_second, 0);
  EXPECT_TRUE(ParseDiskModels("1@write:1e9")->Limits());
  EXPECT_FALSE(ParseDiskModels("1@write:1e9")->Of(0).Limits());
  EXPECT_EQ(io::DescribeModels(*ParseDiskModels("latency:80us,1@read:300MB")),
            "latency 80 us; directory 1: read 0.30 GB/s");
}

TEST(ParseDiskModelsTest, RefusesEveryWrongForm) {
  for (const char* text : {"",
                           "read",
                           "read:",
                           "read:0",
                           "read:-1e9",
                           "read:999999",
                           "read:1e13",
                           "read:fast",
                           "read:1e9,read:1e9",
                           "read:1e9,",
                           "latency:80",
                           "latency:2s",
                           "latency:0us",
                           "reed:1e9",
                           "read:1e9;write:1e9",
                           "read:nan",
                           "read:inf",
                           "read:1e9 apples",
                           "on",
                           "@read:1e9",
                           "a@read:1e9",
                           "-1@read:1e9",
                           "1@read:1e9,1@read:2e9",
                           "1@",
                           "1@none"}) {
    EXPECT_FALSE(ParseDiskModels(text).ok()) << text;
  }
}

TEST(ParseDriveFaultsTest, ReadsFaultsOfEachDirectoryAndOfOne) {
  const auto faults = ParseDriveFaults("read:EIO:3s:30ms, 1@All:silence:0s:1.5min");
  ASSERT_TRUE(faults.ok()) << faults.status();
  ASSERT_EQ(faults->size(), 2u);
  EXPECT_FALSE((*faults)[0].directory.has_value());
  EXPECT_TRUE((*faults)[0].reads && !(*faults)[0].writes);
  EXPECT_EQ((*faults)[0].error, EIO);
  EXPECT_EQ((*faults)[0].from_nanos, 3'000'000'000);
  EXPECT_EQ((*faults)[0].for_nanos, 30'000'000);
  EXPECT_EQ((*faults)[1].directory, 1u);
  EXPECT_TRUE((*faults)[1].reads && (*faults)[1].writes);
  EXPECT_EQ((*faults)[1].error, 0);
  EXPECT_EQ((*faults)[1].from_nanos, 0);
  EXPECT_EQ((*faults)[1].for_nanos, 90'000'000'000);
  EXPECT_TRUE(ParseDriveFaults("none")->empty());
}

TEST(ParseDriveFaultsTest, RefusesEveryWrongForm) {
  for (const char* text : {"", "read", "read:EIO", "read:EIO:3s", "reed:EIO:3s:1s", "read:EWHAT:3s:1s",
                           "read::3s:1s", "read:EIO:x:1s", "read:EIO:3s:0s", "read:EIO:3s:1s:1s",
                           "a@read:EIO:3s:1s", "read:EIO:3s:1s,", "@read:EIO:3s:1s", "read:EIO:3:1s"}) {
    EXPECT_FALSE(ParseDriveFaults(text).ok()) << text;
  }
}

}  // namespace
}  // namespace spillway::integration
