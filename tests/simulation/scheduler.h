// Scheduler: runs the tasks of a simulation one at a time, each in a fibre. At every switch point another
// task may go on; a Strategy chooses which. The scheduler owns virtual time, the store buffers of the tasks
// and the state that a real thread would keep for itself. It is deterministic: the same strategy with the
// same seed gives the same run.

#ifndef SPILLWAY_TESTS_SIMULATION_SCHEDULER_H_
#define SPILLWAY_TESTS_SIMULATION_SCHEDULER_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/simulation/fibre.h"
#include "tests/simulation/random.h"

namespace spillway::os {
class Mutex;
}

namespace spillway::simulation {

inline constexpr int64_t kNever = INT64_MAX;

// Tasks of the application end by themselves. Background tasks may wait for ever.
enum class TaskKind : uint8_t { kApplication, kBackground };

// State of a task that a thread keeps for itself (os::PerThread), destroyed in reverse order at its end.
struct PerTaskState {
  const void* type = nullptr;
  void* state = nullptr;
  void (*destroy)(void*) = nullptr;
};

struct BufferedStore {
  void* address = nullptr;
  uint8_t bytes = 0;
  uint64_t value = 0;
};

struct Task {
  enum class State : uint8_t { kRunnable, kBlocked, kEnded };

  int id = 0;
  std::string name;
  TaskKind kind = TaskKind::kApplication;
  std::function<void()> body;
  std::unique_ptr<Fibre> fibre;
  State state = State::kRunnable;
  const char* doing = "";          // what it blocks on, for reports
  const void* waits_on = nullptr;  // mutex, condition, task or stream; null: for time alone
  int64_t wake_at = kNever;        // a timer that has something to do by then
  bool rechecks = false;           // a time-out that only looks again, when nothing else can run
  bool timed_out = false;
  bool rechecked = false;  // a wait ended so, and none has begun since
  int64_t priority = 0;    // of PriorityStrategy
  std::vector<BufferedStore> buffer;
  std::vector<PerTaskState> states;
  std::vector<const os::Mutex*> held;
};

// Chooses the task that goes on. `runnable` is never empty and in order of id; `current` is null when the
// current task cannot go on.
class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual Task* Pick(const std::vector<Task*>& runnable, Task* current) = 0;
  // One of 0 .. count - 1: what the GPU, the disk or a condition decides.
  virtual uint32_t Choose(uint32_t count) = 0;
  // For how long the current task does not go on although it could. Its stores stay in its buffer.
  virtual int64_t Nap(const Task& current) { return 0; }
  // A new task, one that spins.
  virtual void OnTask(Task* task) {}
  virtual void OnSpin(Task* task) {}
};

class Scheduler {
 public:
  struct Options {
    uint64_t most_steps = 200'000'000;  // then it is a hang
    int flush_one_in = 16;              // chance that a store leaves a buffer at a switch point
    bool store_buffers = true;
  };

  Scheduler(Strategy* strategy, Random* random, const Options& options);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // The one that runs; null outside of Run.
  static Scheduler* current();
  // Runs `body` as the first task until it ends; all other application tasks must have ended by then.
  void Run(std::function<void()> body);

  // ---- From tasks.

  Task* Start(const std::string& name, TaskKind kind, std::function<void()> body);
  void Join(Task* task);
  Task* self() const { return self_; }
  // Another task may go on here.
  void SwitchPoint() {
    ++steps_;
    now_ += kStepNanos;
    if (hold_ > 0) return;
    SwitchPointSlow();
  }
  // Blocks until Unblock, or the time. True when the time came.
  bool Block(const char* doing, const void* on, int64_t wake_at = kNever, bool rechecks = false);
  void Unblock(Task* task);
  // Another task goes on if one can; else time passes.
  void Spin();
  void SleepUntil(int64_t time);
  // As an operating system that runs other threads meanwhile: the task's stores stay in its buffer.
  void Preempt(int64_t nanos) { Suspend("its turn", nullptr, now_ + nanos, false); }
  uint32_t Choose(uint32_t count) { return count < 2 ? 0 : strategy_->Choose(count); }

  int64_t now() const { return now_; }
  int64_t Tick() { return ++now_; }
  uint64_t steps() const { return steps_; }
  uint64_t switches() const { return switches_; }
  // The job, the GPU or a disk has done something: time-outs that only look again start anew.
  void RecordProgress() { progress_at_ = now_; }
  // The current task does something that other tasks can see. A waiter that goes on only because it looked
  // again for safety must not do so.
  void RecordEffect() {
    if (self_->rechecked) Fail("a wake-up was lost: a waiter went on because it looked again for safety");
  }
  // From here on all tasks that can go on do so in turn, and the run must end within `more` switch points.
  void BeFair(uint64_t more) {
    if (fair_) return;
    fair_ = true;
    most_steps_ = std::min(most_steps_, steps_ + more);
  }
  // Between the two, switch points do nothing: for set-up and for looks of the simulation itself.
  void HoldSwitches() { ++hold_; }
  void AllowSwitches() { --hold_; }

  // ---- Stores that other tasks do not see yet.

  void Store(void* address, uint8_t bytes, uint64_t value);
  bool Forward(const void* address, uint64_t* value) const {
    if (self_->buffer.empty()) return false;
    return ForwardSlow(address, value);
  }
  static void Drain(Task* task);
  void DrainMine() {
    if (!self_->buffer.empty()) Drain(self_);
  }
  void DrainAll();
  bool store_buffers() const { return options_.store_buffers; }

  void* PerTask(const void* type, void* (*make)(), void (*destroy)(void*));

  // Called whenever another task goes on, with its looks at the world.
  void set_on_switch(std::function<void()> look) { on_switch_ = std::move(look); }
  // Reports what is wrong, with every task's state and the command that replays it, and ends the process.
  [[noreturn]] void Fail(const std::string& what);
  static void set_on_failure(std::function<void(const std::string&)> tell);
  std::string Describe() const;
  // Every task that was started and has not ended, the first one too.
  std::vector<Task*> Alive() const;

 private:
  static constexpr int64_t kStepNanos = 25;

  void SwitchPointSlow();
  bool Suspend(const char* doing, const void* on, int64_t wake_at, bool rechecks);
  void SwitchTo(Task* next);
  void GoOn();
  void WakeTimers();
  bool PassTime();
  void FlushSome();
  bool ForwardSlow(const void* address, uint64_t* value) const;
  void EndSelf();
  Task* Pick(Task* current);
  std::vector<Task*>& Runnable();

  Strategy* const strategy_;
  Random* const random_;
  const Options options_;
  std::vector<std::unique_ptr<Task>> tasks_;
  std::vector<Task*> runnable_;  // in order of id
  Task* self_ = nullptr;
  Fibre outside_;
  int64_t now_ = 1'000'000'000;
  int64_t next_timer_ = kNever;
  int64_t progress_at_ = 0;
  int idle_rounds_ = 0;
  uint64_t steps_ = 0;
  uint64_t most_steps_;
  uint64_t switches_ = 0;
  bool fair_ = false;
  int hold_ = 0;
  int buffered_tasks_ = 0;
  std::function<void()> on_switch_;
};

// Of the running simulation.
inline Scheduler& scheduler() { return *Scheduler::current(); }

}  // namespace spillway::simulation

#endif  // SPILLWAY_TESTS_SIMULATION_SCHEDULER_H_
