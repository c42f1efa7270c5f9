#include "integration/simcuda/driver/machine/device.h"

#include "integration/simcuda/driver/core/clock.h"
#include "integration/simcuda/driver/core/settings.h"
#include "integration/simcuda/driver/machine/machine_memory.h"

namespace simcuda {

void Device::UnchargeHandle(uint64_t bytes) {
  const int64_t scrub = GetSettings().scrub_ns.load(std::memory_order_relaxed);
  if (scrub == 0) {
    Uncharge(bytes);
    return;
  }
  const std::lock_guard<std::mutex> lock(scrub_mutex_);
  scrubbing_.emplace_back(NowNs() + scrub, bytes);
}

void Device::Uncharge(uint64_t bytes) {
  const MachineStep step;
  used_ -= bytes;
  SetHeldBytes(number_, used_);
}

void Device::FinishScrubbing() {
  const std::lock_guard<std::mutex> lock(scrub_mutex_);
  while (!scrubbing_.empty() && scrubbing_.front().first <= NowNs()) {
    Uncharge(scrubbing_.front().second);
    scrubbing_.pop_front();
  }
}

uint64_t Device::free() {
  const uint64_t held = used() + BytesOfOthers(number_);
  return capacity_ > held ? capacity_ - held : 0;
}

bool Device::Charge(uint64_t bytes) {
  FinishScrubbing();
  const MachineStep step;
  const uint64_t others = BytesOfOthers(number_);
  uint64_t used = used_.load();
  do {
    if (bytes > capacity_ || used + others > capacity_ - bytes) return false;
  } while (!used_.compare_exchange_weak(used, used + bytes));
  SetHeldBytes(number_, used_);
  uint64_t peak = peak_.load();
  while (peak < used + bytes && !peak_.compare_exchange_weak(peak, used + bytes)) {
  }
  return true;
}

bool Device::TakeLocalMemory() {
  const Settings& settings = GetSettings();
  const int64_t bytes = settings.local_memory_bytes.load(std::memory_order_relaxed);
  if (bytes == 0 || has_local_memory_.load()) return true;
  if (++launches_ < settings.local_memory_launch.load()) return true;
  if (has_local_memory_.exchange(true)) return true;
  if (Charge(static_cast<uint64_t>(bytes))) return true;
  has_local_memory_.store(false);
  return false;
}

}  // namespace simcuda
