// IterationFinder recognizes when a job has just done the same thing twice: the latest launches, as many as
// one iteration has, equal those before them, tag by tag and block by block. SequenceTracker gives it each
// launch's signature. A training iteration is found at the end of its second run. Shorter repeats inside it,
// such as equal micro-batches, are found earlier and give way to it then. Memory and time per launch are
// bounded. One thread; no call fails.

#ifndef SPILLWAY_POLICY_TRACE_ITERATION_FINDER_H_
#define SPILLWAY_POLICY_TRACE_ITERATION_FINDER_H_

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "policy/model/units.h"
#include "policy/trace/trace.h"

namespace spillway::policy {

struct IterationOptions {
  uint32_t shortest = 2;        // launches; shorter repeats do not count
  uint32_t longest = 1u << 17;  // launches; signatures are kept for twice as many
};

class IterationFinder {
 public:
  explicit IterationFinder(const IterationOptions& options);

  // Adds the next launch.
  void Add(uint64_t signature);
  // Returns the number of launches in the iteration of which the latest launches are two runs; 0 if there is
  // none. The last launch added is the one before `end` in `trace`; equality is verified launch by launch as
  // far as the trace goes back. Among several iterations it is the one that has repeated for longest.
  uint32_t Found(const Trace& trace, LaunchIndex end) const;
  // Returns the same by signatures alone, in constant time.
  uint32_t Repeats() const;
  // Returns how many launches in a row have equalled the one that came Repeats() launches earlier.
  uint64_t run() const;

  // Forgets all launches, since some are missing before the next one.
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

  const IterationOptions options_;
  std::vector<uint64_t> signatures_;  // of the launches since the start
  std::vector<uint32_t> previous_;    // index of the previous launch with the same signature, plus 1; 0: none
  std::unordered_map<uint64_t, uint32_t> latest_;  // signature -> its latest index, plus 1
  std::vector<Candidate> candidates_;
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_TRACE_ITERATION_FINDER_H_
