#include "policy/offline/coarse_bound.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "policy/bound/quick_bound.h"
#include "policy/offline/coarse_timeline.h"
#include "policy/offline/lp_lower_bound.h"
#include "policy/offline/lp_model.h"

namespace spillway::policy {
namespace {

// The first slots make a bound at once, for any trace; fewer than kMinSlots are too few to be near.
constexpr uint32_t kFirstSlots = 32, kMinSlots = 128, kMaxSlots = 512;
constexpr double kEnough = 0.999;  // of a known plan's time: the rest is not worth a search
// Parts of the bound that were gained by slots twice as fine: after a gain below kLittle no finer ones are
// tried, and after one below kNear no more than that is still missing.
constexpr double kLittle = 0.004, kNear = 0.01;
constexpr double kSolversError = 1e-6;  // of the sum of the kernels, as of the LP's bound
constexpr double kSearch = 0.001;       // of the bound: how near the search comes to the LP's value

LpTiers TiersOf(const LpTimeline& timeline, const Machine& machine, LpForm form) {
  if (machine.host_bytes == 0) return LpTiers::kSsdOnly;
  int64_t most = 0;
  for (const LpSlot& slot : timeline.slots) most = std::max(most, slot.need);
  // The host also has copies ahead of time. Its size does not matter if it is much larger than what must be
  // away.
  if (2 * static_cast<uint64_t>(most) <= machine.host_bytes) return LpTiers::kHostOnly;
  return form == LpForm::kKeepTier ? LpTiers::kKeep : LpTiers::kMayChange;
}

// Gives each column the greatest value that it can have in a solution whose waits together take at most
// `wait`. No column of bytes exceeds all bytes that may be away, counted for each interval.
void CloseColumns(const LpTimeline& timeline, Nanos wait, LpModel* model) {
  double bytes = 0;
  for (const LpInterval& interval : timeline.intervals) bytes += static_cast<double>(interval.bytes);
  LpProblem& problem = model->problem;
  for (double& upper : problem.upper) upper = std::min(upper, bytes / model->byte_unit);
  const double time = static_cast<double>(wait) / model->nano_unit;
  for (const auto* columns : {&model->gaps, &model->waited}) {
    for (int column : *columns) {
      if (column >= 0) problem.upper[static_cast<size_t>(column)] = time;
    }
  }
}

class CoarseSearch {
 public:
  CoarseSearch(const LpTimeline& fine, const Machine& machine, const CoarseBoundOptions& options, Nanos quick)
      : fine_(fine),
        machine_(machine),
        options_(options),
        tiers_(TiersOf(fine, machine, options.form)),
        enough_(static_cast<Nanos>(kEnough * static_cast<double>(options.known))),
        left_(options.work) {
    bound_.iteration = std::min(options.known, quick);
  }

  CoarseBound Run() {
    bound_.is_near = fine_.slots.empty() || bound_.iteration >= enough_;
    bool ends = bound_.is_near;
    for (uint32_t slots = kFirstSlots; !ends && left_ > 0 && slots <= kMaxSlots; slots *= 2)
      ends = Try(slots);
    return bound_;
  }

 private:
  // Returns false if finer slots are worth a try.
  bool Try(uint32_t slots) {
    const LpTimeline coarse = CoarseTimeline(fine_, slots);
    LpModel model = MakeLpModel(coarse, machine_, tiers_);
    CloseColumns(coarse, options_.known - fine_.ideal, &model);
    LowerBoundOptions search;
    search.enough = static_cast<double>(enough_ - fine_.ideal) / model.nano_unit;
    search.near = kSearch * static_cast<double>(options_.known) / model.nano_unit;
    search.work = left_;
    const LowerBound found = FindLowerBound(model.problem, search);
    left_ -= std::min(left_, found.work);
    const double ideal = static_cast<double>(fine_.ideal);
    const double waits = std::max(0.0, found.value * model.nano_unit - kSolversError * ideal);
    const Nanos now = fine_.ideal + static_cast<Nanos>(waits);
    bound_.iteration = std::min(options_.known, std::max(bound_.iteration, now));
    bound_.slots = static_cast<uint32_t>(coarse.slots.size());
    if (!found.is_near) return true;  // the search has spent the work
    const bool finest = coarse.slots.size() == fine_.slots.size() || bound_.iteration >= enough_;
    // The gain is that of its own value: if the quick bound is higher, the bound stands still while this
    // still grows.
    const double made = static_cast<double>(now - before_) / static_cast<double>(bound_.iteration);
    const bool fine_enough = before_ != 0 && slots >= kMinSlots;
    before_ = now;
    bound_.is_near = finest || (fine_enough && made <= kNear);
    return finest || (fine_enough && made <= kLittle);
  }

  const LpTimeline& fine_;
  const Machine& machine_;
  const CoarseBoundOptions& options_;
  const LpTiers tiers_;
  const Nanos enough_;
  uint64_t left_;     // work
  Nanos before_ = 0;  // the value of the previous slots; 0: these are the first
  CoarseBound bound_;
};

}  // namespace

absl::StatusOr<CoarseBound> FindCoarseBound(const Workload& workload, const Lifetimes& lifetimes,
                                            const Machine& machine, const CoarseBoundOptions& options) {
  const LpTimeline fine = MakeLpTimeline(workload, lifetimes, machine);
  if (options.known < fine.ideal)
    return absl::InvalidArgumentError(
        absl::StrCat("no plan takes ", options.known, " ns: the kernels alone take ", fine.ideal));
  const Nanos quick = FindQuickBound(workload, lifetimes, machine).Best();
  return CoarseSearch(fine, machine, options, quick).Run();
}

}  // namespace spillway::policy
