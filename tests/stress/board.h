// Board: what the threads of one seed share: the slots that are taken, the reads that wait at each drive, and
// how a failure ends the program. Any thread.

#ifndef SPILLWAY_TESTS_STRESS_BOARD_H_
#define SPILLWAY_TESTS_STRESS_BOARD_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "io/store/spill_store.h"
#include "tests/stress/run_settings.h"

namespace spillway::stress {

class Board {
 public:
  static constexpr size_t kMaxActors = 4;

  Board(const RunSettings& settings, std::chrono::seconds patience)
      : settings_(settings), patience_(patience) {}

  // Says what went wrong with which seed, and ends the process.
  [[noreturn]] void Fail(const std::string& what) const;

  const RunSettings& settings() const { return settings_; }
  // Nothing takes as long, unless it never ends.
  std::chrono::seconds patience() const { return patience_; }

  // A slot that two have at the same time is a failure.
  void Take(io::SlotId slot);
  void Give(io::SlotId slot);
  size_t taken() const;

  void ReadBegins(uint32_t directory) { ++drives_[directory].reads_waiting; }
  void ReadEnds(uint32_t directory) {
    --drives_[directory].reads_waiting;
    ++drives_[directory].reads_done;
  }
  uint64_t reads_waiting(uint32_t directory) const { return drives_[directory].reads_waiting.load(); }
  uint64_t reads_done(uint32_t directory) const { return drives_[directory].reads_done.load(); }

  // Actors say that they go on; Watch fails for one that has not for longer than the patience.
  void GoesOn(size_t actor, const char* with);
  void Leaves(size_t actor) { steps_[actor].since = 0; }
  void Watch() const;

 private:
  struct Drive {
    std::atomic<uint64_t> reads_waiting{0};
    std::atomic<uint64_t> reads_done{0};
  };
  struct Step {
    std::atomic<int64_t> since{0};  // steady clock, ns; 0: does nothing
    std::atomic<const char*> with{""};
  };

  const RunSettings settings_;
  const std::chrono::seconds patience_;
  mutable std::mutex mu_;
  std::set<std::pair<uint32_t, uint32_t>> taken_;  // guarded by mu_
  std::array<Drive, 4> drives_;
  std::array<Step, kMaxActors> steps_;
};

}  // namespace spillway::stress

#endif  // SPILLWAY_TESTS_STRESS_BOARD_H_
