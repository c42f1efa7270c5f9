// Devices: the GPUs that Spillway serves in this process, each with its residency and, where launches are
// recorded, its predictor. Runtime keeps a device here once its objects are made, and publishes it once they
// have started. The C ABI, the hooks' callbacks and the reports look devices up: any thread, no lock. Nothing
// fails, and nothing is taken away: what serves a device lives as long as this object, which is as long as
// the process.

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
  uint64_t device_bytes = 0;             // of its memory, used or not
  std::unique_ptr<Predictor> predictor;  // null: no setting asks for recorded launches
  std::unique_ptr<allocator::Residency> residency;
};

class Devices {
 public:
  Devices() = default;
  ~Devices();
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;

  // Once for each device, from 0 up to allocator::kMaxDevices - 1.
  const ServedDevice* Keep(ServedDevice served);
  // From now on Find has it. It must have been kept.
  void Publish(int device);

  // Null: not in service, or there is no such device.
  const ServedDevice* Find(int device) const;
  // Whether one is in service.
  bool any() const;
  // Calls visit(const ServedDevice&) for each that is in service, in the order of their numbers. Allocates
  // nothing.
  template <typename Visitor>
  void ForEach(Visitor visit) const {
    for (const std::atomic<const ServedDevice*>& place : published_) {
      if (const ServedDevice* const served = place.load(std::memory_order_acquire)) visit(*served);
    }
  }
  // Also those whose start failed, or is not over.
  std::vector<const ServedDevice*> Kept() const;

  // Each device in service brings everything back, and keeps it. An error: it does not fit one of them.
  absl::Status StopEvicting() const;

 private:
  using Places = std::array<std::atomic<const ServedDevice*>, allocator::kMaxDevices>;

  Places kept_{};       // owned; release by Keep, acquire by Kept
  Places published_{};  // release by Publish, acquire by Find
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_DEVICES_H_
