// Transfer: one Write or Read of the store on its way through a directory's queue. TransferOrder: chooses the
// waiting transfer that gets the next request. Demand reads come first, then prefetch reads, then writes. A
// class that was passed over long enough gets a turn, because writes let evictions end, and reads wait for
// the memory of evictions. Pure; TransferQueue guards it by its lock. Nothing can fail.

#ifndef SPILLWAY_IO_STORE_TRANSFER_ORDER_H_
#define SPILLWAY_IO_STORE_TRANSFER_ORDER_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "io/engine/engine.h"

namespace spillway::io {

enum class TransferClass : uint8_t { kDemandRead, kPrefetchRead, kWrite };
inline constexpr size_t kTransferClasses = 3;

struct Transfer {
  // Set by the store.
  IoOp op = IoOp::kRead;
  TransferClass transfer_class = TransferClass::kDemandRead;
  uint32_t slot = 0;    // index in the file, for Promote and CancelPrefetch
  uint64_t offset = 0;  // bytes, in the file
  uint32_t bytes = 0;
  char* data = nullptr;
  std::function<void(absl::Status)> done{};  // on the queue's thread; must not block
  // Called after a `done` with DeadlineExceeded, when the kernel has answered and no longer uses slot and
  // buffer. On the queue's thread, at most once; must not block. May be null.
  std::function<void()> answered{};
  std::shared_ptr<void> keeps{};  // lives until the kernel no longer uses the buffer
  bool retries = true;            // false: the first error counts (a probe)

  // Set by the queue.
  uint32_t submitted = 0;  // bytes cut into requests so far
  uint32_t in_flight = 0;  // requests not ended
  uint32_t given_up = 0;   // requests that ended without the kernel's answer
  bool completed = false;  // `done` was called
  absl::Status status{};   // the first error, or that a request was given up
};

class TransferOrder {
 public:
  enum class Load : uint8_t {
    kLight,
    kBusy,  // enough requests are in flight: chosen only when the other direction has none
    kFull,  // never chosen
  };
  // A class with a waiting transfer is passed over at most this many times in a row.
  static constexpr int kMaxPassedOver = 16;

  void Push(std::shared_ptr<Transfer> transfer);

  // The transfer whose next request is to be submitted; null when none waits. A transfer stays at the front
  // of its class until all its bytes are cut into requests (the caller advances `submitted`) or it has
  // failed. `load` is the load of each direction, by IoOp.
  std::shared_ptr<Transfer> Next(const std::array<Load, 2>& load = {Load::kLight, Load::kLight});

  // Moves waiting prefetch reads of `slot` behind the waiting demand reads.
  void Promote(uint32_t slot);

  // Takes out the waiting prefetch reads of `slot` that have no request submitted.
  std::deque<std::shared_ptr<Transfer>> TakeUnstartedPrefetch(uint32_t slot);

  // Takes out the writes.
  std::deque<std::shared_ptr<Transfer>> TakeWrites();

  // Takes everything out.
  std::deque<std::shared_ptr<Transfer>> TakeAll();

  bool empty() const;

 private:
  std::array<std::deque<std::shared_ptr<Transfer>>, kTransferClasses> waiting_;
  std::array<int, kTransferClasses> passed_over_{};  // turns since the class last got one
};

}  // namespace spillway::io

#endif  // SPILLWAY_IO_STORE_TRANSFER_ORDER_H_
