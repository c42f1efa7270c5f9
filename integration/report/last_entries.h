// LastEntries: a ring of the last entries that were added, and a count of all. All memory is taken at the
// start: adding never allocates. Not thread-safe: the recorders of this folder have a lock around it. No call
// fails.

#ifndef SPILLWAY_INTEGRATION_REPORT_LAST_ENTRIES_H_
#define SPILLWAY_INTEGRATION_REPORT_LAST_ENTRIES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace spillway::integration {

template <typename Entry>
class LastEntries {
 public:
  // `most`: the number of entries that are kept, at least 1.
  explicit LastEntries(size_t most) : entries_(most) {}  // memory for all of them, now

  void Add(const Entry& entry) { entries_[added_++ % entries_.size()] = entry; }
  // The number of entries that were ever added; the number of the first that is still there.
  uint64_t added() const { return added_; }
  uint64_t first() const { return added_ - std::min<uint64_t>(added_, entries_.size()); }
  // Returns the entry with that number: first() or later, before added().
  const Entry& at(uint64_t number) const { return entries_[number % entries_.size()]; }

 private:
  std::vector<Entry> entries_;
  uint64_t added_ = 0;
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_REPORT_LAST_ENTRIES_H_
