#include "integration/prediction/trace_recorder.h"

#include <algorithm>

#include "io/os/check.h"

namespace spillway::integration {

using policy::LaunchIndex;

namespace {

// NextIndex searches this many launches above next_index_; no more threads than these report at the same
// instant.
constexpr LaunchIndex kRacingThreads = 4;

}  // namespace

TraceRecorder::TraceRecorder(const RingSizes& sizes)
    : entry_mask_(sizes.launches - 1),
      name_mask_(sizes.names - 1),
      entries_(new Entry[sizes.launches]),
      names_(new std::atomic<uint32_t>[sizes.names]()) {
  SPILLWAY_CHECK((sizes.launches & entry_mask_) == 0 && (sizes.names & name_mask_) == 0);
}

void TraceRecorder::AddLaunch(LaunchIndex index, uint64_t tag, const allocator::AccessSet& set) {
  const uint32_t count = static_cast<uint32_t>(set.size());
  Entry& entry = entries_[index & entry_mask_];
  entry.ready.store(0, std::memory_order_relaxed);
  // Each store is a release, though `ready` publishes them below: a reader that sees one of these too late
  // must not see the old `ready` after it.
  if (count <= kFew) {
    uint32_t at = 0;
    for (const allocator::BlockId id : set) entry.few[at++].store(id.raw(), std::memory_order_release);
  } else {
    const uint64_t first = names_taken_.fetch_add(count, std::memory_order_relaxed);
    uint64_t at = first;
    for (const allocator::BlockId id : set) {
      names_[at++ & name_mask_].store(id.raw(), std::memory_order_release);
    }
    entry.first.store(first, std::memory_order_release);
  }
  entry.tag.store(tag, std::memory_order_release);
  entry.count.store(count, std::memory_order_release);
  entry.ready.store(index + 1, std::memory_order_release);
  // This is no exchange, which would cost as much as all the rest.
  if (next_index_.load(std::memory_order_relaxed) < index + 1) {
    next_index_.store(index + 1, std::memory_order_release);
  }
}

// Returns the index of the next launch. Launches that other threads have reported stand just above what the
// lowest of them wrote last; the caller's own are among them.
LaunchIndex TraceRecorder::NextIndex() const {
  LaunchIndex next = next_index_.load(std::memory_order_acquire);
  for (LaunchIndex index = next; index < next + kRacingThreads; ++index) {
    if (entries_[index & entry_mask_].ready.load(std::memory_order_acquire) == index + 1) next = index + 1;
  }
  return next;
}

void TraceRecorder::AddEvent(allocator::BlockId block, uint64_t bytes, uint64_t copied_bytes) {
  const LaunchIndex before = NextIndex();
  os::MutexLock lock(&mu_);
  events_.push_back({before, TraceBlockOf(block), bytes, copied_bytes});
}

void TraceRecorder::AddMark() {
  const LaunchIndex before = NextIndex();
  os::MutexLock lock(&mu_);
  marks_.push_back(before);
}

std::optional<uint64_t> TraceRecorder::TagOf(LaunchIndex index) const {
  const Entry& entry = entries_[index & entry_mask_];
  if (entry.ready.load(std::memory_order_acquire) != index + 1) return std::nullopt;
  const uint64_t tag = entry.tag.load(std::memory_order_acquire);
  if (entry.ready.load(std::memory_order_relaxed) != index + 1) return std::nullopt;  // overwritten meanwhile
  return tag;
}

void TraceRecorder::TakeMarks(std::deque<LaunchIndex>* marks) {
  marks->insert(marks->end(), marks_taken_.begin(), marks_taken_.end());
  marks_taken_.clear();
}

TraceRecorder::Read TraceRecorder::ReadEntry(LaunchIndex index, uint64_t* tag,
                                             std::vector<policy::TraceBlock>* blocks) const {
  const Entry& entry = entries_[index & entry_mask_];
  const uint64_t ready = entry.ready.load(std::memory_order_acquire);
  if (ready != index + 1) {
    // The launch is lost if a later one has the entry, or if the launch that is being written there must be a
    // later one.
    const LaunchIndex next = next_index_.load(std::memory_order_acquire);
    return ready > index + 1 || next > index + 1 + entry_mask_ ? Read::kLost : Read::kNotThere;
  }
  *tag = entry.tag.load(std::memory_order_acquire);
  const uint32_t count = entry.count.load(std::memory_order_acquire);
  blocks->clear();
  if (count <= kFew) {
    for (uint32_t i = 0; i < count; ++i) blocks->push_back(entry.few[i].load(std::memory_order_acquire));
    return entry.ready.load(std::memory_order_relaxed) == index + 1 ? Read::kTaken : Read::kLost;
  }
  if (count > name_mask_) return Read::kLost;
  const uint64_t first = entry.first.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; ++i) {
    blocks->push_back(names_[(first + i) & name_mask_].load(std::memory_order_acquire));
  }
  const bool same = entry.ready.load(std::memory_order_relaxed) == index + 1;
  const bool names_whole = names_taken_.load(std::memory_order_relaxed) - first <= name_mask_ + 1;
  return same && names_whole ? Read::kTaken : Read::kLost;
}

void TraceRecorder::AppendEventsUpTo(LaunchIndex index, policy::Trace* trace) {
  size_t taken = 0;
  while (taken < pending_.size() && pending_[taken].before <= index) {
    const policy::BlockEvent& event = pending_[taken++];
    if (event.allocated()) {
      trace->AddAllocate(event.block, event.bytes);
      allocations_.push_back(event);
    } else {
      trace->AddFree(event.block);
    }
  }
  pending_.erase(pending_.begin(), pending_.begin() + taken);
}

bool TraceRecorder::Drain(policy::Trace* trace, uint32_t most) {
  bool whole = true;
  // Events are taken after the launches' end is known: those before a launch are there when the launch is.
  LaunchIndex end = std::min(next_index_.load(std::memory_order_acquire), read_ + most);
  while (end < read_ + most && entries_[end & entry_mask_].ready.load(std::memory_order_acquire) == end + 1)
    ++end;
  {
    os::MutexLock lock(&mu_);
    pending_.insert(pending_.end(), events_.begin(), events_.end());
    events_.clear();
    marks_taken_.insert(marks_taken_.end(), marks_.begin(), marks_.end());
    marks_.clear();
  }
  while (read_ < end) {
    uint64_t tag = 0;
    const Read read = ReadEntry(read_, &tag, &scratch_);
    if (read == Read::kNotThere) break;  // another thread is about to write it
    if (read == Read::kLost) {
      const LaunchIndex next = next_index_.load(std::memory_order_acquire);
      read_ = std::max(read_ + 1, next > entry_mask_ / 2 ? next - entry_mask_ / 2 : 0);
      AppendEventsUpTo(read_, trace);
      trace->Restart(read_);
      whole = false;
      continue;
    }
    AppendEventsUpTo(read_, trace);
    trace->AddLaunch(tag, scratch_);
    ++read_;
  }
  return whole;
}

}  // namespace spillway::integration
