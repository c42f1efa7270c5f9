// LaunchTimer measures by samples how long the launches of one device last on the GPU. The predictor owns one
// per device. A sampled launch gets two timing events on its stream: one right before it, after all waits of
// ours, and one when the next launch enters the gate, before any wait of ours. The time between them covers
// the launch and the work behind it that is not seen. Launching threads record events that exist already,
// without a lock. The predictor's thread creates and polls events, chooses what to sample and keeps the cost
// low. A sample that the driver refuses is dropped; nothing else fails.

#ifndef SPILLWAY_INTEGRATION_PREDICTION_LAUNCH_TIMER_H_
#define SPILLWAY_INTEGRATION_PREDICTION_LAUNCH_TIMER_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <random>
#include <unordered_set>
#include <vector>

#include "allocator/driver/cuda_driver.h"
#include "allocator/driver/stream_ref.h"
#include "io/os/clock.h"
#include "policy/trace/kernel_times.h"
#include "policy/trace/trace.h"

namespace spillway::integration {

struct LaunchTimerOptions {
  const allocator::CudaDriver* driver = nullptr;
  CUcontext context = nullptr;  // the device's; launches in others are not sampled
  const os::Clock* clock = os::Clock::System();
  // Share of the time that sampling may cost: first while kinds of launches are unknown, then afterwards.
  double share_at_first = 0.005;
  double share_later = 0.0005;
};

class LaunchTimer {
 public:
  // `wants_marks` belongs to LaunchObserver.
  LaunchTimer(const LaunchTimerOptions& options, std::atomic<bool>* wants_marks);
  LaunchTimer(const LaunchTimer&) = delete;
  LaunchTimer& operator=(const LaunchTimer&) = delete;

  // ---- For launching threads; see LaunchObserver. None of these waits, locks or allocates.

  void OnEnter(const allocator::StreamRef& stream);
  void OnReady(const allocator::StreamRef& stream);
  void OnLaunch(policy::LaunchIndex index) {
    if (__builtin_expect(index + 1 >= next_.load(std::memory_order_relaxed), 0)) RecordLaunch(index);
  }
  void OnInterrupt() { interruptions_.fetch_add(1, std::memory_order_relaxed); }

  // ---- For one thread, the trace's owner.

  // Adds the times that have been measured to `times`, and chooses future launches for sampling. `trace` has
  // the launches that were reported. `iteration_launches`: the launches of one iteration of the job, 0 if no
  // iteration is known; a future launch is expected to be like the one an iteration before it. Asks the GPU,
  // never waits for it.
  void Poll(const policy::Trace& trace, uint32_t iteration_launches, const policy::BlockSizes& sizes,
            policy::KernelTimes* times);

  // The samples that gave a time, and those that gave none because the next launch was on another stream.
  // Launches of such a kind are measured alone from then on, without what follows them.
  uint64_t measured() const { return measured_; }
  uint64_t abandoned() const { return abandoned_; }

  static constexpr uint32_t kSamples = 64;       // samples in progress
  static constexpr uint32_t kTargets = 64;       // launches chosen that have not come yet
  static constexpr uint32_t kEnoughSamples = 4;  // of one place: it counts as known then
  // The cost of a sample's two events to the GPU, and to the host beyond what is measured.
  static constexpr int64_t kSampleNanos = 4000;
  static constexpr uint32_t kFewestTokens = 16;  // launches are chosen only if this many samples may be taken
  static constexpr uint32_t kLaunchesAhead = 2048;  // launches that are considered for one choice

 private:
  // The phase of the sample. It changes only by a compare-exchange into kBusy and a store out of it. The
  // thread that has set kBusy owns the members that are listed under it below.
  enum class Phase : uint32_t {
    kIdle,     // waits for the next target
    kBusy,     // one thread works on the sample; others pass by
    kArmed,    // the next launch that is ready is sampled
    kStarted,  // its first event is recorded, its index not yet known
    kRunning,  // the next launch that enters ends it
  };
  enum class Outcome : uint8_t { kMeasured, kAbandoned };
  enum class Ends : uint8_t { kAtNextLaunch, kRightAway };
  struct Sample {
    CUevent start = nullptr;
    CUevent end = nullptr;
    policy::LaunchIndex index = 0;
    Outcome outcome = Outcome::kMeasured;
  };
  struct Target {
    policy::LaunchIndex index = 0;
    Ends ends = Ends::kAtNextLaunch;
  };

