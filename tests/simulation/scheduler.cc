#include "tests/simulation/scheduler.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace spillway::simulation {
namespace {

Scheduler* running = nullptr;
std::function<void(const std::string&)> report_failure;

// So long must nothing have happened but timers before a look that is only for safety counts as needed.
constexpr int64_t kQuietNanos = 15'000'000'000;

void StoreNow(const BufferedStore& store) { std::memcpy(store.address, &store.value, store.bytes); }

}  // namespace

Scheduler::Scheduler(Strategy* strategy, Random* random, const Options& options)
    : strategy_(strategy), random_(random), options_(options), most_steps_(options.most_steps) {}

Scheduler::~Scheduler() = default;

Scheduler* Scheduler::current() { return running; }

void Scheduler::Run(std::function<void()> body) {
  running = this;
  progress_at_ = now_;
  Task* const first = Start("job", TaskKind::kApplication, std::move(body));
  self_ = first;
  Fibre::Switch(&outside_, first->fibre.get());
  running = nullptr;
  self_ = nullptr;
}

Task* Scheduler::Start(const std::string& name, TaskKind kind, std::function<void()> body) {
  auto made = std::make_unique<Task>();
  Task* const task = made.get();
  task->id = static_cast<int>(tasks_.size());
  task->name = name;
  task->kind = kind;
  task->body = std::move(body);
  task->fibre = std::make_unique<Fibre>([this, task] {
    task->body();
    EndSelf();
  });
  tasks_.push_back(std::move(made));
  runnable_.push_back(task);
  strategy_->OnTask(task);
  if (self_ != nullptr) SwitchPoint();
  return task;
}

void Scheduler::EndSelf() {
  Task* const task = self_;
  while (!task->states.empty()) {
    const PerTaskState state = task->states.back();
    task->states.pop_back();
    state.destroy(state.state);
  }
  Drain(task);
  if (!task->held.empty()) Fail("a task ends with a lock held");
  task->state = Task::State::kEnded;
  std::erase(runnable_, task);
  for (const auto& other : tasks_) {
    if (other->state == Task::State::kBlocked && other->waits_on == task) Unblock(other.get());
  }
  if (task->id == 0) {
    Fibre::Switch(task->fibre.get(), &outside_);
  }
  GoOn();
}

void Scheduler::Join(Task* task) {
  while (task->state != Task::State::kEnded) Block("the end of a thread", task);
}

std::vector<Task*>& Scheduler::Runnable() { return runnable_; }

void Scheduler::FlushSome() {
  for (const auto& task : tasks_) {
    if (task->buffer.empty() || !random_->OneIn(static_cast<uint32_t>(options_.flush_one_in))) continue;
    StoreNow(task->buffer.front());
    task->buffer.erase(task->buffer.begin());
    if (task->buffer.empty()) --buffered_tasks_;
  }
}

void Scheduler::SwitchPointSlow() {
  if (steps_ > most_steps_) Fail("no end after " + std::to_string(steps_) + " switch points");
  if (now_ >= next_timer_) WakeTimers();
  if (buffered_tasks_ > 0) FlushSome();
  if (const int64_t nap = fair_ ? 0 : strategy_->Nap(*self_); nap > 0) {
    Suspend("its turn", nullptr, now_ + nap, false);
    return;
  }
  if (runnable_.size() == 1) return;
  Task* const next = Pick(self_);
  if (next != self_) SwitchTo(next);
}

Task* Scheduler::Pick(Task* current) {
  if (!fair_) return strategy_->Pick(runnable_, current);
  const auto after = std::find_if(runnable_.begin(), runnable_.end(),
                                  [this](const Task* task) { return task->id > self_->id; });
  return after == runnable_.end() ? runnable_.front() : *after;
}

void Scheduler::SwitchTo(Task* next) {
  ++switches_;
  Task* const before = self_;
  if (on_switch_) on_switch_();
  self_ = next;
  Fibre::Switch(before->fibre.get(), next->fibre.get());
}

// The current task cannot go on.
void Scheduler::GoOn() {
  while (true) {
    if (steps_ > most_steps_) Fail("no end after " + std::to_string(steps_) + " switch points");
    ++steps_;
    if (now_ >= next_timer_) WakeTimers();
    if (!runnable_.empty()) {
      Task* const next = Pick(nullptr);
      if (next != self_) SwitchTo(next);
      return;
    }
    if (!PassTime()) Fail("nobody can go on");
  }
}

void Scheduler::WakeTimers() {
  next_timer_ = kNever;
  for (const auto& task : tasks_) {
    if (task->state != Task::State::kBlocked || task->wake_at == kNever) continue;
    if (task->wake_at <= now_) {
      task->timed_out = true;
      Unblock(task.get());
    } else {
      next_timer_ = std::min(next_timer_, task->wake_at);
    }
  }
}

