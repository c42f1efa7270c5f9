// WriteSampler: learns which accesses write, by hashing blocks on the launch's own stream before and after
// sampled launches. It takes one sample at a time, and spaces the samples so that they take at most a fixed
// share of the time. Launches asks on launching threads; the device's thread takes in the results. Plans use
// the learned facts, but nothing relies on them. A sample that fails is dropped.

#ifndef SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_WRITE_SAMPLER_H_
#define SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_WRITE_SAMPLER_H_

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "allocator/driver/device_hash.h"
#include "allocator/memory/block_id.h"
#include "allocator/residency/state/block_table.h"
#include "io/os/atomic.h"
#include "io/os/sync.h"
#include "policy/model/units.h"
#include "policy/trace/write_facts.h"

namespace spillway::allocator {

class WriteSampler {
 public:
  // Samples take at most one part in kShare of the time.
  static constexpr int64_t kShare = 33;
  // Least number of launches between two samples of the same access, so that they come from different
  // iterations, or from other blocks.
  static constexpr policy::LaunchIndex kApart = 256;

  WriteSampler(const CudaDriver* driver, const HashLoader* hash, const BlockTable* table)
      : driver_(driver), hash_(hash), table_(table) {}

  // Whether to sample this launch: now and then, when it has an access that is not settled. Cheap. Any
  // thread, without a lock.
  bool Wants(uint64_t tag, const AccessSet& set, policy::LaunchIndex now);
  // Called right before and right after such a launch, by the same thread, under its pins and with the
  // device's context current. They enqueue on its stream the hashes of those blocks of the set that are
  // `pinned`. Begin returns false when nothing is sampled; End is not called then.
  bool Begin(uint64_t tag, const AccessSet& set, const std::vector<Block*>& pinned, policy::LaunchIndex now,
             CUstream stream);
  void End(CUstream stream, bool launched);

  // Takes in a sample whose hashes the device has computed. Returns true when there was one. Device's thread.
  bool Poll();
  // Adds facts that others have learned. They are taken to be so, and looked at all the same. Any thread.
  void Guess(const std::vector<policy::FormFacts>& guesses);
  // The facts learned and guessed up to now; null before the first. Any thread.
  std::shared_ptr<const policy::WriteFacts> facts() const;
  uint64_t samples() const { return samples_.load(std::memory_order_relaxed); }

 private:
  // The states of a sample: idle -> open (Begin) -> queued (End) -> idle (Poll). The thread that moves it on
  // owns it.
  enum class Phase : uint8_t { kIdle, kOpen, kQueued };
  struct Operand {
    uint32_t place = 0;
    CUdeviceptr address = 0;
    uint64_t bytes = 0;
    DeviceHash::Request before, after;
    bool changed = false;
  };
  bool IsDue() const;
  bool IsOpenLocked(policy::LaunchForm form, uint32_t place, policy::LaunchIndex now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ChooseLocked(policy::LaunchForm form, const AccessSet& set, const std::vector<Block*>& pinned,
                    policy::LaunchIndex now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool MakeEvents();

  const CudaDriver* const driver_;
  const HashLoader* const hash_;
  const BlockTable* const table_;

  os::Atomic<Phase> phase_{Phase::kIdle};
  os::Atomic<int64_t> next_nanos_{0};  // no sample starts before this time
  os::Atomic<uint32_t> asked_{0};      // launches that were asked about; most are skipped at once
  os::Atomic<uint64_t> samples_{0};

  // ---- Used by the sample's owner.
  std::vector<Operand> operands_;
  policy::LaunchForm form_;
  bool whole_ = false;  // the launch was made, and all hashes are enqueued
  int64_t host_nanos_ = 0;
  CUevent began_ = nullptr, hashed_ = nullptr, ended_ = nullptr;  // events with times; created once

  mutable os::Mutex mu_{os::LockRank::kRecorder};
  policy::WriteFacts learnt_ ABSL_GUARDED_BY(mu_);
  std::unordered_map<uint64_t, policy::LaunchIndex> last_sample_
      ABSL_GUARDED_BY(mu_);  // by form and place, mixed
  mutable std::shared_ptr<const policy::WriteFacts> published_ ABSL_GUARDED_BY(mu_);
  mutable uint64_t published_version_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_RESIDENCY_TRANSFER_WRITE_SAMPLER_H_
