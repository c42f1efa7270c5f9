// KernelTimes: how long launches take on the GPU, learned from measured samples per kind of launch. A kind is
// a function on blocks of given sizes, wherever they lie. A sample lasts until the next launch that names a
// block, and the work in between depends on the place in the iteration, so samples are kept by place, too.
// The launch timer measures, the planner asks. Data only; no call fails.

#ifndef SPILLWAY_POLICY_TRACE_KERNEL_TIMES_H_
#define SPILLWAY_POLICY_TRACE_KERNEL_TIMES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>

#include "policy/model/units.h"
#include "policy/trace/trace.h"

namespace spillway::policy {

// Returns a value that is equal for launches of one function (`tag`) on blocks of the same sizes in the same
// order. Never 0.
uint64_t KindOf(uint64_t tag, std::span<const Bytes> bytes_of_blocks);

struct LaunchKind {
  uint64_t own = 0;
  // Identifies the launch and the one behind it, both with their very blocks, which an iteration that recurs
  // names again; 0: not known.
  uint64_t place = 0;
};
// Returns the kind of the trace's launch at `index`, with the one at `behind` behind it. Blocks without a
// size count as empty.
LaunchKind KindAt(const Trace& trace, LaunchIndex index, LaunchIndex behind, const BlockSizes& sizes);

// One writer, or readers: callers synchronize. A copy is a snapshot.
class KernelTimes {
 public:
  // Adds the measured time of one launch of that kind. A negative time is ignored; 0 counts as 1.
  void Add(const LaunchKind& kind, Nanos measured);

  // Returns the median of the latest samples; of fewer than four, the least: a launch that was delayed, or a
  // first one that loaded its code, does not count. Follows a lasting change within kSamples samples. The
  // samples are the place's, or the kind's if the place has fewer than two. 0: not measured yet, or so long
  // ago that later samples have taken the place.
  Nanos Of(const LaunchKind& kind) const;
  // Returns how many samples are kept: 0 to kSamples.
  uint32_t SamplesOfKind(const LaunchKind& kind) const { return SamplesOf(kind.own); }
  uint32_t SamplesOfPlace(const LaunchKind& kind) const { return SamplesOf(kind.place); }

  // Returns the median of the latest samples of all kinds, for kinds that were never measured. 0: nothing was
  // measured.
  Nanos Typical() const;

  // Returns the number of kinds and places. 0: nothing was measured.
  size_t kinds() const { return young_.size() + old_.size(); }

  static constexpr uint32_t kSamples = 8;         // kept of one kind
  static constexpr uint32_t kLatest = 256;        // kept of all kinds together
  static constexpr size_t kGeneration = 1 << 15;  // kinds and places; at most two generations are kept

 private:
  struct Samples {
    std::array<Nanos, kSamples> latest{};
    uint32_t count = 0;  // ever added; the next one goes to count % kSamples
  };
  void AddTo(uint64_t key, Nanos sample);
  const Samples* Find(uint64_t key) const;
  uint32_t SamplesOf(uint64_t key) const;

  // Kinds measured since the last change of generations, and those of the generation before. When the young
  // ones are full, they become the old ones, and kinds that were not measured for that long are forgotten.
  std::unordered_map<uint64_t, Samples> young_;
  std::unordered_map<uint64_t, Samples> old_;
  std::array<Nanos, kLatest> latest_{};
  uint64_t added_ = 0;
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_TRACE_KERNEL_TIMES_H_
