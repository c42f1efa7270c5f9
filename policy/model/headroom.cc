#include "policy/model/headroom.h"

#include <algorithm>
#include <utility>

namespace spillway::policy {

Headroom::Headroom(std::vector<int64_t> expected, Bytes budget, LaunchIndex start, LaunchIndex now)
    : expected_(std::move(expected)), budget_(static_cast<int64_t>(budget)) {
  if (expected_.empty()) return;
  base_ = start + (std::max(now, start) - start) / expected_.size() * expected_.size();
  Build();
}

void Headroom::Build() {
  std::vector<int64_t> values;
  values.reserve(expected_.size() * kIterations);
  for (uint32_t i = 0; i < kIterations; ++i) values.insert(values.end(), expected_.begin(), expected_.end());
  on_gpu_.emplace(values);
  for (const Change& change : changes_) Apply(change);
}

void Headroom::MoveTo(LaunchIndex now) {
  if (!known() || now < base_ + expected_.size()) return;
  base_ += (now - base_) / expected_.size() * expected_.size();
  std::erase_if(changes_, [now](const Change& change) { return change.end <= now; });
  Build();
}

size_t Headroom::PlaceOf(LaunchIndex index) const {
  return std::min<LaunchIndex>(index - std::min(index, base_), expected_.size() * kIterations);
}

void Headroom::Apply(const Change& change) {
  on_gpu_->Add(PlaceOf(change.begin), PlaceOf(change.end), change.bytes);
}

void Headroom::Add(LaunchIndex begin, LaunchIndex end, int64_t bytes) {
  if (!known() || begin >= end) return;
  changes_.push_back({begin, end, bytes});
  Apply(changes_.back());
}

bool Headroom::Fits(LaunchIndex begin, LaunchIndex end, Bytes bytes) const {
  if (!known() || begin >= end) return true;
  return on_gpu_->Max(PlaceOf(begin), PlaceOf(end)) <= budget_ - static_cast<int64_t>(bytes);
}

}  // namespace spillway::policy
