#include "policy/planner/plan_hints.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

namespace spillway::policy {

PlanHints::PlanHints(const Trace& iteration, const MigrationPlan& plan) {
  for (LaunchIndex index = iteration.begin(); index < iteration.end(); ++index) {
    const LaunchRecord launch = iteration.at(index);
    persistent_.insert(launch.blocks.begin(), launch.blocks.end());
  }
  for (const BlockEvent& event : iteration.events()) persistent_.erase(event.block);
  for (LaunchIndex index = iteration.begin(); index < iteration.end(); ++index)
    positions_[PlaceOf(iteration.at(index))].push_back(static_cast<uint32_t>(index - iteration.begin()));
  auto hints = std::make_shared<MigrationPlan>(plan);
  hints->hints = true;
  std::erase_if(hints->ops, [this](const PlanOp& op) {
    return op.kind == PlanOpKind::kDrop || !persistent_.contains(op.block);
  });
  // The plan's expected bytes are those of another form of the iteration, so its budget limits nothing: free
  // memory alone decides what fits.
  hints->budget_bytes = std::numeric_limits<int64_t>::max() / 4;
  start_ = plan.start;
  plan_ = std::move(hints);
}

std::shared_ptr<const MigrationPlan> PlanHints::Plan() {
  if (plan_ != nullptr && plan_->start != start_) {
    auto moved = std::make_shared<MigrationPlan>(*plan_);
    moved->start = start_;
    plan_ = std::move(moved);
  }
  return plan_;
}

uint64_t PlanHints::PlaceOf(const LaunchRecord& launch) const {
  SignatureBuilder signature(launch.tag);
  for (const TraceBlock block : launch.blocks) {
    if (persistent_.contains(block)) signature.Add(block);
  }
  return signature.value();
}

// The position that is the fewest launches away, around the iteration's end, too.
uint32_t PlanHints::Nearest(const std::vector<uint32_t>& positions, uint32_t expected) const {
  const uint32_t size = plan_->iteration_launches;
  const auto after = std::ranges::lower_bound(positions, expected);
  const uint32_t ahead = after == positions.end() ? positions.front() : *after;
  const uint32_t behind = after == positions.begin() ? positions.back() : *std::prev(after);
  return (ahead + size - expected) % size <= (expected + size - behind) % size ? ahead : behind;
}

bool PlanHints::Follow(LaunchIndex index, const LaunchRecord& launch) {
  if (plan_ == nullptr || index < start_) return false;
  const auto found = positions_.find(PlaceOf(launch));
  if (found == positions_.end()) {
    if (++strange_ <= plan_->iteration_launches / 4) return false;
    plan_ = nullptr;
    return true;
  }
  strange_ = 0;
  const auto expected = static_cast<uint32_t>((index - start_) % plan_->iteration_launches);
  const uint32_t position = Nearest(found->second, expected);
  if (position == expected || index < position) return false;
  start_ = index - position;
  return true;
}

}  // namespace spillway::policy
