// EvictionSwitch: whether blocks may leave the GPU. They may as long as every call that could touch one is
// seen. A call that cannot be followed ends evictions for the rest of the process, and everything is brought
// back. Runtime creates it when the hooks are installed. The hooks' callbacks and the C ABI ask and end, on
// any thread. The message of a refused allocation names what ended them.

#ifndef SPILLWAY_INTEGRATION_ENGINE_EVICTION_SWITCH_H_
#define SPILLWAY_INTEGRATION_ENGINE_EVICTION_SWITCH_H_

#include <atomic>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "integration/engine/devices.h"
#include "integration/preload/shim_abi.h"
#include "integration/settings/settings.h"

namespace spillway::integration {

class EvictionSwitch {
 public:
  // `missing_hooks`: functions that could not be wrapped, as text; empty: none. The others must outlive this
  // object.
  EvictionSwitch(const spillway_shim* shim, const Settings* settings, const Devices* devices,
                 std::string missing_hooks)
      : shim_(shim), settings_(*settings), devices_(devices), missing_hooks_(std::move(missing_hooks)) {}

  // Returns an error if launches or copies of this process go unseen. A block has no memory until a launch or
  // copy names it, so no block may be handed out then, and PyTorch's own allocator must serve.
  absl::Status Followable() const;
  // Returns whether blocks of a device that starts now may leave it, by the settings and by what was seen so
  // far.
  bool MayEvict() const;
  // Returns whether evictions have ended, which is for good. Blocks have memory from their allocation on
  // then.
  bool ended() const { return ended_.load(); }

  // Brings everything back on each device, which then keeps it. `reason` names what cannot be followed, as a
  // noun; the first reason is reported and counts. Returns an error if it does not fit.
  absl::Status End(const char* reason);
  // Returns the first reason; null if none was given yet.
  const std::string* ended_by() const { return has_reason_.load() ? &reason_ : nullptr; }
  // Adds what ended evictions, if anything has, to a refusal of memory. Returns other statuses as they are.
  absl::Status WithCause(const absl::Status& refusal) const;

 private:
  // Returns what goes unseen, as text; empty: nothing.
  std::string Unseen() const;

  const spillway_shim* const shim_;
  const Settings& settings_;
  const Devices* const devices_;
  const std::string missing_hooks_;
  std::atomic<bool> ended_{false};
  std::string reason_;                   // written once, before has_reason_
  std::atomic<bool> has_reason_{false};  // pairs with ended_by
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_EVICTION_SWITCH_H_
