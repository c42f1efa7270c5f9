// MotionLog: the last moves and stalls of one device, and their sums by block and by launch, for the report.
// The residency calls it on the device's thread and on launching threads that have waited; the reporter's
// thread takes copies. All memory is taken at the start. Entries that no longer fit the tables of sums are
// left out; nothing else fails.

#ifndef SPILLWAY_INTEGRATION_REPORT_MOTION_LOG_H_
#define SPILLWAY_INTEGRATION_REPORT_MOTION_LOG_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "allocator/residency/state/residency_options.h"
#include "integration/report/last_entries.h"
#include "io/os/sync.h"

namespace spillway::integration {

struct MotionLogOptions {
  size_t most_moves = 100'000;
  size_t most_stalls = 10'000;
  size_t most_blocks = 1 << 16;    // by the block's index
  size_t most_launches = 1 << 12;  // kinds of launches; a power of two
};

// A copy of the log, oldest first.
struct Motion {
  std::vector<allocator::EndedMove> moves;
  std::vector<allocator::Stall> stalls;
  uint64_t moves_dropped = 0;
  uint64_t stalls_dropped = 0;
};

class MotionLog : public allocator::MotionObserver {
 public:
  explicit MotionLog(const MotionLogOptions& options = {});

  // Record a move, a wait that has ended, and a launch that reached host memory. They allocate nothing.
  void OnMove(const allocator::EndedMove& move) override;
  void OnStall(const allocator::Stall& stall) override;
  void OnReach(uint64_t tag, uint64_t bytes) override;

  // Returns a copy. Takes the lock again and again, each time for a short while, and allocates while it does
  // not have it: an entry that comes meanwhile may or may not be in the copy.
  Motion Copy() const;
  // Sums over the whole run, whatever has dropped out of the log. Blocks that had the same index one after
  // the other count as one.
  struct BlockSums {
    uint64_t moved_bytes = 0;
    uint64_t stalled_nanos = 0;
  };
  BlockSums SumsOf(allocator::BlockId block) const;
  // Sums of the launches with one tag.
  struct LaunchSums {
    uint64_t tag = 0;
    uint64_t stalled_nanos = 0;
    uint64_t reaching = 0;            // launches that reached host memory
    uint64_t reached_bytes = 0;       // of all these launches
    uint64_t most_reached_bytes = 0;  // of one launch: the GPU memory that it lacked
  };
  // Returns the sums of all tags, in no order.
  std::vector<LaunchSums> SumsByTag() const;

 private:
  // Returns the tag's sums; null if there is no place left.
  LaunchSums* SumsOfTag(uint64_t tag) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the log of that kind of entry.
  const LastEntries<allocator::EndedMove>& LogLocked(const allocator::EndedMove*) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return moves_;
  }
  const LastEntries<allocator::Stall>& LogLocked(const allocator::Stall*) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stalls_;
  }
  template <typename Entry>
  uint64_t CopyEntries(std::vector<Entry>* to) const;

  const size_t most_launches_;
  mutable os::Mutex mu_{os::LockRank::kRecorder};
  LastEntries<allocator::EndedMove> moves_ ABSL_GUARDED_BY(mu_);
  LastEntries<allocator::Stall> stalls_ ABSL_GUARDED_BY(mu_);
  std::vector<BlockSums> blocks_ ABSL_GUARDED_BY(mu_);
  std::vector<LaunchSums> tags_ ABSL_GUARDED_BY(mu_);  // open addressing by the tag; 0: free
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_REPORT_MOTION_LOG_H_
