// Words that a stream reads or writes by itself: cuStreamWaitValue, cuStreamWriteValue and their batches,
// also as nodes that a capture records. A wait reads its word again and again on the stream's thread, until
// it is there or the context fails. No other event ends it: the end of the process does not wait for it
// (start_api.cc).
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_COPIES_MEMORY_OPERATION_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_COPIES_MEMORY_OPERATION_H_

#include <cstdint>
#include <vector>

#include "integration/simcuda/driver/execution/stream.h"

namespace simcuda {

struct MemoryOperation {
  uint64_t address = 0;
  uint64_t value = 0;
  unsigned int bytes = 4;  // 4 or 8
  bool waits = false;      // otherwise it writes
  unsigned int compare = CU_STREAM_WAIT_VALUE_GEQ;
};

// Checks all addresses, then queues the operations in their order. On a capturing stream they become one
// node.
CUresult SubmitMemoryOperations(Stream& stream, std::vector<MemoryOperation> operations);

// Returns the number of waits for a word in progress now, on all streams.
int WordsWaitedFor();

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_COPIES_MEMORY_OPERATION_H_
