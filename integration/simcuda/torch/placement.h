// Placing results: while an operator runs, this thread's requests to PyTorch's CPU allocator that match the
// size of a promised result get the result's own device block, so that the op writes its output where it
// belongs. Owns the wrapper around the process's CPU allocator; all other requests go to the previous
// allocator.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_TORCH_PLACEMENT_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_TORCH_PLACEMENT_H_

#include <cstddef>
#include <vector>

namespace simcuda::ops {

// A device block that waits for a result of exactly `bytes`.
struct ResultBlock {
  void* address = nullptr;
  size_t bytes = 0;
  bool taken = false;  // used by the thread of the scope only
};

// Wraps the process's CPU allocator. Called once, before tensors are placed; never undone.
void InstallPlacingAllocator();

// Offers `blocks` to this thread's allocations for the life of the scope. Everything that was placed must be
// freed before the scope ends; scopes do not nest.
class PlacementScope {
 public:
  explicit PlacementScope(std::vector<ResultBlock>* blocks);
  ~PlacementScope();
  PlacementScope(const PlacementScope&) = delete;
  PlacementScope& operator=(const PlacementScope&) = delete;
};

}  // namespace simcuda::ops

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_TORCH_PLACEMENT_H_
