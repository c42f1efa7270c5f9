#include "integration/hooks/predictor.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "io/os/thread.h"

namespace spillway::integration {
namespace {

using policy::LaunchIndex;

// How long the thread sleeps when it found something to do, and at most when there was nothing for long.
constexpr std::chrono::milliseconds kShortestNap(1);
constexpr std::chrono::milliseconds kLongestNap(64);
constexpr uint32_t kLaunchesAtATime = 4096;
// Launches that a transfer is taken to need. Until the cost of transfers is measured, a guess on the safe side.
constexpr uint32_t kTransferLaunches = 8;

}  // namespace

Predictor::Predictor(const PredictorOptions& options) : options_(options), finder_(options.period) {
  if (options.driver == nullptr) return;
  LaunchTimerOptions timer;
  timer.driver = options.driver;
  timer.context = options.context;
  timer_ = std::make_unique<LaunchTimer>(timer, &wants_marks_);
}

Predictor::~Predictor() { Stop(); }

void Predictor::Start(allocator::Residency* residency) {
  UsePlansOf(residency);
  thread_ = os::StartThread("spillway-plan", [this] { Loop(); });
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
    nap = Step() ? kShortestNap : std::min(2 * nap, kLongestNap);
    os::MutexLock lock(&mu_);
    if (!stop_) wake_.WaitFor(&mu_, nap);
    if (stop_) return;
  }
}

// ---- On the launching thread.

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
  readers_.fetch_add(
      1);  // sequentially consistent with FreeRetired: it sees us, or we see what is in force now
  const Expectation* const expected = expected_.load();
  if (expected != nullptr && !expected->Matches(index, signature)) Depart(expected, index);
  readers_.fetch_sub(1);
}

void Predictor::Depart(const Expectation* expected, LaunchIndex index) {
  if (!expected_.compare_exchange_strong(expected, nullptr)) return;  // another thread departed first
  departures_.fetch_add(1, std::memory_order_relaxed);
  period_.store(0, std::memory_order_relaxed);
  allocator::Residency* const residency = residency_.load();
  if (residency != nullptr && options_.foresight == Foresight::kPlan) residency->SetPlan(nullptr);
  departed_at_.store(index);
}

void Predictor::OnAllocate(int, allocator::BlockId block, uint64_t bytes) {
  recorder_.AddAllocate(block, bytes);
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
  return {plans_.load(), departures_.load(), lost_.load(), period_.load()};
}

// ---- On the thread.

bool Predictor::Step() {
  const LaunchIndex before = trace_.end();
  const bool whole = recorder_.Drain(&trace_, kLaunchesAtATime);
  NoteSizes();
  FreeRetired();
  if (!whole) {
    lost_.fetch_add(1, std::memory_order_relaxed);
    if (const Expectation* const expected = expected_.load()) Depart(expected, trace_.begin());
    departed_at_.store(policy::kNever);
    planned_ = false;
    finder_.Restart();
  }
  const bool any = Feed(whole ? before : trace_.begin());
  if (any) {
    NoteFollowed();
    PlanAgainIfRoomChanged();
  }
  const uint32_t repeats = planned_ ? planned_period_ : 0;
  if (options_.keep_step && any) followed_.Note(trace_, repeats);
  if (timer_ != nullptr) timer_->Step(trace_, repeats, sizes_, &times_);
  Trim();
  return any;
}

std::optional<Predictor::Followed> Predictor::FollowedStep() const {
  const FollowedPeriod::Step* const step = followed_.Most();
  if (step == nullptr) return std::nullopt;
  Followed followed;
  followed.recorded = policy::MakeRecordedWorkload(step->trace, step->trace.begin(), step->period, sizes_,
                                                   &times_, nullptr);
  followed.launches = step->trace;
  followed.followed = step->launches;
  followed.samples = timer_ == nullptr ? 0 : timer_->measured();
  return followed;
}

void Predictor::NoteSizes() {
  std::vector<policy::BlockEvent> allocations;
  recorder_.TakeAllocations(&allocations);
  for (const policy::BlockEvent& event : allocations) sizes_[event.block] = event.bytes;
}

// Launches from `from` to the end of the trace.
bool Predictor::Feed(LaunchIndex from) {
  for (LaunchIndex index = from; index < trace_.end(); ++index) {
    if (planned_ && FollowsPlan(index)) continue;
    const uint32_t period = finder_.Add(trace_, index);
    if (period != 0) PlanUpTo(index + 1, period);
  }
  return from < trace_.end();
}

