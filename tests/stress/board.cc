#include "tests/stress/board.h"

#include <cstdio>
#include <cstdlib>

namespace spillway::stress {
namespace {

int64_t Now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

}  // namespace

void Board::Fail(const std::string& what) const {
  const std::lock_guard lock(mu_);  // the first that fails is the one that speaks
  std::printf("seed %llu fails: %s\n%s\nagain: store_stress --seeds %llu --operations %d\n",
              static_cast<unsigned long long>(settings_.seed), what.c_str(), settings_.Describe().c_str(),
              static_cast<unsigned long long>(settings_.seed), settings_.operations);
  std::fflush(stdout);
  std::_Exit(1);
}

void Board::Take(io::SlotId slot) {
  {
    const std::lock_guard lock(mu_);
    if (taken_.emplace(slot.directory, slot.index).second) return;
  }
  Fail("slot " + std::to_string(slot.index) + " of directory " + std::to_string(slot.directory) +
       " was given to two");
}

void Board::Give(io::SlotId slot) {
  const std::lock_guard lock(mu_);
  taken_.erase({slot.directory, slot.index});
}

size_t Board::taken() const {
  const std::lock_guard lock(mu_);
  return taken_.size();
}

void Board::GoesOn(size_t actor, const char* with) {
  steps_[actor].with = with;
  steps_[actor].since = Now();
}

void Board::Watch() const {
  for (const Step& step : steps_) {
    const int64_t since = step.since.load();
    if (since != 0 && Now() - since > std::chrono::nanoseconds(patience_).count())
      Fail(std::string("nothing has come of ") + step.with.load() + " for " +
           std::to_string(patience_.count()) + " s");
  }
}

}  // namespace spillway::stress
