// Devices: the GPUs that Spillway serves in this process, each with its residency and, if launches are
// recorded, its predictor. Runtime keeps a device here once its objects are created, and publishes it once
// they have started. The C ABI, the hooks' callbacks and the reports look devices up, on any thread and
// without a lock. No call fails, and no device is removed: the objects that serve it live as long as this
// one, which lives as long as the process.

#ifndef SPILLWAY_INTEGRATION_ENGINE_DEVICES_H_
#define SPILLWAY_INTEGRATION_ENGINE_DEVICES_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "allocator/memory/address_map.h"
#include "allocator/residency/residency.h"
#include "integration/prediction/predictor.h"

namespace spillway::integration {

struct ServedDevice {
  int device = 0;
  uint64_t device_bytes = 0;             // of the device's memory, used or not
  std::unique_ptr<Predictor> predictor;  // null: no setting asks for recorded launches
  std::unique_ptr<allocator::Residency> residency;
};

class Devices {
 public:
  Devices() = default;
  ~Devices();
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;

  // Keeps a device. Called once for each, from 0 up to allocator::kMaxDevices - 1.
  const ServedDevice* Keep(ServedDevice served);
  // Lets Find return the device from now on. It must have been kept.
  void Publish(int device);

  // Returns the device; null if it is not in service, or does not exist.
  const ServedDevice* Find(int device) const;
  // Returns whether any device is in service.
  bool any() const;
  // Calls visit(const ServedDevice&) for each device in service, in the order of their numbers. Allocates
  // nothing.
  template <typename Visitor>
  void ForEach(Visitor visit) const {
    for (const std::atomic<const ServedDevice*>& place : published_) {
      if (const ServedDevice* const served = place.load(std::memory_order_acquire)) visit(*served);
    }
  }
  // Returns all devices that were kept, including those whose start failed, or is not over.
  std::vector<const ServedDevice*> Kept() const;

  // Makes each device in service bring everything back, and keep it. Returns an error if that does not fit
  // one of them.
  absl::Status StopEvicting() const;

 private:
  using Places = std::array<std::atomic<const ServedDevice*>, allocator::kMaxDevices>;

  Places kept_{};       // owned; released by Keep, acquired by Kept
  Places published_{};  // released by Publish, acquired by Find
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_DEVICES_H_
