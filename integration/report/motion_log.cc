#include "integration/report/motion_log.h"

#include <algorithm>

namespace spillway::integration {
namespace {

constexpr uint64_t kCopiedAtOnce = 4096;
constexpr size_t kMaxProbes = 16;

size_t HashOf(uint64_t tag) { return static_cast<size_t>((tag * 0x9E3779B97F4A7C15u) >> 32); }

}  // namespace

MotionLog::MotionLog(const MotionLogOptions& options)
    : most_launches_(options.most_launches),
      moves_(options.most_moves),
      stalls_(options.most_stalls),
      blocks_(options.most_blocks),
      tags_(options.most_launches) {}

void MotionLog::OnMove(const allocator::EndedMove& move) {
  os::MutexLock lock(&mu_);
  moves_.Add(move);
  const size_t index = move.block.index();
  if (index < blocks_.size()) blocks_[index].moved_bytes += move.bytes;
}

void MotionLog::OnStall(const allocator::Stall& stall) {
  os::MutexLock lock(&mu_);
  stalls_.Add(stall);
  const size_t index = stall.block.index();
  if (stall.block.valid() && index < blocks_.size()) blocks_[index].stalled_nanos += stall.nanos;
  if (LaunchSums* const sums = SumsOfTag(stall.tag)) sums->stalled_nanos += stall.nanos;
}

void MotionLog::OnReach(uint64_t tag, uint64_t bytes) {
  os::MutexLock lock(&mu_);
  LaunchSums* const sums = SumsOfTag(tag);
  if (sums == nullptr) return;
  ++sums->reaching;
  sums->reached_bytes += bytes;
  sums->most_reached_bytes = std::max(sums->most_reached_bytes, bytes);
}

// Tag 0 stands for a launch that is not known.
MotionLog::LaunchSums* MotionLog::SumsOfTag(uint64_t tag) {
  if (tag == 0) return nullptr;
  for (size_t probe = 0; probe < kMaxProbes; ++probe) {
    LaunchSums& entry = tags_[(HashOf(tag) + probe) % tags_.size()];
    if (entry.tag != 0 && entry.tag != tag) continue;
    entry.tag = tag;
    return &entry;
  }
  return nullptr;
}

// Copies a log and returns the number of entries that are no longer there. An entry that is overwritten
// before its turn is one of them. Launching threads wait for the lock, so the memory for what is copied under
// it is allocated before.
template <typename Entry>
uint64_t MotionLog::CopyEntries(std::vector<Entry>* to) const {
  uint64_t next = 0;
  while (true) {
    if (to->capacity() < to->size() + kCopiedAtOnce)
      to->reserve(std::max(to->size() + kCopiedAtOnce, 2 * to->capacity()));
    os::MutexLock lock(&mu_);
    const LastEntries<Entry>& from = LogLocked(static_cast<const Entry*>(nullptr));
    next = std::max(next, from.first());
    const uint64_t end = std::min(from.added(), next + kCopiedAtOnce);
    while (next < end) to->push_back(from.at(next++));
    if (next == from.added()) return next - to->size();
  }
}

Motion MotionLog::Copy() const {
  Motion motion;
  motion.moves_dropped = CopyEntries(&motion.moves);
  motion.stalls_dropped = CopyEntries(&motion.stalls);
  return motion;
}

MotionLog::BlockSums MotionLog::SumsOf(allocator::BlockId block) const {
  os::MutexLock lock(&mu_);
  return block.index() < blocks_.size() ? blocks_[block.index()] : BlockSums();
}

std::vector<MotionLog::LaunchSums> MotionLog::SumsByTag() const {
  std::vector<LaunchSums> sums;
  sums.reserve(most_launches_);
  os::MutexLock lock(&mu_);
  for (const LaunchSums& entry : tags_) {
    if (entry.tag != 0) sums.push_back(entry);
  }
  return sums;
}

}  // namespace spillway::integration
