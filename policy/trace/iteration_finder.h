// PeriodFinder: says when a job has just done the same twice: the last `period` launches are those before
// them, tag by tag and block by block. A training step is seen at the end of its second run; repeats inside it (equal
// micro-batches) are seen earlier and give way to it then. Memory and time per launch are bounded; nothing is said about
// launches to come.

#ifndef SPILLWAY_POLICY_TRACE_ITERATION_FINDER_H_
#define SPILLWAY_POLICY_TRACE_ITERATION_FINDER_H_

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "policy/trace/trace.h"
#include "policy/trace/units.h"

namespace spillway::policy {

struct PeriodOptions {
  uint32_t shortest = 2;        // launches; shorter repeats are not periods
  uint32_t longest = 1u << 17;  // launches; the trace is kept for twice as many
};

class PeriodFinder {
 public:
  explicit PeriodFinder(const PeriodOptions& options);

  // The next launch.
  void Add(uint64_t signature);
  // The period, when the launches up to the last one added, which is the one before `end` in `trace`, end with two runs of
  // it, verified launch by launch as far as the trace goes back; else 0. Of several the one that has held for longest.
  uint32_t Found(const Trace& trace, LaunchIndex end) const;
  // How many launches in a row equalled those Found() before them.
  uint64_t run() const;

  // Starts over at the next launch.
  void Restart();

 private:
  // A distance at which the latest launches have matched those before.
  struct Candidate {
    uint32_t distance = 0;
    uint64_t run = 0;  // how many of the latest launches matched
  };
  uint64_t MatchesBackward(uint32_t distance, uint64_t most) const;
  void Nominate();
  const Candidate* Best() const;
  void Forget();

  const PeriodOptions options_;
  std::vector<uint64_t> signatures_;  // of the launches since the start
  std::vector<uint32_t> previous_;    // index of the launch before with the same signature, plus 1; 0: none
  std::unordered_map<uint64_t, uint32_t> latest_;  // signature -> its latest index, plus 1
  std::vector<Candidate> candidates_;
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_TRACE_ITERATION_FINDER_H_
