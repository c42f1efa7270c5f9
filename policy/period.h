// PeriodFinder: says when a job has just done the same twice: the last `period` launches are those before
// them, tag by tag and block by block. A training step is seen at the end of its second run. Memory and time
// per launch are bounded; nothing is said about launches to come.

#ifndef SPILLWAY_POLICY_PERIOD_H_
#define SPILLWAY_POLICY_PERIOD_H_

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "policy/trace.h"
#include "policy/units.h"

namespace spillway::policy {

struct PeriodOptions {
  uint32_t shortest = 2;        // launches; shorter repeats are not periods
  uint32_t longest = 1u << 17;  // launches; the trace is kept for twice as many
};

class PeriodFinder {
 public:
  explicit PeriodFinder(const PeriodOptions& options);

  // Looks at launch `index` of `trace`, the next after the one looked at before. Returns the period when that
  // launch completes a second run of it (the shortest that counts, verified launch by launch), else 0. The
  // trace must still hold the two runs.
  uint32_t Add(const Trace& trace, LaunchIndex index);

  // The last period found was departed from `launches` launches after it was found. A short-lived one was a
  // repeat inside a longer step (equal micro-batches): only longer periods count from now on. Starts over.
  void OnDeparture(uint64_t launches);
  // Starts over at the next launch; what counts as a period stays.
  void Restart();

  uint32_t shortest() const { return shortest_; }

 private:
  // A distance at which the latest launches have matched those before.
  struct Candidate {
    uint32_t distance = 0;
    uint64_t run = 0;  // how many of the latest launches matched
  };
  uint64_t MatchesBackward(uint32_t distance, uint64_t most) const;
  void Nominate();
  uint32_t Found(const Trace& trace, LaunchIndex end) const;
  void Forget();

  const PeriodOptions options_;
  uint32_t shortest_;  // raised by short-lived periods, lowered when nothing is found for long
  uint32_t last_found_ = 0;
  uint64_t since_found_ = 0;  // launches looked at since the last period, for lowering shortest_

  std::vector<uint64_t> signatures_;  // of the launches since the start
  std::vector<uint32_t> previous_;    // index of the launch before with the same signature, plus 1; 0: none
  std::unordered_map<uint64_t, uint32_t> latest_;  // signature -> its latest index, plus 1
  std::vector<Candidate> candidates_;
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_PERIOD_H_
