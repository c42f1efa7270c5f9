// Delay points and seeded mutants of the memory core: compiled in only with SPILLWAY_TEST_HOOKS (tests), so that a
// model test can widen races and prove that it would notice a broken rule.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_TEST_POINTS_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_TEST_POINTS_H_

#ifdef SPILLWAY_TEST_HOOKS

#include <atomic>

namespace spillway::allocator {

// A rule left out on purpose. Each must be caught by tests/allocator/residency_model_test.
enum class Mutant : int {
  kNone,
  kSkipSlotWait,        // the evictor does not wait for threads inside the gate
  kPublishBeforeEvent,  // a fault is called resident before its copy has completed
  kReuseDrainingBlock,  // a block freed during a transfer is handed out before the transfer has ended
  kNoExchangeRoom,      // charging leaves no room to exchange blocks
  kTrustOldCopy,        // a copy from before is taken for the content without looking
  kCopyWithoutLock,     // a copy is called good without looking whether the block was taken meanwhile
  kKeepAnyCopy,         // an eviction that was taken back keeps whatever it has copied
  kKeepOfLastLife,      // an eviction that was taken back keeps its copy in the block's next life
  kReuseRecordEarly,  // the record of a freed block serves another address while somebody still has to do with it
  kPublishWithoutLook,  // an early copy is published although a launch has taken the block
};
extern std::atomic<Mutant> active_mutant;
// Called at each named point when set; may sleep or yield.
extern std::atomic<void (*)(const char* point)> delay_function;

}  // namespace spillway::allocator

#define SPILLWAY_MUTANT(name) \
  (::spillway::allocator::active_mutant.load() == ::spillway::allocator::Mutant::name)
#define SPILLWAY_DELAY_POINT(name)                                                 \
  do {                                                                             \
    if (auto* delay_ = ::spillway::allocator::delay_function.load()) delay_(name); \
  } while (false)

#else

#define SPILLWAY_MUTANT(name) false
#define SPILLWAY_DELAY_POINT(name) ((void)0)

#endif  // SPILLWAY_TEST_HOOKS

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_TEST_POINTS_H_
