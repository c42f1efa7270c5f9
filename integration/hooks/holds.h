// Taking and ending holds over all devices, for whoever lets an address of ours go where no launch names it. Which
// holds there are and what ends them is kept by PointerTables, GraphHolds and ObjectHolds; counting is Residency's.

#ifndef SPILLWAY_INTEGRATION_HOOKS_HOLDS_H_
#define SPILLWAY_INTEGRATION_HOOKS_HOLDS_H_

#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "allocator/memory/block_id.h"
#include "allocator/memory/pin.h"
#include "io/os/sync.h"

namespace spillway::integration {

struct HookContext;
struct HookState;

// One hold each of some blocks, of any devices.
struct HoldTicket {
  allocator::HoldReason reason = allocator::HoldReason::kUnknownCall;
  std::vector<allocator::HeldBlock> blocks;
};

// Makes the set resident and holds it for `reason`. When one cannot be held, the code for the caller (out of memory only
// where memory is what lacks): what was taken is ended again, and standard error has said why. Null `ticket`: until the
// blocks are freed. Any thread; no lock held.
CUresult HoldBlocks(HookContext* context, const allocator::AccessSet& set, allocator::HoldReason reason,
                    HoldTicket* ticket);
// Ends the ticket's holds once `users` are done, and empties it.
void EndHolds(HookContext* context, HoldTicket* ticket, const allocator::HiddenUsers& users);

// Says once for each reason that blocks stay on the GPU from now on, and which call was the first.
void TellOfHold(HookState* state, allocator::HoldReason reason, const char* call);

// Holds that live as long as an object of the driver does: textures and surfaces.
class ObjectHolds {
 public:
  enum class Kind : int { kTexture, kSurface };
  // An object of that name that was known before is gone: its ticket is returned.
  HoldTicket Add(Kind kind, unsigned long long object, HoldTicket ticket);
  // Empty when the object holds nothing.
  HoldTicket Take(Kind kind, unsigned long long object);

 private:
  os::Mutex mu_{os::LockRank::kRegistry};
  std::unordered_map<unsigned long long, HoldTicket> tickets_[2] ABSL_GUARDED_BY(mu_);
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_HOLDS_H_
