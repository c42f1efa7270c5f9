// Handles of the driver's objects, each kind apart: contexts, streams, events, modules, libraries, functions,
// kernels. The objects lie in memory of their own that is never given back, so any pointer can be judged
// without being followed: what it is, what it was, or that this driver never gave it out. Graphs have a set
// of their own (graph.cc). Thread-safe.
//
// A driver may crash, or answer at random, if it is given an invalid handle. SIMCUDA_HANDLES chooses what
// happens here: `stop` ends the process with a message, `answer` returns the code that the caller of
// BadHandle names.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_HANDLES_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_HANDLES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "integration/simcuda/driver/core/driver_api.h"

namespace simcuda {

enum class HandleKind : uint32_t { kContext = 1, kStream, kEvent, kModule, kLibrary, kFunction, kKernel };

// The object behind a handle. Its classes are made by `new` and never deleted.
class HandleObject {
 public:
  static void* operator new(size_t bytes);
  static void operator delete(void*) {}  // for a constructor that throws

  bool IsLive(HandleKind kind) const { return mark_.load() == MarkOf(kind, true); }
  // Live makes the handle usable as one of `kind` from now on; Die makes it invalid.
  void Live(HandleKind kind) { mark_ = MarkOf(kind, true); }
  void Die() { mark_ = mark_.load() & ~kAlive; }

 private:
  friend class HandleText;
  static constexpr uint32_t kAlive = 1;
  static constexpr uint32_t kMagic = 0x53484400;
  static constexpr uint32_t MarkOf(HandleKind kind, bool alive) {
    return kMagic | static_cast<uint32_t>(kind) << 4 | (alive ? kAlive : 0);
  }
  std::atomic<uint32_t> mark_{0};
};

// Returns the object that a handle may point to; null if no object of ours can lie there.
HandleObject* FindHandleObject(const void* handle);

// Returns the object of a live handle of that kind, or null.
template <typename Object>
Object* LiveObject(const void* handle, HandleKind kind) {
  HandleObject* const object = FindHandleObject(handle);
  return object != nullptr && object->IsLive(kind) ? static_cast<Object*>(object) : nullptr;
}

// Handles a call whose handle is no live one of the kind that it takes (`wanted`: "a CUfunction"). Returns
// `code`, the call's answer then; does not return with SIMCUDA_HANDLES=stop.
CUresult BadHandle(const void* handle, const char* wanted, CUresult code);
// Like the above, if the caller knows what the handle is (`found`: "it is a CUgraphNode").
CUresult BadHandle(const void* handle, const char* wanted, const char* found, CUresult code);

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_MACHINE_HANDLES_H_
