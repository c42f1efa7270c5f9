#include "policy/trace/sequences.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace spillway::policy {
namespace {

using Letters = std::vector<uint64_t>;

Letters Range(uint64_t first, size_t launches) {
  Letters letters;
  for (size_t i = 0; i < launches; ++i) letters.push_back(first + i);
  return letters;
}

// The place after the last of these launches.
std::optional<PathPlace> After(KnownPaths* paths, const Letters& letters) {
  for (const uint64_t letter : letters) paths->Note(letter);
  return paths->Recognise();
}

TEST(KnownPathsTest, KnowsAPlaceByTwoLaunchesThatStandNowhereElse) {
  KnownPaths paths;
  const PathId a = paths.Add(Range(0, 10)).path;
  paths.Add(Range(100, 10));
  EXPECT_FALSE(After(&paths, {4}).has_value());
  const auto place = After(&paths, {5});
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->path, a);
  EXPECT_EQ(place->position, 5u);
  EXPECT_EQ(place->run, 2u);
  EXPECT_TRUE(place->clear);
  EXPECT_FALSE(After(&paths, {999}).has_value());
  EXPECT_FALSE(After(&paths, {7}).has_value());
}

TEST(KnownPathsTest, ARunGoesOnOverTheEndOfAPath) {
  KnownPaths paths;
  paths.Add(Range(0, 10));
  const auto place = After(&paths, {8, 9, 0});
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->position, 0u);
  EXPECT_EQ(place->run, 3u);
}

TEST(KnownPathsTest, TwoPathsWithACommonPartAreToldApartByWhatCameBefore) {
  // x and y, and then the same twelve launches.
  KnownPaths paths;
  Letters first = Range(0, 4), second = Range(50, 4);
  for (const uint64_t letter : Range(100, 12)) {
    first.push_back(letter);
    second.push_back(letter);
  }
  paths.Add(first);
  const PathId b = paths.Add(second).path;
  EXPECT_FALSE(
      After(&paths, {53, 100, 101, 102, 103, 104, 105}).has_value());  // seven, and more than one place
  const auto place = After(&paths, {106});
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->path, b);
  EXPECT_EQ(place->position, 10u);
  EXPECT_EQ(place->run, 8u);
  EXPECT_TRUE(place->clear);
}

TEST(KnownPathsTest, AfterLongDoubtItTakesThePlaceWherePathsAreEntered) {
  // Four equal micro-batches of ten and an update of five; the job comes from elsewhere.
  KnownPaths paths;
  Letters step;
  for (int i = 0; i < 4; ++i) {
    for (const uint64_t letter : Range(0, 10)) step.push_back(letter);
  }
  for (const uint64_t letter : Range(100, 5)) step.push_back(letter);
  const PathId a = paths.Add(step).path;
  After(&paths, {900});
  EXPECT_FALSE(After(&paths, Range(0, 10)).has_value());
  const auto guess = After(&paths, Range(0, 6));  // 16 launches, from the beginning of a micro-batch on
  ASSERT_TRUE(guess.has_value());
  EXPECT_FALSE(guess->clear);
  EXPECT_EQ(guess->position, 15u);  // in the second: 16 launches from the path's beginning
  // Entered elsewhere before, so elsewhere again.
  paths.NoteEntry(a, 20);
  After(&paths, {900});
  After(&paths, Range(0, 10));
  EXPECT_EQ(After(&paths, Range(0, 6))->position, 35u);
}

TEST(KnownPathsTest, AfterLongDoubtItTakesThePathFollowedLast) {
  KnownPaths paths;
  Letters first = Range(0, 4), second = Range(50, 4);
  for (const uint64_t letter : Range(100, 30)) {
    first.push_back(letter);
    second.push_back(letter);
  }
  const PathId a = paths.Add(first).path;
  const PathId b = paths.Add(second).path;
  After(&paths, {900});
  EXPECT_EQ(After(&paths, Range(100, 16))->path, b);
  paths.NoteFollowed(a, 5);
  EXPECT_EQ(After(&paths, Range(116, 1))->path, a);
}

