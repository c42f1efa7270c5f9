#include "policy/planner/victim_index.h"

#include <algorithm>

namespace spillway::policy {

void VictimIndex::Add(Key key) {
  if (key >= places_.size()) places_.resize(std::max<size_t>(key + size_t{1}, 2 * places_.size()));
  Place& place = places_[key];
  if (place.where != Where::kNowhere) return;
  place.where = Where::kPending;
  place.pending_at = static_cast<uint32_t>(pending_.size());
  pending_.push_back(key);
}

void VictimIndex::Take(Key key) {
  Place& place = places_[key];
  if (place.where == Where::kOrdered) {
    ordered_.erase(place.entry);
  } else {
    const Key last = pending_.back();
    pending_[place.pending_at] = last;
    places_[last].pending_at = place.pending_at;
    pending_.pop_back();
  }
  place.where = Where::kNowhere;
}

std::vector<VictimIndex::Key> VictimIndex::Keys() const {
  std::vector<Key> keys = pending_;
  for (const Entry& entry : ordered_) keys.push_back(entry.key);
  return keys;
}

void VictimIndex::Order(Key key, const Facts& facts) {
  Place& place = places_[key];
  place.where = Where::kOrdered;
  place.entry = {facts.next_use, facts.idle_since, key};
  ordered_.insert(place.entry);
}

// Places the blocks that are not in order any more: all of them after a change of plans, new ones, and those
// whose next use has come. Select finds blocks that were used since then where they matter.
void VictimIndex::Refresh(LaunchIndex now, uint64_t plan, absl::FunctionRef<Facts(Key)> facts) {
  if (plan != plan_) {
    const std::vector<Key> all = Keys();
    ordered_.clear();
    pending_ = all;
    plan_ = plan;
  }
  for (const Key key : pending_) Order(key, facts(key));
  pending_.clear();
  while (!ordered_.empty()) {
    const Entry nearest = *ordered_.rbegin();
    if (nearest.next_use >= now) break;
    const Facts fresh = facts(nearest.key);
    if (fresh.next_use < now) break;  // the caller's mistake; better an odd order than no end
    ordered_.erase(std::prev(ordered_.end()));
    Order(nearest.key, fresh);
  }
}

std::vector<VictimIndex::Key> VictimIndex::Select(Bytes needed, LaunchIndex now, uint64_t plan,
                                                  absl::FunctionRef<Facts(Key)> facts,
                                                  absl::FunctionRef<Bytes(Key)> bytes) {
  Refresh(now, plan, facts);
  std::vector<Key> selected;
  Bytes together = 0;
  for (auto it = ordered_.begin(); it != ordered_.end() && together < needed;) {
    const Entry entry = *it;
    const Facts fresh = facts(entry.key);
    // The block has been used since, so it belongs behind this place. All entries before it were right, so
    // the scan comes to it again.
    if (fresh.idle_since != entry.idle_since || fresh.next_use != entry.next_use) {
      ordered_.erase(it);
      Order(entry.key, fresh);
      it = ordered_.upper_bound(entry);
      continue;
    }
    const Bytes may_leave = bytes(entry.key);
    if (may_leave > 0) {
      together += may_leave;
      selected.push_back(entry.key);
    }
    ++it;
  }
  return selected;
}

}  // namespace spillway::policy
