#include "integration/prediction/sequence_plan.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace spillway::integration {
namespace {

// Room, rates and times that differ by no more than this share of what was planned with leave a plan in force.
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

}  // namespace spillway::integration
