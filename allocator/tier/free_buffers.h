// FreeBuffers: the buffers of a pinned pool that nobody has, in runs that adjoin, so that a block's bytes
// are copied in few large pieces. A run never reaches over the end of a slab: slabs are pinned one by one,
// and a copy over two of them is none between pinned memory and the GPU. HostPool keeps one for each use,
// under its lock. Nothing fails.

#ifndef SPILLWAY_ALLOCATOR_TIER_FREE_BUFFERS_H_
#define SPILLWAY_ALLOCATOR_TIER_FREE_BUFFERS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace spillway::allocator {

// Not thread-safe: guarded by the owner's lock.
class FreeBuffers {
 public:
  explicit FreeBuffers(uint64_t buffer_bytes) : buffer_bytes_(buffer_bytes) {}

  // Memory that was pinned at once, all of it free.
  void AddSlab(std::byte* slab, size_t buffers);
  // Appends up to `count` buffers, by ascending addresses within each run, and returns how many: the smallest
  // run that has enough, else the largest runs.
  size_t Take(size_t count, std::vector<std::byte*>* buffers);
  // A buffer comes back.
  void Give(std::byte* buffer) { Enter(buffer, 1); }
  size_t size() const { return size_; }  // buffers

 private:
  using Runs = std::map<std::byte*, size_t>;  // buffers, by the address of the first

  void Enter(std::byte* start, size_t buffers);
  void Erase(Runs::iterator run);

  const uint64_t buffer_bytes_;
  Runs runs_;
  std::set<std::pair<size_t, std::byte*>> by_size_;  // the same runs
  std::set<std::byte*> slabs_;                       // where they begin
  size_t size_ = 0;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_TIER_FREE_BUFFERS_H_