TEST(KnownPathsTest, ALaunchMoreOrLessLeadsBackToTheSamePlace) {
  // Each launch comes twice in the path, so only the place where it was left says which is meant.
  KnownPaths paths;
  Letters step = Range(0, 40);
  for (const uint64_t letter : Range(0, 40)) step.push_back(letter);
  step.push_back(500);
  const PathId a = paths.Add(step).path;
  After(&paths, Range(0, 20));
  paths.NoteLeft(a, 60, 200);  // launch 20 of the second half is expected
  EXPECT_FALSE(After(&paths, {777}).has_value());
  EXPECT_FALSE(After(&paths, {20}).has_value());
  const auto more = After(&paths, {21});
  ASSERT_TRUE(more.has_value());
  EXPECT_EQ(more->position, 61u);
  paths.NoteLeft(a, 62, 200);
  EXPECT_FALSE(After(&paths, {24}).has_value());  // 22 and 23 are missing
  const auto less = After(&paths, {25});
  ASSERT_TRUE(less.has_value());
  EXPECT_EQ(less->position, 65u);
}

TEST(KnownPathsTest, KnowsACycleInAnyRotation) {
  KnownPaths paths;
  const auto added = paths.Add(Letters{1, 2, 3, 4});
  EXPECT_TRUE(added.is_new);
  EXPECT_EQ(added.position, 0u);
  const auto again = paths.Add(Letters{3, 4, 1, 2});
  EXPECT_FALSE(again.is_new);
  EXPECT_EQ(again.path, added.path);
  EXPECT_EQ(again.position, 2u);
  EXPECT_TRUE(paths.Add(Letters{1, 2, 4, 3}).is_new);
  EXPECT_EQ(paths.size(), 2u);
}

TEST(KnownPathsTest, ForgetsWhatWasFollowedLeastLately) {
  KnownPaths paths(PathOptions{.most_paths = 3});
  const PathId a = paths.Add(Range(0, 4)).path;
  const PathId b = paths.Add(Range(10, 4)).path;
  const PathId c = paths.Add(Range(20, 4)).path;
  for (const PathId path : {b, c, a}) paths.NoteFollowed(path, 8);
  const PathId d = paths.Add(Range(30, 4)).path;
  EXPECT_FALSE(paths.Contains(b));
  EXPECT_FALSE(After(&paths, {10, 11, 12}).has_value());
  for (const PathId path : {a, c, d}) EXPECT_TRUE(paths.Contains(path));
  EXPECT_TRUE(After(&paths, {20, 21}).has_value());
}

TEST(KnownPathsTest, ManyPathsThatWereNeverFollowedMakeWayFirst) {
  KnownPaths paths(PathOptions{.most_paths = 4});
  const PathId kept = paths.Add(Range(0, 4)).path;
  paths.NoteFollowed(kept, 4);
  for (uint64_t i = 1; i < 20; ++i) paths.Add(Range(100 * i, 4));
  EXPECT_TRUE(paths.Contains(kept));
  EXPECT_EQ(paths.size(), 4u);
}

TEST(KnownPathsTest, LaunchesOfAllPathsAreBounded) {
  KnownPaths paths(PathOptions{.most_launches = 100});
  EXPECT_EQ(paths.Add(Range(0, 101)).path, kNoPath);
  EXPECT_EQ(paths.Add({}).path, kNoPath);
  const PathId a = paths.Add(Range(0, 60)).path;
  const PathId b = paths.Add(Range(1000, 60)).path;
  EXPECT_FALSE(paths.Contains(a));
  EXPECT_TRUE(paths.Contains(b));
}

