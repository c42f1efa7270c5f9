#include "integration/prediction/predictor.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "allocator/residency/plan/plan_throttle.h"
#include "io/os/errno.h"
#include "io/os/thread.h"

namespace spillway::integration {
namespace {

using policy::LaunchIndex;

// How long the thread sleeps when it found something to do, and at most when there was nothing for long.
constexpr std::chrono::milliseconds kShortestNap(1);
constexpr std::chrono::milliseconds kLongestNap(64);
constexpr uint32_t kLaunchesAtATime = 4096;

}  // namespace

Predictor::Predictor(const PredictorOptions& options) : options_(options), tracker_(options.period) {
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
    const bool stepped = Step();
    const bool improved = Improve();
    nap = stepped || improved ? kShortestNap : std::min(2 * nap, kLongestNap);
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
  if (expected != nullptr && !expected->Matches(index, signature)) Depart(expected);
  readers_.fetch_sub(1);
}

void Predictor::Depart(const Expectation* expected) {
  if (!expected_.compare_exchange_strong(expected, nullptr)) return;  // another thread departed first
  departures_.fetch_add(1, std::memory_order_relaxed);
  period_.store(0, std::memory_order_relaxed);
  allocator::Residency* const residency = residency_.load();
  if (residency != nullptr && options_.foresight == Foresight::kPlan) residency->SetPlan(nullptr);
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
  PredictorStats stats;
  {
    os::MutexLock lock(&mu_);
    stats = published_;
  }
  stats.departures = departures_.load();
  stats.period = period_.load();
  return stats;
}

// ---- On the thread.

bool Predictor::Step() {
  const LaunchIndex before = trace_.end();
  const bool whole = recorder_.Drain(&trace_, kLaunchesAtATime);
  NoteSizes();
  FreeRetired();
  if (!whole) StartOver();
  const bool any = Feed(whole ? before : trace_.begin());
  if (tracker_.version() != settled_version_) PutInForce();
  if (any) {
    NoteFollowed();
    KeepUpToDate();
    Publish();
  }
  const uint32_t repeats = PeriodNow();
  if (options_.keep_step && any) followed_.Note(trace_, repeats);
  if (timer_ != nullptr) timer_->Step(trace_, repeats, sizes_, &times_);
  Trim();
  return any;
}

// Launches in the path that the job is on; 0: it is on none.
uint32_t Predictor::PeriodNow() const {
  const policy::PathId path = tracker_.path();
  return path == policy::kNoPath ? 0 : static_cast<uint32_t>(tracker_.PeriodOf(path).end());
}

std::optional<Predictor::Followed> Predictor::FollowedStep() const {
  const FollowedPeriod::Step* const step = followed_.Most();
  if (step == nullptr) return std::nullopt;
  Followed followed;
  followed.recorded = policy::MakeRecordedWorkload(step->trace, step->trace.begin(), step->period, sizes_,
                                                   &times_, writes_.get());
  followed.launches = step->trace;
  followed.followed = step->launches;
  followed.samples = timer_ == nullptr ? 0 : timer_->measured();
  return followed;
}

void Predictor::NoteSizes() {
  std::vector<policy::BlockEvent> allocations;
  recorder_.TakeAllocations(&allocations);
  for (const policy::BlockEvent& event : allocations) sizes_[event.block] = event.bytes;
  const size_t before = marks_.size();
  recorder_.TakeMarks(&marks_);
  counts_.marks += marks_.size() - before;
}

// Launches were lost.
void Predictor::StartOver() {
  ++counts_.lost;
  tracker_.Restart();
  if (const Expectation* const expected = expected_.load()) Depart(expected);
}

// Launches from `from` to the end of the trace.
bool Predictor::Feed(LaunchIndex from) {
  for (LaunchIndex index = from; index < trace_.end(); ++index)
    tracker_.Add(trace_, index, MarkedBefore(index));
  return from < trace_.end();
}

bool Predictor::MarkedBefore(LaunchIndex index) {
  bool marked = false;
  for (; !marks_.empty() && marks_.front() <= index; marks_.pop_front()) marked = true;
  return marked;
}

// The plan of the path that the job is on now, after it has left one or come to one.
void Predictor::PutInForce() {
  settled_version_ = tracker_.version();
  // Launches that came before the plan was in force are compared by the tracker alone.
  if (const Expectation* const expected = expected_.load()) Depart(expected);
  in_force_ = nullptr;
  const policy::PathId path = tracker_.path();
  if (path == policy::kNoPath || residency_.load() == nullptr) return;
  const policy::Trace& period = tracker_.PeriodOf(path);
  auto expectation = std::make_unique<Expectation>();
  expectation->start = tracker_.start();
  for (LaunchIndex index = period.begin(); index < period.end(); ++index) {
    expectation->signatures.push_back(period.at(index).signature);
  }
  period_.store(static_cast<uint32_t>(period.end()), std::memory_order_relaxed);
  lap_ = LapNow();
  entered_ = true;
  // Before the expectation is stored: a departure drops what it finds expected, and must not be overtaken by
  // this plan.
  if (options_.foresight == Foresight::kObserve) {
    Observe();
  } else {
    SetPlanOfPath();
  }
  in_force_ = expectation.get();
  expected_.store(in_force_);
  expectations_.push_back(std::move(expectation));
}

void Predictor::SetPlanOfPath() {
  std::erase_if(path_plans_, [this](const auto& one) { return !tracker_.Knows(one.first); });
  const policy::PathId path = tracker_.path();
  std::unique_ptr<PathPlan>& plan = path_plans_[path];
  if (plan == nullptr) {
    plan = std::make_unique<PathPlan>(tracker_.PeriodOf(path), sizes_, MachineNow(), Facts());
  } else {
    ++counts_.readoptions;
  }
  counts_.forecast = plan->forecast();
  if (options_.foresight == Foresight::kReckon) return;
  ++counts_.plans;
  if (allocator::Residency* const residency = residency_.load())
    residency->SetPlan(plan->From(tracker_.start()));
}

// Another plan for the path whose plan is in force.
void Predictor::Replace(bool better) {
  allocator::Residency* const residency = residency_.load();
  if (residency == nullptr || in_force_ == nullptr || expected_.load() != in_force_) return;
  PathPlan& plan = *path_plans_.at(tracker_.path());
  counts_.forecast = plan.forecast();
  if (options_.foresight == Foresight::kReckon) return;
  ++counts_.plans;
  counts_.improved += better ? 1 : 0;
  residency->SetPlan(plan.From(tracker_.start()));
  // Somebody departed meanwhile, and may have dropped the plan before this one.
  if (expected_.load() != in_force_) residency->SetPlan(nullptr);
}

// Room changes with others' allocations and refused chunks: the path is planned anew at once. All else is
// looked at when a step has ended, and better plans take over there.
void Predictor::KeepUpToDate() {
  if (options_.foresight == Foresight::kObserve || in_force_ == nullptr || expected_.load() != in_force_)
    return;
  const policy::PathId path = tracker_.path();
  const auto found = path_plans_.find(path);
  if (path == policy::kNoPath || found == path_plans_.end()) return;
  const policy::Trace& period = tracker_.PeriodOf(path);
  const policy::RuntimeMachine machine = MachineNow();
  const bool lap_ended = LapNow() != lap_;
  lap_ = LapNow();
  const bool look_over = (std::exchange(entered_, false) || lap_ended) && found->second->DueForALook();
  if (found->second->RoomChanged(machine) ||
      (look_over && found->second->OutOfDate(period, sizes_, machine, Facts()))) {
    auto plan = std::make_unique<PathPlan>(period, sizes_, machine, Facts());
    plan->GoOnFrom(*found->second);
    found->second = std::move(plan);
    Replace(/*better=*/false);
  } else if (lap_ended && found->second->HasBetter()) {
    Replace(/*better=*/true);
  }
}

bool Predictor::Improve() {
  if (options_.foresight != Foresight::kPlan || in_force_ == nullptr || expected_.load() != in_force_)
    return false;
  const auto found = path_plans_.find(tracker_.path());
  if (found == path_plans_.end()) return false;
  const bool more = found->second->Improve();
  counts_.forecast = found->second->forecast();
  return more;
}

// Times that the path's period has been gone through since its start.
uint64_t Predictor::LapNow() const {
  const policy::PathId path = tracker_.path();
  if (path == policy::kNoPath || trace_.end() < tracker_.start()) return 0;
  return (trace_.end() - tracker_.start()) / tracker_.PeriodOf(path).end();
}

policy::RuntimeMachine Predictor::MachineNow() const {
  policy::RuntimeMachine machine;
  const allocator::Residency* const residency = residency_.load();
  if (residency != nullptr) {
    const allocator::ResidencyStats stats = residency->Stats();
    machine.machine.gpu_bytes = stats.chunk_target_bytes;
    machine.machine.pcie_in = stats.host_in_rate;
    machine.machine.pcie_out = stats.host_out_rate;
    machine.machine.ssd_read = stats.disk_in_rate;
    machine.machine.ssd_write = stats.disk_out_rate;
  }
  machine.machine.host_bytes = options_.host_bytes;
  machine.has_disk = options_.has_disk;
  machine.run_ahead_nanos = allocator::PlanPace::kNanosAhead;
  machine.run_ahead_launches = allocator::PlanPace::kLaunchesAhead;
  return machine;
}

LearntFacts Predictor::Facts() {
  if (options_.write_facts) writes_ = options_.write_facts();
  return {&times_, writes_.get()};
}

void Predictor::Observe() {
  const policy::PathId path = tracker_.path();
  const policy::Trace& period = tracker_.PeriodOf(path);
  const auto launches = static_cast<uint32_t>(period.end());
  auto cycle = std::make_shared<const policy::Cycle>(policy::MakeCycle(period, 0, launches, sizes_));
  os::MutexLock lock(&mu_);
  if (now_.path == path) {
    now_.launches_before = now_.launches;
    return;
  }
  if (now_.launches > most_.launches) std::swap(now_, most_);
  // Seen twice before it is known to repeat.
  const uint64_t before = most_.path == path ? most_.launches : 2 * uint64_t{launches};
  now_ = {path, std::move(cycle), before, before};
}

void Predictor::NoteFollowed() {
  if (options_.foresight != Foresight::kObserve || in_force_ == nullptr || tracker_.path() == policy::kNoPath)
    return;
  os::MutexLock lock(&mu_);
  now_.launches = now_.launches_before + (trace_.end() - tracker_.start());
}

std::shared_ptr<const policy::Cycle> Predictor::observed() const {
  os::MutexLock lock(&mu_);
  return now_.launches > most_.launches ? now_.cycle : most_.cycle;
}

void Predictor::Publish() {
  counts_.paths = static_cast<uint32_t>(tracker_.paths());
  counts_.kinds_timed = times_.kinds();
  counts_.launches = tracker_.counts().launches;
  counts_.followed = tracker_.counts().followed;
  os::MutexLock lock(&mu_);
  published_ = counts_;
}

// What is neither looked through nor learnt from any more.
void Predictor::Trim() {
  const LaunchIndex held = trace_.end() - trace_.begin();
  const LaunchIndex keep = tracker_.wanted();
  if (held > 2 * keep + kLaunchesAtATime) trace_.DropBefore(trace_.end() - keep);
}

void Predictor::FreeRetired() {
  const Expectation* const current = expected_.load();
  if (readers_.load() != 0) return;
  std::erase_if(expectations_,
                [this, current](const auto& one) { return one.get() != current && one.get() != in_force_; });
}

}  // namespace spillway::integration
