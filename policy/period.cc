#include "policy/period.h"

#include <algorithm>

namespace spillway::policy {
namespace {

// How many earlier launches with the latest one's signature are tried as one period ago: a launch may come
// that often within a step.
constexpr int kOccurrences = 8;
// Distances under watch at a time, and matches in a row before one is watched.
constexpr size_t kMostCandidates = 16;
constexpr uint64_t kMatchesToWatch = 4;
// A period that holds for fewer runs than this after it was found was part of a longer one. (One that holds
// longer is worth its two runs of looking on, even when it is.)
constexpr uint64_t kShortLivedRuns = 8;

}  // namespace

PeriodFinder::PeriodFinder(const PeriodOptions& options) : options_(options), shortest_(options.shortest) {}

uint32_t PeriodFinder::Add(const Trace& trace, LaunchIndex index) {
  if (signatures_.size() >= 2 * size_t{options_.longest}) Forget();
  const uint64_t signature = trace.at(index).signature;
  signatures_.push_back(signature);
  const uint32_t place = static_cast<uint32_t>(signatures_.size());
  uint32_t& latest = latest_[signature];
  previous_.push_back(latest);
  latest = place;

  if (++since_found_ > 8 * uint64_t{shortest_} && shortest_ > options_.shortest) {
    shortest_ = std::max(options_.shortest, shortest_ / 2);
    since_found_ = 0;
  }
  std::erase_if(candidates_, [&](Candidate& candidate) {
    if (signatures_[place - 1 - candidate.distance] != signature) return true;
    ++candidate.run;
    return false;
  });
  Nominate();
  const uint32_t found = Found(trace, index + 1);
  if (found != 0) {
    last_found_ = found;
    since_found_ = 0;
  }
  return found;
}

// Counts how many of the latest launches equal those `distance` before, up to `most`.
uint64_t PeriodFinder::MatchesBackward(uint32_t distance, uint64_t most) const {
  uint64_t run = 0;
  for (size_t i = signatures_.size(); run < most && i > distance; --i, ++run) {
    if (signatures_[i - 1] != signatures_[i - 1 - distance]) break;
  }
  return run;
}

void PeriodFinder::Nominate() {
  const uint32_t place = static_cast<uint32_t>(signatures_.size());
  uint32_t earlier = previous_.back();
  for (int i = 0; i < kOccurrences && earlier != 0; ++i, earlier = previous_[earlier - 1]) {
    const uint32_t distance = place - earlier;
    if (distance > options_.longest) return;
    if (distance < shortest_) continue;
    const auto watched = [distance](const Candidate& candidate) { return candidate.distance == distance; };
    if (std::ranges::any_of(candidates_, watched)) continue;
    if (MatchesBackward(distance, kMatchesToWatch) < std::min<uint64_t>(kMatchesToWatch, distance)) continue;
    if (candidates_.size() == kMostCandidates) {
      candidates_.erase(std::ranges::min_element(candidates_, {}, &Candidate::run));
    }
    candidates_.push_back({distance, MatchesBackward(distance, 2 * uint64_t{options_.longest})});
  }
}

uint32_t PeriodFinder::Found(const Trace& trace, LaunchIndex end) const {
  uint32_t best = 0;
  for (const Candidate& candidate : candidates_) {
    if (candidate.run >= candidate.distance && candidate.distance >= shortest_ &&
        (best == 0 || candidate.distance < best)) {
      best = candidate.distance;
    }
  }
  if (best == 0 || end - trace.begin() < 2 * uint64_t{best}) return 0;
  // Signatures are equal; a step is taken for equal only when tags and blocks are.
  for (LaunchIndex i = end - best; i < end; ++i) {
    if (!trace.SameLaunch(i, i - best)) return 0;
  }
  return best;
}

void PeriodFinder::OnDeparture(uint64_t launches) {
  if (last_found_ != 0) {
    const bool short_lived = launches < kShortLivedRuns * last_found_;
    shortest_ = short_lived ? std::min(options_.longest, 2 * last_found_) : options_.shortest;
  }
  Restart();
}

void PeriodFinder::Restart() {
  signatures_.clear();
  previous_.clear();
  latest_.clear();
  candidates_.clear();
  last_found_ = 0;
  since_found_ = 0;
}

// The oldest half goes: a period of the greatest length is still found, later.
void PeriodFinder::Forget() {
  std::vector<uint64_t> kept(signatures_.begin() + signatures_.size() / 2, signatures_.end());
  signatures_.clear();
  previous_.clear();
  latest_.clear();
  for (const uint64_t signature : kept) {
    signatures_.push_back(signature);
    uint32_t& latest = latest_[signature];
    previous_.push_back(latest);
    latest = static_cast<uint32_t>(signatures_.size());
  }
  std::erase_if(candidates_,
                [&](const Candidate& candidate) { return candidate.distance >= signatures_.size(); });
}

}  // namespace spillway::policy
