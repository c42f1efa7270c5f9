#include "policy/trace/iteration_finder.h"

#include <algorithm>

namespace spillway::policy {
namespace {

// The number of earlier launches with the latest one's signature that are tried as its place one iteration
// ago. A launch may come that often within an iteration.
constexpr int kOccurrences = 8;
// The number of distances under watch at a time, and of matches in a row before one is watched.
constexpr size_t kMaxCandidates = 16;
constexpr uint64_t kMatchesToWatch = 4;

}  // namespace

IterationFinder::IterationFinder(const IterationOptions& options) : options_(options) {}

void IterationFinder::Add(uint64_t signature) {
  if (signatures_.size() >= 2 * size_t{options_.longest}) Forget();
  signatures_.push_back(signature);
  const auto place = static_cast<uint32_t>(signatures_.size());
  uint32_t& latest = latest_[signature];
  previous_.push_back(latest);
  latest = place;
  std::erase_if(candidates_, [&](Candidate& candidate) {
    if (signatures_[place - 1 - candidate.distance] != signature) return true;
    ++candidate.run;
    return false;
  });
  Nominate();
}

// Counts how many of the latest launches equal those `distance` before, up to `most`.
uint64_t IterationFinder::MatchesBackward(uint32_t distance, uint64_t most) const {
  uint64_t run = 0;
  for (size_t i = signatures_.size(); run < most && i > distance; --i, ++run) {
    if (signatures_[i - 1] != signatures_[i - 1 - distance]) break;
  }
  return run;
}

void IterationFinder::Nominate() {
  const uint32_t place = static_cast<uint32_t>(signatures_.size());
  uint32_t earlier = previous_.back();
  for (int i = 0; i < kOccurrences && earlier != 0; ++i, earlier = previous_[earlier - 1]) {
    const uint32_t distance = place - earlier;
    if (distance > options_.longest) return;
    if (distance < options_.shortest) continue;
    const auto watched = [distance](const Candidate& candidate) { return candidate.distance == distance; };
    if (std::ranges::any_of(candidates_, watched)) continue;
    if (MatchesBackward(distance, kMatchesToWatch) < std::min<uint64_t>(kMatchesToWatch, distance)) continue;
    if (candidates_.size() == kMaxCandidates) {
      candidates_.erase(std::ranges::min_element(candidates_, {}, &Candidate::run));
    }
    candidates_.push_back({distance, MatchesBackward(distance, 2 * uint64_t{options_.longest})});
  }
}

// Among the distances that have matched for a whole run, returns the one that explains most of what came
// before.
const IterationFinder::Candidate* IterationFinder::Best() const {
  const Candidate* best = nullptr;
  for (const Candidate& candidate : candidates_) {
    if (candidate.run < candidate.distance) continue;
    const uint64_t explained = candidate.run + candidate.distance;
    const uint64_t before = best == nullptr ? 0 : best->run + best->distance;
    if (explained > before || (explained == before && candidate.distance < best->distance)) best = &candidate;
  }
  return best;
}

uint32_t IterationFinder::Found(const Trace& trace, LaunchIndex end) const {
  const Candidate* const best = Best();
  if (best == nullptr || end - trace.begin() < best->distance) return 0;
  // Signatures are equal; an iteration counts as equal only if tags and blocks are.
  for (LaunchIndex i = end; i-- > end - best->distance && i >= trace.begin() + best->distance;) {
    if (!trace.SameLaunch(i, i - best->distance)) return 0;
  }
  return best->distance;
}

uint32_t IterationFinder::Repeats() const {
  const Candidate* const best = Best();
  return best == nullptr ? 0 : best->distance;
}

uint64_t IterationFinder::run() const {
  const Candidate* const best = Best();
  return best == nullptr ? 0 : best->run;
}

void IterationFinder::Restart() {
  signatures_.clear();
  previous_.clear();
  latest_.clear();
  candidates_.clear();
}

// Forgets the oldest half. An iteration of the greatest length is still found, only later.
void IterationFinder::Forget() {
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
