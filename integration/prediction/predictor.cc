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
constexpr uint32_t kLaunchesAtATime = 4096;

}  // namespace

Predictor::Predictor(const PredictorOptions& options)
    : options_(options),
      machine_(options.host_bytes, options.has_disk, options.known_rates),
      tracker_(options.iterations) {
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
  if (expected_.load(std::memory_order_relaxed) != nullptr) {
    policy::SignatureBuilder signature(tag);
    for (const allocator::BlockId id : set) signature.Add(TraceBlockOf(id));
    Compare(index, signature.value());
  }
  recorder_.AddLaunch(index, tag, set);
}

void Predictor::Compare(LaunchIndex index, uint64_t signature) {
  // Sequentially consistent with FreeRetired: it sees this reader, or this reader sees what is in force now.
  readers_.fetch_add(1);
  const Expectation* const expected = expected_.load();
  if (expected != nullptr && !expected->Matches(index, signature)) Depart(expected);
  readers_.fetch_sub(1);
}

void Predictor::Depart(const Expectation* expected) {
  if (!expected_.compare_exchange_strong(expected, nullptr)) return;  // another thread departed first
  departures_.fetch_add(1, std::memory_order_relaxed);
  iteration_launches_.store(0, std::memory_order_relaxed);
  allocator::Residency* const residency = residency_.load();
  if (residency != nullptr && options_.mode == PredictorMode::kPlan) residency->SetPlan(expected->hints);
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
  PredictorStats stats;
  {
    os::MutexLock lock(&mu_);
    stats = published_;
  }
  stats.departures = departures_.load();
  stats.iteration_launches = iteration_launches_.load();
  return stats;
}

// ---- On the predictor's thread.

bool Predictor::Poll() {
  const LaunchIndex before = trace_.end();
  const bool whole = recorder_.Drain(&trace_, kLaunchesAtATime);
  NoteSizes();
  FreeRetired();
  if (!whole) StartOver();
  const bool any = Feed(whole ? before : trace_.begin());
  if (tracker_.version() != settled_version_) PutInForce();
  SetHints();
  if (any) {
    NoteFollowed();
    KeepUpToDate();
    Publish();
  }
  const uint32_t repeats = IterationLaunches();
  if (options_.keep_iteration && any) followed_.Note(trace_, repeats, last_mark_);
  if (iteration_asked_.exchange(false, std::memory_order_relaxed)) KeepIteration();
  if (timer_ != nullptr) timer_->Poll(trace_, repeats, sizes_, &times_);
  Trim();
  return any;
}

// The launches of an iteration of the sequence that the job is on; 0: it is on none.
uint32_t Predictor::IterationLaunches() const {
  const policy::SequenceId current = tracker_.sequence();
  return current == policy::kNoSequence ? 0 : static_cast<uint32_t>(tracker_.IterationOf(current).end());
}

std::optional<Predictor::Followed> Predictor::FollowedIteration() const {
  const FollowedIterations::Iteration* const iteration = followed_.Most();
  if (iteration == nullptr) return std::nullopt;
  Followed followed;
  followed.recorded = policy::MakeRecordedWorkload(iteration->trace, iteration->trace.begin(),
                                                   iteration->launches, sizes_, &times_, writes_.get());
  followed.launches = iteration->trace;
  followed.followed = iteration->followed;
  if (iteration->first) followed.first = static_cast<uint32_t>(*iteration->first - iteration->trace.begin());
  followed.samples = timer_ == nullptr ? 0 : timer_->measured();
  return followed;
}

void Predictor::KeepIteration() {
  std::optional<Followed> followed = FollowedIteration();
  if (!followed) return;
  auto iteration = std::make_shared<const Followed>(*std::move(followed));
  os::MutexLock lock(&mu_);
  last_iteration_ = std::move(iteration);
}

std::shared_ptr<const Predictor::Followed> Predictor::LastIteration() const {
  os::MutexLock lock(&mu_);
  return last_iteration_;
}

void Predictor::NoteSizes() {
  std::vector<policy::BlockEvent> allocations;
  recorder_.TakeAllocations(&allocations);
  for (const policy::BlockEvent& event : allocations) {
    sizes_[event.block] = event.bytes;
    policy::Bytes& copied = copied_.try_emplace(event.block, event.copied_bytes).first->second;
    copied = std::min(copied, event.copied_bytes);
  }
  const size_t before = marks_.size();
  recorder_.TakeMarks(&marks_);
  counts_.marks += marks_.size() - before;
  if (marks_.size() > before) last_mark_ = marks_.back();
}

