#include "allocator/tier/free_buffers.h"

#include <algorithm>
#include <iterator>

#include "io/os/check.h"

namespace spillway::allocator {

size_t FreeBuffers::Take(size_t count, std::vector<std::byte*>* buffers) {
  count = std::min(count, size_);
  for (size_t left = count; left > 0;) {
    auto by_size = by_size_.lower_bound({left, nullptr});
    if (by_size == by_size_.end()) --by_size;
    const auto run = runs_.find(by_size->second);
    std::byte* const start = run->first;
    const size_t there = run->second;
    const size_t taken = std::min(there, left);
    Erase(run);
    for (size_t i = 0; i < taken; ++i) buffers->push_back(start + i * buffer_bytes_);
    if (there > taken) Give(start + taken * buffer_bytes_, there - taken);
    left -= taken;
  }
  return count;
}

// Joins the run with its neighbors.
void FreeBuffers::Give(std::byte* start, size_t buffers) {
  const auto next = runs_.lower_bound(start);
  std::byte* const end = start + buffers * buffer_bytes_;
  SPILLWAY_CHECK(next == runs_.end() || next->first >= end);
  size_t all = buffers;
  const auto before = next == runs_.begin() ? runs_.end() : std::prev(next);
  if (next != runs_.end() && next->first == end) {
    all += next->second;
    Erase(next);
  }
  if (before != runs_.end()) {
    std::byte* const end_before = before->first + before->second * buffer_bytes_;
    SPILLWAY_CHECK(end_before <= start);
    if (end_before == start) {
      start = before->first;
      all += before->second;
      Erase(before);
    }
  }
  runs_.emplace(start, all);
  by_size_.emplace(all, start);
  size_ += all;
}

void FreeBuffers::Erase(Runs::iterator run) {
  size_ -= run->second;
  by_size_.erase({run->second, run->first});
  runs_.erase(run);
}

}  // namespace spillway::allocator
