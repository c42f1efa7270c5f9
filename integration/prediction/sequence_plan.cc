#include "integration/prediction/sequence_plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace spillway::integration {
namespace {

// A plan stays in force while memory, rates and times differ by no more than these shares from those that it
// was made with.
constexpr double kMemoryChange = 1.0 / 32, kRateChange = 0.5, kTimeChange = 0.15;
// Nor does the part of its rate that a direction of the link keeps while both run, by more than this.
constexpr double kLossChange = 0.1;
// A plan that makes an iteration longer by no more than this share leaves nothing to gain.
constexpr double kWorthMore = 0.002;

bool Differs(double now, double then, double share) {
  return std::max(now, then) - std::min(now, then) > share * std::max(then, 1.0);
}

policy::RecordedWorkload Recorded(const policy::Trace& sequence, const policy::BlockSizes& sizes,
                                  const LearntFacts& facts) {
  return policy::MakeRecordedWorkload(sequence, sequence.begin(),
                                      static_cast<uint32_t>(sequence.end() - sequence.begin()), sizes,
                                      facts.times, facts.writes);
}

policy::Nanos IdealTime(const policy::Trace& sequence, const policy::BlockSizes& sizes,
                        const policy::KernelTimes* times) {
  if (times == nullptr) return 0;
  policy::Nanos sum = 0;
  for (policy::LaunchIndex i = sequence.begin(); i < sequence.end(); ++i) {
    const policy::LaunchIndex behind = i + 1 < sequence.end() ? i + 1 : sequence.begin();
    const policy::Nanos measured = times->Of(policy::KindAt(sequence, i, behind, sizes));
    sum += measured != 0 ? measured : times->Typical();
  }
  return sum;
}

}  // namespace

// ---- The plan of one sequence.

SequencePlan::SequencePlan(const policy::Trace& sequence, const policy::BlockSizes& sizes,
                           const policy::RuntimeMachine& machine, const LearntFacts& facts)
    : machine_(machine),
      ideal_(IdealTime(sequence, sizes, facts.times)),
      writes_version_(facts.writes == nullptr ? 0 : facts.writes->version()),
      recorded_(Recorded(sequence, sizes, facts)),
      planner_(std::make_unique<policy::RuntimePlanner>(recorded_, machine)) {
  for (policy::LaunchIndex i = sequence.begin(); i < sequence.end(); ++i) {
    const policy::LaunchRecord launch = sequence.at(i);
    const policy::LaunchForm form{launch.tag, static_cast<uint32_t>(launch.blocks.size())};
    accesses_ += form.blocks;
    for (uint32_t operand = 0; facts.writes != nullptr && operand < form.blocks; ++operand)
      accesses_known_ += facts.writes->Of(form, operand) != policy::Writes::kUnknown ? 1 : 0;
  }
}

// Whether a plan that leaves less memory free may be used, and could bring something.
bool SequencePlan::MayBeSteady() const {
  const policy::Forecast now = planner_->forecast();
  return iterations_ >= policy::kSteadyIterations &&
         static_cast<double>(now.iteration) > (1 + kWorthMore) * static_cast<double>(now.bound);
}

// The steady one only when all its trials have been made: the other has had them.
const policy::RuntimePlanner& SequencePlan::Best() const {
  const bool steady = steady_ != nullptr && !more_steady_ && MayBeSteady() && steady_->Plan() != nullptr &&
                      steady_->forecast().iteration < planner_->forecast().iteration;
  return steady ? *steady_ : *planner_;
}

std::shared_ptr<const policy::MigrationPlan> SequencePlan::From(policy::LaunchIndex start) {
  handed_out_ = Best().Plan();
  if (handed_out_ == nullptr || handed_out_->start == start) return handed_out_;
  auto moved = std::make_shared<policy::MigrationPlan>(*handed_out_);
  moved->start = start;
  return moved;
}

bool SequencePlan::Improve() {
  if (more_ && (more_ = planner_->Improve())) return true;
  if (!more_steady_ || !MayBeSteady()) return false;
  if (steady_ == nullptr) {
    steady_ = std::make_unique<policy::RuntimePlanner>(std::move(recorded_), policy::WhenSteady(machine_));
    return true;
  }
  return more_steady_ = steady_->Improve();
}

bool SequencePlan::MemoryChanged(const policy::RuntimeMachine& machine) const {
  const auto changed = [](policy::Bytes now, policy::Bytes then) {
    return Differs(static_cast<double>(now), static_cast<double>(then), kMemoryChange);
  };
  const policy::Bytes gpu = machine.machine.gpu_bytes, planned = machine_.machine.gpu_bytes;
  // A plan without moves has no margin.
  if (gpu < planned && planner_->Fits(planned) && !planner_->Fits(gpu)) return true;
  return changed(gpu, planned) || changed(machine.machine.host_bytes, machine_.machine.host_bytes);
}

