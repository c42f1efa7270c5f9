#include "allocator/residency/state/read_side_sections.h"

#include <optional>

#include "allocator/memory/test_points.h"
#include "io/os/per_thread.h"

namespace spillway::allocator {
namespace {

constexpr int kLongWait = 10'000;  // spins, some 100 ms; a launch takes microseconds

// Sections belong to threads, not to devices. A thread is inside one gate at a time, and waiting for a thread
// inside another device's gate costs a microsecond.
ReadSections::Section sections[ReadSections::kSections];

// This type has no destructor, so that it may be read after all destructors have run. SectionReturn gives the
// section back.
struct ThreadSection {
  ReadSections::Section* section = nullptr;
  bool ends = false;  // the thread
};

struct SectionReturn {
  os::Atomic<bool>* taken = nullptr;
  // Destructors of other thread-locals may launch after this one. They launch without a section, because
  // another thread may have it by then.
  ~SectionReturn() {
    os::PerThread<ThreadSection>() = {nullptr, true};
    if (taken != nullptr) taken->store(false, std::memory_order_release);
  }
};

}  // namespace

ReadSections::ReadSections() : fence_(!os::RegisterAsymmetricBarrier()) {}

ReadSections::Section* ReadSections::ForThisThread() {
  ThreadSection& mine = os::PerThread<ThreadSection>();
  if (mine.section != nullptr) return mine.section;
  if (mine.ends) return nullptr;
  for (Section& section : sections) {
    // A load comes first, because an exchange would take the cache line away from the thread that is inside.
    bool expected = section.taken_.load(std::memory_order_relaxed);
    if (!expected && section.taken_.compare_exchange_strong(expected, true, std::memory_order_acquire)) {
      section.number_ = static_cast<uint8_t>(&section - sections + 1);
      mine.section = &section;
      os::PerThread<SectionReturn>().taken = &section.taken_;
      return &section;
    }
  }
  return nullptr;
}

void ReadSections::WaitForAll(os::WaitList* waits) const {
  if (SPILLWAY_MUTANT(kSkipSectionWait)) return;
  if (SPILLWAY_MUTANT(kNoBarrier)) {
    // Nothing.
  } else if (fence_) {
    os::FullFence();
  } else {
    // The loads below could miss stores without the barrier, so it is tried until the kernel has memory for
    // it.
    std::optional<os::Wait> wait;
    while (!os::HeavyBarrier()) {
      if (!wait) wait.emplace(waits, os::WaitKind::kReadSections, "memory of the kernel for a barrier");
      os::SpinPause(kLongWait);
    }
  }
  for (const Section& section : sections) {
    // An odd count is a thread inside. Any other count than this one shows that the thread has left that
    // section; a section that it has entered since is not waited for.
    const uint64_t seen = section.count_.load(std::memory_order_acquire);
    if (seen % 2 == 0) continue;
    std::optional<os::Wait> wait;
    for (int spins = 0; section.count_.load(std::memory_order_acquire) == seen; ++spins) {
      if (spins == kLongWait) wait.emplace(waits, os::WaitKind::kReadSections, "a launch that is being made");
      os::SpinPause(spins);
    }
  }
}

}  // namespace spillway::allocator
