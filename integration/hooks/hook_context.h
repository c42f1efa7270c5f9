// The state of the wrappers. HookState exists from the installation of the hooks on, and has the real
// functions, external memory, kernels, captures and escaped pointers. HookContext has the devices and the
// modes. The engine fills and publishes one when the first device's Residency exists; wrappers pass calls
// through before that. A process has one of each, since wrappers are plain C functions. The engine and the
// wrappers report the end of memory and of modules here, which ends what was pinned for them. Every function
// here may be called on any thread of the application. A function without an answer returns null, -1, 0 or
// false; nothing else fails.

#ifndef SPILLWAY_INTEGRATION_HOOKS_HOOK_CONTEXT_H_
#define SPILLWAY_INTEGRATION_HOOKS_HOOK_CONTEXT_H_

#include <array>
#include <atomic>
#include <cstdint>

#include "allocator/memory/address_map.h"
#include "allocator/memory/block_id.h"
#include "allocator/residency/residency.h"
#include "integration/escape/block_trust.h"
#include "integration/escape/graph_blocks.h"
#include "integration/escape/pins.h"
#include "integration/escape/pointer_tables.h"
#include "integration/escape/tensor_maps.h"
#include "integration/hooks/external_memory.h"
#include "integration/hooks/function_registry.h"
#include "integration/hooks/hook_rows.h"

namespace spillway::integration {

struct HookContext {
  const allocator::AddressMap* addresses = nullptr;  // constant after publication

  // Set by AttachDevice, read by the wrappers.
  DeviceResidencies devices;
  // The primary context of each device, which pointer queries answer. Written before the device's residency.
  std::array<CUcontext, allocator::kMaxDevices> contexts{};

  // Whether the process sees more than one device. If it does, only the current context shows to which device
  // a default stream belongs. Constant after publication.
  bool several_devices = false;

  // SPILLWAY_TRUST=strict: a copied address counts until its target is freed, since kernels may have copied
  // it again. Constant after publication.
  bool strict = false;
  BlockTrust* trust = nullptr;  // null unless `strict`

  // Whether launches that name no block go to the device's residency, too: for an audit, or for a standstill.
  // Constant after publication.
  bool gates_all = false;

  // Called at most once, on the thread of a call that is not understood: evictions must stop for the process.
  // `reason` is a text for the user. May be null.
  void (*switch_eviction_off)(const char* reason) = nullptr;

  allocator::Residency* Of(int device) const { return devices.Of(device); }
};

// Created when the hooks are installed; never destroyed, since wrappers run until the process is gone.
struct HookState {
  // The registry asks the real driver, once `real` is filled.
  HookState() : functions(&queries) {}

  RealTable real;
  ModuleOrigins origins;
  DriverFunctionQueries queries{&real, &origins};
  FunctionRegistry functions;
  ExternalMemory external;
  PointerTables tables;
  TensorMaps tensor_maps;
  GraphBlocks graphs;
  ObjectPins objects;
  PinReports pin_reports;
  std::atomic<uint64_t> unknown_launches{0};  // launches of kernels whose handle no hook has seen
  std::atomic<int> captures{0};             // begun and not ended, in the process; 0 spares launches a query
  std::atomic<bool> eviction_off{false};    // switch_eviction_off was called
  std::atomic<bool> other_contexts{false};  // contexts beside the primary ones have been created
  // Runs on the thread of each allocation that is counted as external. Set until PyTorch is found.
  std::atomic<void (*)()> before_external_allocation{nullptr};
  std::atomic<HookContext*> context{nullptr};  // released by PublishHookContext, acquired by each wrapper
};

// Returns the state; null until InstallHooks.
HookState* GetHookState();
// Sets the state, for InstallHooks and for tests, which put null back.
void SetHookState(HookState* state);

// Puts the wrappers to work. `context` must outlive every hooked call, so it is never deleted. Null makes
// them pass calls through again (shutdown has begun, or the process is a forked child).
void PublishHookContext(HookContext* context);
// Returns the published context; null while wrappers pass calls through.
inline HookContext* ContextOf(const HookState* state) {
  return state == nullptr ? nullptr : state->context.load(std::memory_order_acquire);
}

// Makes the device take part: launches with its blocks go through its residency, which also gets external
// bytes.
void AttachDevice(HookContext* context, int device, allocator::Residency* residency, CUcontext primary);

// Returns the context if `address` lies in our reservation and the wrappers are at work; null otherwise: the
// driver answers for that address.
HookContext* ContextOwning(uint64_t address);
// Finds the block that contains `address`. Returns false if none does (free space of our reservation).
bool FindOurs(const HookContext* context, uint64_t address, allocator::Residency::Range* range);

// Puts the calling thread's current context, or null, into `context`. If the driver does not report it,
// returns the driver's answer.
CUresult FindCurrentContext(const HookState& state, CUcontext* context);
// Returns whether only the current context shows which stream a default stream's handle means.
inline bool NeedsCurrentContext(const HookState& state, const HookContext& context) {
  return context.several_devices || state.other_contexts.load(std::memory_order_relaxed);
}
// Returns the current context's device, or -1.
int CurrentDevice(const HookState& state);

// Returns whether what is enqueued on the stream now is captured. Also true if the driver does not report it.
// Costs one load while the process has no capture.
bool IsCapturingNow(const HookState& state, allocator::StreamRef stream);
inline bool IsCapturing(const HookState& state, allocator::StreamRef stream) {
  return __builtin_expect(state.captures.load(std::memory_order_relaxed) != 0, 0) &&
         IsCapturingNow(state, stream);
}
// Returns the id of the capture that the stream takes part in; 0 if there is none, or the driver does not
// report it.
uint64_t CaptureOf(const HookState& state, allocator::StreamRef stream);

// Stops evictions for the process, since a call is not understood. Later calls do nothing. `reason` is a text
// for the user.
void SwitchEvictionOff(HookState* state, const char* reason);

// ---- Events that end the pins of escaped pointers. Each is reported on the thread of the call that causes
// it, with no lock held. No block is pinned before there is a context.

// Ends the pins of the addresses in a block of ours that is about to be freed. Must be called before
// Residency::Free.
void RecordBlockFreed(uint64_t address);
// Ends the pins of the addresses in external memory that the real call has freed. `users`: the work that may
// still read it.
void RecordExternalFreed(uint64_t address, uint64_t bytes, const allocator::EscapedUsers& users);
// Ends the pins of the globals of a module or library that is unloaded; null: of all.
void RecordGlobalsGone(const void* module);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_HOOK_CONTEXT_H_
