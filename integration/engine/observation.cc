#include "integration/engine/observation.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "integration/engine/bytes_text.h"

namespace spillway::integration {
namespace {

constexpr int kPercents[] = {30, 50, 70};

ObservedBudget At(const policy::Cycle& cycle, const ObservedStep& step, int percent, uint64_t budget) {
  const uint64_t blocks = budget - std::min(budget, step.others_bytes);
  return {percent, budget, policy::TrafficOf(cycle, blocks)};
}

std::string Line(const ObservedStep& step, const ObservedBudget& budget) {
  const std::string name =
      budget.percent == 0 ? "SPILLWAY_GPU_MEMORY" : absl::StrFormat("%d %%", budget.percent);
  const std::string head = absl::StrFormat("observe: %s = %s: ", name, BytesText(budget.budget_bytes));
  if (!budget.traffic.possible) {
    return head + absl::StrFormat("too little, the largest launch needs %s and others hold %s",
                                  BytesText(step.largest_set_bytes), BytesText(step.others_bytes));
  }
  return head + absl::StrFormat("at least %s back (whole blocks, farthest next use: %s)",
                                BytesText(budget.traffic.least_fetched_bytes),
                                BytesText(budget.traffic.whole_block_fetched_bytes));
}

}  // namespace

ObservedStep ObserveStep(const policy::Cycle* cycle, const allocator::ResidencyStats& stats,
                         std::optional<uint64_t> set_bytes) {
  ObservedStep step;
  if (cycle == nullptr) return step;
  step.launches = cycle->period;
  step.peak_bytes = stats.peak_device_bytes;
  step.others_bytes = stats.others_bytes;
  step.largest_set_bytes = policy::LargestSetOf(*cycle);
  for (const int percent : kPercents) {
    const uint64_t budget = stats.peak_device_bytes / 100 * static_cast<uint64_t>(percent);
    step.budgets.push_back(At(*cycle, step, percent, budget));
  }
  if (set_bytes) step.budgets.push_back(At(*cycle, step, 0, *set_bytes));
  return step;
}

std::vector<std::string> ObservationLines(int device, const ObservedStep& step) {
  if (step.launches == 0) {
    return {absl::StrFormat("observe: GPU %d: no step repeated, so nothing is known about smaller budgets",
                            device)};
  }
  std::vector<std::string> lines = {
      absl::StrFormat("observe: GPU %d: a step is %d launches, the peak %s; a smaller budget moves each "
                      "step, and as much out "
                      "where blocks change:",
                      device, step.launches, BytesText(step.peak_bytes))};
  for (const ObservedBudget& budget : step.budgets) lines.push_back(Line(step, budget));
  return lines;
}

}  // namespace spillway::integration
