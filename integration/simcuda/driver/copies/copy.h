// Copies and fills as work on a stream, and the model of the copy engines: one per direction and device, with
// a latency and a bandwidth. The bytes are moved first; then the stream sleeps until the engine would be
// done. Calls come on any thread; the copies run on their stream's.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_COPIES_COPY_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_COPIES_COPY_H_

#include <cstdint>

#include "integration/simcuda/driver/execution/context.h"
#include "integration/simcuda/driver/execution/operation.h"
#include "integration/simcuda/driver/execution/stream.h"

namespace simcuda {

// Large copies move only the first kSampleBytes of every kSampleEvery bytes if samples are enough
// (SIMCUDA_COPY_BYTES).
constexpr uint64_t kSampleEvery = 64 << 10;
constexpr uint64_t kSampleBytes = 64;

// `height` rows of `width` bytes; a linear copy has one row.
struct CopyShape {
  uint64_t destination = 0;
  uint64_t source = 0;
  uint64_t width = 0;
  uint64_t height = 1;
  uint64_t destination_pitch = 0;
  uint64_t source_pitch = 0;

  uint64_t bytes() const { return width * height; }
  uint64_t destination_extent() const { return height == 0 ? 0 : destination_pitch * (height - 1) + width; }
  uint64_t source_extent() const { return height == 0 ? 0 : source_pitch * (height - 1) + width; }
};

// The kind of memory of a range. A device range that is not completely there is bad, and is reported as that
// of a copy or the like; `what` names its role ("source").
enum class MemorySide { kDevice, kPinned, kPageable, kBad };
MemorySide MemorySideOf(uint64_t start, uint64_t size, const char* what);

// The time at which the call returns: at once if the hardware could, or when the bytes have arrived. A
// graph's copy never waits.
enum class CopyReturn { kAsync, kSync, kGraph };

// The time at which the source may be read: when the stream gets there, or any time after the call began. The
// second is done at once, since no job may count on more.
enum class SourceOrder { kStream, kAny };

// Checks the ranges, queues the copy and waits where CUDA would (sync form; pageable host memory). On a
// capturing stream the copy becomes a node.
CUresult SubmitCopy(Stream& stream, const CopyShape& shape, CopyReturn when,
                    SourceOrder order = SourceOrder::kStream);
// Returns what SubmitCopy would refuse with, for a call that must refuse all of its copies or none.
CUresult CheckCopy(const CopyShape& shape);

struct FillShape {
  uint64_t destination = 0;
  uint64_t width = 0;  // elements of a row
  uint64_t height = 1;
  uint64_t pitch = 0;  // bytes
  unsigned element_bytes = 1;
  uint32_t value = 0;

  uint64_t extent() const { return height == 0 ? 0 : pitch * (height - 1) + width * element_bytes; }
};
CUresult SubmitFill(Stream& stream, const FillShape& shape);

// A copy and a fill as nodes of a graph.
class CopyOperation : public Operation {
 public:
  explicit CopyOperation(const CopyShape& shape) : shape_(shape) {}
  CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_MEMCPY; }
  CUresult Submit(Stream& stream) const override;
  const CopyShape& shape() const { return shape_; }

 private:
  const CopyShape shape_;
};

class FillOperation : public Operation {
 public:
  explicit FillOperation(const FillShape& shape) : shape_(shape) {}
  CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_MEMSET; }
  CUresult Submit(Stream& stream) const override;
  const FillShape& shape() const { return shape_; }

 private:
  const FillShape shape_;
};

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_COPIES_COPY_H_
