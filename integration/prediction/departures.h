// Departures: the launches that the job is expected to make while a plan is in force, and the first one that
// is another. On that launch's own thread the plan is dropped at once. Owns what is expected, and frees it
// when no thread reads it any more. The predictor's thread says what to expect; launching threads compare. No
// lock: launching threads neither wait nor allocate. Nothing fails.

#ifndef SPILLWAY_INTEGRATION_PREDICTION_DEPARTURES_H_
#define SPILLWAY_INTEGRATION_PREDICTION_DEPARTURES_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "policy/model/plan.h"
#include "policy/model/units.h"

namespace spillway::integration {

class Departures {
 public:
  using Plan = std::shared_ptr<const policy::MigrationPlan>;

  // `drop` puts the hints that are left of the plan in its place, or null. The thread that departs calls it.
  explicit Departures(std::function<void(const Plan& hints)> drop) : drop_(std::move(drop)) {}

  // ---- Launching threads.

  // Whether there is anything to compare with.
  bool expecting() const { return expected_.load(std::memory_order_relaxed) != nullptr; }
  void Compare(policy::LaunchIndex index, uint64_t signature);

  // ---- Any thread.

  uint64_t count() const { return count_.load(); }
  // Of the iteration that is expected; 0: none is.
  uint32_t iteration_launches() const { return iteration_launches_.load(); }

  // ---- The predictor's thread.

  // From launch `start` on an iteration of these signatures is expected to recur. `hints`: what is left of
  // the plan after a departure. The plan must be in force by now: a departure drops it only where it finds an
  // expectation.
  void Expect(policy::LaunchIndex start, std::vector<uint64_t> signatures, Plan hints);
  // As if the next launch had been another; nothing is expected then.
  void Depart();
  // Nothing has been expected yet, for KeepsTo.
  void Forget() { last_ = nullptr; }
  // Whether the job still keeps to what was expected last.
  bool KeepsTo() const { return last_ != nullptr && expected_.load() == last_; }
  // Whether anything was expected since Forget; the job may have departed from it.
  bool expected() const { return last_ != nullptr; }
  // Of what was expected last.
  const Plan& hints() const { return last_->hints; }
  // Frees what was expected and may not be read any more.
  void FreeRetired();

 private:
  struct Expectation {
    Plan hints;
    policy::LaunchIndex start = 0;
    std::vector<uint64_t> signatures;
    bool Matches(policy::LaunchIndex index, uint64_t signature) const {
      return index < start || signatures[(index - start) % signatures.size()] == signature;
    }
  };
  void DepartFrom(const Expectation* expected);

  const std::function<void(const Plan& hints)> drop_;
  // Null: nothing is expected. Stored by the predictor's thread; a launching thread that departs puts null.
  // While readers_ is not 0 nothing retired is freed.
  std::atomic<const Expectation*> expected_{nullptr};
  std::atomic<int> readers_{0};  // launching threads that look at an expectation
  std::atomic<uint64_t> count_{0};
  std::atomic<uint32_t> iteration_launches_{0};
  // ---- The predictor's thread.
  const Expectation* last_ = nullptr;
  std::vector<std::unique_ptr<const Expectation>>
      kept_;  // the one expected, and retired ones that may be read
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_PREDICTION_DEPARTURES_H_