// Launches were lost: the tracker forgets where the job is, and the plan is dropped.
void Predictor::StartOver() {
  ++counts_.lost;
  tracker_.Restart();
  if (const Expectation* const expected = expected_.load()) Depart(expected);
}

// Shows the tracker, and the hints after a departure, the launches from `from` on. True when there were any.
bool Predictor::Feed(LaunchIndex from) {
  for (LaunchIndex index = from; index < trace_.end(); ++index) {
    tracker_.Add(trace_, index, MarkedBefore(index));
    if (hints_ && tracker_.sequence() == policy::kNoSequence)
      hints_moved_ |= hints_->Follow(index, trace_.at(index));
  }
  return from < trace_.end();
}

void Predictor::SetHints() {
  if (!std::exchange(hints_moved_, false) || !hints_ || tracker_.sequence() != policy::kNoSequence) return;
  if (allocator::Residency* const residency = residency_.load()) residency->SetPlan(hints_->Plan());
  if (hints_->Plan() == nullptr) hints_.reset();
}

bool Predictor::MarkedBefore(LaunchIndex index) {
  bool marked = false;
  for (; !marks_.empty() && marks_.front() <= index; marks_.pop_front()) marked = true;
  return marked;
}

// Puts the plan of the sequence that the job is on in force. Called when the job has left a sequence or has
// come to one.
void Predictor::PutInForce() {
  settled_version_ = tracker_.version();
  // Launches that came before the plan was in force are compared by the tracker alone.
  if (const Expectation* const expected = expected_.load()) Depart(expected);
  in_force_ = nullptr;
  std::erase_if(sequence_plans_, [this](const auto& one) { return !tracker_.Knows(one.first); });
  const policy::SequenceId current = tracker_.sequence();
  if (current == policy::kNoSequence || residency_.load() == nullptr) return;
  hints_.reset();
  const policy::Trace& sequence = tracker_.IterationOf(current);
  auto expectation = std::make_unique<Expectation>();
  expectation->start = tracker_.start();
  for (LaunchIndex index = sequence.begin(); index < sequence.end(); ++index) {
    expectation->signatures.push_back(sequence.at(index).signature);
  }
  iteration_launches_.store(static_cast<uint32_t>(sequence.end()), std::memory_order_relaxed);
  iteration_ = IterationNow();
  entered_ = true;
  // The plan is set before the expectation is stored: a departure drops the plan only where it finds an
  // expectation, and must not come before this plan is set.
  if (options_.mode == PredictorMode::kObserve) {
    Observe();
  } else {
    SetPlanOfSequence();
  }
  if (hints_) expectation->hints = hints_->Plan();
  in_force_ = expectation.get();
  expected_.store(in_force_);
  expectations_.push_back(std::move(expectation));
}

void Predictor::SetPlanOfSequence() {
  const policy::SequenceId current = tracker_.sequence();
  std::unique_ptr<SequencePlan>& plan = sequence_plans_[current];
  if (plan == nullptr) {
    plan = std::make_unique<SequencePlan>(tracker_.IterationOf(current), sizes_, MachineNow(), Facts());
  } else {
    ++counts_.readoptions;
  }
  plan->NoteIterations(0);
  NoteForecast(*plan);
  if (options_.mode == PredictorMode::kForecast) return;
  ++counts_.plans;
  const std::shared_ptr<const policy::MigrationPlan> from = plan->From(tracker_.start());
  if (from != nullptr) hints_.emplace(tracker_.IterationOf(current), *from);
  if (allocator::Residency* const residency = residency_.load()) residency->SetPlan(from);
}

void Predictor::NoteForecast(const SequencePlan& plan) {
  counts_.forecast = plan.forecast();
  counts_.accesses = plan.accesses();
  counts_.accesses_known = plan.accesses_known();
}

// Puts another plan in force for the sequence whose plan is in force.
void Predictor::Replace(bool better) {
  allocator::Residency* const residency = residency_.load();
  if (residency == nullptr || in_force_ == nullptr || expected_.load() != in_force_) return;
  SequencePlan& plan = *sequence_plans_.at(tracker_.sequence());
  NoteForecast(plan);
  if (options_.mode == PredictorMode::kForecast) return;
  ++counts_.plans;
  counts_.improved += better ? 1 : 0;
  residency->SetPlan(plan.From(tracker_.start()));
  // If a thread has departed meanwhile, it may have dropped only the plan before this one.
  if (expected_.load() != in_force_) residency->SetPlan(in_force_->hints);
}

