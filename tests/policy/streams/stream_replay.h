// ReplayStream: a recorded job on a GPU of less memory than it has in use, in virtual time. The product's own
// tracker, planner and cursor see each launch when the host makes it; blocks, memory and links are
// MachineBlocks'. Says how much of the time the GPU was at work.

#ifndef SPILLWAY_TESTS_POLICY_STREAMS_STREAM_REPLAY_H_
#define SPILLWAY_TESTS_POLICY_STREAMS_STREAM_REPLAY_H_

#include <cstdint>

#include "policy/model/machine.h"
#include "tests/policy/streams/stream.h"

namespace spillway::policy {

struct StreamReplayOptions {
  Machine machine;           // gpu_bytes: never exceeded; the host takes whatever comes
  Nanos launch = 2'000'000;  // each launch's time on the GPU
  bool plans = true;         // false: everything on demand, least recently used first
};

struct StreamReplay {
  Nanos ideal = 0;          // of what is measured: the launches alone
  Nanos time = 0;           // what it took
  uint64_t departures = 0;  // plans that were dropped, of the whole stream
  bool stuck = false;       // nothing could go on

  double ratio() const { return static_cast<double>(ideal) / static_cast<double>(time); }
};

StreamReplay ReplayStream(const Stream& stream, const StreamReplayOptions& options);

}  // namespace spillway::policy

#endif  // SPILLWAY_TESTS_POLICY_STREAMS_STREAM_REPLAY_H_