// Nobody can go on now: time goes to the next timer; when nothing but timers has done anything for long,
// waiters that look again for safety do so, and are failures if that is of use to them.
bool Scheduler::PassTime() {
  const bool quiet = next_timer_ == kNever || now_ - progress_at_ > kQuietNanos;
  if (quiet) {
    for (const auto& task : tasks_) {
      if (task->state != Task::State::kBlocked || !task->rechecks) continue;
      task->timed_out = true;
      Unblock(task.get());
    }
    progress_at_ = now_;
    if (!runnable_.empty()) return true;
  }
  if (next_timer_ == kNever) return false;
  // Timers may be late: the longer nothing happens, the later, so that long silences take few steps.
  const int64_t silence = now_ - progress_at_;
  now_ = std::max(now_, next_timer_) + std::min<int64_t>(silence / 16, 100'000'000);
  WakeTimers();
  return true;
}

bool Scheduler::Block(const char* doing, const void* on, int64_t wake_at, bool rechecks) {
  Drain(self_);
  return Suspend(doing, on, wake_at, rechecks);
}

bool Scheduler::Suspend(const char* doing, const void* on, int64_t wake_at, bool rechecks) {
  Task* const task = self_;
  task->doing = doing;
  task->waits_on = on;
  task->wake_at = wake_at;
  task->rechecks = rechecks;
  task->timed_out = false;
  task->state = Task::State::kBlocked;
  std::erase(runnable_, task);
  next_timer_ = std::min(next_timer_, wake_at);
  GoOn();
  return task->timed_out;
}

void Scheduler::Unblock(Task* task) {
  if (task->state != Task::State::kBlocked) return;
  task->state = Task::State::kRunnable;
  task->wake_at = kNever;
  task->rechecks = false;
  task->waits_on = nullptr;
  runnable_.insert(std::upper_bound(runnable_.begin(), runnable_.end(), task,
                                    [](const Task* a, const Task* b) { return a->id < b->id; }),
                   task);
}

void Scheduler::Spin() {
  ++steps_;
  now_ += kStepNanos;
  if (hold_ > 0) Fail("a spin while nobody may go on");
  strategy_->OnSpin(self_);
  SleepUntil(now_ + 1'000);
}

void Scheduler::SleepUntil(int64_t time) { Block("time", nullptr, time); }

void Scheduler::Store(void* address, uint8_t bytes, uint64_t value) {
  Task* const task = self_;
  if (task->buffer.empty()) ++buffered_tasks_;
  task->buffer.push_back({address, bytes, value});
  if (task->buffer.size() > 12) {
    StoreNow(task->buffer.front());
    task->buffer.erase(task->buffer.begin());
  }
}

bool Scheduler::ForwardSlow(const void* address, uint64_t* value) const {
  for (auto it = self_->buffer.rbegin(); it != self_->buffer.rend(); ++it) {
    if (it->address != address) continue;
    *value = it->value;
    return true;
  }
  return false;
}

void Scheduler::Drain(Task* task) {
  if (task->buffer.empty()) return;
  for (const BufferedStore& store : task->buffer) StoreNow(store);
  task->buffer.clear();
  --running->buffered_tasks_;
}

void Scheduler::DrainAll() {
  for (const auto& task : tasks_) Drain(task.get());
}

void* Scheduler::PerTask(const void* type, void* (*make)(), void (*destroy)(void*)) {
  for (const PerTaskState& state : self_->states) {
    if (state.type == type) return state.state;
  }
  void* const made = make();
  self_->states.push_back({type, made, destroy});
  return made;
}

std::vector<Task*> Scheduler::Alive() const {
  std::vector<Task*> alive;
  for (const auto& task : tasks_) {
    if (task->state != Task::State::kEnded) alive.push_back(task.get());
  }
  return alive;
}

std::string Scheduler::Describe() const {
  std::string text = "at " + std::to_string(now_) + " ns, " + std::to_string(steps_) + " switch points, " +
                     std::to_string(switches_) + " switches";
  for (const Task* task : Alive()) {
    text += "\n  " + std::to_string(task->id) + " " + task->name + ": ";
    if (task == self_) {
      text += "runs";
    } else if (task->state == Task::State::kRunnable) {
      text += "may go on";
    } else {
      text += std::string("waits for ") + task->doing;
      if (task->rechecks) text += " (looks again)";
    }
  }
  return text;
}

void Scheduler::set_on_failure(std::function<void(const std::string&)> tell) {
  report_failure = std::move(tell);
}

void Scheduler::Fail(const std::string& what) {
  const std::string text = what + "\n" + Describe();
  if (report_failure) report_failure(text);
  std::fprintf(stderr, "%s\n", text.c_str());
  std::fflush(nullptr);
  std::_Exit(1);
}

}  // namespace spillway::simulation