bool SequencePlan::OutOfDate(const policy::Trace& sequence, const policy::BlockSizes& sizes,
                             const policy::RuntimeMachine& machine, const LearntFacts& facts) const {
  const policy::Machine& now = machine.machine;
  const policy::Machine& then = machine_.machine;
  if (planner_->Fits(now.gpu_bytes) != planner_->Fits(then.gpu_bytes)) return true;
  for (const auto rate : {&policy::Machine::pcie_in, &policy::Machine::pcie_out, &policy::Machine::ssd_read,
                          &policy::Machine::ssd_write}) {
    if (now.*rate > 0 && Differs(now.*rate, then.*rate, kRateChange)) return true;
  }
  // The link has been measured since, or anew.
  const auto loss = [](const policy::Machine& of, double policy::LinkRates::*member, double alone) {
    return policy::DirectionsShare(of) && alone > 0 ? of.pcie_both.*member / alone : 1;
  };
  if (std::abs(loss(now, &policy::LinkRates::in, now.pcie_in) -
               loss(then, &policy::LinkRates::in, then.pcie_in)) > kLossChange ||
      std::abs(loss(now, &policy::LinkRates::out, now.pcie_out) -
               loss(then, &policy::LinkRates::out, then.pcie_out)) > kLossChange)
    return true;
  if (facts.writes != nullptr && facts.writes->version() != writes_version_) return true;
  const policy::Nanos ideal = IdealTime(sequence, sizes, facts.times);
  if (ideal == 0) return false;
  return Differs(static_cast<double>(ideal), static_cast<double>(ideal_), kTimeChange);
}

// ---- The iteration that was followed for the longest.

// Whether the last two iterations are there and equal, so that the last is one iteration and not the passage
// from one to another.
bool FollowedIterations::Repeats(const policy::Trace& trace, uint32_t launches) {
  if (trace.end() - trace.begin() < 2 * policy::LaunchIndex{launches}) return false;
  for (policy::LaunchIndex index = trace.end() - launches; index < trace.end(); ++index) {
    if (trace.at(index).signature != trace.at(index - launches).signature) return false;
  }
  return true;
}

FollowedIterations::Iteration* FollowedIterations::Of(uint32_t launches) {
  const auto found = std::ranges::find(iterations_, launches, &Iteration::launches);
  if (found != iterations_.end()) return &*found;
  if (iterations_.size() == kMaxKept) {
    iterations_.erase(std::ranges::min_element(iterations_, {}, &Iteration::followed));
  }
  iterations_.push_back({{}, launches, 0});
  return &iterations_.back();
}

void FollowedIterations::Record(const policy::Trace& trace, uint32_t iteration_launches,
                                std::optional<policy::LaunchIndex> last_mark) {
  const policy::LaunchIndex before = std::exchange(recorded_to_, trace.end());
  if (iteration_launches == 0 || iteration_launches != iteration_launches_) copied_at_ = 0;
  iteration_launches_ = iteration_launches;
  if (iteration_launches == 0) return;
  Iteration* const iteration = Of(iteration_launches);
  iteration->followed += trace.end() - std::clamp(before, trace.begin(), trace.end());
  // The copy is made again now and then: a job's first iterations hand out blocks that later ones do not.
  // Copying must not cost more than following.
  const bool due = copied_at_ == 0 || iteration->followed >= 2 * copied_at_;
  if (!due || !Repeats(trace, iteration_launches)) return;
  iteration->trace = trace.Slice(trace.end() - iteration_launches, trace.end());
  iteration->first.reset();
  // The mark may be that of the iteration before, or stand behind the last launch: launches repeat.
  const policy::LaunchIndex begin = iteration->trace.begin();
  if (last_mark && *last_mark + iteration_launches >= begin && *last_mark <= iteration->trace.end())
    iteration->first = begin + (*last_mark + iteration_launches - begin) % iteration_launches;
  copied_at_ = std::max<uint64_t>(iteration->followed, iteration_launches);
}

const FollowedIterations::Iteration* FollowedIterations::Most() const {
  const Iteration* most = nullptr;
  for (const Iteration& iteration : iterations_) {
    const bool whole = iteration.trace.end() - iteration.trace.begin() == iteration.launches;
    if (whole && (most == nullptr || iteration.followed > most->followed)) most = &iteration;
  }
  return most;
}

}  // namespace spillway::integration
