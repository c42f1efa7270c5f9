#include "integration/report/iteration_log.h"

namespace spillway::integration {

void IterationLog::Mark(double seconds) {
  os::MutexLock lock(&mu_);
  if (marked_) iterations_.Add({began_, seconds - began_, IterationKind::kMarked});
  marked_ = true;
  began_ = seconds;
}

void IterationLog::Record(const Sample& sample) {
  const bool same = sample.iteration_launches != 0 && sample.iteration_launches == last_.iteration_launches &&
                    sample.departures == last_.departures;
  if (!same) {
    next_end_ = sample.iteration_launches == 0 ? 0 : sample.launches + sample.iteration_launches;
    counted_began_ = sample.seconds;
  }
  os::MutexLock lock(&mu_);
  while (next_end_ != 0 && sample.launches >= next_end_ && sample.launches > last_.launches) {
    const double part = static_cast<double>(next_end_ - last_.launches) /
                        static_cast<double>(sample.launches - last_.launches);
    const double end = last_.seconds + part * (sample.seconds - last_.seconds);
    if (!marked_) iterations_.Add({counted_began_, end - counted_began_, IterationKind::kRepeated});
    counted_began_ = end;
    next_end_ += sample.iteration_launches;
  }
  last_ = sample;
}

std::vector<LoggedIteration> IterationLog::Iterations() const {
  std::vector<LoggedIteration> all;
  all.reserve(most_);  // the job's threads wait for the lock, so nothing is allocated under it
  os::MutexLock lock(&mu_);
  for (uint64_t number = iterations_.first(); number < iterations_.added(); ++number)
    all.push_back(iterations_.at(number));
  return all;
}

}  // namespace spillway::integration