TEST(KnownPathsTest, APathThatIsLeftSoonEachTimeNeedsLongerRuns) {
  KnownPaths paths;
  const PathId a = paths.Add(Range(0, 100)).path;
  paths.NoteLeft(a, 5, 5);
  paths.NoteLeft(a, 5, 5);
  EXPECT_FALSE(After(&paths, Range(0, 15)).has_value());
  EXPECT_TRUE(After(&paths, {15}).has_value());
  paths.NoteFollowed(a, 100);
  paths.ForgetLatest();
  EXPECT_TRUE(After(&paths, {1, 2}).has_value());
}

TEST(KnownPathsTest, WhatCameBeforeAGapDoesNotCount) {
  KnownPaths paths;
  paths.Add(Range(0, 10));
  After(&paths, {3});
  paths.ForgetLatest();
  EXPECT_FALSE(paths.Recognise().has_value());
  EXPECT_FALSE(After(&paths, {4}).has_value());
  EXPECT_TRUE(After(&paths, {5}).has_value());
}

TEST(KnownPathsTest, ALaunchOfTooManyPlacesSaysNothing) {
  KnownPaths paths;
  Letters step(65, 7);
  step.push_back(8);
  paths.Add(step);
  EXPECT_FALSE(After(&paths, Letters(70, 7)).has_value());
  EXPECT_TRUE(After(&paths, {8}).has_value());
}

// All places, each compared launch by launch.
struct BruteForce {
  std::vector<std::pair<PathId, Letters>> paths;
  Letters past;

  uint32_t RunAt(const Letters& path, size_t position) const {
    uint32_t run = 0;
    while (run < past.size() && run < KnownPaths::kLongestRun &&
           past[past.size() - 1 - run] == path[(position + path.size() * (run + 1) - run) % path.size()]) {
      ++run;
    }
    return run;
  }
};

TEST(KnownPathsTest, AgreesWithASearchThroughAllPlaces) {
  std::mt19937_64 random(11);
  uint64_t recognised = 0, clear = 0;
  for (int round = 0; round < 60; ++round) {
    KnownPaths known(PathOptions{.most_paths = 6});
    BruteForce brute;
    const uint64_t alphabet = 3 + random() % 40;
    const auto make = [&] {
      Letters path(2 + random() % 40);
      for (uint64_t& letter : path) letter = random() % alphabet;
      return path;
    };
    for (int i = 0; i < 9; ++i) {
      const Letters path = make();
      const auto added = known.Add(path);
      if (added.is_new) brute.paths.push_back({added.path, path});
      std::erase_if(brute.paths, [&](const auto& one) { return !known.Contains(one.first); });
    }
    ASSERT_EQ(brute.paths.size(), known.size());
    for (int i = 0; i < 600; ++i) {
      // Along some path for a while, now and then a launch that is not of it.
      const Letters& path = brute.paths[random() % brute.paths.size()].second;
      size_t at = random() % path.size();
      for (uint64_t steps = 1 + random() % 30; steps > 0; --steps, ++at) {
        const uint64_t letter = random() % 20 == 0 ? random() % alphabet : path[at % path.size()];
        known.Note(letter);
        brute.past.push_back(letter);
        uint32_t longest = 0, places = 0, best = 0;
        for (const auto& [id, other] : brute.paths) {
          for (size_t position = 0; position < other.size(); ++position) {
            if (other[position] != letter) continue;
            ++places;
            const uint32_t run = brute.RunAt(other, position);
            if (run > longest) best = 0;
            longest = std::max(longest, run);
            if (run == longest) ++best;
          }
        }
        const std::optional<PathPlace> place = known.Recognise();
        const uint32_t needed = places == 1 ? 2 : best == 1 ? 8 : 16;
        ASSERT_EQ(place.has_value(), places > 0 && places <= 64 && longest >= needed);
        if (!place) continue;
        const auto found = std::ranges::find(brute.paths, place->path, &std::pair<PathId, Letters>::first);
        ASSERT_NE(found, brute.paths.end());
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
