// Strategies: which task goes on at a switch point.
// - Random: with a chance drawn by the seed, any task. Now and then one task does not go on for long, as
//   under an operating system.
// - Priorities (PCT, Burckhardt et al. 2010): the task with the highest priority. Priorities fall at random
//   points; a task that spins falls behind all others.
// - Scripted (explore.cc): by a list of departures, for scenes whose schedules are all gone through.

#ifndef SPILLWAY_TESTS_SIMULATION_STRATEGIES_H_
#define SPILLWAY_TESTS_SIMULATION_STRATEGIES_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/simulation/random.h"
#include "tests/simulation/scheduler.h"

namespace spillway::simulation {

class RandomStrategy : public Strategy {
 public:
  // `switch_one_in`: the chance that another task goes on although the current one could. `stall_one_in`: the
  // chance that the current task does not go on for a while; 0: never.
  RandomStrategy(Random* random, uint32_t switch_one_in, uint32_t stall_one_in)
      : random_(random), one_in_(switch_one_in), stall_one_in_(stall_one_in) {}
  Task* Pick(const std::vector<Task*>& runnable, Task* current) override {
    if (current != nullptr && !random_->OneIn(one_in_)) return current;
    return runnable[random_->Below(static_cast<uint32_t>(runnable.size()))];
  }
  int64_t Nap(const Task&) override {
    if (stall_one_in_ == 0 || !random_->OneIn(stall_one_in_)) return 0;
    return int64_t{500} << random_->Below(14);
  }
  uint32_t Choose(uint32_t count) override { return random_->Below(count); }

 private:
  Random* const random_;
  const uint32_t one_in_;
  const uint32_t stall_one_in_;
};

class PriorityStrategy : public Strategy {
 public:
  // A change of priorities each `change_one_in` switch points, about.
  PriorityStrategy(Random* random, uint32_t change_one_in) : random_(random), one_in_(change_one_in) {}
  void OnTask(Task* task) override { task->priority = 1 + static_cast<int64_t>(random_->Below(1 << 30)); }
  void OnSpin(Task* task) override { task->priority = --lowest_; }
  Task* Pick(const std::vector<Task*>& runnable, Task* current) override {
    if (current != nullptr && random_->OneIn(one_in_)) current->priority = --lowest_;
    // A task that has fallen comes up again in time: a schedule must be fair in the end.
    if (random_->OneIn(4096))
      runnable[random_->Below(static_cast<uint32_t>(runnable.size()))]->priority = ++highest_;
    return *std::max_element(runnable.begin(), runnable.end(), [](const Task* a, const Task* b) {
      return a->priority < b->priority || (a->priority == b->priority && a->id > b->id);
    });
  }
  uint32_t Choose(uint32_t count) override { return random_->Below(count); }

 private:
  Random* const random_;
  const uint32_t one_in_;
  int64_t lowest_ = 0;
  int64_t highest_ = int64_t{1} << 31;
};

// One of the two, by the seed.
inline std::unique_ptr<Strategy> DrawStrategy(Random* random) {
  if (random->OneIn(3)) return std::make_unique<PriorityStrategy>(random, 20u << random->Below(6));
  const uint32_t stall_one_in = random->OneIn(2) ? 0 : 64u << random->Below(6);
  return std::make_unique<RandomStrategy>(random, 1u << random->Below(7), stall_one_in);
}

}  // namespace spillway::simulation

#endif  // SPILLWAY_TESTS_SIMULATION_STRATEGIES_H_
