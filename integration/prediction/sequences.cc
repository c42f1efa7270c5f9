#include "integration/prediction/sequences.h"

#include <algorithm>
#include <utility>

namespace spillway::integration {
namespace {

// Room, rates and times that differ by no more than this share of what was planned with leave a plan in
// force.
constexpr double kRoomChange = 1.0 / 32, kRateChange = 0.5, kTimeChange = 0.15;

bool Differs(double now, double then, double share) {
  return std::max(now, then) - std::min(now, then) > share * std::max(then, 1.0);
}

policy::RecordedWorkload Recorded(const policy::Trace& period, const policy::BlockSizes& sizes,
                                  const LearntFacts& facts) {
  return policy::MakeRecordedWorkload(period, period.begin(),
                                      static_cast<uint32_t>(period.end() - period.begin()), sizes,
                                      facts.times, facts.writes);
}

policy::Nanos IdealTime(const policy::Trace& period, const policy::BlockSizes& sizes,
                        const policy::KernelTimes* times) {
  if (times == nullptr) return 0;
  policy::Nanos sum = 0;
  std::vector<policy::Bytes> bytes;
  for (policy::LaunchIndex i = period.begin(); i < period.end(); ++i) {
    const policy::LaunchRecord launch = period.at(i);
    bytes.clear();
    for (const policy::TraceBlock block : launch.blocks) {
      const auto size = sizes.find(block);
      bytes.push_back(size == sizes.end() ? 0 : size->second);
    }
    const policy::Nanos measured = times->Of(policy::KindOf(launch.tag, bytes));
    sum += measured != 0 ? measured : times->Typical();
  }
  return sum;
}

}  // namespace

// ---- The plan of one.

PathPlan::PathPlan(const policy::Trace& period, const policy::BlockSizes& sizes,
                   const policy::RuntimeMachine& machine, const LearntFacts& facts)
    : machine_(machine),
      ideal_(IdealTime(period, sizes, facts.times)),
      writes_version_(facts.writes == nullptr ? 0 : facts.writes->version()),
      planner_(std::make_unique<policy::RuntimePlanner>(Recorded(period, sizes, facts), machine)) {}

std::shared_ptr<const policy::MigrationPlan> PathPlan::From(policy::LaunchIndex start) {
  handed_out_ = planner_->Plan();
  if (handed_out_ == nullptr || handed_out_->start == start) return handed_out_;
  auto moved = std::make_shared<policy::MigrationPlan>(*handed_out_);
  moved->start = start;
  return moved;
}

bool PathPlan::Improve() { return more_ = more_ && planner_->Improve(); }

bool PathPlan::RoomChanged(const policy::RuntimeMachine& machine) const {
  const auto changed = [](policy::Bytes now, policy::Bytes then) {
    return Differs(static_cast<double>(now), static_cast<double>(then), kRoomChange);
  };
  return changed(machine.machine.gpu_bytes, machine_.machine.gpu_bytes) ||
         changed(machine.machine.host_bytes, machine_.machine.host_bytes);
}

bool PathPlan::OutOfDate(const policy::Trace& period, const policy::BlockSizes& sizes,
                         const policy::RuntimeMachine& machine, const LearntFacts& facts) const {
  const policy::Machine& now = machine.machine;
  const policy::Machine& then = machine_.machine;
  for (const auto rate : {&policy::Machine::pcie_in, &policy::Machine::pcie_out, &policy::Machine::ssd_read,
                          &policy::Machine::ssd_write}) {
    if (now.*rate > 0 && Differs(now.*rate, then.*rate, kRateChange)) return true;
  }
  if (facts.writes != nullptr && facts.writes->version() != writes_version_) return true;
  const policy::Nanos ideal = IdealTime(period, sizes, facts.times);
  if (ideal == 0) return false;
  return Differs(static_cast<double>(ideal), static_cast<double>(ideal_), kTimeChange);
}

// ---- The one that is followed for the longest.

// The last two periods are there and equal, so that what lies in the last is one step and no passage to
// another.
bool FollowedPeriod::Repeats(const policy::Trace& trace, uint32_t period) {
  if (trace.end() - trace.begin() < 2 * policy::LaunchIndex{period}) return false;
  for (policy::LaunchIndex index = trace.end() - period; index < trace.end(); ++index) {
    if (trace.at(index).signature != trace.at(index - period).signature) return false;
  }
  return true;
}

FollowedPeriod::Step* FollowedPeriod::Of(uint32_t period) {
  const auto found = std::ranges::find(steps_, period, &Step::period);
  if (found != steps_.end()) return &*found;
  if (steps_.size() == kMostSteps) steps_.erase(std::ranges::min_element(steps_, {}, &Step::launches));
  steps_.push_back({{}, period, 0});
  return &steps_.back();
}

void FollowedPeriod::Note(const policy::Trace& trace, uint32_t period) {
  const policy::LaunchIndex before = std::exchange(noted_to_, trace.end());
  if (period == 0 || period != period_) copied_at_ = 0;
  period_ = period;
  if (period == 0) return;
  Step* const step = Of(period);
  step->launches += trace.end() - std::clamp(before, trace.begin(), trace.end());
  // Again now and then: the first steps of a job hand out blocks that later ones do not, and the copies must
  // not cost more than following.
  const bool due = copied_at_ == 0 || step->launches >= 2 * copied_at_;
  if (!due || !Repeats(trace, period)) return;
  step->trace = trace.Slice(trace.end() - period, trace.end());
  copied_at_ = std::max<uint64_t>(step->launches, period);
}

const FollowedPeriod::Step* FollowedPeriod::Most() const {
  const Step* most = nullptr;
  for (const Step& step : steps_) {
    const bool whole = step.trace.end() - step.trace.begin() == step.period;
    if (whole && (most == nullptr || step.launches > most->launches)) most = &step;
  }
  return most;
}

}  // namespace spillway::integration
