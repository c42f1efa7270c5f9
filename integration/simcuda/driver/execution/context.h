// A context: the streams of one device for one user of it, its default streams, and the error that ended it.
// Primary contexts are made once per device and never destroyed; each thread has a stack of current contexts.
// Thread-safe.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_EXECUTION_CONTEXT_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_EXECUTION_CONTEXT_H_

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "integration/simcuda/driver/core/driver_api.h"
#include "integration/simcuda/driver/execution/stream.h"
#include "integration/simcuda/driver/machine/device.h"

namespace simcuda {

class Context : public HandleObject {
 public:
  Context(Device* device, bool primary);

  static Context* FromHandle(CUcontext handle) { return LiveObject<Context>(handle, HandleKind::kContext); }
  CUcontext handle() { return reinterpret_cast<CUcontext>(this); }

  Device& device() const { return *device_; }
  bool is_primary() const { return primary_; }
  uint64_t id() const { return id_; }
  Stream& legacy() { return *legacy_; }
  // Returns the default stream of the calling thread.
  Stream& per_thread();

  Stream* OpenStream(StreamKind kind, int priority);
  // Closes a stream. The function given to BeforeClose sees it first.
  void CloseStream(Stream* stream);
  // Sets that function, for captures, which end with their stream; the first call sets it.
  static void BeforeClose(void (*see)(Stream&));

  // Queues work with the rules of the legacy stream: it waits for all work of blocking streams before it, and
  // they wait for it. Returns the work's number on `stream`.
  uint64_t Enqueue(Stream& stream, Work* work);

  // Waits for everything that was queued before the call, on all streams.
  void Synchronize();
  // Waits as a call on the legacy stream does: for its own work and that of all blocking streams.
  void SynchronizeLegacy();
  bool IsLegacyIdle();

  // Ends the context with an error, one of sticky_errors.h; the first error wins. The context's calls return
  // it from now on, and its streams do no work.
  void Fail(CUresult error, const std::string& text);
  bool failed() const { return status() != CUDA_SUCCESS; }
  CUresult status() const { return error_.load(); }
  std::string error_text();

  // Sets the access to another context's memory that cuCtxEnablePeerAccess switches on. Returns whether this
  // changed it.
  bool SetPeer(Context* peer, bool enabled);

  // Ends a primary context's life: drains, frees its allocations, closes its streams, forgets the error.
  void Reset();
  // Like Reset; the handle is invalid from then on.
  void Destroy();

  int retained = 0;        // of a primary context; guarded by the device table's lock in context_api.cc
  unsigned int flags = 0;  // as given
  size_t limits[CU_LIMIT_MAX] = {};

 private:
  std::vector<Stream*> Streams();

  Device* const device_;
  const bool primary_;
  const uint64_t id_;
  std::atomic<CUresult> error_{CUDA_SUCCESS};
  std::atomic<int> blocking_count_{0};  // streams that synchronize with the legacy stream

  std::mutex mutex_;  // guards everything below
  Stream* legacy_ = nullptr;
  std::vector<Stream*> streams_;
  struct Drain {
    Stream* stream;
    uint64_t number;
  };
  std::vector<Drain> drains_;  // the work that destroyed streams still had to do
  std::string error_text_;
  std::vector<Context*> peers_;
};

// Returns the calling thread's current context, or null.
Context* CurrentContext();
std::vector<Context*>& ContextStack();

// Returns the primary context of a device, made on first use.
Context& PrimaryContext(Device& device);

// Begins nearly every call: returns NOT_INITIALIZED, INVALID_CONTEXT, the sticky error, or success.
CUresult EnterContext(Context** context);

// Begins calls that name no context (virtual memory, libraries). Like EnterContext if a context is current;
// otherwise returns the error of the first device whose primary context has one.
CUresult EnterAny();

// Returns the error of the device's primary context, if it has been made.
CUresult PrimaryStatus(const Device& device);

// Finds the stream that a handle means in the current context.
CUresult EnterStream(CUstream handle, Form form, Stream** stream);

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_EXECUTION_CONTEXT_H_