  bool Take(Phase from) { return phase_.compare_exchange_strong(from, Phase::kBusy); }
  bool StartedHere() const;
  void RecordLaunch(policy::LaunchIndex index);
  bool RecordStart(const allocator::StreamRef& stream);
  bool MayEndOn(const allocator::StreamRef& stream) const;
  void Finish(Outcome outcome);
  void Settle(policy::LaunchIndex index);
  CUresult Record(CUevent event, const allocator::StreamRef& stream);

  bool CreateEvents();
  void Collect(const policy::Trace& trace, const policy::BlockSizes& sizes, policy::KernelTimes* times);
  void Accrue();
  void Choose(const policy::Trace& trace, uint32_t iteration_launches, const policy::BlockSizes& sizes,
              const policy::KernelTimes& times);
  bool SamplesKinds() const {
    return known_launches_ < iteration_launches_ && tries_ < 8 * uint64_t{iteration_launches_} + 512;
  }
  static policy::LaunchIndex Alike(const policy::Trace& trace, policy::LaunchIndex index,
                                   uint32_t iteration_launches);
  Target TargetOf(policy::LaunchIndex index, const policy::LaunchKind& kind) const;
  void ChooseByKind(const policy::Trace& trace, uint32_t iteration_launches, const policy::BlockSizes& sizes,
                    const policy::KernelTimes& times, std::vector<Target>* chosen);
  void ChooseAnywhere(const policy::Trace& trace, uint32_t iteration_launches,
                      const policy::BlockSizes& sizes, std::vector<Target>* chosen);
  void Publish(const std::vector<Target>& chosen);

  const LaunchTimerOptions options_;
  std::atomic<bool>* const wants_marks_;

  // The first launch for which OnLaunch must call RecordLaunch: 0 while a sample is open, kNever if none is
  // chosen.
  std::atomic<policy::LaunchIndex> next_{policy::kNever};
  std::atomic<Phase> phase_{Phase::kIdle};
  std::atomic<const void*> thread_{nullptr};  // that recorded the first event; used in kStarted alone
  std::atomic<uint64_t> interruptions_{0};
  std::atomic<uint64_t> host_nanos_{0}, recorded_{0};  // time spent on recording; events recorded

  // Rings of one producer and one consumer. Samples go from the thread that has set kBusy to the reader,
  // targets go the other way. Each count is released by the side that writes it and acquired by the other.
  std::array<Sample, kSamples> samples_;
  std::atomic<uint64_t> samples_filled_{0}, samples_taken_{0};
  std::array<Target, kTargets> targets_;
  std::atomic<uint64_t> targets_filled_{0}, targets_taken_{0};

  // ---- Owned by the thread that has set kBusy.
  allocator::StreamRef stream_;
  Ends ends_ = Ends::kAtNextLaunch;
  uint64_t interruptions_before_ = 0;
  policy::LaunchIndex last_ = 0;  // latest launch known here

  // ---- The reader's own.
  enum class Events : uint8_t { kNone, kThere, kFailed };
  Events events_ = Events::kNone;
  uint64_t measured_ = 0, abandoned_ = 0;
  double tokens_ = kTargets;
  int64_t accrued_at_ = 0;
  uint32_t iteration_launches_ = 0;
  uint64_t tries_ = 0;  // samples chosen for unknown kinds of this iteration; some may never give a time
  uint64_t known_launches_ = 0;  // launches of the iteration, in a row, whose kinds have enough samples
  policy::LaunchIndex searched_to_ = 0;           // where the search for unknown kinds goes on
  policy::LaunchIndex seen_to_ = 0;               // end of the trace when launches were chosen last
  std::unordered_set<uint64_t> ends_right_away_;  // kinds that another stream's launch follows
  std::mt19937_64 random_{1};
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_PREDICTION_LAUNCH_TIMER_H_
