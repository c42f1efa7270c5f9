// VictimIndex chooses the blocks that leave when memory is needed and no plan names them, without a scan of
// all blocks. Blocks without a known next use leave first, the least recently used of them first; then those
// whose next use is farthest. Residency adds and removes blocks, and knows whether a block may leave now.
// Pure; not thread-safe; nothing fails.
//
// The index is a set ordered by next use and idle time, as far as these were known when a block was last
// placed. A use does not touch the set, since uses are far more frequent than choices of victims. Select
// first places the blocks anew whose next use has come; these are at the end of the set. A block that was
// used otherwise has only become less idle, so its old entry stands before its right place, never behind it.
// Select therefore goes through the set from its beginning, asks for each block's facts, moves the blocks
// whose facts have changed, and takes the others.

#ifndef SPILLWAY_POLICY_PLANNER_VICTIM_INDEX_H_
#define SPILLWAY_POLICY_PLANNER_VICTIM_INDEX_H_

#include <cstdint>
#include <set>
#include <vector>

#include "absl/functional/function_ref.h"
#include "policy/model/units.h"

namespace spillway::policy {

class VictimIndex {
 public:
  // The caller's name for a block: small numbers, since there is a place for each.
  using Key = uint32_t;
  struct Facts {
    uint64_t idle_since = 0;        // any count that grows with use; never falls while the block is here
    LaunchIndex next_use = kNever;  // not before `now`; kNever: not known, or not in the plan
  };

  // Takes constant time: Select asks for the block's facts.
  void Add(Key key);
  // Does nothing if the block is not in the index.
  void Remove(Key key) {
    if (Contains(key)) Take(key);
  }
  bool Contains(Key key) const { return key < places_.size() && places_[key].where != Where::kNowhere; }
  size_t size() const { return pending_.size() + ordered_.size(); }
  std::vector<Key> Keys() const;

  // Returns the blocks that should leave, in this order, until `needed` bytes are together (all blocks when
  // they do not suffice). They stay in the index. `now`: the next launch. `plan` names the plan that next
  // uses are of; a change of it makes Select ask for all facts again. `bytes`: of a block that may leave now;
  // 0: it may not. Time: logarithmic in the number of blocks for each one that was added, used or has come to
  // its next use since the last call, and for each that is selected or passed over.
  std::vector<Key> Select(Bytes needed, LaunchIndex now, uint64_t plan, absl::FunctionRef<Facts(Key)> facts,
                          absl::FunctionRef<Bytes(Key)> bytes);

 private:
  void Take(Key key);

  enum class Where : uint8_t { kNowhere, kPending, kOrdered };
  struct Entry {
    LaunchIndex next_use = kNever;
    uint64_t idle_since = 0;
    Key key = 0;
    bool operator<(const Entry& other) const {
      if (next_use != other.next_use) return next_use > other.next_use;  // kNever is greater than any index
      if (idle_since != other.idle_since) return idle_since < other.idle_since;
      return key < other.key;
    }
  };
  struct Place {
    Where where = Where::kNowhere;
    uint32_t pending_at = 0;
    Entry entry;  // as it stands in ordered_
  };

  void Order(Key key, const Facts& facts);
  void Refresh(LaunchIndex now, uint64_t plan, absl::FunctionRef<Facts(Key)> facts);

  std::vector<Place> places_;  // by key
  std::vector<Key> pending_;   // added since the last Select
  std::set<Entry> ordered_;    // by facts that may have grown since
  uint64_t plan_ = 0;
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_PLANNER_VICTIM_INDEX_H_
