// Mutants of the spill store, compiled in only with SPILLWAY_TEST_HOOKS. They prove that tests/stress would
// notice a broken rule. Any thread; nothing fails; without the option the macro is false.

#ifndef SPILLWAY_IO_STORE_TEST_POINTS_H_
#define SPILLWAY_IO_STORE_TEST_POINTS_H_

#ifdef SPILLWAY_TEST_HOOKS

#include <atomic>

namespace spillway::io {

// Rules that are left out on purpose, one at a time.
#define SPILLWAY_STORE_MUTANTS(MUTANT)                                                               \
  /* ---- Checksums. */                                                                              \
  MUTANT(kReadUnverified)     /* a read ends without a look at its checksum */                       \
  MUTANT(kChecksumNotAwaited) /* a write ends before its checksum is there */                        \
  /* ---- Requests and results. */                                                                   \
  MUTANT(kShortIsWhole)     /* a short transfer counts as a whole one */                             \
  MUTANT(kContinuesAtStart) /* a short transfer is continued with the bytes from its start */        \
  MUTANT(kStaleResult)      /* a result of an earlier use of a place counts for the request there */ \
  MUTANT(kEndsInFlight)     /* a transfer ends while requests of it are in flight */                 \
  /* ---- Drives that fail or are silent. */                                                         \
  MUTANT(kReadFailsAtOnce)     /* a failed read is not tried again */                                \
  MUTANT(kReadGivenUp)         /* a late read is given up as a write is */                           \
  MUTANT(kWritesTakeAllPlaces) /* writes that the drive keeps leave no place to reads */             \
  MUTANT(kStaysSilent)         /* a late answer does not end the silence */                          \
  MUTANT(kStaysClosed)         /* a probe that passed does not open the directory */                 \
  MUTANT(kProbeSlotKept)       /* a probe does not give its slot back */                             \
  MUTANT(kMovesWhatChanged)    /* a slot that is written while it moves has its old bytes afterwards */

enum class StoreMutant : int {
  kNone,
#define MUTANT(name) name,
  SPILLWAY_STORE_MUTANTS(MUTANT)
#undef MUTANT
};
inline std::atomic<StoreMutant> active_store_mutant{StoreMutant::kNone};

}  // namespace spillway::io

#define SPILLWAY_STORE_MUTANT(name) \
  (::spillway::io::active_store_mutant.load() == ::spillway::io::StoreMutant::name)

#else

#define SPILLWAY_STORE_MUTANT(name) false

#endif  // SPILLWAY_TEST_HOOKS

#endif  // SPILLWAY_IO_STORE_TEST_POINTS_H_
