// IoEngine: moves bytes between memory and open files, asynchronously. One engine serves one spill directory,
// and only the directory's thread (TransferQueue) drives it. The engine owns its ring or its worker threads,
// but not the files. It does not retry, and it does not judge results: TransferQueue compares each result
// with its request. Errors are results, never failed calls. Implementations: thread_engine.h, uring_engine.h,
// model_engine.h; for tests tests/fakes.

#ifndef SPILLWAY_IO_ENGINE_ENGINE_H_
#define SPILLWAY_IO_ENGINE_ENGINE_H_

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

namespace spillway::io {

// Offsets, lengths and addresses of direct transfers are multiples of this. No disk in use needs more.
inline constexpr uint32_t kPageBytes = 4096;

enum class IoOp : uint8_t { kRead, kWrite };

// One transfer. `buffer` stays valid, and for a write unchanged, until the result has been polled.
struct IoRequest {
  uint32_t file = 0;  // index into the files with which the engine was made
  IoOp op = IoOp::kRead;
  uint64_t offset = 0;  // bytes from the start of the file
  uint32_t length = 0;  // bytes
  void* buffer = nullptr;
  uint64_t tag = 0;  // comes back with the result; any value below 2^63
};

// The end of one transfer: the number of bytes moved (possibly fewer than requested, 0 at the end of the
// file), or a negative errno value.
struct IoResult {
  uint64_t tag = 0;
  int32_t result = 0;
};

// Errors that are not the disk's: the kernel was interrupted, was short of requests or memory, or could start
// no worker for the request (ECANCELED). The request must be submitted again.
inline bool IsInterruption(int error) {
  return error == EINTR || error == EAGAIN || error == ENOMEM || error == ECANCELED;
}

class IoEngine {
 public:
  virtual ~IoEngine() = default;

  // "threads" or "io_uring".
  virtual const char* name() const = 0;

  // The most requests that may be in flight (submitted, result not yet polled).
  virtual size_t capacity() const = 0;

  // Starts the transfers, of which at most capacity() may be in flight. Never waits for a disk and never
  // fails: a request that cannot be started gets a result with the error. The same thread calls this and
  // Poll.
  virtual void Submit(std::span<const IoRequest> requests) = 0;

  // Fills `results` from the front and returns their number. Waits until there is a result, Wake was called,
  // or `timeout` has passed; zero results are no error. Each request gets exactly one result, in any order.
  virtual size_t Poll(std::span<IoResult> results, std::chrono::nanoseconds timeout) = 0;

  // Makes the Poll under way, or else the next one, return at once. Any thread.
  virtual void Wake() = 0;

  // Ends the engine; results that were not polled are lost. Returns false when a transfer was still stuck in
  // the kernel after `timeout`: its buffer may be accessed later, and must neither be used again nor
  // unmapped. Called once, after the last Poll.
  virtual bool Stop(std::chrono::nanoseconds timeout) = 0;

  // For a forked child: closes descriptors, takes no lock, joins nothing. The caller leaks the engine
  // afterwards.
  virtual void AbandonAfterFork() {}
};

}  // namespace spillway::io

#endif  // SPILLWAY_IO_ENGINE_ENGINE_H_
