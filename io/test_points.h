// Mutants of the spill store, compiled in only with SPILLWAY_TEST_HOOKS: tests/stress proves by them that it
// would notice a broken rule. Any thread; nothing fails; without the option the macro is false.

#ifndef SPILLWAY_IO_TEST_POINTS_H_
#define SPILLWAY_IO_TEST_POINTS_H_

#ifdef SPILLWAY_TEST_HOOKS

#include <atomic>

namespace spillway::io {

// A rule that is left out on purpose.
enum class StoreMutant : int {
  kNone,
  // ---- Checksums.
  kReadUnverified,      // a read ends without a look at its checksum
  kChecksumNotAwaited,  // a write ends before its checksum is there
  // ---- Requests and results.
  kShortIsWhole,      // a short transfer counts as a whole one
  kContinuesAtStart,  // a short transfer is continued with the bytes from its start
  kStaleResult,       // a result of an earlier use of a place counts for the request that has the place
  kEndsInFlight,      // a transfer ends while requests of it are in flight
  // ---- Drives that fail or are silent.
  kReadFailsAtOnce,      // a failed read is not tried again
  kReadGivenUp,          // a late read is given up as a write is
  kWritesTakeAllPlaces,  // writes that the drive keeps leave no place to reads
  kStaysSilent,          // a late answer does not end the silence
  kStaysClosed,          // a probe that passed does not open the directory
  kProbeSlotKept,        // a probe does not give its slot back
  kMovesWhatChanged,     // a slot that was written again while it moved has its old bytes afterwards
};
inline std::atomic<StoreMutant> active_store_mutant{StoreMutant::kNone};

}  // namespace spillway::io

#define SPILLWAY_STORE_MUTANT(name) \
  (::spillway::io::active_store_mutant.load() == ::spillway::io::StoreMutant::name)

#else

#define SPILLWAY_STORE_MUTANT(name) false

#endif  // SPILLWAY_TEST_HOOKS

#endif  // SPILLWAY_IO_TEST_POINTS_H_
