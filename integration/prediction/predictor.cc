#include "integration/prediction/predictor.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "io/os/errno.h"
#include "io/os/thread.h"

namespace spillway::integration {
namespace {

using policy::LaunchIndex;

// The thread sleeps the shortest time after it found something to do, and twice as long after each time that
// it found nothing, up to the longest.
constexpr std::chrono::milliseconds kShortestNap(1);
constexpr std::chrono::milliseconds kLongestNap(64);

}  // namespace

Predictor::Predictor(const PredictorOptions& options)
    : options_(options),
      departures_([this](const Departures::Plan& hints) { SetPlan(hints); }),
      job_(options.iterations),
      plans_(options.host_bytes, options.has_disk, options.known_rates, options.write_facts, &job_, &times_) {
  if (options.driver == nullptr) return;
  LaunchTimerOptions timer;
  timer.driver = options.driver;
  timer.context = options.context;
  timer_ = std::make_unique<LaunchTimer>(timer, &wants_marks_);
}

Predictor::~Predictor() { Stop(); }

absl::Status Predictor::Start(allocator::Residency* residency) {
  UsePlansOf(residency);
  SPILLWAY_ASSIGN_OR_RETURN(thread_, os::StartThread("spillway-plan", [this] { Loop(); }));
  return absl::OkStatus();
}

void Predictor::Stop() {
  {
    os::MutexLock lock(&mu_);
    stop_ = true;
  }
  wake_.NotifyAll();
  if (thread_.joinable()) thread_.join();
  residency_.store(nullptr);
}

void Predictor::Loop() {
  std::chrono::milliseconds nap = kShortestNap;
  for (;;) {
    const bool polled = Poll();
    const bool improved = Improve();
    nap = polled || improved ? kShortestNap : std::min(2 * nap, kLongestNap);
    os::MutexLock lock(&mu_);
    if (!stop_) wake_.WaitFor(&mu_, nap);
    if (stop_) return;
  }
}

// ---- On launching threads.

void Predictor::OnLaunch(int, LaunchIndex index, uint64_t tag, const allocator::AccessSet& set) {
  if (timer_ != nullptr) timer_->OnLaunch(index);
  if (departures_.expecting()) {
    policy::SignatureBuilder signature(tag);
    for (const allocator::BlockId id : set) signature.Add(TraceBlockOf(id));
    departures_.Compare(index, signature.value());
  }
  recorder_.AddLaunch(index, tag, set);
}

void Predictor::SetPlan(const Departures::Plan& plan) {
  allocator::Residency* const residency = residency_.load();
  if (residency != nullptr && options_.mode == PredictorMode::kPlan) residency->SetPlan(plan);
}

void Predictor::OnAllocate(int, allocator::BlockId block, uint64_t bytes, uint64_t copied_bytes) {
  recorder_.AddAllocate(block, bytes, copied_bytes);
}

void Predictor::OnFree(int, allocator::BlockId block) { recorder_.AddFree(block); }

void Predictor::OnEnter(const allocator::StreamRef& stream) {
  if (timer_ != nullptr) timer_->OnEnter(stream);
}

void Predictor::OnReady(const allocator::StreamRef& stream) {
  if (timer_ != nullptr) timer_->OnReady(stream);
}

void Predictor::OnInterrupt() {
  if (timer_ != nullptr) timer_->OnInterrupt();
}

PredictorStats Predictor::stats() const {
  PredictorStats stats = reports_.stats();
  stats.departures = departures_.count();
  stats.iteration_launches = departures_.iteration_launches();
  return stats;
}

// ---- On the predictor's thread.

bool Predictor::Poll() {
  const bool whole = job_.Take(&recorder_);
  departures_.FreeRetired();
  if (!whole) {
    ++counts_.lost;
    departures_.Depart();
  }
  const bool any = job_.Follow(
      [this](LaunchIndex index, const policy::LaunchRecord& launch) { plans_.FollowHints(index, launch); });
  if (job_.tracker().version() != settled_version_) PutInForce();
  SetMovedHints();
  if (any) {
    if (options_.mode == PredictorMode::kObserve) {
      if (departures_.expected() && job_.sequence() != policy::kNoSequence) reports_.RecordFollowed(job_);
    } else if (departures_.KeepsTo()) {
      Replace(plans_.KeepUpToDate(residency_.load()));
    }
    Publish();
  }
  if (options_.keep_iteration && any) reports_.RecordIteration(job_);
  if (reports_.TakeAsked()) {
    if (std::optional<Followed> followed = FollowedIteration()) reports_.SetLast(*std::move(followed));
  }
  if (timer_ != nullptr) timer_->Poll(job_.trace(), job_.IterationLaunches(), job_.sizes(), &times_);
  job_.Trim();
  return any;
}

bool Predictor::Improve() {
  return options_.mode == PredictorMode::kPlan && departures_.KeepsTo() && plans_.Improve();
}

std::optional<Predictor::Followed> Predictor::FollowedIteration() const {
  return reports_.Followed(job_, times_, plans_.writes(), timer_ == nullptr ? 0 : timer_->measured());
}

void Predictor::SetMovedHints() {
  Departures::Plan hints;
  if (plans_.TakeMovedHints(&hints)) SetPlan(hints);
}

// Puts the plan of the sequence that the job is on in force. Called when the job has left a sequence or has
// come to one.
void Predictor::PutInForce() {
  settled_version_ = job_.tracker().version();
  // Launches that came before the plan was in force are compared by the tracker alone.
  departures_.Depart();
  departures_.Forget();
  plans_.ForgetUnknown();
  if (job_.sequence() == policy::kNoSequence || residency_.load() == nullptr) return;
  plans_.DropHints();
  const policy::Trace& sequence = job_.iteration();
  std::vector<uint64_t> signatures;
  for (LaunchIndex index = sequence.begin(); index < sequence.end(); ++index)
    signatures.push_back(sequence.at(index).signature);
  // The plan is set before it is expected: a departure must not come before this plan is set.
  Departures::Plan hints;
  if (options_.mode == PredictorMode::kObserve) {
    reports_.Enter(job_);
  } else {
    hints = PlanAndHints();
  }
  departures_.Expect(job_.tracker().start(), std::move(signatures), std::move(hints));
}

// Puts the sequence's plan in force, and returns its hints for a departure.
Departures::Plan Predictor::PlanAndHints() {
  const PlanKeeper::Plan plan = plans_.Enter(residency_.load());
  if (options_.mode == PredictorMode::kForecast) return nullptr;
  ++counts_.plans;
  Departures::Plan hints = plan == nullptr ? nullptr : plans_.MakeHints(*plan);
  SetPlan(plan);
  return hints;
}

// Puts another plan in force for the sequence whose plan is in force.
void Predictor::Replace(PlanKeeper::Change change) {
  if (change == PlanKeeper::Change::kNone) return;
  const PlanKeeper::Plan plan = plans_.Current();
  if (options_.mode == PredictorMode::kForecast) return;
  ++counts_.plans;
  counts_.improved += change == PlanKeeper::Change::kBetter ? 1 : 0;
  SetPlan(plan);
  // If a thread has departed meanwhile, it may have dropped only the plan before this one.
  if (!departures_.KeepsTo()) SetPlan(departures_.hints());
}

void Predictor::Publish() {
  counts_.readoptions = plans_.readoptions();
  counts_.forecast = plans_.forecast();
  counts_.accesses = plans_.accesses();
  counts_.accesses_known = plans_.accesses_known();
  counts_.marks = job_.marks();
  counts_.sequences = static_cast<uint32_t>(job_.tracker().sequences());
  counts_.kinds_timed = times_.kinds();
  counts_.launches = job_.tracker().counts().launches;
  counts_.followed = job_.tracker().counts().followed;
  reports_.Publish(counts_);
}

}  // namespace spillway::integration
