// Pins over all devices, for whoever lets an address of ours go where no launch names it: pins are taken
// before the real call and ended when the last word that leads to the block is gone. Called by the hooks on
// the thread of the hooked call, with no lock of ours held. A pin that cannot be had is refused with the
// driver's code for it. Which pins there are and what ends them is kept by PointerTables, GraphHolds and
// ObjectHolds; counting is Residency's.

#ifndef SPILLWAY_INTEGRATION_ESCAPE_PINS_H_
#define SPILLWAY_INTEGRATION_ESCAPE_PINS_H_

#include <array>
#include <atomic>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "allocator/memory/block_id.h"
#include "allocator/memory/pin.h"
#include "allocator/residency/residency.h"
#include "io/os/sync.h"

namespace spillway::integration {

// The residency of each device that takes part; null until the device has blocks. Any thread.
class DeviceResidencies {
 public:
  void Set(int device, allocator::Residency* residency) {
    residencies_[device].store(residency, std::memory_order_release);  // pairs with Of
  }
  allocator::Residency* Of(int device) const {
    return device >= 0 && device < allocator::kMaxDevices
               ? residencies_[device].load(std::memory_order_acquire)
               : nullptr;
  }

 private:
  std::array<std::atomic<allocator::Residency*>, allocator::kMaxDevices> residencies_{};
};

// One pin each of some blocks, of any devices.
struct HoldTicket {
  allocator::HoldReason reason = allocator::HoldReason::kUnknownCall;
  std::vector<allocator::HeldBlock> blocks;
};

// Makes the set resident and pins it for `reason`. When one cannot be pinned, the code for the caller (out of
// memory only where memory is what lacks): what was taken is ended again, and standard error has said why.
// Null `ticket`: until the blocks are freed. Any thread; no lock held.
CUresult HoldBlocks(const DeviceResidencies& devices, const allocator::AccessSet& set,
                    allocator::HoldReason reason, HoldTicket* ticket);
// Ends the tickets' pins once `users` are done, and empties them.
void EndHolds(const DeviceResidencies& devices, HoldTicket* ticket, const allocator::HiddenUsers& users);
void EndHolds(const DeviceResidencies& devices, std::vector<HoldTicket>* tickets,
              const allocator::HiddenUsers& users);

// Says once for each reason that blocks stay on the GPU from now on, and which call was the first. Any
// thread.
class PinReports {
 public:
  void Report(allocator::HoldReason reason, const char* call);

 private:
  std::array<std::atomic<bool>, allocator::kHoldReasons> reported_{};
};

// Pins that live as long as an object of the driver does: textures and surfaces. Any thread.
class ObjectHolds {
 public:
  enum class Kind : int { kTexture, kSurface };
  // An object of that name that was known before is gone: its ticket is returned.
  HoldTicket Add(Kind kind, unsigned long long object, HoldTicket ticket);
  // Empty when the object pins nothing.
  HoldTicket Take(Kind kind, unsigned long long object);

 private:
  os::Mutex mu_{os::LockRank::kRegistry};
  std::unordered_map<unsigned long long, HoldTicket> tickets_[2] ABSL_GUARDED_BY(mu_);
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ESCAPE_PINS_H_
