// Departures: the launches that the job is expected to make while a plan is in force, and the first one that
// is another. That launch's own thread drops the plan at once. Departures owns the expected launches, and
// frees them when no thread reads them any more. The predictor's thread sets them; launching threads compare.
// There is no lock: launching threads neither wait nor allocate. No call fails.

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
  // The number of launches in the expected iteration; 0: none is expected.
  uint32_t iteration_launches() const { return iteration_launches_.load(); }

  // ---- The predictor's thread.

  // Expects an iteration of these signatures to recur from launch `start` on. `hints`: the rest of the plan
  // after a departure. The plan must be in force by now: a departure drops it only where it finds an
  // expectation.
  void Expect(policy::LaunchIndex start, std::vector<uint64_t> signatures, Plan hints);
  // Departs as if the next launch had been another; no launch is expected then.
  void Depart();
  // From here on KeepsTo counts as if no launch had been expected yet.
  void Forget() { last_ = nullptr; }
  // Whether the job still keeps to what was expected last.
  bool KeepsTo() const { return last_ != nullptr && expected_.load() == last_; }
  // Whether anything was expected since Forget; the job may have departed from it.
  bool expected() const { return last_ != nullptr; }
  // Belongs to the launches that were expected last.
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
  std::atomic<int> readers_{0};  // launching threads that read an expectation
  std::atomic<uint64_t> count_{0};
  std::atomic<uint32_t> iteration_launches_{0};
  // ---- The predictor's thread.
  const Expectation* last_ = nullptr;
  std::vector<std::unique_ptr<const Expectation>>
      kept_;  // the one expected, and retired ones that may be read
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_PREDICTION_DEPARTURES_H_
