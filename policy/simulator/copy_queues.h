// CopyQueues: the copies of a simulated machine. The host and each drive have one queue each way, with one
// copy at a time under way. The class keeps the order in which the others wait, and gives the rate of a copy
// beside the others. It knows parts by number only; the simulator knows whether they may move. Private to the
// simulator; nothing fails.

#ifndef SPILLWAY_POLICY_SIMULATOR_COPY_QUEUES_H_
#define SPILLWAY_POLICY_SIMULATOR_COPY_QUEUES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "policy/model/machine.h"

namespace spillway::policy {

// The bytes that wait for each drive: to be written to it, and to be read from it.
class DriveLoads {
 public:
  explicit DriveLoads(std::vector<Drive> drives);

  // The drive on which `bytes` more would be written and read back soonest, after all that waits for it; the
  // first of several such.
  size_t Pick(Bytes bytes) const;
  void AddWrite(size_t drive, Bytes bytes) { loads_[drive].to_write += bytes; }
  void RemoveWrite(size_t drive, Bytes bytes) { loads_[drive].to_write -= bytes; }
  // Counts bytes that lie on the drive and are to be read later.
  void AddRead(size_t drive, Bytes bytes) { loads_[drive].to_read += bytes; }
  void RemoveRead(size_t drive, Bytes bytes) { loads_[drive].to_read -= bytes; }

 private:
  struct Load {
    Bytes to_write = 0, to_read = 0;
  };
  std::vector<Drive> drives_;
  std::vector<Load> loads_;
};

class CopyQueues {
 public:
  // Out to the host, out to each drive, in from the host, in from each drive.
  using Queue = size_t;
  static constexpr Queue kHostOut = 0;

  // The copy under way in a queue.
  struct Copy {
    bool active = false;
    uint32_t part = 0;
    Nanos end = 0;
    double rate = 0;        // bytes per second, for all of its time
    bool promotes = false;  // from the drive to host memory: it takes none of PCIe
  };
  // A copy out that waits; the one that is needed first goes first.
  struct Write {
    uint64_t needed;  // kernel, counted over iterations, after which the part may be away
    uint64_t order;   // first come, first served
    uint32_t part;
    Bytes bytes;
    uint64_t content;  // TensorState::content when it was queued: another one makes the copy useless
    uint64_t expires;  // kernel, counted over iterations
    bool operator>(const Write& other) const {
      return std::pair(needed, order) > std::pair(other.needed, other.order);
    }
  };
  // A copy back that waits; the one that is due first goes first.
  struct Read {
    uint64_t due;  // kernel, counted over iterations
    uint32_t part;
    bool operator>(const Read& other) const {
      return std::pair(due, part) > std::pair(other.due, other.part);
    }
  };
  template <typename Entry>
  using Waiting = std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>>;

  explicit CopyQueues(const Machine& machine);

  Queue size() const { return copies_.size(); }
  size_t tiers() const { return tiers_; }  // 1 for the host, and the number of drives
  bool IsOut(Queue queue) const { return queue < tiers_; }
  bool IsHost(Queue queue) const { return queue == kHostOut || queue == HostIn(); }
  Queue HostIn() const { return tiers_; }
  static Queue DriveOut(size_t drive) { return 1 + drive; }
  Queue Back(Queue out) const { return out + tiers_; }  // the queue in from where `out` goes to

  const Copy& copy(Queue queue) const { return copies_[queue]; }
  // Bytes per second of a copy that starts now; 0: it must wait for others.
  double RateNow(Queue queue) const;
  // The same of a copy from a drive, whose queue in this is, to host memory.
  double PromotionRate(Queue queue) const;
  // A copy starts in a queue that has none; it ends at copy.end.
  void Begin(Queue queue, const Copy& copy) { copies_[queue] = copy; }
  void End(Queue queue) { copies_[queue].active = false; }

  const Waiting<Write>& writes(Queue out) const { return writes_[out]; }
  void Push(Queue out, const Write& write);
  void PopWrite(Queue out);
  Waiting<Read>& reads(Queue in) { return reads_[in - tiers_]; }
  DriveLoads& loads() { return loads_; }

 private:
  double DriveRate(Queue queue) const;  // of the drive of that queue, in its direction
  double ShareOf(Queue queue) const;
  bool Asks(Queue queue) const;  // whether copies wait in it

  const Machine& machine_;
  const std::vector<Drive> drives_;
  const size_t tiers_;
  std::vector<Copy> copies_;
  std::vector<Waiting<Write>> writes_;
  std::vector<Waiting<Read>> reads_;
  DriveLoads loads_;
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_SIMULATOR_COPY_QUEUES_H_
