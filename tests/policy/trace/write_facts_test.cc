#include "policy/trace/write_facts.h"

#include <gtest/gtest.h>

namespace spillway::policy {
namespace {

constexpr uint64_t kAdd = 0x1111;
constexpr uint64_t kSum = 0x2222;

TEST(WriteFactsTest, NothingIsKnownOfAnAccessNobodyLookedAt) {
  WriteFacts facts;
  EXPECT_EQ(facts.Of(kAdd, 0), Writes::kUnknown);
  EXPECT_FALSE(facts.Settled(kAdd, 0));
  EXPECT_EQ(facts.size(), 0u);
}

TEST(WriteFactsTest, OneChangeSaysWritesForEver) {
  WriteFacts facts;
  facts.Note(kAdd, 2, true);
  EXPECT_EQ(facts.Of(kAdd, 2), Writes::kYes);
  for (int i = 0; i < 100; ++i) facts.Note(kAdd, 2, false);
  EXPECT_EQ(facts.Of(kAdd, 2), Writes::kYes);
}

TEST(WriteFactsTest, ReadOnlyIsBelievedAfterThreeLooksAndNotBefore) {
  WriteFacts facts;
  facts.Note(kAdd, 0, false);
  facts.Note(kAdd, 0, false);
  EXPECT_EQ(facts.Of(kAdd, 0), Writes::kUnknown);
  facts.Note(kAdd, 0, false);
  EXPECT_EQ(facts.Of(kAdd, 0), Writes::kNo);
}

TEST(WriteFactsTest, AChangeAfterReadOnlyWasBelievedIsTakenBack) {
  WriteFacts facts;
  for (uint32_t i = 0; i < WriteFacts::kLooksForNo; ++i) facts.Note(kAdd, 0, false);
  facts.Note(kAdd, 0, true);
  EXPECT_EQ(facts.Of(kAdd, 0), Writes::kYes);
}

TEST(WriteFactsTest, FunctionsAndPlacesAreApart) {
  WriteFacts facts;
  for (uint32_t i = 0; i < WriteFacts::kLooksForNo; ++i) facts.Note(kAdd, 0, false);
  facts.Note(kAdd, 1, true);
  EXPECT_EQ(facts.Of(kAdd, 0), Writes::kNo);
  EXPECT_EQ(facts.Of(kAdd, 1), Writes::kYes);
  EXPECT_EQ(facts.Of(kAdd, 2), Writes::kUnknown);
  EXPECT_EQ(facts.Of(kSum, 0), Writes::kUnknown);
  EXPECT_EQ(facts.Of(kSum, 1), Writes::kUnknown);
  EXPECT_EQ(facts.size(), 2u);
}

TEST(WriteFactsTest, TheVersionTellsWhenAnAnswerHasChanged) {
  WriteFacts facts;
  const uint64_t start = facts.version();
  facts.Note(kAdd, 0, false);
  facts.Note(kAdd, 0, false);
  EXPECT_EQ(facts.version(), start);
  facts.Note(kAdd, 0, false);
  EXPECT_EQ(facts.version(), start + 1);  // kNo
  facts.Note(kAdd, 0, false);
  EXPECT_EQ(facts.version(), start + 1);
  facts.Note(kAdd, 0, true);
  EXPECT_EQ(facts.version(), start + 2);  // kYes
  facts.Note(kAdd, 0, true);
  EXPECT_EQ(facts.version(), start + 2);
}

}  // namespace
}  // namespace spillway::policy
