#include "policy/bound/window_bound.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace spillway::policy {
namespace {

constexpr uint32_t kMaxCuts = 256;

// The windows between any two cuts, and the bytes that they must move.
class Windows {
 public:
  Windows(const Workload& workload, const Lifetimes& lifetimes) : lifetimes_(lifetimes) {
    const auto kernels = static_cast<uint32_t>(workload.kernels.size());
    const uint32_t parts = std::min(kernels, kMaxCuts);
    for (uint32_t i = 0; i <= parts; ++i)
      cuts_.push_back(static_cast<uint32_t>(uint64_t{i} * kernels / parts));
    for (const WorkloadTensor& tensor : workload.tensors)
      bytes_.push_back(static_cast<int64_t>(tensor.bytes));
    starts_.push_back(0);
    for (uint32_t i = 0; i < parts; ++i) {
      Nanos time = starts_.back();
      for (uint32_t k = cuts_[i]; k < cuts_[i + 1]; ++k) time += workload.kernels[k].duration;
      starts_.push_back(time);
      part_of_.resize(cuts_[i + 1], i);
    }
    FindMade(workload);
  }

  uint32_t count() const { return static_cast<uint32_t>(starts_.size()) - 1; }
  Nanos Kernels(uint32_t first, uint32_t end) const { return starts_[end] - starts_[first]; }

  // Returns, for each end of a window that begins at cut `first`, the bytes of content from before it that
  // kernels in it read after at least one kernel in between. No more of them than fit the GPU are there when
  // it begins.
  std::vector<int64_t> ReadFrom(uint32_t first) const {
    std::vector<int64_t> read(count() + 1, 0);
    for (const IdleInterval& interval : lifetimes_.intervals) {
      if (!interval.returns) continue;
      // The interval as it comes in the window's iteration.
      const uint32_t kernels = cuts_.back();
      const bool wraps = interval.before >= kernels;
      const uint32_t before = wraps ? interval.before - kernels : interval.before;
      const bool made_earlier = wraps || interval.after < cuts_[first];
      if (made_earlier && before >= cuts_[first]) read[part_of_[before] + 1] += bytes_[interval.tensor];
    }
    for (size_t i = 1; i < read.size(); ++i) read[i] += read[i - 1];
    return read;
  }

  // Returns the bytes of content that kernels of the window make and that kernels behind it read. No more of
  // them than fit the GPU are still there when it ends.
  int64_t Made(uint32_t first, uint32_t end) const { return made_[end][first]; }

 private:
  void FindMade(const Workload& workload) {
    made_.assign(count() + 1, std::vector<int64_t>(count() + 1, 0));
    for (const IdleInterval& interval : lifetimes_.intervals) {
      if (!interval.returns || interval.written < 0) continue;
      const auto written = static_cast<uint32_t>(interval.written);
      if (!Names(workload.kernels[written].outputs, interval.tensor)) continue;  // no kernel made it
      // The ends that lie between its two uses.
      const auto first_end = std::ranges::upper_bound(cuts_, interval.after) - cuts_.begin();
      for (auto end = static_cast<size_t>(first_end); end < cuts_.size() && cuts_[end] <= interval.before;
           ++end)
        made_[end][part_of_[written]] += bytes_[interval.tensor];
    }
    for (std::vector<int64_t>& by_first : made_) {
      for (size_t first = by_first.size() - 1; first-- > 0;) by_first[first] += by_first[first + 1];
    }
  }

  const Lifetimes& lifetimes_;
  std::vector<uint32_t> cuts_;     // kernels, from 0 to their number
  std::vector<uint32_t> part_of_;  // by kernel: the last cut that is not behind it
  std::vector<Nanos> starts_;      // of the kernels at the cuts, if nothing waits
  std::vector<int64_t> bytes_;     // by tensor
  std::vector<std::vector<int64_t>> made_;
};

Nanos TimeToMove(const std::vector<WindowLink>& links, int64_t read, int64_t made) {
  double seconds = 0;
  for (const WindowLink& link : links) {
    const auto inner = static_cast<int64_t>(link.inner_bytes);
    const auto in = static_cast<double>(std::max<int64_t>(0, read - inner));
    const auto out = static_cast<double>(std::max<int64_t>(0, made - inner));
    for (const SharedLimit& limit : link.limits)
      seconds = std::max(seconds, in * limit.per_byte_read + out * limit.per_byte_written);
  }
  return static_cast<Nanos>(seconds * kNanosPerSecond);
}

}  // namespace

Nanos FindWindowBound(const Workload& workload, const Lifetimes& lifetimes,
                      const std::vector<WindowLink>& links) {
  const Windows windows(workload, lifetimes);
  std::vector<Nanos> least(windows.count() + 1, 0);  // time until the kernel at each cut may start
  for (uint32_t first = 0; first < windows.count(); ++first) {
    const std::vector<int64_t> read = windows.ReadFrom(first);
    for (uint32_t end = first + 1; end <= windows.count(); ++end) {
      const Nanos moves = TimeToMove(links, read[end], windows.Made(first, end));
      least[end] = std::max(least[end], least[first] + std::max(windows.Kernels(first, end), moves));
    }
  }
  return least.back();
}

}  // namespace spillway::policy
