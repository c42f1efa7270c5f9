#include "policy/trace/iteration_boundaries.h"

#include <algorithm>

namespace spillway::policy {
namespace {

// Iterations of one job differ in length by no more than this share of the shortest. A launch that comes less
// evenly belongs to iterations of one length and is missing in those of another.
constexpr uint64_t kUneven = 2;  // 1 in 2

}  // namespace

bool IterationBoundaries::Add(LaunchIndex index, uint64_t signature, bool marked) {
  if (marked && !marked_) {
    marked_ = true;
    Restart();
  }
  return marked_ ? marked : RecordAnchor(index, signature);
}

bool IterationBoundaries::RecordAnchor(LaunchIndex index, uint64_t signature) {
  if (recent_.size() > 2 * size_t{longest_}) ForgetOld(index);
  Recent& recent = recent_[signature];
  recent.at[recent.count++ % Recent::kKept] = index;
  // An anchor that has not come for two of its distances is no longer part of the iteration.
  if (anchor_gap_ != 0 && index - anchor_at_ > 2 * anchor_gap_) anchor_gap_ = 0;
  if (recent.count < Recent::kKept) return false;
  uint64_t least = ~uint64_t{0};
  uint64_t most = 0;
  for (uint32_t i = 1; i < Recent::kKept; ++i) {
    const uint64_t gap =
        recent.at[(recent.count + i) % Recent::kKept] - recent.at[(recent.count + i - 1) % Recent::kKept];
    least = std::min(least, gap);
    most = std::max(most, gap);
  }
  if (most > longest_ || most > least + least / kUneven) {
    if (signature == anchor_) anchor_gap_ = 0;
    return false;
  }
  if (signature == anchor_ && anchor_gap_ != 0) {
    anchor_at_ = index;
    anchor_gap_ = most;
    return true;
  }
  // The new distance must be wider than unequal lengths explain: the old anchor came several times an
  // iteration then.
  if (anchor_gap_ != 0 && least <= anchor_gap_ + anchor_gap_ / kUneven) return false;
  anchor_ = signature;
  anchor_at_ = index;
  anchor_gap_ = most;
  return true;
}

void IterationBoundaries::ForgetOld(LaunchIndex index) {
  std::erase_if(recent_, [&](const auto& one) {
    const Recent& recent = one.second;
    return index - recent.at[(recent.count - 1) % Recent::kKept] > longest_;
  });
}

void IterationBoundaries::Restart() {
  recent_.clear();
  anchor_gap_ = 0;
}

}  // namespace spillway::policy
