// DriveEngine: an IoEngine around another one, whose drive a test makes sick and well: it answers an
// operation with an error, holds it back until it is well again, or swallows it for good.

#ifndef SPILLWAY_TESTS_FAKES_DRIVE_ENGINE_H_
#define SPILLWAY_TESTS_FAKES_DRIVE_ENGINE_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "io/engine/engine.h"

namespace spillway::io {

// Shared by a test and its engines; any thread.
class Drive {
 public:
  enum Health : int { kWell = 0, kHolds = -1, kSwallows = -2 };  // else: the errno that it answers

  void Set(IoOp op, int health) { health_[static_cast<size_t>(op)] = health; }
  void Heal() {
    for (std::atomic<int>& health : health_) health = kWell;
  }
  int health(IoOp op) const { return health_[static_cast<size_t>(op)].load(); }
  int touched(IoOp op) const {
    return touched_[static_cast<size_t>(op)].load();
  }  // requests that met it sick
  void Count(IoOp op) { ++touched_[static_cast<size_t>(op)]; }

 private:
  std::array<std::atomic<int>, 2> health_ = {};
  std::array<std::atomic<int>, 2> touched_ = {};
};

class DriveEngine : public IoEngine {
 public:
  DriveEngine(std::shared_ptr<Drive> drive, std::unique_ptr<IoEngine> inner)
      : drive_(std::move(drive)), inner_(std::move(inner)) {}
  const char* name() const override { return inner_->name(); }
  size_t capacity() const override { return inner_->capacity(); }
  void Submit(std::span<const IoRequest> requests) override {
    for (const IoRequest& request : requests) {
      const int health = drive_->health(request.op);
      if (health == Drive::kWell) {
        inner_->Submit({&request, 1});
        continue;
      }
      drive_->Count(request.op);
      if (health == Drive::kHolds) held_.push_back(request);
      if (health > 0) answers_.push_back({request.tag, -health});
    }
  }
  size_t Poll(std::span<IoResult> results, std::chrono::nanoseconds timeout) override {
    std::vector<IoRequest> held;
    held.swap(held_);
    for (const IoRequest& request : held) {
      if (drive_->health(request.op) == Drive::kHolds) {
        held_.push_back(request);
      } else {
        inner_->Submit({&request, 1});
      }
    }
    size_t count = 0;
    while (count < results.size() && !answers_.empty()) {
      results[count++] = answers_.back();
      answers_.pop_back();
    }
    constexpr std::chrono::nanoseconds kDrivePollInterval = std::chrono::milliseconds(2);
    return count > 0 ? count
                     : inner_->Poll(results, held_.empty() ? timeout : std::min(timeout, kDrivePollInterval));
  }
  void Wake() override { inner_->Wake(); }
  bool Stop(std::chrono::nanoseconds timeout) override { return inner_->Stop(timeout); }
  void AbandonAfterFork() override { inner_->AbandonAfterFork(); }

 private:
  const std::shared_ptr<Drive> drive_;
  const std::unique_ptr<IoEngine> inner_;
  std::vector<IoRequest> held_;
  std::vector<IoResult> answers_;
};

}  // namespace spillway::io

#endif  // SPILLWAY_TESTS_FAKES_DRIVE_ENGINE_H_