// False from the launch on at which the job departed from the plan. Launches that came before the plan was in
// force are compared here, the others were by their own threads.
bool Predictor::FollowsPlan(LaunchIndex index) {
  const Expectation* const expected = expected_.load();
  if (expected != nullptr && !expected->Matches(index, trace_.at(index).signature)) Depart(expected, index);
  const LaunchIndex departed = departed_at_.load();
  if (index < departed) return true;
  departed_at_.store(policy::kNever);
  planned_ = false;
  finder_.OnDeparture(departed - std::min(departed, planned_at_));
  return false;
}

// Bytes for resident blocks. A sixteenth is left out: blocks leave and arrive later than the plan, which knows no
// transfer times, would have it.
uint64_t Predictor::Room() const {
  const allocator::Residency* const residency = residency_.load();
  if (residency == nullptr) return 0;
  const allocator::ResidencyStats stats = residency->Stats();
  const uint64_t room = stats.chunk_target_bytes;
  const uint64_t spare = room - std::min(room, stats.largest_set_bytes);
  return room - std::min(room / 6, spare);
}

// The `period` launches before `end` will come again.
void Predictor::PlanUpTo(LaunchIndex end, uint32_t period) {
  if (residency_.load() == nullptr) return;
  auto expectation = std::make_unique<Expectation>();
  expectation->start = end;
  for (LaunchIndex index = end - period; index < end; ++index) {
    expectation->signatures.push_back(trace_.at(index).signature);
  }
  planned_ = true;
  planned_at_ = end;
  planned_period_ = period;
  period_.store(period, std::memory_order_relaxed);
  if (options_.foresight == Foresight::kObserve) {
    ObserveUpTo(end, period);
  } else {
    MakePlanUpTo(end, period);
  }
  expected_.store(expectation.get());
  expectations_.push_back(std::move(expectation));
}

// Before the expectation is stored: a departure drops what it finds expected, and must not be overtaken by this plan.
void Predictor::MakePlanUpTo(LaunchIndex end, uint32_t period) {
  allocator::Residency* const residency = residency_.load();
  if (residency == nullptr) return;
  policy::PlannerOptions limits;
  limits.budget_bytes = planned_room_ = Room();
  limits.host_bytes = options_.host_bytes;
  limits.run_ahead_bytes = residency->Stats().run_ahead_bytes;
  limits.transfer_launches = kTransferLaunches;
  auto plan = policy::MakePlan(trace_, end - period, period, sizes_, limits);
  plans_.fetch_add(1, std::memory_order_relaxed);
  residency->SetPlan(std::move(plan));
}

void Predictor::ObserveUpTo(LaunchIndex end, uint32_t period) {
  auto cycle = std::make_shared<const policy::Cycle>(policy::MakeCycle(trace_, end - period, period, sizes_));
  os::MutexLock lock(&mu_);
  if (now_.launches > most_.launches) most_ = std::move(now_);
  now_ = {std::move(cycle), 2 * uint64_t{period}};
}

void Predictor::NoteFollowed() {
  if (options_.foresight != Foresight::kObserve || !planned_) return;
  os::MutexLock lock(&mu_);
  now_.launches = 2 * uint64_t{planned_period_} + (trace_.end() - planned_at_);
}

std::shared_ptr<const policy::Cycle> Predictor::observed() const {
  os::MutexLock lock(&mu_);
  return now_.launches > most_.launches ? now_.cycle : most_.cycle;
}

// Others' allocations and refused chunks change the room; the same period is then planned anew.
void Predictor::PlanAgainIfRoomChanged() {
  if (!planned_ || options_.foresight == Foresight::kObserve) return;
  const uint64_t room = Room();
  const uint64_t change = room > planned_room_ ? room - planned_room_ : planned_room_ - room;
  if (change <= planned_room_ / 32) return;
  const LaunchIndex periods = (trace_.end() - planned_at_) / planned_period_;
  const LaunchIndex end = planned_at_ + periods * planned_period_;
  const Expectation* expected = expected_.load();
  if (expected == nullptr || end - trace_.begin() < planned_period_) return;
  if (expected_.compare_exchange_strong(expected, nullptr)) PlanUpTo(end, planned_period_);
}

// What is neither looked through nor planned from any more.
void Predictor::Trim() {
  const LaunchIndex held = trace_.end() - trace_.begin();
  const LaunchIndex keep =
      planned_ ? 2 * LaunchIndex{planned_period_} : 2 * LaunchIndex{options_.period.longest};
  if (held > 2 * keep + kLaunchesAtATime) trace_.DropBefore(trace_.end() - keep);
}

void Predictor::FreeRetired() {
  const Expectation* const current = expected_.load();
  if (readers_.load() != 0) return;
  std::erase_if(expectations_, [current](const auto& one) { return one.get() != current; });
}

}  // namespace spillway::integration
