// Stream capture: calls on a capturing stream become nodes of a graph instead of work. Owns the captures in
// progress and each thread's capture mode. The rules are those of cuda.h for cuStreamBeginCapture and
// cuThreadExchangeStreamCaptureMode. Thread-safe: one lock, taken before GraphMutex. Every check is one load
// while nothing is captured anywhere.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_GRAPHS_CAPTURE_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_GRAPHS_CAPTURE_H_

#include <cstdint>
#include <vector>

#include "integration/simcuda/driver/execution/context.h"
#include "integration/simcuda/driver/execution/operation.h"
#include "integration/simcuda/driver/graphs/graph.h"

namespace simcuda {

// The place in a capture that an event stands for; capture 0: none.
struct CapturedPlace {
  uint64_t capture = 0;
  std::vector<GraphNode*> nodes;
};

struct CaptureInfo {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  uint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* dependencies = nullptr;  // valid until the stream's next operation
  const CUgraphEdgeData* edges = nullptr;
  size_t count = 0;
  bool has_edge_data = false;  // some edge is not a plain one
};

// Starts a capture; `graph` null: into a new one.
CUresult BeginCapture(Stream& stream, CUstreamCaptureMode mode, CUgraph graph,
                      const CUgraphNode* dependencies, size_t count);
// Ends the capture. *graph is null unless the result is success.
CUresult EndCapture(Stream& stream, CUgraph* graph);
CUresult GetCaptureInfo(Stream& stream, CaptureInfo* info);
// `edges`: the data of an edge from each node, or null.
CUresult UpdateCaptureDependencies(Stream& stream, const CUgraphNode* nodes, const CUgraphEdgeData* edges,
                                   size_t count, unsigned int flags);
CUresult ExchangeCaptureMode(CUstreamCaptureMode* mode);

// Every call that queues work on `stream` begins with this. *capturing: the call has to RecordOperation
// instead. An error is the call's result, and has invalidated the captures that it harmed.
CUresult EnterQueueing(Stream& stream, bool* capturing);
CUresult RecordOperation(Stream& stream, OperationPtr operation);

// For cuEventRecord and cuStreamWaitEvent. RecordPlace is called after EnterQueueing has reported that the
// stream captures.
CUresult RecordPlace(Stream& stream, CapturedPlace* place);
// *done: the wait has become part of a capture. `recorded`: the event was recorded outside captures.
CUresult WaitForPlace(Stream& stream, const CapturedPlace& place, bool recorded, bool* done);
// Checks a query of, or a wait of the host for, an event that stands for `place`.
CUresult CheckEventUse(const CapturedPlace& place);

// Check a query of, or a wait of the host for, a stream or a context.
CUresult CheckStreamUse(Stream& stream);
CUresult CheckContextUse(Context& context);
// Checks a call that may be unsafe while something is captured (allocations, frees, synchronous copies).
CUresult CheckUnsafeCall();

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_GRAPHS_CAPTURE_H_
