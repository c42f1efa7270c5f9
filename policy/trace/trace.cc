#include "policy/trace/trace.h"

#include <algorithm>

namespace spillway::policy {

uint64_t SignatureOf(uint64_t tag, std::span<const TraceBlock> blocks) {
  SignatureBuilder builder(tag);
  for (const TraceBlock block : blocks) builder.Add(block);
  return builder.value();
}

void Trace::AddLaunch(uint64_t tag, std::span<const TraceBlock> blocks) {
  launches_.push_back({tag, SignatureOf(tag, blocks), uses_.size()});
  uses_.insert(uses_.end(), blocks.begin(), blocks.end());
}

LaunchRecord Trace::at(LaunchIndex index) const {
  const size_t i = index - first_;
  const Launch& launch = launches_[i];
  const size_t end = i + 1 < launches_.size() ? launches_[i + 1].first_use : uses_.size();
  return {launch.tag, launch.signature, std::span(uses_).subspan(launch.first_use, end - launch.first_use)};
}

bool Trace::SameLaunch(LaunchIndex a, LaunchIndex b) const {
  const LaunchRecord x = at(a);
  const LaunchRecord y = at(b);
  return x.tag == y.tag && std::ranges::equal(x.blocks, y.blocks);
}

Trace Trace::Slice(LaunchIndex begin, LaunchIndex end) const {
  Trace slice;
  slice.Restart(begin);
  for (LaunchIndex index = begin; index < end; ++index) {
    const LaunchRecord launch = at(index);
    slice.AddLaunch(launch.tag, launch.blocks);
  }
  for (const BlockEvent& event : events_) {
    if (event.before >= begin && event.before < end) slice.events_.push_back(event);
  }
  return slice;
}

void Trace::DropBefore(LaunchIndex index) {
  index = std::min(index, end());
  if (index <= first_) return;
  const size_t drop = index - first_;
  const size_t uses = drop < launches_.size() ? launches_[drop].first_use : uses_.size();
  launches_.erase(launches_.begin(), launches_.begin() + drop);
  uses_.erase(uses_.begin(), uses_.begin() + uses);
  for (Launch& launch : launches_) launch.first_use -= uses;
  std::erase_if(events_, [index](const BlockEvent& event) { return event.before < index; });
  first_ = index;
}

void Trace::Restart(LaunchIndex next) {
  launches_.clear();
  uses_.clear();
  events_.clear();
  first_ = next;
}

}  // namespace spillway::policy
