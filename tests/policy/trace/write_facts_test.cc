#include "policy/trace/write_facts.h"

#include <gtest/gtest.h>

namespace spillway::policy {
namespace {

constexpr LaunchForm kAdd{0x1111, 3};
constexpr LaunchForm kSum{0x2222, 3};

TEST(WriteFactsTest, NothingIsKnownOfAnAccessNobodyLookedAt) {
  WriteFacts facts;
  EXPECT_EQ(facts.Of(kAdd, 0), Writes::kUnknown);
  EXPECT_FALSE(facts.Settled(kAdd, 0));
  EXPECT_EQ(facts.size(), 0u);
}

TEST(WriteFactsTest, OneChangeSaysWritesForEver) {
  WriteFacts facts;
  facts.Record(kAdd, 2, true);
  EXPECT_EQ(facts.Of(kAdd, 2), Writes::kYes);
  for (int i = 0; i < 100; ++i) facts.Record(kAdd, 2, false);
  EXPECT_EQ(facts.Of(kAdd, 2), Writes::kYes);
}

TEST(WriteFactsTest, ReadOnlyIsBelievedAfterThreeLooksAndNotBefore) {
  WriteFacts facts;
  facts.Record(kAdd, 0, false);
  facts.Record(kAdd, 0, false);
  EXPECT_EQ(facts.Of(kAdd, 0), Writes::kUnknown);
  facts.Record(kAdd, 0, false);
  EXPECT_EQ(facts.Of(kAdd, 0), Writes::kNo);
}

TEST(WriteFactsTest, AChangeAfterReadOnlyWasBelievedIsTakenBack) {
  WriteFacts facts;
  for (uint32_t i = 0; i < WriteFacts::kSamplesForNo; ++i) facts.Record(kAdd, 0, false);
  facts.Record(kAdd, 0, true);
  EXPECT_EQ(facts.Of(kAdd, 0), Writes::kYes);
}

TEST(WriteFactsTest, FunctionsAndPlacesAreApart) {
  WriteFacts facts;
  for (uint32_t i = 0; i < WriteFacts::kSamplesForNo; ++i) facts.Record(kAdd, 0, false);
  facts.Record(kAdd, 1, true);
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
  facts.Record(kAdd, 0, false);
  facts.Record(kAdd, 0, false);
  EXPECT_EQ(facts.version(), start);
  facts.Record(kAdd, 0, false);
  EXPECT_EQ(facts.version(), start + 1);  // kNo
  facts.Record(kAdd, 0, false);
  EXPECT_EQ(facts.version(), start + 1);
  facts.Record(kAdd, 0, true);
  EXPECT_EQ(facts.version(), start + 2);  // kYes
  facts.Record(kAdd, 0, true);
  EXPECT_EQ(facts.version(), start + 2);
}

// A small tensor is no block: what is the second block of two may be the third of three.
TEST(WriteFactsTest, SetsOfOtherSizesAreApart) {
  WriteFacts facts;
  facts.Record({0x1111, 2}, 1, true);
  EXPECT_EQ(facts.Of({0x1111, 2}, 1), Writes::kYes);
  EXPECT_EQ(facts.Of(kAdd, 1), Writes::kUnknown);
}

TEST(WriteFactsTest, AGuessAnswersUntilSomethingIsFound) {
  WriteFacts facts;
  facts.Guess({kAdd, 0b011, 0b100});
  EXPECT_EQ(facts.Of(kAdd, 0), Writes::kNo);
  EXPECT_EQ(facts.Of(kAdd, 1), Writes::kNo);
  EXPECT_EQ(facts.Of(kAdd, 2), Writes::kYes);
  for (uint32_t operand = 0; operand < 3; ++operand) EXPECT_FALSE(facts.Settled(kAdd, operand));
  facts.Record(kAdd, 0, true);
  EXPECT_EQ(facts.Of(kAdd, 0), Writes::kYes) << "the guess was wrong";
  facts.Record(kAdd, 1, false);
  EXPECT_EQ(facts.Of(kAdd, 1), Writes::kNo);
  EXPECT_TRUE(facts.Settled(kAdd, 1)) << "one look that agrees is enough";
  for (uint32_t look = 0; look < WriteFacts::kSamplesForNo; ++look) {
    EXPECT_EQ(facts.Of(kAdd, 2), Writes::kYes);
    facts.Record(kAdd, 2, false);
  }
  EXPECT_EQ(facts.Of(kAdd, 2), Writes::kNo) << "as many looks as without a guess";
}

TEST(WriteFactsTest, AGuessThatReadsOnlyIsTakenBackByOneChangeForEver) {
  WriteFacts facts;
  facts.Guess({kAdd, 0b1, 0});
  facts.Record(kAdd, 0, false);
  facts.Record(kAdd, 0, true);
  EXPECT_EQ(facts.Of(kAdd, 0), Writes::kYes);
}

TEST(WriteFactsTest, TheFirstGuessAndWhatWasFoundBeforeCount) {
  WriteFacts facts;
  facts.Record(kSum, 0, true);
  facts.Guess({kAdd, 0b1, 0});
  const uint64_t before = facts.version();
  facts.Guess({kAdd, 0, 0b1});
  facts.Guess({kSum, 0b1, 0});
  EXPECT_EQ(facts.Of(kAdd, 0), Writes::kNo);
  EXPECT_EQ(facts.Of(kSum, 0), Writes::kYes);
  EXPECT_EQ(facts.version(), before);
}

// A damaged or old guess may have bits beyond the set.
TEST(WriteFactsTest, GuessesBeyondTheSetAreLeftOut) {
  WriteFacts facts;
  facts.Guess({{0x1111, 1}, ~uint64_t{0}, 0});
  EXPECT_EQ(facts.size(), 1u);
  facts.Guess({{0x2222, 1000}, ~uint64_t{0}, 0});
  EXPECT_EQ(facts.size(), 1u + FormFacts::kMaxOperands);
}

TEST(WriteFactsTest, OnlyWhatIsSettledIsHandedOn) {
  WriteFacts facts;
  facts.Guess({kSum, 0b1, 0b10});
  facts.Record(kAdd, 2, true);
  for (uint32_t look = 0; look < WriteFacts::kSamplesForNo; ++look) facts.Record(kAdd, 1, false);
  facts.Record(kAdd, 0, false);  // once: not settled
  facts.Record({0x3333, 100}, 70, true);
  EXPECT_EQ(facts.SettledForms(), std::vector<FormFacts>({{kAdd, 0b010, 0b100}}));
  facts.Record(kSum, 0, false);
  EXPECT_EQ(facts.SettledForms().size(), 2u);
}

}  // namespace
}  // namespace spillway::policy
