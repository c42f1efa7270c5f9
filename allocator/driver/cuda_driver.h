// CudaDriver: the entry points of the real driver that Spillway itself calls, as one table of typed pointers.
// Every call of the driver goes through this table; no other file resolves a symbol. The engine fills the
// table once, by the preload's look-up, which skips our own wrappers; a test fills it by dlsym. The table is
// constant afterwards, so any thread may use it. Loading fails when the driver lacks a function. ToStatus
// turns the error of a call into a status.

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
  // Returns the address of a symbol that the driver exports, or null when this driver lacks it.
  using Lookup = std::function<void*(const char* symbol)>;

  // Fails with kNotFound and the names of the missing entry points.
  static absl::StatusOr<std::unique_ptr<const CudaDriver>> Load(const Lookup& lookup);

#define DRIVER_ENTRY(symbol) decltype(&::symbol) symbol = nullptr;
#include "allocator/driver/driver_entries.def"
#undef DRIVER_ENTRY

  // Returns OK for CUDA_SUCCESS, else a status with the message "WHAT: CUDA_ERROR_X (text)". OUT_OF_MEMORY
  // becomes kResourceExhausted, NOT_READY kUnavailable, INVALID_VALUE kInvalidArgument, NOT_SUPPORTED
  // kUnimplemented, and any other code kInternal. The status carries the driver's code, which ResultOf gives
  // back.
  absl::Status ToStatus(CUresult result, const std::string& what) const;

  // Sets *capturing to whether the stream captures (see MayCapture) and returns the driver's error. It is no
  // error that the legacy stream cannot be asked.
  CUresult AskCapturing(CUstream stream, bool* capturing) const;

  // Taken around each call that creates, maps, opens, unmaps or releases GPU memory. Copies of the table
  // share it.
  std::shared_ptr<MemoryTurn> memory_turn = std::make_shared<MemoryTurn>();
};

// Whether the stream captures, or may capture, by the answer of cuStreamIsCapturing. The legacy stream cannot
// be asked while another stream captures. It cannot be used then either, so it does not capture.
inline bool MayCapture(CUresult asked, CUstreamCaptureStatus status) {
  if (asked == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return false;
  return asked != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// The driver's code that a status carries; CUDA_SUCCESS for OK. A status without a code gives
// CUDA_ERROR_OUT_OF_MEMORY for kResourceExhausted, CUDA_ERROR_TIMEOUT for kDeadlineExceeded,
// CUDA_ERROR_OPERATING_SYSTEM for kDataLoss (a disk lost bytes), and CUDA_ERROR_UNKNOWN for all other codes.
CUresult ResultOf(const absl::Status& status);
// A status with CUDA_ERROR_ILLEGAL_STATE: the request is impossible in the present state. `code` is
// kUnavailable where that state passes by itself.
absl::Status IllegalState(const std::string& words,
                          absl::StatusCode code = absl::StatusCode::kFailedPrecondition);
// The same status with the same driver's code, and `words` as its message.
absl::Status WithText(const absl::Status& status, const std::string& words);

// Makes `context` current for a scope and sets the thread's capture mode to RELAXED; the destructor restores
// both. Our own calls inside a wrapper thus neither see a wrong device nor break a stream capture of the job.
// Belongs to one thread.
class ScopedContext {
 public:
  ScopedContext(const CudaDriver* driver, CUcontext context);
  ~ScopedContext();
  ScopedContext(const ScopedContext&) = delete;
  ScopedContext& operator=(const ScopedContext&) = delete;
  // The driver's error when the context could not be made current, else CUDA_SUCCESS. After an error, the
  // handle of a default stream does not mean the context's stream.
  CUresult entered() const { return entered_; }

 private:
  const CudaDriver* const driver_;
  bool pushed_ = false;
  CUresult entered_ = CUDA_SUCCESS;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace spillway::allocator

#endif  // SPILLWAY_ALLOCATOR_DRIVER_CUDA_DRIVER_H_
