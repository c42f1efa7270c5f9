// LinkProbe: measures the rates of the link to host memory, in each direction alone and in both together, by
// copies between pinned buffers and one or two free chunks. It measures when something leaves the GPU for the
// first time, and again when the rates of the job's own transfers have drifted; it never measures in a job
// that fits.
//
// A measurement has rounds of three batches of copies: in, out, both. It uses the copy streams, so the job's
// copies wait for one batch at most (1 ms, or one copy). It ends within 50 ms, or with the batch that is
// under way then. No eviction goes on for these 50 ms. Fetches do, and spoil the round during which they
// come. The DeviceResidency polls the probe on the device's thread. A refused driver call, or too few
// buffers, drops the measurement: plans then use the rates of the job's transfers, as without it.

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

// The times at which two batches of copies began and ended, in nanoseconds from any common start, and their
// bytes.
struct LinkBatch {
  double in_begin = 0, in_end = 0, out_begin = 0, out_end = 0;
  double in_bytes = 0, out_bytes = 0;
};
// Rates of both directions while both ran, from a batch of both and from the rates alone: the bytes that
// moved while only one ran are subtracted. Returns nothing when they ran together for less than half of the
// shorter one's time.
std::optional<policy::LinkRates> RatesTogetherOf(const LinkBatch& batch, const policy::LinkRates& alone);

class LinkProbe {
 public:
  static constexpr int64_t kMaxNanos = 50'000'000;
  static constexpr int kRounds = 3;

  LinkProbe(Core* core, Charges* charges, CopyStreams* copies);

  // Begins a measurement that is due, or goes on with it. Returns true when something was done. Device's
  // thread, with the context current.
  bool Poll();
  // Whether a measurement is under way.
  bool measuring() const { return batch_ != Batch::kNone; }
  // Whether evictions must wait: for kMaxNanos at most, even if a batch never ends.
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
  // Enqueues the batch. Its two end events complete when it has ended.
  absl::Status Enqueue(Batch batch);
  absl::Status EnqueueDirection(LinkDirection direction);
  absl::Status Next(int64_t now);
  absl::StatusOr<LinkBatch> Times() const;
  // Ends the measurement, and keeps the results of whole rounds.
  void Finish(int64_t now, bool failed);
  void GiveMemoryBack();

  Core* const core_;
  Charges* const charges_;
  CopyStreams* const copies_;

  // ---- Device's thread.
  Batch batch_ = Batch::kNone;
  bool given_up_ = false;  // a driver call failed: no other measurement
  int64_t began_ = 0;      // start of the measurement
  int64_t batch_began_ = 0;
  bool overdue_ = false;                  // a batch is under way after the measurement's time
  int64_t not_before_ = 0;                // earliest start of the next measurement
  std::array<double, 2> own_rates_ = {};  // the job's rates at the last measurement, by direction
  uint64_t enqueued_ = 0;                 // number of copies after the last batch
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
