// Long-term pins over all devices, for calls that let an address of ours go where no launch names it. A pin
// is taken before the real call, and ends when the last word that leads to the block is gone. The hooks call
// this on the thread of the hooked call, with no lock of ours held. A call whose pin cannot be taken is
// refused with the driver's code. PointerTables and ObjectPins know which event ends which pin; Residency
// counts the pins.

#ifndef SPILLWAY_INTEGRATION_ESCAPE_PINS_H_
#define SPILLWAY_INTEGRATION_ESCAPE_PINS_H_

#include <array>
#include <atomic>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "allocator/memory/block_id.h"
#include "allocator/memory/pin.h"
#include "allocator/residency/residency.h"
#include "io/os/sync.h"

namespace spillway::integration {

// The residency of each device that takes part; null until the device has one. Thread-safe.
class DeviceResidencies {
 public:
  void Set(int device, allocator::Residency* residency) {
    residencies_[device].store(residency, std::memory_order_release);  // pairs with the load in Of
  }
  allocator::Residency* Of(int device) const {
    return device >= 0 && device < allocator::kMaxDevices
               ? residencies_[device].load(std::memory_order_acquire)
               : nullptr;
  }

 private:
  std::array<std::atomic<allocator::Residency*>, allocator::kMaxDevices> residencies_{};
};

// One long-term pin on each of some blocks, of any devices. A ticket does not end its pins by itself; EndPins
// does.
struct PinTicket {
  allocator::PinReason reason = allocator::PinReason::kUnknownCall;
  std::vector<allocator::PinnedBlock> blocks;
};

// Returns the blocks of the set that lie on the device.
allocator::AccessSet PartOn(int device, const allocator::AccessSet& set);

// Appends the address ranges of the set's blocks. Thread-safe; the caller holds no lock.
void FindRanges(const DeviceResidencies& devices, const allocator::AccessSet& set,
                std::vector<allocator::BlockRange>* ranges);

// Makes the set resident and pins it for `reason`. `ticket` gets the pins; if it is null, they last until the
// blocks are freed. When a block cannot be pinned, the pins already taken are ended, the log gives the
// reason, and the driver's code is returned: out of memory only if memory is short. Thread-safe; the caller
// holds no lock.
CUresult PinBlocks(const DeviceResidencies& devices, const allocator::AccessSet& set,
                   allocator::PinReason reason, PinTicket* ticket);
// Ends the tickets' pins and empties the tickets. Each block may leave once `users` are done. Thread-safe;
// the caller holds no lock.
void EndPins(const DeviceResidencies& devices, PinTicket* ticket, const allocator::EscapedUsers& users);
void EndPins(const DeviceResidencies& devices, std::vector<PinTicket>* tickets,
             const allocator::EscapedUsers& users);

// Reports in the log, once for each reason, that blocks stay on the GPU from now on, and which call was the
// first. Also reports each library that asks for private functions of the driver, of which nothing is known.
// Thread-safe.
class PinReports {
 public:
  void Report(allocator::PinReason reason, const char* call);
  // Returns true if this is the library's first table, which has been logged now. A profiler asks for dozens
  // of tables.
  bool ReportTable(const std::string& library, const std::string& table);

 private:
  std::array<std::atomic<bool>, allocator::kPinReasons> reported_{};
  os::Mutex mu_{os::LockRank::kRegistry};
  std::set<std::string> askers_ ABSL_GUARDED_BY(mu_);
};

// Pins that last as long as an object of the driver: a texture or a surface. Thread-safe.
class ObjectPins {
 public:
  enum class Kind : int { kTexture, kSurface };
  // Gives the ticket to the object. Returns the ticket of an earlier object of that name, which must be gone.
  PinTicket Add(Kind kind, unsigned long long object, PinTicket ticket);
  // Takes the object's ticket away; empty if the object pins nothing.
  PinTicket Take(Kind kind, unsigned long long object);

 private:
  os::Mutex mu_{os::LockRank::kRegistry};
  std::unordered_map<unsigned long long, PinTicket> tickets_[2] ABSL_GUARDED_BY(mu_);
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ESCAPE_PINS_H_
