// The state of the wrappers. HookState is kept from the installation of the hooks on: real functions,
// external memory, kernels, captures and escaped pointers. HookContext has the devices and the modes: the
// engine fills and publishes one when the first device's Residency exists; before that, wrappers pass calls
// through. There is one of each in a process, since wrappers are plain C functions. Where memory or modules
// end, the engine and the wrappers tell the state, which ends what was pinned for them. Every function here
// may be called on any thread of the application. A function without an answer returns null, -1, 0 or false;
// nothing else fails.

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

  // The process sees more than one device: only the current context shows to which of them a default stream
  // belongs. Constant after publication.
  bool several_devices = false;

  // SPILLWAY_TRUST=strict: a copied address counts until its target is freed, since kernels may have copied
  // it again. Constant after publication.
  bool strict = false;
  BlockTrust* trust = nullptr;  // null unless `strict`

  // Launches that name no block go to the device's residency, too: for an audit, or for a standstill. Constant after
  // publication.
  bool gates_all = false;

  // Called at most once, on the thread of a call that is not understood: evictions must stop for the process.
  // `reason`: words for the user. May be null.
  void (*switch_eviction_off)(const char* reason) = nullptr;

  allocator::Residency* Of(int device) const { return devices.Of(device); }
};

// Made when the hooks are installed; never destroyed, since wrappers run until the process is gone.
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
  std::atomic<uint64_t> unknown_launches{0};  // of kernels whose handle no hook has seen
  std::atomic<int> captures{0};             // begun and not ended, in the process; 0 spares launches a query
  std::atomic<bool> eviction_off{false};    // switch_eviction_off was called
  std::atomic<bool> other_contexts{false};  // contexts beside the primary ones have been made
  // Set until PyTorch is found: runs on the thread of each allocation that is counted as external.
  std::atomic<void (*)()> before_external_allocation{nullptr};
  std::atomic<HookContext*> context{nullptr};  // released by PublishHookContext, acquired by each wrapper
};

// Null until InstallHooks.
HookState* GetHookState();
// For InstallHooks, and for tests, which put null back.
void SetHookState(HookState* state);

// The wrappers work from now on. `context` must outlive every hooked call, so it is never deleted. Null: they
// pass calls through again (shutdown has begun, or the process is a forked child).
void PublishHookContext(HookContext* context);
// The published context; null while wrappers pass through.
inline HookContext* ContextOf(const HookState* state) {
  return state == nullptr ? nullptr : state->context.load(std::memory_order_acquire);
}

// The device takes part: launches with its blocks go through its residency, which also gets external bytes.
void AttachDevice(HookContext* context, int device, allocator::Residency* residency, CUcontext primary);

// The context when `address` lies in our reservation and the wrappers work; else null: the driver answers for
// that address.
HookContext* ContextOwning(uint64_t address);
// Finds the block that contains `address`; false when none does (free space of our reservation).
bool FindOurs(const HookContext* context, uint64_t address, allocator::Residency::Range* range);

// Puts the calling thread's current context, or null, into `context`. The driver's answer, when it does not
// tell.
CUresult FindCurrentContext(const HookState& state, CUcontext* context);
// Whether only the current context shows which stream a default stream's handle means.
inline bool ContextTells(const HookState& state, const HookContext& context) {
  return context.several_devices || state.other_contexts.load(std::memory_order_relaxed);
}
// The current context's device, or -1.
int CurrentDevice(const HookState& state);

// Whether what is enqueued on the stream now is captured, or may be since the driver does not tell. One load
// when there is no capture in the process.
bool IsCapturingNow(const HookState& state, allocator::StreamRef stream);
inline bool IsCapturing(const HookState& state, allocator::StreamRef stream) {
  return __builtin_expect(state.captures.load(std::memory_order_relaxed) != 0, 0) &&
         IsCapturingNow(state, stream);
}
// The id of the capture that the stream takes part in; 0: none, or the driver does not tell.
uint64_t CaptureOf(const HookState& state, allocator::StreamRef stream);

// A call that is not understood was met: evictions stop for the process. Later calls do nothing. `reason`:
// words for the user.
void SwitchEvictionOff(HookState* state, const char* reason);

// ---- What ends the pins of escaped pointers. On the thread of the call that ends them, with no lock held.
// Before there is a context, nothing is pinned.

// A block of ours is about to be freed: the addresses in it pin nothing any more. To be called before
// Residency::Free.
void NoteBlockFreed(uint64_t address);
// External memory was freed by the real call: the addresses in it pin nothing any more. `users`: what may
// still read it.
void NoteExternalFreed(uint64_t address, uint64_t bytes, const allocator::EscapedUsers& users);
// The module or library that the globals belong to is unloaded; null: all of them.
void NoteGlobalsGone(const void* module);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_HOOK_CONTEXT_H_
