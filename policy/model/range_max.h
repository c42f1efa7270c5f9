// RangeMax: values over places 0 .. n - 1. Adding to a range, and finding the greatest value of a range, take
// logarithmic time. Planners ask it whether a block fits from one kernel to another. One thread; nothing
// fails.
//
// It is a segment tree. Node 1 covers all places, and nodes 2k and 2k + 1 cover the halves of node k. A node
// has the greatest value of its range without the additions to whole ranges above it: an addition stops at
// the nodes that lie within its range and is never pushed further down, so a query adds the additions of the
// nodes that it passes.

#ifndef SPILLWAY_POLICY_MODEL_RANGE_MAX_H_
#define SPILLWAY_POLICY_MODEL_RANGE_MAX_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace spillway::policy {

class RangeMax {
 public:
  explicit RangeMax(const std::vector<int64_t>& values);

  // Adds to each place of [begin, end). Empty ranges are fine.
  void Add(size_t begin, size_t end, int64_t delta) { AddIn(1, 0, size_, begin, end, delta); }
  // The greatest value of [begin, end); far below any value when the range is empty.
  int64_t Max(size_t begin, size_t end) const { return MaxIn(1, 0, size_, begin, end); }

 private:
  void Build(size_t node, size_t low, size_t high, const std::vector<int64_t>& values);
  void AddIn(size_t node, size_t low, size_t high, size_t begin, size_t end, int64_t delta);
  int64_t MaxIn(size_t node, size_t low, size_t high, size_t begin, size_t end) const;

  size_t size_;
  std::vector<int64_t> most_;   // of the node's range, without what lies on its ancestors
  std::vector<int64_t> added_;  // to the whole of the node's range; included in its most_
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_MODEL_RANGE_MAX_H_
