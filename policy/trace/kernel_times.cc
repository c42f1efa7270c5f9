#include "policy/trace/kernel_times.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace spillway::policy {
namespace {

// Most of fewer samples may come from disturbed launches, such as those that load code in a job's first
// iterations.
constexpr size_t kFewSamples = 4;
// A place with one sample is expected to be like its kind: that sample may have had code to load before it.
constexpr uint32_t kMinOfPlace = 2;

// Longer than any launch (36 years); sums of a few such times stay in range.
constexpr Nanos kLongest = Nanos{1} << 60;

// Returns the median, the lower one of an even number: disturbances make a launch longer.
Nanos Median(std::span<Nanos> samples) {
  const auto middle = samples.begin() + static_cast<ptrdiff_t>((samples.size() - 1) / 2);
  std::ranges::nth_element(samples, middle);
  return *middle;
}

}  // namespace

uint64_t KindOf(uint64_t tag, std::span<const Bytes> bytes_of_blocks) {
  SignatureBuilder kind(tag);
  for (const Bytes bytes : bytes_of_blocks) kind.Add(bytes);
  return std::max<uint64_t>(kind.value(), 1);
}

LaunchKind KindAt(const Trace& trace, LaunchIndex index, LaunchIndex behind, const BlockSizes& sizes) {
  const LaunchRecord launch = trace.at(index);
  std::vector<Bytes> bytes;
  for (const TraceBlock block : launch.blocks) {
    const auto size = sizes.find(block);
    bytes.push_back(size == sizes.end() ? 0 : size->second);
  }
  SignatureBuilder place(launch.signature);
  place.Add(trace.at(behind).signature);
  return {KindOf(launch.tag, bytes), std::max<uint64_t>(place.value(), 1)};
}

void KernelTimes::Add(const LaunchKind& kind, Nanos measured) {
  if (measured < 0) return;
  const Nanos sample = std::clamp<Nanos>(measured, 1, kLongest);
  latest_[added_++ % kLatest] = sample;
  AddTo(kind.own, sample);
  if (kind.place != 0) AddTo(kind.place, sample);
}

void KernelTimes::AddTo(uint64_t key, Nanos sample) {
  if (!young_.contains(key) && young_.size() == kGeneration) {
    old_ = std::move(young_);
    young_.clear();
  }
  Samples& samples = young_[key];
  if (samples.count == 0) {
    if (const auto before = old_.find(key); before != old_.end()) {
      samples = before->second;
      old_.erase(before);
    }
  }
  samples.latest[samples.count++ % kSamples] = sample;
}

const KernelTimes::Samples* KernelTimes::Find(uint64_t key) const {
  if (const auto found = young_.find(key); found != young_.end()) return &found->second;
  if (const auto found = old_.find(key); found != old_.end()) return &found->second;
  return nullptr;
}

uint32_t KernelTimes::SamplesOf(uint64_t key) const {
  const Samples* const samples = Find(key);
  return samples == nullptr ? 0 : std::min(samples->count, kSamples);
}

Nanos KernelTimes::Of(const LaunchKind& kind) const {
  const Samples* samples = kind.place != 0 ? Find(kind.place) : nullptr;
  if (samples == nullptr || samples->count < kMinOfPlace) samples = Find(kind.own);
  if (samples == nullptr) return 0;
  std::array<Nanos, kSamples> sorted = samples->latest;
  const std::span kept = std::span(sorted).first(std::min(samples->count, kSamples));
  return kept.size() < kFewSamples ? *std::ranges::min_element(kept) : Median(kept);
}

Nanos KernelTimes::Typical() const {
  if (added_ == 0) return 0;
  std::array<Nanos, kLatest> sorted = latest_;
  return Median(std::span(sorted).first(std::min<uint64_t>(added_, kLatest)));
}

}  // namespace spillway::policy
