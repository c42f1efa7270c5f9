// VictimIndex: which blocks leave when memory is needed and no plan says which, without a look at all of
// them. Blocks without a known next use leave first, the least recently used of them first; then those whose
// next use is farthest. Residency adds and removes blocks; what a block is and whether it may leave now is
// its caller's business. Pure; not thread-safe; nothing fails.

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

  // Constant time: facts are asked for in Select.
  void Add(Key key);
  // Nothing happens when it is not here.
  void Remove(Key key) {
    if (Contains(key)) Take(key);
  }
  bool Contains(Key key) const { return key < places_.size() && places_[key].where != Where::kNowhere; }
  size_t size() const { return pending_.size() + ordered_.size(); }
  std::vector<Key> Keys() const;

  // Blocks that should leave, in this order, until `needed` bytes are together (all when they do not
  // suffice). They stay in the index. `now`: the next launch. `plan` names the plan that next uses are of;
  // with another one all facts are asked for again. `bytes`: of a block that may leave now; 0: it may not.
  // Time: logarithmic in the number of blocks for each one that was added, used or has come to its next use
  // since the last call, and for each that is selected or passed over.
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
