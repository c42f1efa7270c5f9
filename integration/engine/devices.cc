#include "integration/engine/devices.h"

#include <utility>

namespace spillway::integration {

Devices::~Devices() {
  for (const std::atomic<const ServedDevice*>& kept : kept_) delete kept.load();
}

const ServedDevice* Devices::Keep(ServedDevice served) {
  const auto place = static_cast<size_t>(served.device);
  const auto* const own = new ServedDevice(std::move(served));
  kept_[place].store(own, std::memory_order_release);
  return own;
}

void Devices::Publish(int device) {
  const auto place = static_cast<size_t>(device);
  published_[place].store(kept_[place].load(std::memory_order_acquire));
}

const ServedDevice* Devices::Find(int device) const {
  if (device < 0 || device >= allocator::kMaxDevices) return nullptr;
  return published_[static_cast<size_t>(device)].load(std::memory_order_acquire);
}

bool Devices::any() const {
  bool found = false;
  ForEach([&found](const ServedDevice&) { found = true; });
  return found;
}

std::vector<const ServedDevice*> Devices::Kept() const {
  std::vector<const ServedDevice*> kept;
  for (const std::atomic<const ServedDevice*>& place : kept_) {
    if (const ServedDevice* const served = place.load(std::memory_order_acquire)) kept.push_back(served);
  }
  return kept;
}

absl::Status Devices::StopEvicting() const {
  absl::Status status;
  ForEach([&status](const ServedDevice& served) { status.Update(served.residency->StopEvicting()); });
  return status;
}

}  // namespace spillway::integration
