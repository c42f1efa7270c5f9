#include "policy/trace/sequence_tracker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/policy/trace_helpers.h"

namespace spillway::policy {
namespace {

Letters operator+(Letters a, const Letters& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// A job whose launches are letters, with one block each.
struct Job {
  SequenceTracker tracker{IterationOptions()};
  Trace trace;
  bool marks = false;  // the job marks its iterations
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
  uint64_t RunIteration(const Letters& letters) {
    const uint64_t followed = Run(letters);
    mark_next = marks;
    return followed;
  }
  // The launches that the sequence has next.
  Letters Next(size_t count) const {
    Letters next;
    const Trace& iteration_launches = tracker.IterationOf(tracker.sequence());
    for (LaunchIndex i = trace.end(); i < trace.end() + count; ++i) {
      next.push_back(iteration_launches.at((i - tracker.start()) % iteration_launches.end()).tag);
    }
    return next;
  }
};

const Letters kForward = Range(0, 40), kUpdate = Range(1000, 12);

TEST(SequenceTrackerTest, AnIterationIsASequenceAfterItCameTwiceInARow) {
  Job job;
  job.Run(Range(5000, 30));
  job.Run(kForward);
  EXPECT_EQ(job.tracker.sequence(), kNoSequence);
  job.Run(kForward);
  ASSERT_NE(job.tracker.sequence(), kNoSequence);
  EXPECT_EQ(job.tracker.counts().back, 0u);
  EXPECT_EQ(job.Next(3), (Letters{0, 1, 2}));
  EXPECT_EQ(job.Run(kForward), 40u);
}

TEST(SequenceTrackerTest, AMarkedIterationIsASequenceAfterItsFirstTime) {
  Job job;
  job.marks = true;
  const Letters iteration = kForward + kUpdate;
  job.RunIteration(Range(5000, 30) + iteration);
  EXPECT_EQ(job.RunIteration(iteration), 0u);
  job.RunIteration(Range(6000, 40));
  EXPECT_EQ(job.RunIteration(iteration), iteration.size() - 2);
  EXPECT_EQ(job.tracker.start(), 30 + 2 * iteration.size() + 40);
  EXPECT_EQ(job.RunIteration(iteration), iteration.size());
}

TEST(SequenceTrackerTest, IsBackInASequenceWhenTheJobIs) {
  Job job;
  job.Run(kForward);
  job.Run(kForward);
  const SequenceId sequence = job.tracker.sequence();
  job.Run(kForward);
  job.Run(Range(7000, 25));
  EXPECT_EQ(job.tracker.sequence(), kNoSequence);
  EXPECT_EQ(job.tracker.counts().left, 1u);
  job.Run({12, 13});  // in the middle of the iteration
  EXPECT_EQ(job.tracker.sequence(), sequence);
  EXPECT_EQ(job.tracker.counts().back, 1u);
  EXPECT_EQ(job.Next(2), (Letters{14, 15}));
}

TEST(SequenceTrackerTest, ALaunchMoreOrLessCostsTwoLaunches) {
  Job job;
  job.Run(kForward + kForward);
  EXPECT_EQ(job.Run(Range(0, 20) + Letters{900} + Range(20, 20)), 40u - 2);
  EXPECT_EQ(job.Run(Range(0, 20) + Range(21, 19)), 39u - 2);
  EXPECT_EQ(job.Run(kForward), 40u);
  EXPECT_EQ(job.tracker.sequences(), 1u);
}

TEST(SequenceTrackerTest, MicroBatchesAndTheirUpdateAreOneSequence) {
  for (const bool marks : {false, true}) {
    Job job;
    job.marks = marks;
    const Letters iteration = kForward + kForward + kForward + kForward + kUpdate;
    job.RunIteration(Range(5000, 9) + iteration);
    for (int i = 0; i < 2; ++i) job.RunIteration(iteration);
    EXPECT_GE(job.RunIteration(iteration), iteration.size() - 1);
    EXPECT_EQ(job.tracker.IterationOf(job.tracker.sequence()).end(), iteration.size());
    // After an evaluation, too.
    for (int i = 0; i < 3; ++i) {
      job.Run(Range(7000, 30));
      EXPECT_GE(job.RunIteration(iteration), iteration.size() - 45);
      EXPECT_GE(job.RunIteration(iteration), iteration.size() - 2);
    }
  }
}

TEST(SequenceTrackerTest, AMarkedJobIsNotTakenForItsMicroBatches) {
  Job job;
  job.marks = true;
  const Letters iteration = kForward + kForward + kForward + kForward + kUpdate;
  job.RunIteration(iteration);
  job.Run(kForward + kForward + kForward);
  EXPECT_EQ(job.tracker.sequence(), kNoSequence);
}

TEST(SequenceTrackerTest, ALongPhaseWithoutMarksIsASequence) {
  Job job;
  job.marks = true;
  for (int i = 0; i < 4; ++i) job.RunIteration(kForward + kUpdate);
  uint64_t followed = 0;
  for (int i = 0; i < 20; ++i) followed += job.Run(Range(7000, 30));
  EXPECT_GE(followed, 10u * 30);
  EXPECT_GE(job.RunIteration(kForward + kUpdate), 52u - 2);
}

TEST(SequenceTrackerTest, AnEvaluationEveryFewIterations) {
  for (const bool marks : {false, true}) {
    Job job;
    job.marks = marks;
    const Letters iteration = kForward + kUpdate, evaluation = Range(7000, 35);
    uint64_t followed = 0;
    for (int i = 1; i <= 24; ++i) {
      if (i % 4 == 0) job.Run(evaluation);
      const uint64_t now = job.RunIteration(iteration);
      if (i > 8) followed += now;
      if (i > 8 && i % 4 != 0) {
        EXPECT_GE(now, iteration.size() - 4) << "iteration " << i;
      }
    }
    EXPECT_GE(followed, 16 * (iteration.size() - 8));
  }
}

// Three lengths: the same tags on other blocks but for the update.
Letters IterationOfLength(uint64_t length) { return Range(100 * length, 40 + length) + kUpdate; }

TEST(SequenceTrackerTest, LengthsInRandomOrderAreASequenceEach) {
  for (const bool marks : {false, true}) {
    std::mt19937_64 random(3);
    Job job;
    job.marks = marks;
    std::vector<int> seen(3, 0);
    for (int i = 0; i < 30; ++i) {
      const uint64_t length = 1 + random() % 3;
      const Letters iteration = IterationOfLength(length);
      const uint64_t followed = job.RunIteration(iteration);
      // An iteration without marks is a sequence when it has come twice after its beginning was guessed.
      if (marks ? seen[length - 1] > 0 && i > 2 : i >= 20) {
        EXPECT_GE(followed, iteration.size() - 3) << i;
      }
      if (i > 0) ++seen[length - 1];  // where the first one began is not known
    }
  }
}

TEST(SequenceTrackerTest, ALastShortBatchIsASequenceOfItsOwn) {
  Job job;
  job.marks = true;
  const Letters iteration = IterationOfLength(1), last = IterationOfLength(2);
  for (int epoch = 0; epoch < 4; ++epoch) {
    for (int i = 0; i < 6; ++i) {
      const uint64_t followed = job.RunIteration(iteration);
      if (epoch > 0) {
        EXPECT_GE(followed, iteration.size() - 2);
      }
    }
    const uint64_t followed = job.RunIteration(last);
    if (epoch > 0) {
      EXPECT_GE(followed, last.size() - 2);
    }
  }
}

TEST(SequenceTrackerTest, FirstIterationsThatDifferDoNotMatter) {
  Job job;
  job.marks = true;
  job.RunIteration(Range(9000, 70) + kUpdate);
  job.RunIteration(kForward + Range(9500, 20) + kUpdate);
  job.RunIteration(kForward + kUpdate);
  EXPECT_GE(job.RunIteration(kForward + kUpdate), 52u - 45);
  EXPECT_EQ(job.RunIteration(kForward + kUpdate), 52u);
}

TEST(SequenceTrackerTest, TwoOptimisersInAnIterationAreOneSequence) {
  Job job;
  job.marks = true;
  const Letters a = Range(0, 30), b = Range(200, 30);
  for (int i = 0; i < 3; ++i) {
    job.RunIteration(a);
    job.RunIteration(b);
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(job.RunIteration(a), 30u);
    EXPECT_EQ(job.RunIteration(b), 30u);
  }
  EXPECT_EQ(job.tracker.IterationOf(job.tracker.sequence()).end(), 60u);
}

TEST(SequenceTrackerTest, AnOptimiserForEachParameterIsNoIterationEach) {
  Job job;
  job.marks = true;
  const auto run = [&] {
    uint64_t followed = 0;
    for (uint64_t part = 0; part < 60; ++part) followed += job.RunIteration(Range(100 * part, 4));
    return followed;
  };
  for (int i = 0; i < 3; ++i) run();
  EXPECT_EQ(run(), 240u);
  EXPECT_EQ(run(), 240u);
}

TEST(SequenceTrackerTest, KeepsWhatHappenedToBlocksInASequence) {
  Job job;
  job.trace.AddAllocate(77, 5);  // before the sequence
  const auto iteration = [&] {
    for (uint64_t letter = 0; letter < 10; ++letter) {
      if (letter == 3) job.trace.AddAllocate(200, 9);
      if (letter == 6) job.trace.AddFree(200);
      job.Launch(letter);
    }
  };
  iteration();
  iteration();
  ASSERT_NE(job.tracker.sequence(), kNoSequence);
  const Trace& iteration_launches = job.tracker.IterationOf(job.tracker.sequence());
  EXPECT_EQ(iteration_launches.begin(), 0u);
  EXPECT_EQ(iteration_launches.end(), 10u);
  ASSERT_EQ(iteration_launches.events().size(), 2u);
  EXPECT_EQ(iteration_launches.events()[0].before, 3u);
  EXPECT_TRUE(iteration_launches.events()[0].allocated());
  EXPECT_EQ(iteration_launches.events()[1].before, 6u);
  EXPECT_FALSE(iteration_launches.events()[1].allocated());
}

TEST(SequenceTrackerTest, LostLaunchesEndWhatIsKnownOfNowAndNotTheSequences) {
  Job job;
  job.Run(kForward + kForward);
  job.tracker.Restart();
  EXPECT_EQ(job.tracker.sequence(), kNoSequence);
  job.trace.Restart(5000);
  job.Run(Range(10, 2));
  EXPECT_NE(job.tracker.sequence(), kNoSequence);
  EXPECT_EQ(job.Next(1), (Letters{12}));
}

// Whatever the job does, what the tracker says is on a sequence was on it, launch by launch.
TEST(SequenceTrackerTest, EveryLaunchSinceASequenceWasEnteredWasItsNext) {
  std::mt19937_64 random(17);
  for (int round = 0; round < 40; ++round) {
    Job job;
    job.marks = round % 2 == 0;
    std::vector<Letters> iterations;
    for (int i = 0; i < 4; ++i) iterations.push_back(Range(random() % 50, 5 + random() % 40));
    uint64_t version = job.tracker.version();
    for (int i = 0; i < 200; ++i) {
      Letters iteration = iterations[random() % iterations.size()];
      if (random() % 5 == 0)
        iteration.erase(iteration.begin() + static_cast<ptrdiff_t>(random() % iteration.size()));
      if (random() % 5 == 0)
        iteration.insert(iteration.begin() + static_cast<ptrdiff_t>(random() % iteration.size()),
                         random() % 90);
      for (const uint64_t letter : iteration) {
        const bool on = job.tracker.sequence() != kNoSequence;
        const Letters next = on ? job.Next(1) : Letters{};
        job.Launch(letter);
        const bool same = job.tracker.version() == version;
        version = job.tracker.version();
        if (on) {
          ASSERT_EQ(same, next[0] == letter);
        }
        if (job.tracker.sequence() == kNoSequence) continue;
        // The latest launch is the one that the sequence has in this place.
        const Trace& iteration_launches = job.tracker.IterationOf(job.tracker.sequence());
        const LaunchIndex latest = job.trace.end() - 1;
        if (latest < job.tracker.start()) continue;
        ASSERT_EQ(iteration_launches.at((latest - job.tracker.start()) % iteration_launches.end()).tag,
                  letter);
      }
      job.mark_next = job.marks;
    }
    EXPECT_LE(job.tracker.sequences(), SequenceOptions().most_sequences);
  }
}

}  // namespace
}  // namespace spillway::policy
