#include "integration/prediction/prediction_reports.h"

#include <utility>

namespace spillway::integration {

void PredictionReports::Enter(const JobFollower& job) {
  const uint32_t launches = job.IterationLaunches();
  auto uses = std::make_shared<const policy::IterationUses>(
      policy::FindIterationUses(job.iteration(), 0, launches, job.sizes(), job.copied()));
  os::MutexLock lock(&mu_);
  if (now_.sequence == job.sequence()) {
    now_.launches_before = now_.launches;
    return;
  }
  if (now_.launches > most_.launches) std::swap(now_, most_);
  // The iteration came twice before it was known to repeat.
  const uint64_t before = most_.sequence == job.sequence() ? most_.launches : 2 * uint64_t{launches};
  now_ = {job.sequence(), std::move(uses), before, before};
}

void PredictionReports::RecordFollowed(const JobFollower& job) {
  os::MutexLock lock(&mu_);
  now_.launches = now_.launches_before + (job.trace().end() - job.tracker().start());
}

std::optional<KeptIteration> PredictionReports::Followed(const JobFollower& job,
                                                         const policy::KernelTimes& times,
                                                         const policy::WriteFacts* writes,
                                                         uint64_t samples) const {
  const FollowedIterations::Iteration* const iteration = iterations_.Most();
  if (iteration == nullptr) return std::nullopt;
  KeptIteration followed;
  followed.recorded = policy::MakeRecordedWorkload(iteration->trace, iteration->trace.begin(),
                                                   iteration->launches, job.sizes(), &times, writes);
  followed.launches = iteration->trace;
  followed.followed = iteration->followed;
  if (iteration->first) followed.first = static_cast<uint32_t>(*iteration->first - iteration->trace.begin());
  followed.samples = samples;
  return followed;
}

void PredictionReports::SetLast(KeptIteration iteration) {
  auto last = std::make_shared<const KeptIteration>(std::move(iteration));
  os::MutexLock lock(&mu_);
  last_ = std::move(last);
}

void PredictionReports::Publish(const PredictorStats& stats) {
  os::MutexLock lock(&mu_);
  stats_ = stats;
}

PredictorStats PredictionReports::stats() const {
  os::MutexLock lock(&mu_);
  return stats_;
}

std::shared_ptr<const policy::IterationUses> PredictionReports::uses() const {
  os::MutexLock lock(&mu_);
  return now_.launches > most_.launches ? now_.uses : most_.uses;
}

std::shared_ptr<const KeptIteration> PredictionReports::last() const {
  os::MutexLock lock(&mu_);
  return last_;
}

}  // namespace spillway::integration
