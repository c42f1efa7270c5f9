#include "integration/profile/job_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "io/store/checksum.h"

namespace spillway::integration {
namespace {

using policy::FormFacts;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

JobFacts Sample() {
  JobFacts facts;
  facts.key = {"2.11.0+cu130", "13.0", "NVIDIA H200"};
  facts.rates = {50e9, 48e9, 40e9, 39e9, 3.2e9, 2.9e9, 0x1234};
  facts.directories = {{0xfedcba9876543210, {.write = 1e8, .read = 2e8}}, {5, {.write = 3e9}}};
  facts.writes = {{{0xfedcba9876543210, 3}, 0b011, 0b100}, {{7, 64}, uint64_t{1} << 63, 1}};
  return facts;
}

TEST(JobFactsTest, ComeBackAsTheyWere) {
  const JobFacts facts = Sample();
  const auto read = ParseProfile(ProfileText(facts));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->key, facts.key);
  EXPECT_EQ(read->rates, facts.rates);
  EXPECT_EQ(read->directories, facts.directories);
  EXPECT_EQ(read->writes, facts.writes);
  EXPECT_EQ(ProfileText(*read), ProfileText(facts));
}

TEST(JobFactsTest, NothingIsAProfileToo) {
  const auto read = ParseProfile(ProfileText({}));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->key, ProfileKey());
  EXPECT_EQ(read->rates, ProfileRates());
  EXPECT_TRUE(read->directories.empty());
  EXPECT_TRUE(read->writes.empty());
}

// A name from the driver must not become lines, and no rate is a number that cannot be read again.
TEST(JobFactsTest, WhateverTheMachineSaysCanBeReadAgain) {
  JobFacts facts;
  facts.key.device = "a\nwrites 1 1 1 0\n" + std::string(1000, 'x');
  facts.rates.link_in = std::numeric_limits<double>::quiet_NaN();
  facts.rates.link_out = std::numeric_limits<double>::infinity();
  facts.rates.disk_in = -1;
  const auto read = ParseProfile(ProfileText(facts));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(read->writes.empty());
  EXPECT_EQ(read->rates, ProfileRates());
  EXPECT_EQ(read->key.device.size(), 256u);
}

TEST(JobFactsTest, AFileHasAtMost64KiBAndTheLatestFacts) {
  JobFacts facts = Sample();
  facts.writes.clear();
  for (uint64_t i = 0; i < 10'000; ++i) facts.writes.push_back({{i, 64}, ~uint64_t{0}, 0});
  const std::string text = ProfileText(facts);
  EXPECT_LE(text.size(), kMaxProfileBytes);
  EXPECT_GT(text.size(), kMaxProfileBytes - 100);
  const auto read = ParseProfile(text);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_GT(read->writes.size(), 1000u);
  for (uint64_t i = 0; i < read->writes.size(); ++i) EXPECT_EQ(read->writes[i].form.tag, i);
  EXPECT_EQ(ParseProfile(text + std::string(kMaxProfileBytes, ' ')).status().code(),
            absl::StatusCode::kDataLoss);
}

TEST(JobFactsTest, AFileHasTheDirectoriesThatWereUsedLast) {
  JobFacts facts;
  for (uint64_t i = 0; i < 100; ++i) facts.directories.push_back({i, {.write = 1e9, .read = 1e9}});
  const auto read = ParseProfile(ProfileText(facts));
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->directories.size(), kMaxProfileDirectories);
  for (uint64_t i = 0; i < kMaxProfileDirectories; ++i) EXPECT_EQ(read->directories[i].directory, i);
}

// Each byte lost or changed is found.
TEST(JobFactsTest, DamageIsFoundWhereverItIs) {
  const std::string whole = ProfileText(Sample());
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_TRUE(absl::IsDataLoss(ParseProfile(whole.substr(0, bytes)).status())) << bytes;
    std::string changed = whole;
    changed[bytes] ^= 1;
    EXPECT_FALSE(ParseProfile(changed).ok()) << bytes;
  }
  EXPECT_TRUE(absl::IsDataLoss(ParseProfile(whole + "\n").status()));
}

TEST(JobFactsTest, RandomBytesAreNoProfile) {
  std::mt19937 random(1);
  for (int i = 0; i < 1000; ++i) {
    std::string text = i % 2 == 0 ? "spillway-profile 2\n" : "";
    for (int k = 0; k < 200; ++k) text += static_cast<char>(random());
    EXPECT_FALSE(ParseProfile(text).ok());
  }
}

std::string WithChecksum(const std::string& text) {
  const io::Checksum sum = io::ComputeChecksum(text.data(), text.size(), kProfileVersion);
  char line[64];
  std::snprintf(line, sizeof(line), "checksum %016llx%016llx\n", static_cast<unsigned long long>(sum.high),
                static_cast<unsigned long long>(sum.low));
  return text + line;
}

// Somebody may make a right checksum for what is none.
TEST(JobFactsTest, LinesThatAreNoneAreRefusedWithARightChecksumToo) {
  const std::string head = "spillway-profile 2\n";
  EXPECT_TRUE(ParseProfile(WithChecksum(head)).ok());
  EXPECT_TRUE(ParseProfile(WithChecksum(head + "writes 1 2 1 2\n")).ok());
  for (const char* line :
       {"writes 1 2 1\n", "writes 1 2 1 1\n", "writes 1 2 1 2 3\n", "writes g 2 1 2\n", "\n", "what\n",
        "writes 10000000000000000 2 1 2\n", "writes 1 -1 0 0\n", "link 1 2 3\n", "link 1 2 3 -4\n",
        "drives 1 2\n", "drives 1 2 99999999999999999\n", "directory 1 2\n", "directory 1 2 3 4\n",
        "directory g 2 3\n", "directory 1 -2 3\n", "writes 1 2 1 2"})
    EXPECT_TRUE(absl::IsDataLoss(ParseProfile(WithChecksum(head + line)).status())) << line;
}

TEST(JobFactsTest, AnotherVersionIsNoDamage) {
  EXPECT_TRUE(absl::IsUnimplemented(ParseProfile(WithChecksum("spillway-profile 3\nwhat comes\n")).status()));
  EXPECT_TRUE(absl::IsDataLoss(ParseProfile("spillway-profile x\n").status()));
}

TEST(JobFactsTest, WhatIsLearntNowComesFirstAndCounts) {
  const FormFacts now{{1, 3}, 0b001, 0b100};
  const FormFacts same_before{{1, 3}, 0b110, 0b001};  // of which place 1 alone is not known now
  const FormFacts other{{1, 2}, 0b01, 0b10};
  EXPECT_THAT(MergedWrites({now}, {other, same_before}), ElementsAre(FormFacts{{1, 3}, 0b011, 0b100}, other));
  EXPECT_THAT(MergedWrites({}, {other}), ElementsAre(other));
}

TEST(DrivesNumberTest, IsThatOfTheDirectoriesInTheirOrder) {
  EXPECT_EQ(DrivesNumber({"/a", "/b"}), DrivesNumber({"/a", "/b"}));
  EXPECT_NE(DrivesNumber({"/a", "/b"}), DrivesNumber({"/b", "/a"}));
  EXPECT_NE(DrivesNumber({"/a", "b"}), DrivesNumber({"/a/b"}));
}

}  // namespace
}  // namespace spillway::integration
