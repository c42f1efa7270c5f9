// FreeBuffers: the free buffers of a pinned pool, in runs that adjoin, so that a block's bytes are copied in
// few large pieces. HostPool keeps one for each use, under its lock. Nothing fails.

#ifndef SPILLWAY_ALLOCATOR_TIER_FREE_BUFFERS_H_
#define SPILLWAY_ALLOCATOR_TIER_FREE_BUFFERS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace spillway::allocator {

// Not thread-safe; the owner's lock guards it.
class FreeBuffers {
 public:
  explicit FreeBuffers(uint64_t buffer_bytes) : buffer_bytes_(buffer_bytes) {}

  // Appends up to `count` buffers, by ascending addresses within each run, and returns their number. Takes
  // the smallest run that has enough, or else the largest runs.
  size_t Take(size_t count, std::vector<std::byte*>* buffers);
  // Frees `buffers` buffers from `start` on. None of them may be free already (checked).
  void Give(std::byte* start, size_t buffers);
  size_t size() const { return size_; }  // buffers

 private:
  using Runs = std::map<std::byte*, size_t>;  // buffers, by the address of the first

  void Erase(Runs::iterator run);

  const uint64_t buffer_bytes_;
  Runs runs_;
  std::set<std::pair<size_t, std::byte*>> by_size_;  // the same runs
  size_t size_ = 0;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_TIER_FREE_BUFFERS_H_
