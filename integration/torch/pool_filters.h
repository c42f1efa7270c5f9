// PoolFilters: the allocations that belong to a private pool of PyTorch (CUDA graphs, torch.cuda.MemPool).
// Between beginAllocateToPool and endAllocateToPool native asks a filter about each allocation's stream. This
// is our copy of those filters: such allocations go to native, which owns private pools. It also counts the
// users of each pool, as native does. SpillwayAllocator has the one object. Thread-safe; no call fails.

#ifndef SPILLWAY_INTEGRATION_TORCH_POOL_FILTERS_H_
#define SPILLWAY_INTEGRATION_TORCH_POOL_FILTERS_H_

#include <cuda_runtime_api.h>

#include <atomic>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "integration/torch/compat_types.h"
#include "io/os/sync.h"

namespace spillway::integration {

class PoolFilters {
 public:
  // PyTorch's question to a pool: whether it takes the allocations on this stream.
  using Filter = std::function<bool(cudaStream_t)>;

  // The pool begins to ask for allocations on the device. A pool may begin several times.
  void Begin(c10::DeviceIndex device, PoolId pool, Filter filter) {
    os::MutexLock lock(&mu_);
    filters_.push_back({device, pool, std::move(filter)});
    open_.store(static_cast<int>(filters_.size()));
  }

  // The pool asks no more on the device: all its filters there go.
  void End(c10::DeviceIndex device, PoolId pool) {
    os::MutexLock lock(&mu_);
    std::erase_if(filters_, [&](const Open& open) { return open.device == device && open.pool == pool; });
    open_.store(static_cast<int>(filters_.size()));
  }

  // Records that native counts one user of the pool more. Returns true for the first one.
  bool AddUser(c10::DeviceIndex device, PoolId pool) {
    os::MutexLock lock(&mu_);
    return users_[{device, pool}]++ == 0;
  }
  // Records that native counts one user of the pool less; it forgets a pool that has none. Called before
  // native is, since the pool's last user is gone as soon as that call has returned.
  void RemoveUser(c10::DeviceIndex device, PoolId pool) {
    os::MutexLock lock(&mu_);
    const auto found = users_.find({device, pool});
    if (found != users_.end() && --found->second <= 0) users_.erase(found);
  }

  // Returns whether any pool asks for allocations, on any device. Thread-safe; takes no lock.
  bool AnyOpen() const { return open_.load(std::memory_order_acquire) != 0; }

  // Returns whether an allocation of the calling thread on this stream goes to a private pool. Costs one load
  // if none is open.
  bool Claims(c10::DeviceIndex device, cudaStream_t stream) {
    if (open_.load(std::memory_order_acquire) == 0) return false;
    std::vector<Filter> filters;
    {
      // Filters are PyTorch's code (one asks the driver), so they are called without the lock.
      os::MutexLock lock(&mu_);
      for (const Open& open : filters_) {
        if (open.device == device) filters.push_back(open.filter);
      }
    }
    for (const Filter& filter : filters) {
      if (filter(stream)) return true;
    }
    return false;
  }

 private:
  // A filter between its Begin and its End.
  struct Open {
    c10::DeviceIndex device;
    PoolId pool;
    Filter filter;
  };

  std::atomic<int> open_{0};  // filters_.size(), stored under mu_; pairs with the load in Claims
  os::Mutex mu_{os::LockRank::kRegistry};
  std::vector<Open> filters_ ABSL_GUARDED_BY(mu_);
  // The number of users of each pool that has any.
  std::map<std::pair<c10::DeviceIndex, PoolId>, int> users_ ABSL_GUARDED_BY(mu_);
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_TORCH_POOL_FILTERS_H_
