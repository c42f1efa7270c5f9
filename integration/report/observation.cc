#include "integration/report/observation.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "io/os/bytes_text.h"

namespace spillway::integration {
namespace {

constexpr int kPercents[] = {30, 50, 70};

ObservedBudget At(const policy::IterationUses& uses, const ObservedIteration& iteration, int percent,
                  uint64_t budget) {
  const uint64_t blocks = budget - std::min(budget, iteration.external_bytes);
  return {percent, budget, policy::TrafficOf(uses, blocks)};
}

std::string Line(const ObservedIteration& iteration, const ObservedBudget& budget) {
  const std::string name =
      budget.percent == 0 ? "SPILLWAY_GPU_MEMORY" : absl::StrFormat("%d %%", budget.percent);
  const std::string head = absl::StrFormat("observe: %s = %s: ", name, os::BytesText(budget.budget_bytes));
  if (!budget.traffic.possible) {
    return head + absl::StrFormat("too little, the largest launch needs %s and external memory takes %s",
                                  os::BytesText(iteration.largest_set_bytes),
                                  os::BytesText(iteration.external_bytes));
  }
  return head + absl::StrFormat("at least %s back (whole blocks, farthest next use: %s)",
                                os::BytesText(budget.traffic.least_fetched_bytes),
                                os::BytesText(budget.traffic.whole_block_fetched_bytes));
}

}  // namespace

ObservedIteration ObserveIteration(const policy::IterationUses* uses, const allocator::ResidencyStats& stats,
                                   std::optional<uint64_t> set_bytes) {
  ObservedIteration iteration;
  if (uses == nullptr) return iteration;
  iteration.launches = uses->launches;
  iteration.peak_bytes = stats.peak_bytes;
  iteration.external_bytes = stats.external_bytes;
  iteration.largest_set_bytes = policy::LargestSetOf(*uses);
  for (const int percent : kPercents) {
    const uint64_t budget = stats.peak_bytes / 100 * static_cast<uint64_t>(percent);
    iteration.budgets.push_back(At(*uses, iteration, percent, budget));
  }
  if (set_bytes) iteration.budgets.push_back(At(*uses, iteration, 0, *set_bytes));
  return iteration;
}

std::vector<std::string> ObservationLines(int device, const ObservedIteration& iteration) {
  if (iteration.launches == 0) {
    return {absl::StrFormat(
        "observe: GPU %d: no iteration repeated, so nothing is known about smaller budgets", device)};
  }
  std::vector<std::string> lines = {absl::StrFormat(
      "observe: GPU %d: an iteration is %d launches, the peak %s; a smaller budget moves in each "
      "iteration, and as much out where blocks change:",
      device, iteration.launches, os::BytesText(iteration.peak_bytes))};
  for (const ObservedBudget& budget : iteration.budgets) lines.push_back(Line(iteration, budget));
  return lines;
}

}  // namespace spillway::integration
