// EvictionSwitch: whether blocks may leave the GPU. They may while every call that could touch one is seen;
// one that cannot be followed ends evictions for the rest of the process, and everything is brought back.
// Runtime makes it when the hooks are installed; the hooks' callbacks and the C ABI ask and end: any thread.
// A refused allocation's words say what ended them.

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

  // An error when launches or copies of this process go unseen. A block has no memory until a launch or copy
  // names it, so then none may be handed out, and PyTorch's own allocator must serve.
  absl::Status Followable() const;
  // Whether blocks of a device that starts now may leave it: by the settings, and by what was seen so far.
  bool MayEvict() const;
  // For good. From now on blocks have memory from their allocation on.
  bool ended() const { return ended_.load(); }

  // Brings everything back on each device, which then keeps it. `reason` is what cannot be followed, as a
  // noun; the first one is reported and counts. An error: it does not fit.
  absl::Status End(const char* reason);
  // The first reason; null: none was given yet.
  const std::string* ended_by() const { return has_reason_.load() ? &reason_ : nullptr; }
  // A refusal of memory, with what ended evictions where something has. Other statuses stay as they are.
  absl::Status WithCause(const absl::Status& refusal) const;

 private:
  // What goes unseen, as text; empty: nothing.
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
