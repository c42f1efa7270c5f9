// CudaDriver: the real driver's entry points that Spillway itself calls, as one table of typed pointers. All
// calls of the driver go through it; no other file resolves a symbol. The engine fills it once by the
// preload's look-up, which skips our own wrappers, and a test by dlsym. Constant afterwards: any thread may
// call. Loading fails when the driver lacks a function; a call's error becomes a status by ToStatus.

#ifndef SPILLWAY_ALLOCATOR_DRIVER_CUDA_DRIVER_H_
#define SPILLWAY_ALLOCATOR_DRIVER_CUDA_DRIVER_H_

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL 1  // cuda.h must not rename functions to their newest version
#endif
#include <cuda.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "allocator/driver/memory_turn.h"

namespace spillway::allocator {

// One member per row of driver_entries.def, named as the exported symbol.
struct CudaDriver {
  // Gives the address of an exported symbol of the driver, or null when this driver lacks it.
  using Lookup = std::function<void*(const char* symbol)>;

  // Fails with kNotFound and the names of the missing entry points.
  static absl::StatusOr<std::unique_ptr<const CudaDriver>> Load(const Lookup& lookup);

#define DRIVER_ENTRY(symbol) decltype(&::symbol) symbol = nullptr;
#include "allocator/driver/driver_entries.def"
#undef DRIVER_ENTRY

  // OK for CUDA_SUCCESS; else "WHAT: CUDA_ERROR_X (text)". OUT_OF_MEMORY becomes kResourceExhausted,
  // NOT_READY kUnavailable, INVALID_VALUE kInvalidArgument, NOT_SUPPORTED kUnimplemented, any other code
  // kInternal. The status carries the driver's code, which ResultOf gives back.
  absl::Status ToStatus(CUresult result, const std::string& what) const;

  // Whether the stream captures (MayCapture). An error is returned; that the legacy stream cannot be asked is
  // none.
  CUresult AskCapturing(CUstream stream, bool* capturing) const;

  // Taken around each call that creates, maps, opens, unmaps or releases GPU memory. Copies of the table share
  // it.
  std::shared_ptr<MemoryTurn> memory_turn = std::make_shared<MemoryTurn>();
};

// What cuStreamIsCapturing's answer means: the stream captures, or may. The legacy stream cannot be asked while
// another captures, and cannot be used either: it does not.
inline bool MayCapture(CUresult asked, CUstreamCaptureStatus status) {
  if (asked == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return false;
  return asked != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// The driver's code that a status carries. CUDA_SUCCESS for OK. For a status without a code:
// CUDA_ERROR_OUT_OF_MEMORY for kResourceExhausted, CUDA_ERROR_TIMEOUT for kDeadlineExceeded,
// CUDA_ERROR_OPERATING_SYSTEM for kDataLoss (a disk lost bytes), else CUDA_ERROR_UNKNOWN.
CUresult ResultOf(const absl::Status& status);
// With CUDA_ERROR_ILLEGAL_STATE: what was asked cannot be done as things are. kUnavailable: that passes.
absl::Status IllegalState(const std::string& words,
                          absl::StatusCode code = absl::StatusCode::kFailedPrecondition);
// The same status and the same driver's code with another message.
absl::Status WithWords(const absl::Status& status, const std::string& words);

// Makes `context` current for a scope and sets the thread's capture mode to RELAXED; restores both. Our own
// calls inside a wrapper then neither see a wrong device nor break a stream capture of the job. Of one
// thread.
class ScopedContext {
 public:
  ScopedContext(const CudaDriver* driver, CUcontext context);
  ~ScopedContext();
  ScopedContext(const ScopedContext&) = delete;
  ScopedContext& operator=(const ScopedContext&) = delete;
  // The driver's answer when the context is not current. What a default stream's handle means is not its stream then.
  CUresult entered() const { return entered_; }

 private:
  const CudaDriver* const driver_;
  bool pushed_ = false;
  CUresult entered_ = CUDA_SUCCESS;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_DRIVER_CUDA_DRIVER_H_
