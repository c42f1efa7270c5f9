// The product's predictor, which also writes all that it sees to the file STREAM_FILE, as README.md has it.
// `record.py` runs jobs with an engine that has this predictor in place of the other. The predictor's source
// is compiled here with a JobFollower that writes. It has no members of its own, so that the engine's other
// sources may use the predictor by its header. Launches of the first device alone. A recording that is not
// whole ends with a line that no reader takes.

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <deque>

#include "integration/prediction/departures.h"
#include "integration/prediction/job_follower.h"
#include "integration/prediction/plan_keeper.h"
#include "integration/prediction/prediction_reports.h"

namespace spillway::integration {
namespace {

// Used by the predictor's thread alone.
struct Recording {
  std::FILE* const file = std::fopen(std::getenv("STREAM_FILE"), "w");
  policy::LaunchIndex next = 0;
  std::deque<policy::LaunchIndex> marks;
};
Recording& recording() {
  static auto* const instance = new Recording;
  return *instance;
}

// The follower's marks, each the launch that it stands before, until that launch has been followed. They are
// private, and an explicit instantiation may name what is private.
std::deque<policy::LaunchIndex>& MarksOf(JobFollower& follower);
template <auto member>
struct Marks {
  friend std::deque<policy::LaunchIndex>& MarksOf(JobFollower& follower) { return follower.*member; }
};
template struct Marks<&JobFollower::marks_>;

}  // namespace

class RecordingFollower : public JobFollower {
 public:
  using JobFollower::JobFollower;

  bool Take(TraceRecorder* recorder) {
    const bool whole = JobFollower::Take(recorder);
    if (!whole) Lose();
    recording().marks = MarksOf(*this);
    return whole;
  }

  bool Follow(absl::FunctionRef<void(policy::LaunchIndex, const policy::LaunchRecord&)> see) {
    const bool any = JobFollower::Follow([&](policy::LaunchIndex index, const policy::LaunchRecord& launch) {
      Write(index, launch);
      see(index, launch);
    });
    std::fflush(recording().file);
    return any;
  }

 private:
  static void Lose() { std::fputs("lost\n", recording().file); }

  void Write(policy::LaunchIndex index, const policy::LaunchRecord& launch) const {
    Recording& to = recording();
    if (index != to.next++) Lose();
    for (const policy::BlockEvent& event :
         std::ranges::equal_range(trace().events(), index, {}, &policy::BlockEvent::before)) {
      const char kind = event.allocated() ? 'A' : 'F';
      std::fprintf(to.file, "%c %" PRIu64 " %" PRId64 "\n", kind, event.block, event.bytes);
    }
    bool marked = false;
    for (; !to.marks.empty() && to.marks.front() <= index; to.marks.pop_front()) marked = true;
    std::fprintf(to.file, "L %" PRIu64 " %" PRIx64 " %d 0 0 0 0", index, launch.tag, marked ? 1 : 0);
    for (const policy::TraceBlock block : launch.blocks) std::fprintf(to.file, " %" PRIu64, block);
    std::fputc('\n', to.file);
  }
};

static_assert(sizeof(RecordingFollower) == sizeof(JobFollower));

}  // namespace spillway::integration

#define JobFollower RecordingFollower
#include "integration/prediction/predictor.cc"  // NOLINT(bugprone-suspicious-include)
