#include "policy/trace/sequences.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/policy/trace_helpers.h"

namespace spillway::policy {
namespace {

// The place after the last of these launches.
std::optional<SequencePlace> After(KnownSequences* sequences, const Letters& letters) {
  for (const uint64_t letter : letters) sequences->Record(letter);
  return sequences->Recognize();
}

TEST(KnownSequencesTest, IdsAreNotGivenAgainWhenAllIsForgotten) {
  KnownSequences sequences;
  const SequenceId before = sequences.Add(Range(0, 10)).sequence;
  sequences.Clear();
  EXPECT_EQ(sequences.size(), 0u);
  EXPECT_FALSE(sequences.Contains(before));
  EXPECT_FALSE(After(&sequences, {4, 5}).has_value());
  EXPECT_NE(sequences.Add(Range(100, 10)).sequence, before);
}

TEST(KnownSequencesTest, KnowsAPlaceByTwoLaunchesThatStandNowhereElse) {
  KnownSequences sequences;
  const SequenceId a = sequences.Add(Range(0, 10)).sequence;
  sequences.Add(Range(100, 10));
  EXPECT_FALSE(After(&sequences, {4}).has_value());
  const auto place = After(&sequences, {5});
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->sequence, a);
  EXPECT_EQ(place->position, 5u);
  EXPECT_EQ(place->run, 2u);
  EXPECT_TRUE(place->clear);
  EXPECT_FALSE(After(&sequences, {999}).has_value());
  EXPECT_FALSE(After(&sequences, {7}).has_value());
}

TEST(KnownSequencesTest, ARunGoesOnOverTheEndOfASequence) {
  KnownSequences sequences;
  sequences.Add(Range(0, 10));
  const auto place = After(&sequences, {8, 9, 0});
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->position, 0u);
  EXPECT_EQ(place->run, 3u);
}

TEST(KnownSequencesTest, SequencesWithACommonPartAreDistinguishedByWhatCameBefore) {
  // x and y, and then the same twelve launches.
  KnownSequences sequences;
  Letters first = Range(0, 4), second = Range(50, 4);
  for (const uint64_t letter : Range(100, 12)) {
    first.push_back(letter);
    second.push_back(letter);
  }
  sequences.Add(first);
  const SequenceId b = sequences.Add(second).sequence;
  EXPECT_FALSE(
      After(&sequences, {53, 100, 101, 102, 103, 104, 105}).has_value());  // seven, and more than one place
  const auto place = After(&sequences, {106});
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->sequence, b);
  EXPECT_EQ(place->position, 10u);
  EXPECT_EQ(place->run, 8u);
  EXPECT_TRUE(place->clear);
}

TEST(KnownSequencesTest, AfterLongDoubtItTakesThePlaceWhereSequencesAreEntered) {
  // Four equal micro-batches of ten and an update of five; the job comes from elsewhere.
  KnownSequences sequences;
  Letters iteration;
  for (int i = 0; i < 4; ++i) {
    for (const uint64_t letter : Range(0, 10)) iteration.push_back(letter);
  }
  for (const uint64_t letter : Range(100, 5)) iteration.push_back(letter);
  const SequenceId a = sequences.Add(iteration).sequence;
  After(&sequences, {900});
  EXPECT_FALSE(After(&sequences, Range(0, 10)).has_value());
  const auto guess = After(&sequences, Range(0, 6));  // 16 launches, from the beginning of a micro-batch on
  ASSERT_TRUE(guess.has_value());
  EXPECT_FALSE(guess->clear);
  EXPECT_EQ(guess->position, 15u);  // in the second: 16 launches from the sequence's beginning
  // Entered elsewhere before, so elsewhere again.
  sequences.RecordEntry(a, 20);
  After(&sequences, {900});
  After(&sequences, Range(0, 10));
  EXPECT_EQ(After(&sequences, Range(0, 6))->position, 35u);
}

TEST(KnownSequencesTest, AfterLongDoubtItTakesTheSequenceFollowedLast) {
  KnownSequences sequences;
  Letters first = Range(0, 4), second = Range(50, 4);
  for (const uint64_t letter : Range(100, 30)) {
    first.push_back(letter);
    second.push_back(letter);
  }
  const SequenceId a = sequences.Add(first).sequence;
  const SequenceId b = sequences.Add(second).sequence;
  After(&sequences, {900});
  EXPECT_EQ(After(&sequences, Range(100, 16))->sequence, b);
  sequences.RecordFollowed(a, 5);
  EXPECT_EQ(After(&sequences, Range(116, 1))->sequence, a);
}

