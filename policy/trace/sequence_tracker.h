// PathTracker: says on which path a job is and where, launch by launch: finds the paths (a step that was marked, one that
// came twice in a row or again), remembers them, notices when the job leaves one and when it is back on one. Pure; the
// caller plans. A path's period is kept as a trace of its own.

#ifndef SPILLWAY_POLICY_TRACE_SEQUENCE_TRACKER_H_
#define SPILLWAY_POLICY_TRACE_SEQUENCE_TRACKER_H_

#include <cstdint>
#include <map>
#include <set>
#include <unordered_set>

#include "policy/trace/iteration_boundaries.h"
#include "policy/trace/iteration_finder.h"
#include "policy/trace/sequences.h"
#include "policy/trace/trace.h"
#include "policy/trace/units.h"

namespace spillway::policy {

// Counts since the start.
struct PathCounts {
  uint64_t entered = 0;   // times that the job came to be on a path
  uint64_t back = 0;      // of those: on one that it had followed before
  uint64_t left = 0;      // times that a launch was another than the path's next
  uint64_t launches = 0;  // looked at
  uint64_t followed = 0;  // of those: as the path that the job was on said
};

class PathTracker {
 public:
  explicit PathTracker(const PeriodOptions& period, const PathOptions& paths = PathOptions());

  // Looks at launch `index` of `trace`, the next after the one looked at before. `marked`: the job said that a step ended
  // just before it.
  void Add(const Trace& trace, LaunchIndex index, bool marked);
  // Launches are missing before the next one: the job is on no path.
  void Restart();

  // The path that the launch looked at last belongs to; kNoPath: none is known to go on.
  PathId path() const { return path_; }
  // The index at which that path's position 0 was, or would have been; positions follow each other from there.
  LaunchIndex start() const { return start_; }
  // Goes up whenever path() or start() have changed.
  uint64_t version() const { return counts_.entered + counts_.left; }

  // The path's launches, with what was handed out and freed between them, as a trace that begins with 0. `path` must
  // be known.
  const Trace& PeriodOf(PathId path) const { return periods_.at(path); }
  bool Knows(PathId path) const { return periods_.contains(path); }
  size_t paths() const { return periods_.size(); }
  const PathCounts& counts() const { return counts_; }
  // Launches that the trace must keep for what is still to be found.
  LaunchIndex wanted() const;

 private:
  void Follow(LaunchIndex index, uint64_t signature);
  void ForgetPaths();
  void CloseStep(const Trace& trace, LaunchIndex end);
  KnownPaths::Added Learn(const Trace& trace, LaunchIndex start, LaunchIndex end);
  void FindPath(const Trace& trace, LaunchIndex index);
  void FindPeriod(const Trace& trace, LaunchIndex index);
  void Enter(PathId path, uint32_t position, uint32_t run, LaunchIndex index);

  const PeriodOptions options_;
  const PathOptions path_options_;
  KnownPaths known_;
  PeriodFinder finder_;
  StepBoundaries boundaries_;
  std::map<PathId, Trace> periods_;
  std::unordered_set<uint64_t> steps_seen_;  // by a hash of their launches; of unmarked steps only

  PathId path_ = kNoPath;
  LaunchIndex start_ = 0;
  LaunchIndex entered_at_ = 0;    // the first launch in a row that was the path's
  LaunchIndex step_at_ = kNever;  // where the step under way began, if that was seen
  std::set<PathId> entered_before_;
  PathCounts counts_;
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_TRACE_SEQUENCE_TRACKER_H_
