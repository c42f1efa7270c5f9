#include "policy/planner.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "policy/cycle.h"
#include "policy/next_use.h"
#include "policy/range_max.h"

namespace spillway::policy {
namespace {

// Room over the positions of a cycle: what is there, and how much may be.
class CyclicRoom {
 public:
  CyclicRoom(const std::vector<int64_t>& used, Bytes limit)
      : period_(static_cast<uint32_t>(used.size())), used_(used), limit_(static_cast<int64_t>(limit)) {}

  // Stretches [begin, end) have begin <= period and end <= 2 * period.
  void Take(uint32_t begin, uint32_t end, Bytes bytes) {
    used_.Add(begin, std::min(end, period_), static_cast<int64_t>(bytes));
    used_.Add(begin > period_ ? begin - period_ : 0, end > period_ ? end - period_ : 0,
              static_cast<int64_t>(bytes));
  }
  bool Fits(uint32_t begin, uint32_t end, Bytes bytes) const {
    return EarliestFit(begin, end, bytes) == begin;
  }
  // The least p in [begin, end] such that `bytes` fit over all of [p, end).
  uint32_t EarliestFit(uint32_t begin, uint32_t end, Bytes bytes) const {
    const int64_t most = limit_ - static_cast<int64_t>(bytes);
    if (end > period_) {
      const uint32_t low = begin > period_ ? begin - period_ : 0;
      const uint32_t back = static_cast<uint32_t>(used_.FitsBackTo(low, end - period_, most));
      if (back > low || begin >= period_) return back + period_;
    }
    return static_cast<uint32_t>(used_.FitsBackTo(begin, std::min(end, period_), most));
  }

 private:
  const uint32_t period_;
  RangeMax used_;
  const int64_t limit_;
};

// An absence with the position from which its block may be there again; `until` when it cannot be there
// early.
struct Placed {
  Absence absence;
  uint32_t back_from = 0;
  PlanTier tier = PlanTier::kHost;
};

// Returns as early as room allows, those needed first served first. An absence that shrinks to nothing is
// dropped.
std::vector<Placed> PlaceReturns(const Cycle& cycle, std::vector<Absence> absences,
                                 const PlannerOptions& options) {
  CyclicRoom room(OccupancyOf(cycle, absences), options.budget_bytes);
  const Bytes window =
      options.window_bytes != 0 ? options.window_bytes : std::numeric_limits<int64_t>::max() / 2;
  CyclicRoom ahead(std::vector<int64_t>(cycle.period, 0), window);
  std::ranges::stable_sort(absences, {},
                           [&](const Absence& absence) { return absence.until % cycle.period; });
  std::vector<Placed> placed;
  for (const Absence& absence : absences) {
    const Bytes bytes = cycle.blocks[absence.block].bytes;
    uint32_t from = absence.until;
    if (absence.returns) {
      from = std::max(room.EarliestFit(absence.last_use + 1, absence.until, bytes),
                      ahead.EarliestFit(absence.last_use + 1, absence.until, bytes));
      room.Take(from, absence.until, bytes);
      if (from == absence.last_use + 1) continue;  // there was room all along
      ahead.Take(from, absence.until, bytes);
    }
    placed.push_back({absence, from, PlanTier::kHost});
  }
  return placed;
}

// Host memory for the shortest absences; the longest go to disk.
void ChooseTiers(const Cycle& cycle, Bytes host_bytes, std::vector<Placed>* placed) {
  CyclicRoom host(std::vector<int64_t>(cycle.period, 0), host_bytes);
  std::vector<uint32_t> order(placed->size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(
      order, {}, [&](uint32_t i) { return (*placed)[i].absence.until - (*placed)[i].absence.last_use; });
  for (const uint32_t i : order) {
    Placed& one = (*placed)[i];
    const Bytes bytes = cycle.blocks[one.absence.block].bytes;
    if (host.Fits(one.absence.last_use, one.absence.until, bytes)) {
      host.Take(one.absence.last_use, one.absence.until, bytes);
    } else {
      one.tier = PlanTier::kDisk;
    }
  }
}

void AddSteps(const Cycle& cycle, const std::vector<Placed>& placed, MigrationPlan* plan) {
  for (const Placed& one : placed) {
    const TraceBlock block = cycle.blocks[one.absence.block].block;
    PlanStep step;
    step.tier = one.tier;
    step.trigger = PlanTrigger::kAfterCompleted;
    step.block = block;
    step.launch = one.absence.last_use;
    step.action = PlanAction::kCopyOut;
    plan->steps.push_back(step);
    step.action = PlanAction::kDrop;
    plan->steps.push_back(step);
    if (!one.absence.returns) continue;
    step.action = PlanAction::kFetch;
    step.trigger = PlanTrigger::kBeforeLaunch;
    step.launch = one.back_from % cycle.period;
    step.needed = one.absence.until % cycle.period;
    plan->steps.push_back(step);
  }
  // In the order of their starts: what a launch's end lets go, then what may come before the next launch, the
  // most urgent first.
  const auto key = [&](const PlanStep& step) {
    const bool fetch = step.action == PlanAction::kFetch;
    const uint32_t ahead = fetch ? (step.needed + cycle.period - step.launch) % cycle.period : 0;
    return std::tuple(fetch ? step.launch : step.launch + 1, fetch, ahead);
  };
  std::ranges::stable_sort(plan->steps, {}, key);
}

}  // namespace

std::shared_ptr<const MigrationPlan> MakePlan(const Trace& trace, LaunchIndex start, uint32_t period,
                                              const BlockSizes& sizes, const PlannerOptions& options) {
  auto plan = std::make_shared<MigrationPlan>(ExpectPeriod(trace, start, period));
  Widening widening;
  if (options.run_ahead_bytes > 0 || options.transfer_launches > 0) {
    widening = {options.budget_bytes - options.budget_bytes / 8, options.run_ahead_bytes, options.transfer_launches,
                options.transfer_launches};
  }
  const Cycle cycle = MakeCycle(trace, start, period, sizes, widening);
  std::vector<Absence> absences;
  if (!ChooseAbsences(cycle, options.budget_bytes, &absences, &plan->steady)) return nullptr;
  std::vector<Placed> placed = PlaceReturns(cycle, std::move(absences), options);
  ChooseTiers(cycle, options.host_bytes, &placed);
  AddSteps(cycle, placed, plan.get());
  return plan;
}

}  // namespace spillway::policy
