// CopyIn: the copies of a fetch, from host memory and from disk to the GPU. Extents in host memory are copied
// at once; those on disk are read into staging buffers and copied from there. The Faulter calls it and
// decides when. The thread that begins a fetch enqueues what lies in host memory, the device's thread does
// the rest. A read that fails for good, or a copy that the driver refuses, is kept in the job.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_COPY_IN_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_COPY_IN_H_

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "allocator/driver/device_hash.h"
#include "allocator/residency/state/core.h"
#include "allocator/residency/transfer/copy_streams.h"
#include "allocator/tier/host_pool.h"

namespace spillway::allocator {

// One block on its way in. Created under the lock together with the move to kFaulting. The thread that starts
// it uses it until it is posted, the device's thread from then on, but for the fields that the lock guards.
struct FetchJob {
  struct StagedExtent {
    size_t extent = 0;
    PinnedBuffer buffer;
    bool read = false;         // arrived from disk
    bool lent = false;         // the read never came back: the kernel may still write the buffer
    CUevent copied = nullptr;  // its copy to the GPU; null until enqueued
  };

  Block* block = nullptr;
  std::vector<StagedExtent> staged;
  size_t next_extent = 0;        // extents before it have been asked for from disk, or are not there
  size_t disk_extents_left = 0;  // not yet enqueued to the GPU
  bool from_host = false;        // all of it: measured as one transfer, until the link has been given the end
  bool still = false;            // in a standstill, from then until the bytes have arrived
  DeviceHash::Request arrived;   // of the bytes that have come, to be compared with those that had left
  // Where no launch may have the block before it has been compared: the copies are in; `arrived` is there.
  CUevent copied = nullptr, hashed = nullptr;
  int wrong_arrivals = 0;        // how often other bytes had come
  int64_t began = 0;             // nanoseconds of the steady clock
  absl::Status failure;          // a driver error, or the bytes cannot be read: the fetch is taken back
  absl::Status unreadable;       // a read that failed for good, until it is noted as the failure

  std::vector<size_t> again;  // extents whose reads were called off before they began
  CUevent drained = nullptr;  // taken back: completes when no copy is under way any more

  // Guarded by the table's lock:
  TimelineValue waiter;     // up to where the stream of a launch that waits for it had work
  uint64_t waiter_tag = 0;  // of that launch
  bool demanded = false;    // a launch waits (a prefetch may be promoted)
  bool cancelled = false;   // drain, then back to kSpilled (or kCached when freed)
};

class CopyIn {
 public:
  // `wake` makes the device's thread look again; called from I/O completion threads.
  CopyIn(Core* core, CopyStreams* copies, std::function<void()> wake);

  // Enqueues the copies of extents in host memory, and counts the others. Context current.
  absl::Status EnqueueHostExtents(FetchJob* job);
  // Everything has been enqueued: from now on a launch may be ordered behind the arrival event. On failure
  // nothing can wait for the copies, and the fetch is to be taken back. Context current.
  absl::Status MarkArrival(FetchJob* job);

  // ---- Device's thread. True when something was done.

  // Submits reads while there are staging buffers. A prefetch leaves some for faults, and all while any fetch
  // is demanded. Where none will ever be free again, that is the job's failure.
  bool SubmitReads(FetchJob* job, bool demanded, bool any_demanded);
  // Takes in the results of reads that have ended.
  bool CollectReads();
  // Enqueues the copies of what has been read.
  bool EnqueueReadExtents(FetchJob* job);
  // Gives back the staging buffers whose copies have completed.
  bool ReturnStaging(FetchJob* job);
  // Gives the other staging buffers back. No read writes into them and no copy reads them any more.
  void DropStaging(FetchJob* job);

 private:
  struct ReadResult {
    FetchJob* job;
    size_t extent;
    absl::Status status;
  };

  bool NextDiskExtent(FetchJob* job);
  void GiveStaging(const FetchJob::StagedExtent& staged);

  Core* const core_;
  CopyStreams* const copies_;
  const std::function<void()> wake_;

  os::Mutex results_mu_{os::LockRank::kTier};
  std::vector<ReadResult> results_ ABSL_GUARDED_BY(results_mu_);
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_COPY_IN_H_
