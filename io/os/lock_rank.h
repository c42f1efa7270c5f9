// LockRank: the order in which locks are taken, so that threads cannot wait for each other in a circle. Every
// os::Mutex is made with its rank. docs/threading.md lists what each lock protects, and across which calls
// none may be kept. The order is checked in builds with SPILLWAY_LOCK_CHECKS (io/os/sync.h), in which a wrong
// order stops the process. In other builds a rank costs nothing.

#ifndef SPILLWAY_IO_OS_LOCK_RANK_H_
#define SPILLWAY_IO_OS_LOCK_RANK_H_

namespace spillway::os {

// One value per lock class. A thread that has a lock of rank r may only take a lock of rank > r. A thread
// thus never has two locks of one class, except by a TryLock, which does not wait. The numbers leave gaps for
// classes to come.
enum class LockRank : int {
  kRuntime = 10,        // engine life cycle
  kRegistry = 20,       // hooks: functions, modules, external memory
  kGpuShare = 25,       // our share of a device that jobs share
  kResidency = 30,      // block states, queue of claims, chunks
  kStandstill = 35,     // whether launches wait for a standstill, and how many are being made
  kStreams = 40,        // streams and their events
  kTier = 50,           // host pool, slots of the disk tier
  kSpillStore = 60,     // spill files and their slots
  kCapacity = 62,       // capacity of the tiers, and the promises of it
  kTransferQueue = 65,  // transfers that wait for a directory
  kWriteBudget = 67,    // bytes that were written under the write budget
  kEngine = 70,         // submission queues of an I/O engine
  kBuffers = 75,        // unused buffers for cipher text
  kRecorder = 80,       // trace ring and prediction
  kWaits = 85,          // the list of waits
  kLog = 90,            // the log, words of refusals: taken with any other lock held
  kMemoryTurn = 95,     // whose turn it is to call the driver
};

}  // namespace spillway::os

#endif  // SPILLWAY_IO_OS_LOCK_RANK_H_
