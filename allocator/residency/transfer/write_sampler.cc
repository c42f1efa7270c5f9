#include "allocator/residency/transfer/write_sampler.h"

#include <algorithm>

#include "allocator/residency/state/core.h"
#include "io/os/clock.h"

namespace spillway::allocator {
namespace {

constexpr size_t kMaxOperands = 8;                   // of one sample
constexpr uint64_t kMaxBytes = uint64_t{256} << 20;  // of one sample, except for its first operand
constexpr uint32_t kAskOneIn = 16;
constexpr int64_t kMinPauseNanos = 200'000;

// Picks one launch of kAskOneIn, at gaps without a pattern. A constant gap would pick the same launches in
// each iteration, if the number of its launches has a factor in common with the gap.
bool IsAsked(uint32_t launch) { return (launch * uint64_t{0x9e3779b97f4a7c15u}) >> 60 == 0; }
static_assert(kAskOneIn == 16, "as many as four bits tell");

uint64_t KeyOf(policy::LaunchForm form, uint32_t place) {
  const uint64_t numbers = uint64_t{form.blocks} << 32 | place;
  return (form.tag ^ numbers) * 0x9e3779b97f4a7c15u ^ numbers;
}

policy::LaunchForm FormOf(uint64_t tag, const AccessSet& set) {
  return {tag, static_cast<uint32_t>(set.size())};
}

}  // namespace

bool WriteSampler::IsDue() const {
  return hash_->Get() != nullptr && phase_.load(std::memory_order_relaxed) == Phase::kIdle &&
         os::Clock::System()->NowNanos() >= next_nanos_.load(std::memory_order_relaxed);
}

bool WriteSampler::IsOpenLocked(policy::LaunchForm form, uint32_t place, policy::LaunchIndex now) const {
  if (learnt_.Settled(form, place)) return false;
  const auto last = last_sample_.find(KeyOf(form, place));
  return last == last_sample_.end() || now >= last->second + kApart;
}

bool WriteSampler::Wants(uint64_t tag, const AccessSet& set, policy::LaunchIndex now) {
  const uint32_t asked = asked_.load(std::memory_order_relaxed);
  asked_.store(asked + 1, std::memory_order_relaxed);  // two threads may count as one
  if (!IsAsked(asked) || !IsDue()) return false;
  os::MutexLock lock(&mu_);
  for (uint32_t place = 0; place < set.size(); ++place) {
    if (IsOpenLocked(FormOf(tag, set), place, now)) return true;
  }
  return false;
}

bool WriteSampler::MakeEvents() {
  for (CUevent* event : {&began_, &hashed_, &ended_}) {
    if (*event == nullptr && driver_->cuEventCreate(event, CU_EVENT_DEFAULT) != CUDA_SUCCESS) return false;
  }
  return true;
}

void WriteSampler::ChooseLocked(policy::LaunchForm form, const AccessSet& set,
                                const std::vector<Block*>& pinned, policy::LaunchIndex now) {
  operands_.clear();
  uint64_t bytes = 0;
  uint32_t place = 0;
  for (const BlockId id : set) {
    const uint32_t here = place++;
    if (operands_.size() == kMaxOperands || !IsOpenLocked(form, here, now)) continue;
    const Block& block = table_->at(id);
    // The other blocks of the set are freed, or are integers that look like addresses. They need not be
    // mapped.
    if (std::find(pinned.begin(), pinned.end(), &block) == pinned.end()) continue;
    const uint64_t size = Core::BytesOfCopy(block);
    if (!operands_.empty() && bytes + size > kMaxBytes) continue;
    bytes += size;
    operands_.push_back({here, block.address, size, {}, {}});
    last_sample_[KeyOf(form, here)] = now;
  }
}

bool WriteSampler::Begin(uint64_t tag, const AccessSet& set, const std::vector<Block*>& pinned,
                         policy::LaunchIndex now, CUstream stream) {
  if (!IsDue()) return false;
  Phase idle = Phase::kIdle;
  if (!phase_.compare_exchange_strong(idle, Phase::kOpen)) return false;
  const int64_t start = os::Clock::System()->NowNanos();
  {
    os::MutexLock lock(&mu_);
    ChooseLocked(FormOf(tag, set), set, pinned, now);
  }
  form_ = FormOf(tag, set);
  whole_ = true;
  if (operands_.empty() || !MakeEvents() || driver_->cuEventRecord(began_, stream) != CUDA_SUCCESS) {
    phase_.store(Phase::kIdle);
    return false;
  }
  DeviceHash* const hash = hash_->Get();
  for (Operand& operand : operands_) {
    auto request = hash->Enqueue(stream, operand.address, operand.bytes);
    if (request.ok()) operand.before = *request;
    whole_ &= request.ok();
  }
  whole_ &= driver_->cuEventRecord(hashed_, stream) == CUDA_SUCCESS;
  host_nanos_ = os::Clock::System()->NowNanos() - start;
  return true;
}

void WriteSampler::End(CUstream stream, bool launched) {
  const int64_t start = os::Clock::System()->NowNanos();
  whole_ &= launched;
  DeviceHash* const hash = hash_->Get();
  for (Operand& operand : operands_) {
    if (!whole_) break;
    auto request = hash->Enqueue(stream, operand.address, operand.bytes);
    if (request.ok()) operand.after = *request;
    whole_ &= request.ok();
  }
  if (driver_->cuEventRecord(ended_, stream) != CUDA_SUCCESS) {
    // Only a wait shows when the hashes are done if there is no event. If the wait fails as well, this sample
    // never ends.
    if (driver_->cuStreamSynchronize(stream) != CUDA_SUCCESS) return;
    whole_ = false;
  }
  host_nanos_ += os::Clock::System()->NowNanos() - start;
  phase_.store(Phase::kQueued, std::memory_order_release);  // to Poll
}

bool WriteSampler::Poll() {
  if (phase_.load(std::memory_order_acquire) != Phase::kQueued) return false;
  if (driver_->cuEventQuery(ended_) != CUDA_SUCCESS) return false;  // not yet, or not known
  DeviceHash* const hash = hash_->Get();
  for (Operand& operand : operands_) {
    if (whole_) operand.changed = !(hash->Take(&operand.before) == hash->Take(&operand.after));
    hash->Drop(&operand.before);
    hash->Drop(&operand.after);
  }
  if (whole_) {
    os::MutexLock lock(&mu_);
    for (const Operand& operand : operands_) learnt_.Record(form_, operand.place, operand.changed);
  }
  // The hashes after the launch took as long as those before it.
  float milliseconds = 0;
  int64_t cost = host_nanos_;
  if (whole_ && driver_->cuEventElapsedTime(&milliseconds, began_, hashed_) == CUDA_SUCCESS) {
    cost = std::max(cost, static_cast<int64_t>(2e6 * static_cast<double>(milliseconds)));
  }
  samples_.fetch_add(1, std::memory_order_relaxed);
  const int64_t pause = std::max(kMinPauseNanos, cost * kShare);
  next_nanos_.store(os::Clock::System()->NowNanos() + pause, std::memory_order_relaxed);
  phase_.store(Phase::kIdle);
  return true;
}

void WriteSampler::Guess(const std::vector<policy::FormFacts>& guesses) {
  os::MutexLock lock(&mu_);
  for (const policy::FormFacts& guess : guesses) learnt_.Guess(guess);
}

std::shared_ptr<const policy::WriteFacts> WriteSampler::facts() const {
  os::MutexLock lock(&mu_);
  if (learnt_.version() == 0) return nullptr;
  if (published_ == nullptr || published_version_ != learnt_.version()) {
    published_ = std::make_shared<const policy::WriteFacts>(learnt_);
    published_version_ = learnt_.version();
  }
  return published_;
}

}  // namespace spillway::allocator
