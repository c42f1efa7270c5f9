// FaultyEngine: an IoEngine around another one that goes wrong by plan: the n-th read fails, a write is
// short, lands elsewhere, is lost, never ends. A plan is a list, or drawn from a seed, so that a failing test
// can be run again.

#ifndef SPILLWAY_TESTS_FAKES_FAULTY_ENGINE_H_
#define SPILLWAY_TESTS_FAKES_FAULTY_ENGINE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "io/engine/engine.h"

namespace spillway::io {

enum class FaultKind : uint8_t {
  kErrno,      // result -error, nothing is moved
  kShort,      // only short_bytes are moved (0: end of file)
  kTooLong,    // the result claims more than was asked
  kDelay,      // the result comes `delay` later
  kBitFlip,    // one bit of what is moved is wrong
  kMisdirect,  // moved from or to `misdirect` bytes further on
  kLost,       // a write that reports success and writes nothing
  kDuplicate,  // the result comes twice
  kNever,      // no result until Stop
};

struct Fault {
  FaultKind kind = FaultKind::kErrno;
  IoOp op = IoOp::kWrite;
  uint64_t first = 1;  // the first, second ... request of this op, as submitted
  uint64_t count = 1;  // that many in a row
  int error = 5;       // EIO
  uint32_t short_bytes = 0;
  std::chrono::nanoseconds delay{0};
  int64_t misdirect = 0;  // bytes
};

struct FaultPlan {
  std::vector<Fault> faults;  // the first that applies to a request counts
  // Besides these, each request goes wrong with this probability, in a way drawn from the seed: EIO, EAGAIN,
  // short, or late. Never a way that loses or damages bytes silently.
  double random_rate = 0;
  double duplicate_rate = 0;  // likewise, the result comes twice
  // Likewise, in a way that only a checksum finds: a bit is wrong, a write is lost, or the transfer goes to
  // the place `misdirect` bytes further on.
  double damage_rate = 0;
  int64_t misdirect = 0;
  uint64_t seed = 0;
  bool reorder = false;  // results that are due together come in an order drawn from the seed
};

// What happened; shared with the test, any thread.
struct FaultCounters {
  std::atomic<uint64_t> reads{0};
  std::atomic<uint64_t> writes{0};
  std::atomic<uint64_t> injected{0};
};

std::unique_ptr<IoEngine> MakeFaultyEngine(std::unique_ptr<IoEngine> inner, const FaultPlan& plan,
                                           std::shared_ptr<FaultCounters> counters = nullptr);

}  // namespace spillway::io

#endif  // SPILLWAY_TESTS_FAKES_FAULTY_ENGINE_H_
