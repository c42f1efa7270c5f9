#include "policy/trace/kernel_times.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "policy/trace/trace.h"

namespace spillway::policy {
namespace {

// Longer than any launch (36 years), and sums of a few such times stay in range.
constexpr Nanos kLongest = Nanos{1} << 60;

// The mean of the sorted samples without a quarter of them at either end.
Nanos MiddleMean(std::span<Nanos> samples) {
  std::ranges::sort(samples);
  const size_t cut = samples.size() / 4;
  const std::span<const Nanos> middle = samples.subspan(cut, samples.size() - 2 * cut);
  const Nanos sum = std::accumulate(middle.begin(), middle.end(), Nanos{0});
  return sum / static_cast<Nanos>(middle.size());
}

}  // namespace

uint64_t KindOf(uint64_t tag, std::span<const Bytes> bytes_of_blocks) {
  SignatureBuilder kind(tag);
  for (const Bytes bytes : bytes_of_blocks) kind.Add(bytes);
  return kind.value();
}

void KernelTimes::Add(uint64_t kind, Nanos measured) {
  if (measured < 0) return;
  const Nanos sample = std::clamp<Nanos>(measured, 1, kLongest);
  latest_[added_++ % kLatest] = sample;
  if (!young_.contains(kind) && young_.size() == kGeneration) {
    old_ = std::move(young_);
    young_.clear();
  }
  Samples& samples = young_[kind];
  if (samples.count == 0) {
    if (const auto before = old_.find(kind); before != old_.end()) {
      samples = before->second;
      old_.erase(before);
    }
  }
  samples.latest[samples.count++ % kSamples] = sample;
}

const KernelTimes::Samples* KernelTimes::Find(uint64_t kind) const {
  if (const auto found = young_.find(kind); found != young_.end()) return &found->second;
  if (const auto found = old_.find(kind); found != old_.end()) return &found->second;
  return nullptr;
}

uint32_t KernelTimes::SamplesOf(uint64_t kind) const {
  const Samples* const samples = Find(kind);
  return samples == nullptr ? 0 : std::min(samples->count, kSamples);
}

Nanos KernelTimes::Of(uint64_t kind) const {
  const Samples* const samples = Find(kind);
  if (samples == nullptr) return 0;
  std::array<Nanos, kSamples> sorted = samples->latest;
  return MiddleMean(std::span(sorted).first(std::min(samples->count, kSamples)));
}

Nanos KernelTimes::Typical() const {
  if (added_ == 0) return 0;
  std::array<Nanos, kLatest> sorted = latest_;
  const auto end = sorted.begin() + static_cast<ptrdiff_t>(std::min<uint64_t>(added_, kLatest));
  const auto middle = sorted.begin() + (end - sorted.begin()) / 2;
  std::nth_element(sorted.begin(), middle, end);
  return *middle;
}

}  // namespace spillway::policy
