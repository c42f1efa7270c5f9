#include "allocator/driver/memory_turn.h"

namespace spillway::allocator {

void MemoryTurn::Enter() {
  const os::MutexLock lock(&mu_);
  const uint64_t own = came_++;
  while (done_ != own) next_.Wait(&mu_);
}

void MemoryTurn::Leave() {
  {
    const os::MutexLock lock(&mu_);
    ++done_;
  }
  next_.NotifyAll();
}

}  // namespace spillway::allocator
