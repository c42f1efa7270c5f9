// Stream: all that the recorder saw of one job, in order: launches with the blocks that they name,
// allocations and frees, the ends of iterations that the job marked, and what was learnt of writes. Read from
// a text, whose form README.md describes. For replays of jobs whose iterations differ.

#ifndef SPILLWAY_TESTS_POLICY_STREAMS_STREAM_H_
#define SPILLWAY_TESTS_POLICY_STREAMS_STREAM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "policy/model/units.h"
#include "policy/model/workload.h"
#include "policy/trace/trace.h"
#include "policy/trace/write_facts.h"

namespace spillway::policy {

struct Stream {
  Trace trace;
  BlockSizes sizes;
  std::vector<LaunchIndex> marks;  // launches before which the job marked the end of an iteration
  WriteFacts facts;
  Bytes peak_bytes = 0;  // of blocks that are handed out at the same time

  // What is measured: from the first mark after a third of the iterations to the last mark.
  LaunchIndex MeasuredFrom() const { return marks.at(marks.size() / 3); }
  LaunchIndex MeasuredTo() const { return marks.back(); }
};

// InvalidArgument, with the line, where it is no stream or has fewer than four marks.
absl::StatusOr<Stream> ParseStream(const std::string& text);

// What is measured as one long iteration whose launches last `launch` each: what a clairvoyant plan is made
// of.
Workload MeasuredWorkload(const Stream& stream, Nanos launch);

}  // namespace spillway::policy

#endif  // SPILLWAY_TESTS_POLICY_STREAMS_STREAM_H_