TEST(KnownSequencesTest, ALaunchMoreOrLessLeadsBackToTheSamePlace) {
  // Each launch comes twice in the sequence, so only the place where it was left says which is meant.
  KnownSequences sequences;
  Letters iteration = Range(0, 40);
  for (const uint64_t letter : Range(0, 40)) iteration.push_back(letter);
  iteration.push_back(500);
  const SequenceId a = sequences.Add(iteration).sequence;
  After(&sequences, Range(0, 20));
  sequences.RecordLeft(a, 60, 200);  // launch 20 of the second half is expected
  EXPECT_FALSE(After(&sequences, {777}).has_value());
  EXPECT_FALSE(After(&sequences, {20}).has_value());
  const auto more = After(&sequences, {21});
  ASSERT_TRUE(more.has_value());
  EXPECT_EQ(more->position, 61u);
  sequences.RecordLeft(a, 62, 200);
  EXPECT_FALSE(After(&sequences, {24}).has_value());  // 22 and 23 are missing
  const auto less = After(&sequences, {25});
  ASSERT_TRUE(less.has_value());
  EXPECT_EQ(less->position, 65u);
}

TEST(KnownSequencesTest, KnowsASequenceInAnyRotation) {
  KnownSequences sequences;
  const auto added = sequences.Add(Letters{1, 2, 3, 4});
  EXPECT_TRUE(added.is_new);
  EXPECT_EQ(added.position, 0u);
  const auto again = sequences.Add(Letters{3, 4, 1, 2});
  EXPECT_FALSE(again.is_new);
  EXPECT_EQ(again.sequence, added.sequence);
  EXPECT_EQ(again.position, 2u);
  EXPECT_TRUE(sequences.Add(Letters{1, 2, 4, 3}).is_new);
  EXPECT_EQ(sequences.size(), 2u);
}

TEST(KnownSequencesTest, ForgetsWhatWasFollowedLeastLately) {
  KnownSequences sequences(SequenceOptions{.most_sequences = 3});
  const SequenceId a = sequences.Add(Range(0, 4)).sequence;
  const SequenceId b = sequences.Add(Range(10, 4)).sequence;
  const SequenceId c = sequences.Add(Range(20, 4)).sequence;
  for (const SequenceId sequence : {b, c, a}) sequences.RecordFollowed(sequence, 8);
  const SequenceId d = sequences.Add(Range(30, 4)).sequence;
  EXPECT_FALSE(sequences.Contains(b));
  EXPECT_FALSE(After(&sequences, {10, 11, 12}).has_value());
  for (const SequenceId sequence : {a, c, d}) EXPECT_TRUE(sequences.Contains(sequence));
  EXPECT_TRUE(After(&sequences, {20, 21}).has_value());
}

TEST(KnownSequencesTest, ManySequencesThatWereNeverFollowedAreForgottenFirst) {
  KnownSequences sequences(SequenceOptions{.most_sequences = 4});
  const SequenceId kept = sequences.Add(Range(0, 4)).sequence;
  sequences.RecordFollowed(kept, 4);
  for (uint64_t i = 1; i < 20; ++i) sequences.Add(Range(100 * i, 4));
  EXPECT_TRUE(sequences.Contains(kept));
  EXPECT_EQ(sequences.size(), 4u);
}

TEST(KnownSequencesTest, LaunchesOfAllSequencesAreBounded) {
  KnownSequences sequences(SequenceOptions{.most_launches = 100});
  EXPECT_EQ(sequences.Add(Range(0, 101)).sequence, kNoSequence);
  EXPECT_EQ(sequences.Add({}).sequence, kNoSequence);
  const SequenceId a = sequences.Add(Range(0, 60)).sequence;
  const SequenceId b = sequences.Add(Range(1000, 60)).sequence;
  EXPECT_FALSE(sequences.Contains(a));
  EXPECT_TRUE(sequences.Contains(b));
}

