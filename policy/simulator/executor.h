// Executor: the loop behind Execute. Private to execution.cc, executor.cc and executor_moves.cc.

#ifndef SPILLWAY_POLICY_SIMULATOR_EXECUTOR_H_
#define SPILLWAY_POLICY_SIMULATOR_EXECUTOR_H_

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "policy/simulator/drives.h"
#include "policy/simulator/due_parts.h"
#include "policy/simulator/range_max.h"

namespace spillway::policy {

// All times are multiples of 2 ns. Judges of schedules take times 1 ns apart for the same one; none of ours are.
inline Nanos ToTicks(double nanos) {
  constexpr Nanos kTick = 2;
  return std::max<Nanos>(kTick, static_cast<Nanos>(std::ceil(nanos / static_cast<double>(kTick))) * kTick);
}

class Executor {
 public:
  Executor(const Workload& workload, const Lifetimes& lifetimes, const Machine& machine,
           const TransferPlan& plan, const ExecutionOptions& options);
  absl::Status Run();
  Execution TakeResult();

 private:
  // Out to the host, out to each drive, in from the host, in from each drive.
  using Lane = size_t;
  struct Move {
    bool active = false;
    uint32_t part = 0;
    Nanos end = 0;
    double rate = 0;
  };
  struct MovedBytes {
    Nanos start, end;
    Bytes bytes;
    bool out, host;
  };
  struct WriteEntry {
    uint64_t needed;  // kernel, counted over iterations, after which the absence may begin
    uint64_t order;   // first come, first served
    uint32_t part;
    uint64_t content;
    uint64_t expires;  // kernel, counted over iterations
    bool operator>(const WriteEntry& other) const {
      return std::pair(needed, order) > std::pair(other.needed, other.order);
    }
  };
  struct ReadEntry {
    uint64_t due;  // kernel, counted over iterations
    uint32_t part;
    bool operator>(const ReadEntry& other) const {
      return std::pair(due, part) > std::pair(other.due, other.part);
    }
  };
  template <typename Entry>
  using Queue = std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>>;
  using Kernel = WorkloadKernel;

  // The start: where persistent tensors lie, and what the plan expects of each kernel's memory.
  std::vector<int64_t> ExpectedUse() const;
  void PlaceTensors();
  void PlaceAway(const AwayAtStart& away);

  bool IsOut(Lane lane) const { return lane < tiers_; }
  bool IsHost(Lane lane) const { return lane == kHostOut || lane == HostIn(); }
  Lane HostIn() const { return tiers_; }
  Lane LaneBack(const ExecutionPart& part) const { return Back(part.valid[1] ? kHostOut : 1 + part.drive); }
  Lane Back(Lane out) const { return out + tiers_; }  // the lane in from where `out` goes to
  Queue<WriteEntry>& WritesOf(Lane out) { return writes_[out]; }
  Queue<ReadEntry>& ReadsOf(Lane in) { return reads_[in - tiers_]; }

  // One round at a time: all that can start does.
  void StartAll();
  bool StartKernel();
  bool Waiting() const { return !running_ && started_ < last_; }
  bool NextIsHeld(const Kernel& kernel) const;    // by moves of what it overwrites or frees
  Bytes NextRoom(const Kernel& kernel) const;     // what its start takes beside its inputs
  Bytes NextMissing(const Kernel& kernel) const;  // inputs that nothing brings yet
  bool InputsReady(const Kernel& kernel) const;
  void StartWrites(Lane lane);
  bool Stale(const WriteEntry& entry) const;
  void StartAllReads();
  void StartReads(Lane lane);
  bool StartOwnRead(Lane lane);
  bool StartQueuedRead(Lane lane);
  bool MayReadAhead(const ReadEntry& entry);
  double RateOf(Lane lane) const;  // 0: not now
  double DriveRate(Lane lane) const;
  double ShareOf(Lane lane) const;
  bool Asks(Lane lane) const;
  void StartMove(Lane lane, uint32_t part);
  void EvictInNeed();
  absl::Status CheckProgress();
  std::vector<uint32_t> VictimsInOrder() const;

  // Time goes on.
  Nanos NextEvent() const;
  void Advance(Nanos to);
  void EndKernel();
  void EndMove(Lane lane);
  void FreeStale();
  void QueueWrite(const DueWrite& write, uint64_t from, uint64_t needed_before_all);
  void PushWrite(Lane lane, const WriteEntry& entry);
  void PopWrite(Lane lane);
  uint32_t DriveFor(ExecutionPart* part);
  void SetToCome(ExecutionPart* part, bool to_come);
  void FreeElsewhere(uint32_t tensor);
  void BeginAbsence(const DueDrop& due);
  void DropFromGpu(uint32_t part);
  void QueueRead(uint32_t part);

  uint64_t NextUse(uint32_t tensor, uint64_t from) const;
  uint64_t NextNamed(uint32_t tensor, uint64_t from) const;
  uint32_t FirstNeeded(uint32_t tensor) const;
  bool FirstReads(uint32_t tensor) const;
  uint64_t Current() const { return running_ ? started_ - 1 : started_; }
  void CountWait(Nanos time);
  Nanos PlannedNow() const;
  Nanos PlannedStart(uint64_t kernel) const;
  bool Uses(const Kernel& kernel, uint32_t tensor) const;
  uint32_t KernelOf(uint64_t position) const { return static_cast<uint32_t>(position % kernels_); }
  Bytes FreeOnGpu() const;
  void Record(ScheduleEvent::Kind kind, uint32_t part, Place from, Place to, Nanos start, Nanos end);

  const Workload& workload_;
  const Lifetimes& lifetimes_;
  const Machine& machine_;
  const TransferPlan& plan_;
  const ExecutionOptions& options_;
  const uint64_t kernels_;
  const uint64_t last_;  // kernels of all iterations together
  const std::vector<Drive> drives_;
  const size_t tiers_;  // the host and the drives
  ExecutionState state_;
  const ExecutionTables tables_;
  RangeMax expected_;  // bytes on the GPU at each kernel, as planned and as loaded ahead so far
  std::vector<Nanos> planned_starts_;         // of the kernels of one iteration, and its end
  std::vector<std::vector<uint32_t>> dying_;  // tensors by the kernel at whose end they are freed

  Nanos now_ = 0;
  bool running_ = false;
  uint64_t started_ = 0;  // kernels started so far
  Nanos kernel_start_ = 0, kernel_end_ = 0, previous_end_ = 0;
  Nanos wake_ = 0;  // when a read may start that was too early; 0: none
  static constexpr Lane kHostOut = 0;
  std::vector<Move> lanes_;
  std::vector<Queue<WriteEntry>> writes_;  // by lane
  std::vector<Queue<ReadEntry>> reads_;
  DriveLoads drive_loads_;
  uint64_t order_ = 0;
  std::vector<uint32_t> stale_;  // tensors whose copies elsewhere the running kernel makes stale
  std::vector<MovedBytes> moved_;
  std::vector<Nanos> read_waits_, room_waits_;          // before each kernel of each iteration
  std::vector<Nanos> ssd_read_waits_, ssd_room_waits_;  // of each iteration
  Execution result_;
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_SIMULATOR_EXECUTOR_H_
