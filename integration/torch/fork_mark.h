// ForkMark tells whether this process is a fork of the one that created the mark. CUDA does not work in a
// fork, and another thread of the parent may have held one of our locks. Any thread may ask. The constructor
// throws std::bad_alloc if there is no page.
//
// The kernel wipes the mark's page in children. A handler of pthread_atfork would deadlock: glibc before 2.36
// keeps its lock while handlers run, and the preload's handler waits for the thread that opens the engine,
// which is the one that would register.

#ifndef SPILLWAY_INTEGRATION_TORCH_FORK_MARK_H_
#define SPILLWAY_INTEGRATION_TORCH_FORK_MARK_H_

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <new>

namespace spillway::integration {

// Lives as long as the process.
class ForkMark {
 public:
  ForkMark() {
    const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void* const page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) throw std::bad_alloc();
    // Only Linux before 4.14 refuses this; children are not recognized then.
    (void)madvise(page, bytes, MADV_WIPEONFORK);
    parent_ = new (page) std::atomic<bool>(true);
  }
  ForkMark(const ForkMark&) = delete;
  ForkMark& operator=(const ForkMark&) = delete;

  // Thread-safe.
  bool InChild() const { return !parent_->load(std::memory_order_relaxed); }

 private:
  const std::atomic<bool>* parent_;
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_TORCH_FORK_MARK_H_