TEST(KnownSequencesTest, ASequenceThatIsLeftSoonEachTimeNeedsLongerRuns) {
  KnownSequences sequences;
  const SequenceId a = sequences.Add(Range(0, 100)).sequence;
  sequences.RecordLeft(a, 5, 5);
  sequences.RecordLeft(a, 5, 5);
  EXPECT_FALSE(After(&sequences, Range(0, 15)).has_value());
  EXPECT_TRUE(After(&sequences, {15}).has_value());
  sequences.RecordFollowed(a, 100);
  sequences.ForgetLatest();
  EXPECT_TRUE(After(&sequences, {1, 2}).has_value());
}

TEST(KnownSequencesTest, WhatCameBeforeAGapDoesNotCount) {
  KnownSequences sequences;
  sequences.Add(Range(0, 10));
  After(&sequences, {3});
  sequences.ForgetLatest();
  EXPECT_FALSE(sequences.Recognize().has_value());
  EXPECT_FALSE(After(&sequences, {4}).has_value());
  EXPECT_TRUE(After(&sequences, {5}).has_value());
}

TEST(KnownSequencesTest, ALaunchOfTooManyPlacesSaysNothing) {
  KnownSequences sequences;
  Letters iteration(65, 7);
  iteration.push_back(8);
  sequences.Add(iteration);
  EXPECT_FALSE(After(&sequences, Letters(70, 7)).has_value());
  EXPECT_TRUE(After(&sequences, {8}).has_value());
}

// All places, each compared launch by launch.
struct BruteForce {
  std::vector<std::pair<SequenceId, Letters>> sequences;
  Letters past;

  uint32_t RunAt(const Letters& sequence, size_t position) const {
    uint32_t run = 0;
    while (run < past.size() && run < KnownSequences::kLongestRun &&
           past[past.size() - 1 - run] ==
               sequence[(position + sequence.size() * (run + 1) - run) % sequence.size()]) {
      ++run;
    }
    return run;
  }
};

TEST(KnownSequencesTest, AgreesWithASearchThroughAllPlaces) {
  std::mt19937_64 random(11);
  uint64_t recognised = 0, clear = 0;
  for (int round = 0; round < 60; ++round) {
    KnownSequences known(SequenceOptions{.most_sequences = 6});
    BruteForce brute;
    const uint64_t alphabet = 3 + random() % 40;
    const auto make = [&] {
      Letters sequence(2 + random() % 40);
      for (uint64_t& letter : sequence) letter = random() % alphabet;
      return sequence;
    };
    for (int i = 0; i < 9; ++i) {
      const Letters sequence = make();
      const auto added = known.Add(sequence);
      if (added.is_new) brute.sequences.push_back({added.sequence, sequence});
      std::erase_if(brute.sequences, [&](const auto& one) { return !known.Contains(one.first); });
    }
    ASSERT_EQ(brute.sequences.size(), known.size());
    for (int i = 0; i < 600; ++i) {
      // Along some sequence for a while, now and then a launch that is not of it.
      const Letters& sequence = brute.sequences[random() % brute.sequences.size()].second;
      size_t at = random() % sequence.size();
      for (uint64_t iterations = 1 + random() % 30; iterations > 0; --iterations, ++at) {
        const uint64_t letter = random() % 20 == 0 ? random() % alphabet : sequence[at % sequence.size()];
        known.Record(letter);
        brute.past.push_back(letter);
        uint32_t longest = 0, places = 0, best = 0;
        for (const auto& [id, other] : brute.sequences) {
          for (size_t position = 0; position < other.size(); ++position) {
            if (other[position] != letter) continue;
            ++places;
            const uint32_t run = brute.RunAt(other, position);
            if (run > longest) best = 0;
            longest = std::max(longest, run);
            if (run == longest) ++best;
          }
        }
        const std::optional<SequencePlace> place = known.Recognize();
        const uint32_t needed = places == 1 ? 2 : best == 1 ? 8 : 16;
        ASSERT_EQ(place.has_value(), places > 0 && places <= 64 && longest >= needed);
        if (!place) continue;
        const auto found =
            std::ranges::find(brute.sequences, place->sequence, &std::pair<SequenceId, Letters>::first);
        ASSERT_NE(found, brute.sequences.end());
        ASSERT_EQ(brute.RunAt(found->second, place->position), longest);
        ASSERT_EQ(place->run, longest);
        ASSERT_EQ(place->clear, best == 1);
        ++recognised;
        clear += place->clear ? 1 : 0;
      }
    }
  }
  EXPECT_GT(recognised, clear);
  EXPECT_GT(clear, 1000u);
}

}  // namespace
}  // namespace spillway::policy
