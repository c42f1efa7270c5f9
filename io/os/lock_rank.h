// LockRank: the order in which locks are taken, so that threads cannot wait for each other in a circle. Every
// os::Mutex is made with its rank. docs/threading.md says which lock protects what, and across what none may
// be held. Checked in builds with SPILLWAY_LOCK_CHECKS (io/os/sync.h), where a wrong order stops the process;
// elsewhere a rank costs nothing.

#ifndef SPILLWAY_IO_OS_LOCK_RANK_H_
#define SPILLWAY_IO_OS_LOCK_RANK_H_

namespace spillway::os {

// One value per lock class; a thread that holds rank r may only take a lock of rank > r. So nobody has two of
// one class, but by a TryLock, which does not wait. The numbers leave places for classes to come.
enum class LockRank : int {
  kRuntime = 10,        // engine life cycle
  kRegistry = 20,       // hooks: functions, modules, external memory
  kGpuShare = 25,       // what of a device that jobs share is ours
  kResidency = 30,      // block states, queue of claims, chunks
  kStandstill = 35,    // whether launches wait for one, and how many are being made
  kStreams = 40,        // streams and their events
  kTier = 50,           // host pool, slots of the disk tier
  kSpillStore = 60,     // spill files and their slots
  kCapacity = 62,       // what the tiers can hold, and what of it is promised
  kTransferQueue = 65,  // transfers that wait for a directory
  kWriteBudget = 67,    // what was written of the write budget
  kEngine = 70,         // submission queues of an I/O engine
  kBuffers = 75,        // unused buffers for cipher text
  kRecorder = 80,       // trace ring and prediction
  kWaits = 85,          // the list of waits
  kLog = 90,            // the log, words of refusals: taken with any other lock held
  kMemoryTurn = 95,     // whose turn it is to call the driver
};

}  // namespace spillway::os

#endif  // SPILLWAY_IO_OS_LOCK_RANK_H_
