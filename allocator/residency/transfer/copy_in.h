// CopyIn: the copies of a fetch, from host memory and from disk to the GPU. Extents in host memory are copied
// at once; extents on disk are read into staging buffers and copied from there. The Faulter calls it and
// decides when. The thread that begins a fetch enqueues the copies from host memory, and the device's thread
// does the rest. The job keeps the error of a read that fails for good, or of a copy that the driver refuses.

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

// One block on its way in. It is created under the lock together with the move to kFaulting. The thread that
// starts it uses it until it is posted, and the device's thread from then on, except for the fields that the
// lock guards.
struct FetchJob {
  struct StagedExtent {
    size_t extent = 0;
    PinnedBuffer buffer;
    bool read = false;         // arrived from disk
    bool lent = false;         // lent to a read that never came back: the kernel may still write the buffer
    CUevent copied = nullptr;  // its copy to the GPU; null until enqueued
  };

  Block* block = nullptr;
  std::vector<StagedExtent> staged;
  size_t next_extent = 0;        // earlier extents have been requested from disk, or are not there
  size_t disk_extents_left = 0;  // not yet enqueued to the GPU
  bool from_host = false;        // all from host memory: one transfer for LinkMeter, until its end
  bool still = false;            // in a standstill, from its start until the bytes have arrived
  DeviceHash::Request arrived;   // hash of the bytes that have come, to be compared with those that had left
  // When no launch may have the block before the comparison: the copies have ended; `arrived` is there.
  CUevent copied = nullptr, hashed = nullptr;
  int wrong_arrivals = 0;   // number of times that other bytes had come
  int64_t began = 0;        // nanoseconds of the steady clock
  absl::Status failure;     // a driver error, or the bytes cannot be read: the fetch is taken back
  absl::Status unreadable;  // error of a read that failed for good, until it becomes `failure`

  std::vector<size_t> again;  // extents whose reads were canceled before they began
  CUevent drained = nullptr;  // when taken back: completes when no copy is under way any more

  // Guarded by the table's lock:
  TimelineValue waiter;     // last work of the stream of a launch that waits for this
  uint64_t waiter_tag = 0;  // tag of that launch
  bool demanded = false;    // a launch waits (a prefetch may be promoted)
  bool cancelled = false;   // drain, then back to kSpilled (or kCached when freed)
};

class CopyIn {
 public:
  // `wake` makes the device's thread poll again; it is called from I/O completion threads.
  CopyIn(Core* core, CopyStreams* copies, std::function<void()> wake);

  // Enqueues the copies of extents in host memory, and counts the others. The context must be current.
  absl::Status EnqueueHostExtents(FetchJob* job);
  // Called when everything has been enqueued: from now on a launch may be ordered behind the arrival event.
  // On failure nothing can wait for the copies, and the fetch must be taken back. The context must be
  // current.
  absl::Status MarkArrival(FetchJob* job);

  // ---- Device's thread. Each returns true when something was done.

  // Submits reads while there are staging buffers. A prefetch leaves some buffers for faults, and leaves all
  // of them while any fetch is demanded. It is the job's failure when no buffer will ever be free again.
  bool SubmitReads(FetchJob* job, bool demanded, bool any_demanded);
  // Takes in the results of reads that have ended.
  bool CollectReads();
  // Enqueues the copies of the extents that have been read.
  bool EnqueueReadExtents(FetchJob* job);
  // Gives back the staging buffers whose copies have completed.
  bool ReturnStaging(FetchJob* job);
  // Gives back the other staging buffers. No read may write into them any more, and no copy may read them.
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