// When the memory to plan for has changed (by external allocations or refused chunks), the sequence is
// planned anew at once. All else is checked when an iteration has ended; better plans take over there.
void Predictor::KeepUpToDate() {
  if (options_.mode == PredictorMode::kObserve || in_force_ == nullptr || expected_.load() != in_force_)
    return;
  const policy::SequenceId current = tracker_.sequence();
  const auto found = sequence_plans_.find(current);
  if (current == policy::kNoSequence || found == sequence_plans_.end()) return;
  const policy::Trace& sequence = tracker_.IterationOf(current);
  const policy::RuntimeMachine machine = MachineNow();
  const bool iteration_ended = IterationNow() != iteration_;
  iteration_ = IterationNow();
  found->second->NoteIterations(iteration_);
  const bool due_for_check =
      (std::exchange(entered_, false) || iteration_ended) && found->second->DueForCheck();
  if (found->second->MemoryChanged(machine) ||
      (due_for_check && found->second->OutOfDate(sequence, sizes_, machine, Facts()))) {
    auto plan = std::make_unique<SequencePlan>(sequence, sizes_, machine, Facts());
    plan->GoOnFrom(*found->second);
    found->second = std::move(plan);
    Replace(/*better=*/false);
  } else if (iteration_ended && found->second->HasBetter()) {
    Replace(/*better=*/true);
  }
}

bool Predictor::Improve() {
  if (options_.mode != PredictorMode::kPlan || in_force_ == nullptr || expected_.load() != in_force_)
    return false;
  const auto found = sequence_plans_.find(tracker_.sequence());
  if (found == sequence_plans_.end()) return false;
  const bool more = found->second->Improve();
  counts_.forecast = found->second->forecast();
  return more;
}

// How many iterations of the sequence have been completed since it was entered.
uint64_t Predictor::IterationNow() const {
  const policy::SequenceId current = tracker_.sequence();
  if (current == policy::kNoSequence || trace_.end() < tracker_.start()) return 0;
  return (trace_.end() - tracker_.start()) / tracker_.IterationOf(current).end();
}

policy::RuntimeMachine Predictor::MachineNow() {
  const policy::SequenceId current = tracker_.sequence();
  return machine_.Now(residency_.load(), current, tracker_.IterationOf(current));
}

LearntFacts Predictor::Facts() {
  if (options_.write_facts) writes_ = options_.write_facts();
  return {&times_, writes_.get()};
}

void Predictor::Observe() {
  const policy::SequenceId current = tracker_.sequence();
  const policy::Trace& sequence = tracker_.IterationOf(current);
  const auto launches = static_cast<uint32_t>(sequence.end());
  auto iteration = std::make_shared<const policy::IterationUses>(
      policy::FindIterationUses(sequence, 0, launches, sizes_, copied_));
  os::MutexLock lock(&mu_);
  if (now_.sequence == current) {
    now_.launches_before = now_.launches;
    return;
  }
  if (now_.launches > most_.launches) std::swap(now_, most_);
  // The iteration came twice before it was known to repeat.
  const uint64_t before = most_.sequence == current ? most_.launches : 2 * uint64_t{launches};
  now_ = {current, std::move(iteration), before, before};
}

void Predictor::NoteFollowed() {
  if (options_.mode != PredictorMode::kObserve || in_force_ == nullptr ||
      tracker_.sequence() == policy::kNoSequence)
    return;
  os::MutexLock lock(&mu_);
  now_.launches = now_.launches_before + (trace_.end() - tracker_.start());
}

std::shared_ptr<const policy::IterationUses> Predictor::observed() const {
  os::MutexLock lock(&mu_);
  return now_.launches > most_.launches ? now_.iteration : most_.iteration;
}

void Predictor::Publish() {
  counts_.sequences = static_cast<uint32_t>(tracker_.sequences());
  counts_.kinds_timed = times_.kinds();
  counts_.launches = tracker_.counts().launches;
  counts_.followed = tracker_.counts().followed;
  os::MutexLock lock(&mu_);
  published_ = counts_;
}

// Drops the launches that the tracker no longer needs.
void Predictor::Trim() {
  const LaunchIndex kept = trace_.end() - trace_.begin();
  const LaunchIndex keep = tracker_.wanted();
  if (kept > 2 * keep + kLaunchesAtATime) trace_.DropBefore(trace_.end() - keep);
}

void Predictor::FreeRetired() {
  const Expectation* const current = expected_.load();
  if (readers_.load() != 0) return;
  std::erase_if(expectations_,
                [this, current](const auto& one) { return one.get() != current && one.get() != in_force_; });
}

}  // namespace spillway::integration
