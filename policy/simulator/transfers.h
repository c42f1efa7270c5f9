// Transfers: the copies and drops of a simulated machine: the plan's copies out and drops, reads ahead of
// their use as far as headroom allows, and reads that the next kernel waits for. It moves parts through
// CopyQueues and keeps PartState up to date; the simulator runs kernels and time. Private to the simulator;
// one thread; nothing fails.

#ifndef SPILLWAY_POLICY_SIMULATOR_TRANSFERS_H_
#define SPILLWAY_POLICY_SIMULATOR_TRANSFERS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "policy/model/headroom.h"
#include "policy/model/workload.h"
#include "policy/simulator/copy_queues.h"
#include "policy/simulator/execution_stats.h"
#include "policy/simulator/part_state.h"
#include "policy/simulator/shared_link.h"

namespace spillway::policy {

// The job's place, and the time.
struct JobPlace {
  Nanos now = 0;
  bool running = false;
  uint64_t started = 0;  // kernels started so far, over all iterations
  uint64_t last = 0;     // kernels of all iterations together
  Nanos kernel_start = 0;

  bool Waiting() const { return !running && started < last; }
  uint64_t Current() const { return running ? started - 1 : started; }
};

class Transfers {
 public:
  // The arguments outlive the object; the caller keeps `place` up to date. `headroom`: what the plan expects
  // on the GPU. `host_headroom`: what it expects in host memory, if it promotes. `prefetch`: as in
  // ExecutionOptions.
  Transfers(const Workload& workload, const Machine& machine, Headroom headroom,
            std::optional<Headroom> host_headroom, bool prefetch, const JobPlace& place, PartState* state,
            ExecutionStats* metrics);

  // Makes all of the tensor away at the start, until kernel `until` if it is ever used. It is on the SSD
  // where the host is full.
  void PlaceAway(uint32_t tensor, PlanTier tier, std::optional<uint32_t> until, bool returns);
  // Queues a copy out that may start now. Distances in `write` count from kernel `from`; the copy is wanted
  // `advance` kernels earlier.
  void QueueWrite(const DueWrite& write, uint64_t from, uint64_t advance);
  // The part leaves by the plan, its last use being over.
  void BeginEviction(const DueDrop& due);
  // The part leaves outside the plan until kernel `until`, counted over iterations; to the host if `to_host`.
  void LeaveInNeed(uint32_t part, uint64_t until, bool returns, bool to_host);
  // The tensor was written or freed: its copies elsewhere are of no use any more.
  void FreeElsewhere(uint32_t tensor);
  // An iteration has ended.
  void MoveTo(uint64_t kernel) {
    headroom_.MoveTo(kernel);
    if (host_headroom_) host_headroom_->MoveTo(kernel);
  }

  // Start the copies that may start now, between the beginning and the end of a round.
  void BeginRound();
  void StartWrites();
  void StartReads();
  void EndRound();

  // The time at which the next copy ends, or a read may start that was too early; `latest` if nothing comes
  // before it.
  Nanos NextEvent(Nanos latest) const;
  void EndMoves();  // those that end now
  void Finish();    // the execution has ended: copies under way count to their end
  // The reason for which `kernel`, the next one, waits.
  ExecutionStats::Wait WaitOf(const WorkloadKernel& kernel) const;
  Bytes FreeOnGpu() const;

 private:
  using Queue = CopyQueues::Queue;

  uint32_t KernelOf(uint64_t position) const { return static_cast<uint32_t>(position % kernels_); }
  const WorkloadKernel& Next() const { return workload_.kernels[KernelOf(place_.started)]; }
  Queue QueueBack(const ExecutionPart& part) const;

  void StartWritesOf(Queue queue);
  bool Stale(const CopyQueues::Write& write) const;
  void StartReadsOf(Queue queue);
  bool StartOwnRead(Queue queue);
  void StartQueuedRead(Queue queue);
  void Promote(Queue queue);
  bool MayReadAhead(const CopyQueues::Read& read);
  bool MayBegin(Queue queue);
  void StartMove(Queue queue, uint32_t part);
  void Moved(Queue queue, const SharedLink::Segment& segment);
  // Whether SharedLink has the copy under way in the queue.
  bool OnLink(Queue queue) const { return link_ != nullptr && !queues_.copy(queue).promotes; }
  Nanos EndOf(Queue queue) const;
  void EndMove(Queue queue);
  void Drop(uint32_t part);
  void QueueRead(uint32_t part);
  uint32_t DriveFor(ExecutionPart* part);
  void SetToCome(ExecutionPart* part, bool to_come);
  Nanos PlannedStart(uint64_t kernel) const;
  Nanos PlannedNow() const;
  void Record(ScheduleEvent::Kind kind, const ExecutionPart& part, Place from, Place to, Nanos start,
              Nanos end, Bytes first, Bytes last);

  const Workload& workload_;
  const Machine& machine_;
  const bool prefetch_;
  const uint64_t kernels_;
  const JobPlace& place_;
  PartState& state_;
  ExecutionStats& metrics_;
  CopyQueues queues_;
  const std::unique_ptr<SharedLink> link_;  // null: the directions of PCIe are independent
  Headroom headroom_;
  std::optional<Headroom> host_headroom_;
  std::vector<Nanos> planned_starts_;  // of the kernels of one iteration, and its end
  uint64_t order_ = 0;
  Nanos wake_ = 0;  // when a read may start that was too early; 0: none
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_SIMULATOR_TRANSFERS_H_
