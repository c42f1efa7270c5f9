// LinkProbe: measures what the link to host memory reaches in each direction alone and in both together, by
// copies between pinned buffers and one or two free chunks: when something leaves the GPU for the first time,
// and again when the rates of the job's own transfers have drifted. So never in a job that fits.
//
// A measurement has rounds of three batches of copies: in, out, both. It is on the copy streams, so the job's
// copies wait for one batch at most (1 ms, or one copy), and it ends within 50 ms, or with the batch that is
// under way then. For these 50 ms no eviction goes on; fetches do, and spoil the round that they fall into. The
// DeviceResidency polls it on the device's thread. What a driver call refuses, or too few buffers, drops the
// measurement: plans then use the rates of the job's transfers, as without it.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_LINK_PROBE_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_LINK_PROBE_H_

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "allocator/residency/state/charges.h"
#include "allocator/residency/state/core.h"
#include "allocator/residency/transfer/copy_streams.h"
#include "allocator/tier/host_pool.h"
#include "policy/model/machine.h"

namespace spillway::allocator {

// When two batches of copies began and ended, in nanoseconds from any common start, and their bytes.
struct LinkBatch {
  double in_begin = 0, in_end = 0, out_begin = 0, out_end = 0;
  double in_bytes = 0, out_bytes = 0;
};
// Rates while both ran, of a batch of both, from the rates alone: what was moved while only one ran is taken
// out. Nothing when they ran together for less than half of the shorter one's time.
std::optional<policy::LinkRates> RatesTogetherOf(const LinkBatch& batch, const policy::LinkRates& alone);

class LinkProbe {
 public:
  static constexpr int64_t kMostNanos = 50'000'000;
  static constexpr int kRounds = 3;

  LinkProbe(Core* core, Charges* charges, CopyStreams* copies);

  // Begins a measurement that is due, or goes on with it. True when something was done. Device's thread, the
  // context current.
  bool Poll();
  // A measurement is under way.
  bool measuring() const { return batch_ != Batch::kNone; }
  // Evictions are to wait: for kMostNanos at most, even if a batch never ends.
  bool suspends_evictions() const { return measuring() && !overdue_; }

 private:
  enum class Batch : uint8_t { kNone, kFirst, kIn, kOut, kBoth };
  struct Round {
    policy::LinkRates alone, both;
  };

  bool Due(int64_t now);
  bool Begin(int64_t now);
  bool TakeMemory();
  uint64_t CopyBytes() const;  // of one copy
  absl::Status Map();
  bool MakeEvents();
  // Enqueues the batch; its two end events complete when it has ended.
  absl::Status Enqueue(Batch batch);
  absl::Status EnqueueDirection(LinkDirection direction);
  absl::Status Next(int64_t now);
  absl::StatusOr<LinkBatch> Times() const;
  // Ends it: what was found in whole rounds is kept.
  void Finish(int64_t now, bool failed);
  void GiveMemoryBack();

  Core* const core_;
  Charges* const charges_;
  CopyStreams* const copies_;

  // ---- Device's thread.
  Batch batch_ = Batch::kNone;
  bool given_up_ = false;  // a driver call failed: not tried again
  int64_t began_ = 0;      // of the measurement
  int64_t batch_began_ = 0;
  bool overdue_ = false;                  // a batch is under way though the measurement's time is over
  int64_t not_before_ = 0;                // no measurement begins before
  std::array<double, 2> own_rates_ = {};  // of the job's transfers when it was last measured, by direction
  uint64_t enqueued_ = 0;                 // copies, after the last batch
  bool spoilt_ = false;                   // others copied during this round
  uint32_t copies_of_batch_ = 1;
  Round round_;
  std::vector<Round> rounds_;
  std::array<std::optional<std::pair<HostUse, PinnedBuffer>>, 2> buffers_;  // by direction
  std::vector<ChunkHandle> handles_;
  CUdeviceptr address_ = 0;                                     // of the chunks, mapped
  std::array<CUevent, 2> begin_events_ = {}, end_events_ = {};  // by direction
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_LINK_PROBE_H_
