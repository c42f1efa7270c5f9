// Trace: the launches of one device in order, with the blocks that each names, and the allocations and frees
// between them. Data only, in memory. The recorder appends; the tracker of sequences and the planner read.
// Old launches are forgotten on request. One thread; no call fails.

#ifndef SPILLWAY_POLICY_TRACE_TRACE_H_
#define SPILLWAY_POLICY_TRACE_TRACE_H_

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "policy/model/units.h"

namespace spillway::policy {

// Makes 64 bits that are equal for equal launches: a tag and blocks in order. It is built without allocating,
// as the launching thread requires; different launches have equal signatures once in 2^64.
class SignatureBuilder {
 public:
  explicit SignatureBuilder(uint64_t tag) : value_(Mix(tag ^ 0x9e3779b97f4a7c15u)) {}
  void Add(TraceBlock block) { value_ = Mix(value_ ^ (block + 0x9e3779b97f4a7c15u)); }
  uint64_t value() const { return value_; }

 private:
  // The finisher of splitmix64: every input bit reaches every output bit.
  static uint64_t Mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }
  uint64_t value_;
};
uint64_t SignatureOf(uint64_t tag, std::span<const TraceBlock> blocks);

// One launch, as seen in a trace. The span is valid until the trace changes.
struct LaunchRecord {
  uint64_t tag = 0;
  uint64_t signature = 0;
  std::span<const TraceBlock> blocks;
};

// A block was allocated or freed after launch `before - 1` and before launch `before`.
struct BlockEvent {
  LaunchIndex before = 0;
  TraceBlock block = 0;
  Bytes bytes = 0;         // of an allocation; 0: a free
  Bytes copied_bytes = 0;  // of these, copied when the block moves; only the recorder's events have it
  bool allocated() const { return bytes != 0; }
};

// Sizes in whole chunks. A block's size does not change, whatever tensor it is given to.
using BlockSizes = std::unordered_map<TraceBlock, Bytes>;

class Trace {
 public:
  // Appends the next launch.
  void AddLaunch(uint64_t tag, std::span<const TraceBlock> blocks);
  // Append between the last launch and the next. `bytes` in whole chunks, more than 0.
  void AddAllocate(TraceBlock block, Bytes bytes) { events_.push_back({end(), block, bytes}); }
  void AddFree(TraceBlock block) { events_.push_back({end(), block, 0}); }

  // The trace has launches begin() .. end() - 1.
  LaunchIndex begin() const { return first_; }
  LaunchIndex end() const { return first_ + launches_.size(); }
  LaunchRecord at(LaunchIndex index) const;
  // Returns whether both have the same tag and the same blocks in the same order.
  bool SameLaunch(LaunchIndex a, LaunchIndex b) const;
  // Returns the events before launches begin()..end(), in order.
  std::span<const BlockEvent> events() const { return events_; }

  // Returns a trace of launches begin..end-1 alone, which must be there, with the events before each.
  Trace Slice(LaunchIndex begin, LaunchIndex end) const;

  // Forgets launches before `index`, and their events.
  void DropBefore(LaunchIndex index);
  // Forgets everything; the next launch has this index.
  void Restart(LaunchIndex next);

 private:
  struct Launch {
    uint64_t tag;
    uint64_t signature;
    size_t first_use;  // into uses_
  };
  LaunchIndex first_ = 0;
  std::vector<Launch> launches_;
  std::vector<TraceBlock> uses_;
  std::vector<BlockEvent> events_;
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_TRACE_TRACE_H_
