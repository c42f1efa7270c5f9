#include "allocator/residency/plan/plan_throttle.h"

#include <algorithm>

namespace spillway::allocator {
namespace {

// Longest time between events, so that the host soon sees that it may go on.
constexpr policy::Nanos kNanosBetweenEvents = 500'000;

}  // namespace

void PlanThrottle::Set(std::unique_ptr<const Table> table) {
  table_.store(table.get());
  if (table != nullptr) tables_.push_back(std::move(table));
  FreeRetired();
}

void PlanThrottle::FreeRetired() {
  const Table* const current = table_.load();
  if (tables_.empty() || (tables_.size() == 1 && tables_[0].get() == current) || readers_.load() != 0) return;
  std::erase_if(tables_, [current](const auto& table) { return table.get() != current; });
}

std::unique_ptr<const PlanThrottle::Table> PlanThrottle::MakeTable(const policy::MigrationPlan& plan) {
  auto table = std::make_unique<Table>();
  table->start = plan.start;
  table->ahead.assign(plan.iteration_launches, 0);
  table->event.assign(plan.iteration_launches, 0);
  for (const policy::PlanOp& op : plan.ops) {
    if (op.kind != policy::PlanOpKind::kFetch && op.launch < plan.iteration_launches)
      table->event[op.launch] = 1;
  }
  // The host may be as far ahead as it likes when nothing is to be moved.
  if (plan.ops.empty() || plan.durations.size() != plan.iteration_launches) return table;
  policy::Nanos since_event = 0;
  for (uint32_t position = 0; position < plan.iteration_launches; ++position) {
    since_event += plan.durations[position];
    if (since_event >= kNanosBetweenEvents) table->event[position] = 1;
    if (table->event[position] != 0) since_event = 0;
  }
  table->event[plan.iteration_launches - 1] = 1;
  for (uint32_t position = 0; position < plan.iteration_launches; ++position) {
    table->ahead[position] = plan.LaunchesAhead(position);
  }
  return table;
}

bool PlanThrottle::EventAfter(policy::LaunchIndex index) const {
  if (!active()) return false;
  readers_.fetch_add(1);
  const Table* const table = table_.load();
  const bool due = table != nullptr && index >= table->start &&
                   table->event[(index - table->start) % table->event.size()] != 0;
  readers_.fetch_sub(1);
  return due;
}

policy::LaunchIndex PlanThrottle::MustHaveCompleted(policy::LaunchIndex index) const {
  if (!active()) return policy::kNever;
  readers_.fetch_add(1);
  const Table* const table = table_.load();
  uint32_t ahead = 0;
  if (table != nullptr && index >= table->start)
    ahead = table->ahead[(index - table->start) % table->ahead.size()];
  readers_.fetch_sub(1);
  return ahead == 0 || index < ahead + uint64_t{1} ? policy::kNever : index - ahead - 1;
}

}  // namespace spillway::allocator
