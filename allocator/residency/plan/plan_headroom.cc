#include "allocator/residency/plan/plan_headroom.h"

#include <algorithm>
#include <utility>

namespace spillway::allocator {

using policy::Bytes;
using policy::LaunchIndex;

void PlanRoom::Reset(std::shared_ptr<const policy::MigrationPlan> plan, LaunchIndex now) {
  plan_ = std::move(plan);
  room_ = nullptr;
  changes_.clear();
  if (plan_ == nullptr || plan_->expected_bytes.size() != plan_->period) return;
  base_ = plan_->start + (std::max(now, plan_->start) - plan_->start) / plan_->period * plan_->period;
  Build();
}

void PlanRoom::Build() {
  std::vector<int64_t> values;
  values.reserve(size_t{plan_->period} * kPeriods);
  for (uint32_t i = 0; i < kPeriods; ++i)
    values.insert(values.end(), plan_->expected_bytes.begin(), plan_->expected_bytes.end());
  room_ = std::make_unique<policy::RangeMax>(values);
  for (const Change& change : changes_) Apply(change);
}

void PlanRoom::MoveTo(LaunchIndex now) {
  if (!known() || now < base_ + plan_->period) return;
  base_ += (now - base_) / plan_->period * plan_->period;
  std::erase_if(changes_, [now](const Change& change) { return change.end <= now; });
  Build();
}

size_t PlanRoom::PlaceOf(LaunchIndex index) const {
  return std::min<LaunchIndex>(index - std::min(index, base_), LaunchIndex{plan_->period} * kPeriods);
}

void PlanRoom::Apply(const Change& change) {
  room_->Add(PlaceOf(change.begin), PlaceOf(change.end), change.bytes);
}

void PlanRoom::Add(LaunchIndex begin, LaunchIndex end, int64_t bytes) {
  if (!known() || begin >= end) return;
  changes_.push_back({begin, end, bytes});
  Apply(changes_.back());
}

bool PlanRoom::Fits(LaunchIndex begin, LaunchIndex end, Bytes bytes) const {
  if (!known() || begin >= end) return true;
  const int64_t most = static_cast<int64_t>(plan_->budget_bytes) - static_cast<int64_t>(bytes);
  return room_->Max(PlaceOf(begin), PlaceOf(end)) <= most;
}

}  // namespace spillway::allocator
