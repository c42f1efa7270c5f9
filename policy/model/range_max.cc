#include "policy/model/range_max.h"

#include <algorithm>
#include <limits>

namespace spillway::policy {
namespace {

constexpr int64_t kNothing = std::numeric_limits<int64_t>::min() / 2;

}  // namespace

RangeMax::RangeMax(const std::vector<int64_t>& values)
    : size_(values.size()), most_(4 * values.size() + 4, kNothing), added_(4 * values.size() + 4, 0) {
  if (size_ != 0) Build(1, 0, size_, values);
}

void RangeMax::Build(size_t node, size_t low, size_t high, const std::vector<int64_t>& values) {
  if (high - low == 1) {
    most_[node] = values[low];
    return;
  }
  const size_t middle = (low + high) / 2;
  Build(2 * node, low, middle, values);
  Build(2 * node + 1, middle, high, values);
  most_[node] = std::max(most_[2 * node], most_[2 * node + 1]);
}

void RangeMax::AddIn(size_t node, size_t low, size_t high, size_t begin, size_t end, int64_t delta) {
  if (begin >= high || end <= low || begin >= end) return;
  if (begin <= low && high <= end) {
    most_[node] += delta;
    added_[node] += delta;
    return;
  }
  const size_t middle = (low + high) / 2;
  AddIn(2 * node, low, middle, begin, end, delta);
  AddIn(2 * node + 1, middle, high, begin, end, delta);
  most_[node] = std::max(most_[2 * node], most_[2 * node + 1]) + added_[node];
}

int64_t RangeMax::MaxIn(size_t node, size_t low, size_t high, size_t begin, size_t end) const {
  if (begin >= high || end <= low || begin >= end) return kNothing;
  if (begin <= low && high <= end) return most_[node];
  const size_t middle = (low + high) / 2;
  return std::max(MaxIn(2 * node, low, middle, begin, end), MaxIn(2 * node + 1, middle, high, begin, end)) +
         added_[node];
}

}  // namespace spillway::policy
