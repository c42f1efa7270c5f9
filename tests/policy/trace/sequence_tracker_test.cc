#include "policy/trace/sequence_tracker.h"

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

Letters operator+(Letters a, const Letters& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// A job whose launches are letters, with one block each.
struct Job {
  PathTracker tracker{PeriodOptions()};
  Trace trace;
  bool marks = false;  // the job marks its steps
  bool mark_next = false;

  void Launch(uint64_t letter) {
    trace.AddLaunch(letter, std::vector<TraceBlock>{letter});
    tracker.Add(trace, trace.end() - 1, mark_next);
    mark_next = false;
  }
  // How many of these launches the tracker had expected.
  uint64_t Run(const Letters& letters) {
    const uint64_t before = tracker.counts().followed;
    for (const uint64_t letter : letters) Launch(letter);
    return tracker.counts().followed - before;
  }
  uint64_t RunStep(const Letters& letters) {
    const uint64_t followed = Run(letters);
    mark_next = marks;
    return followed;
  }
  // The launches that the path has next.
  Letters Next(size_t count) const {
    Letters next;
    const Trace& period = tracker.PeriodOf(tracker.path());
    for (LaunchIndex i = trace.end(); i < trace.end() + count; ++i) {
      next.push_back(period.at((i - tracker.start()) % period.end()).tag);
    }
    return next;
  }
};

const Letters kForward = Range(0, 40), kUpdate = Range(1000, 12);

TEST(PathTrackerTest, AStepIsAPathAfterItCameTwiceInARow) {
  Job job;
  job.Run(Range(5000, 30));
  job.Run(kForward);
  EXPECT_EQ(job.tracker.path(), kNoPath);
  job.Run(kForward);
  ASSERT_NE(job.tracker.path(), kNoPath);
  EXPECT_EQ(job.tracker.counts().back, 0u);
  EXPECT_EQ(job.Next(3), (Letters{0, 1, 2}));
  EXPECT_EQ(job.Run(kForward), 40u);
}

TEST(PathTrackerTest, AMarkedStepIsAPathAfterItsFirstTime) {
  Job job;
  job.marks = true;
  const Letters step = kForward + kUpdate;
  job.RunStep(Range(5000, 30) + step);
  EXPECT_EQ(job.RunStep(step), 0u);
  job.RunStep(Range(6000, 40));
  EXPECT_EQ(job.RunStep(step), step.size() - 2);
  EXPECT_EQ(job.tracker.start(), 30 + 2 * step.size() + 40);
  EXPECT_EQ(job.RunStep(step), step.size());
}

TEST(PathTrackerTest, IsBackOnAPathWhenTheJobIs) {
  Job job;
  job.Run(kForward);
  job.Run(kForward);
  const PathId path = job.tracker.path();
  job.Run(kForward);
  job.Run(Range(7000, 25));
  EXPECT_EQ(job.tracker.path(), kNoPath);
  EXPECT_EQ(job.tracker.counts().left, 1u);
  job.Run({12, 13});  // in the middle of the step
  EXPECT_EQ(job.tracker.path(), path);
  EXPECT_EQ(job.tracker.counts().back, 1u);
  EXPECT_EQ(job.Next(2), (Letters{14, 15}));
}

TEST(PathTrackerTest, ALaunchMoreOrLessCostsTwoLaunches) {
  Job job;
  job.Run(kForward + kForward);
  EXPECT_EQ(job.Run(Range(0, 20) + Letters{900} + Range(20, 20)), 40u - 2);
  EXPECT_EQ(job.Run(Range(0, 20) + Range(21, 19)), 39u - 2);
  EXPECT_EQ(job.Run(kForward), 40u);
  EXPECT_EQ(job.tracker.paths(), 1u);
}

TEST(PathTrackerTest, MicroBatchesAndTheirUpdateAreOnePath) {
  for (const bool marks : {false, true}) {
    Job job;
    job.marks = marks;
    const Letters step = kForward + kForward + kForward + kForward + kUpdate;
    job.RunStep(Range(5000, 9) + step);
    for (int i = 0; i < 2; ++i) job.RunStep(step);
    EXPECT_GE(job.RunStep(step), step.size() - 1);
    EXPECT_EQ(job.tracker.PeriodOf(job.tracker.path()).end(), step.size());
    // After an evaluation, too.
    for (int i = 0; i < 3; ++i) {
      job.Run(Range(7000, 30));
      EXPECT_GE(job.RunStep(step), step.size() - 45);
      EXPECT_GE(job.RunStep(step), step.size() - 2);
    }
  }
}

TEST(PathTrackerTest, AMarkedJobIsNotTakenForItsMicroBatches) {
  Job job;
  job.marks = true;
  const Letters step = kForward + kForward + kForward + kForward + kUpdate;
  job.RunStep(step);
  job.Run(kForward + kForward + kForward);
  EXPECT_EQ(job.tracker.path(), kNoPath);
}

TEST(PathTrackerTest, ALongPhaseWithoutMarksIsAPath) {
  Job job;
  job.marks = true;
  for (int i = 0; i < 4; ++i) job.RunStep(kForward + kUpdate);
  uint64_t followed = 0;
  for (int i = 0; i < 20; ++i) followed += job.Run(Range(7000, 30));
  EXPECT_GE(followed, 10u * 30);
  EXPECT_GE(job.RunStep(kForward + kUpdate), 52u - 2);
}

TEST(PathTrackerTest, AnEvaluationEveryFewSteps) {
  for (const bool marks : {false, true}) {
    Job job;
    job.marks = marks;
    const Letters step = kForward + kUpdate, evaluation = Range(7000, 35);
    uint64_t followed = 0;
    for (int i = 1; i <= 24; ++i) {
      if (i % 4 == 0) job.Run(evaluation);
      const uint64_t now = job.RunStep(step);
      if (i > 8) followed += now;
      if (i > 8 && i % 4 != 0) {
        EXPECT_GE(now, step.size() - 4) << "step " << i;
      }
    }
    EXPECT_GE(followed, 16 * (step.size() - 8));
  }
}

// Three lengths: the same tags on other blocks but for the update.
Letters StepOfLength(uint64_t length) { return Range(100 * length, 40 + length) + kUpdate; }

TEST(PathTrackerTest, LengthsInRandomOrderAreAPathEach) {
  for (const bool marks : {false, true}) {
    std::mt19937_64 random(3);
    Job job;
    job.marks = marks;
    std::vector<int> seen(3, 0);
    for (int i = 0; i < 30; ++i) {
      const uint64_t length = 1 + random() % 3;
      const Letters step = StepOfLength(length);
      const uint64_t followed = job.RunStep(step);
      // Without marks a step is a path when it has come twice after its beginning was guessed.
      if (marks ? seen[length - 1] > 0 && i > 2 : i >= 20) {
        EXPECT_GE(followed, step.size() - 3) << i;
      }
      if (i > 0) ++seen[length - 1];  // where the first one began is not known
    }
  }
}

TEST(PathTrackerTest, ALastShortBatchIsAPathOfItsOwn) {
  Job job;
  job.marks = true;
  const Letters step = StepOfLength(1), last = StepOfLength(2);
  for (int epoch = 0; epoch < 4; ++epoch) {
    for (int i = 0; i < 6; ++i) {
      const uint64_t followed = job.RunStep(step);
      if (epoch > 0) {
        EXPECT_GE(followed, step.size() - 2);
      }
    }
    const uint64_t followed = job.RunStep(last);
    if (epoch > 0) {
      EXPECT_GE(followed, last.size() - 2);
    }
  }
}

TEST(PathTrackerTest, FirstStepsThatDifferDoNotMatter) {
  Job job;
  job.marks = true;
  job.RunStep(Range(9000, 70) + kUpdate);
  job.RunStep(kForward + Range(9500, 20) + kUpdate);
  job.RunStep(kForward + kUpdate);
  EXPECT_GE(job.RunStep(kForward + kUpdate), 52u - 45);
  EXPECT_EQ(job.RunStep(kForward + kUpdate), 52u);
}

TEST(PathTrackerTest, TwoOptimisersInAStepAreOnePath) {
  Job job;
  job.marks = true;
  const Letters a = Range(0, 30), b = Range(200, 30);
  for (int i = 0; i < 3; ++i) {
    job.RunStep(a);
    job.RunStep(b);
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(job.RunStep(a), 30u);
    EXPECT_EQ(job.RunStep(b), 30u);
  }
  EXPECT_EQ(job.tracker.PeriodOf(job.tracker.path()).end(), 60u);
}

TEST(PathTrackerTest, AnOptimiserForEachParameterIsNoStepEach) {
  Job job;
  job.marks = true;
  const auto run = [&] {
    uint64_t followed = 0;
    for (uint64_t part = 0; part < 60; ++part) followed += job.RunStep(Range(100 * part, 4));
    return followed;
  };
  for (int i = 0; i < 3; ++i) run();
  EXPECT_EQ(run(), 240u);
  EXPECT_EQ(run(), 240u);
}

TEST(PathTrackerTest, KeepsWhatHappenedToBlocksOnAPath) {
  Job job;
  job.trace.AddAllocate(77, 5);  // before the path
  const auto step = [&] {
    for (uint64_t letter = 0; letter < 10; ++letter) {
      if (letter == 3) job.trace.AddAllocate(200, 9);
      if (letter == 6) job.trace.AddFree(200);
      job.Launch(letter);
    }
  };
  step();
  step();
  ASSERT_NE(job.tracker.path(), kNoPath);
  const Trace& period = job.tracker.PeriodOf(job.tracker.path());
  EXPECT_EQ(period.begin(), 0u);
  EXPECT_EQ(period.end(), 10u);
  ASSERT_EQ(period.events().size(), 2u);
  EXPECT_EQ(period.events()[0].before, 3u);
  EXPECT_TRUE(period.events()[0].allocated());
  EXPECT_EQ(period.events()[1].before, 6u);
  EXPECT_FALSE(period.events()[1].allocated());
}

TEST(PathTrackerTest, LostLaunchesEndWhatIsKnownOfNowAndNotThePaths) {
  Job job;
  job.Run(kForward + kForward);
  job.tracker.Restart();
  EXPECT_EQ(job.tracker.path(), kNoPath);
  job.trace.Restart(5000);
  job.Run(Range(10, 2));
  EXPECT_NE(job.tracker.path(), kNoPath);
  EXPECT_EQ(job.Next(1), (Letters{12}));
}

// Whatever the job does, what the tracker says is on a path was on it, launch by launch.
TEST(PathTrackerTest, OnAPathEveryLaunchSinceItWasEnteredWasThePathsNext) {
  std::mt19937_64 random(17);
  for (int round = 0; round < 40; ++round) {
    Job job;
    job.marks = round % 2 == 0;
    std::vector<Letters> steps;
    for (int i = 0; i < 4; ++i) steps.push_back(Range(random() % 50, 5 + random() % 40));
    uint64_t version = job.tracker.version();
    for (int i = 0; i < 200; ++i) {
      Letters step = steps[random() % steps.size()];
      if (random() % 5 == 0) step.erase(step.begin() + static_cast<ptrdiff_t>(random() % step.size()));
      if (random() % 5 == 0)
        step.insert(step.begin() + static_cast<ptrdiff_t>(random() % step.size()), random() % 90);
      for (const uint64_t letter : step) {
        const bool on = job.tracker.path() != kNoPath;
        const Letters next = on ? job.Next(1) : Letters{};
        job.Launch(letter);
        const bool same = job.tracker.version() == version;
        version = job.tracker.version();
        if (on) {
          ASSERT_EQ(same, next[0] == letter);
        }
        if (job.tracker.path() == kNoPath) continue;
        // The latest launch is the one that the path has in this place.
        const Trace& period = job.tracker.PeriodOf(job.tracker.path());
        const LaunchIndex latest = job.trace.end() - 1;
        if (latest < job.tracker.start()) continue;
        ASSERT_EQ(period.at((latest - job.tracker.start()) % period.end()).tag, letter);
      }
      job.mark_next = job.marks;
    }
    EXPECT_LE(job.tracker.paths(), PathOptions().most_paths);
  }
}

}  // namespace
}  // namespace spillway::policy
