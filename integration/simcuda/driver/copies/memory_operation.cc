#include "integration/simcuda/driver/copies/memory_operation.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "integration/simcuda/driver/copies/copy.h"
#include "integration/simcuda/driver/core/clock.h"
#include "integration/simcuda/driver/execution/context.h"
#include "integration/simcuda/driver/execution/faults.h"
#include "integration/simcuda/driver/execution/operation.h"
#include "integration/simcuda/driver/graphs/capture.h"

namespace simcuda {
namespace {

std::atomic<int> g_waited_for{0};

uint64_t Read(const MemoryOperation& operation) {
  if (operation.bytes == 4)
    return __atomic_load_n(reinterpret_cast<const uint32_t*>(operation.address), __ATOMIC_ACQUIRE);
  return __atomic_load_n(reinterpret_cast<const uint64_t*>(operation.address), __ATOMIC_ACQUIRE);
}

void Write(const MemoryOperation& operation) {
  if (operation.bytes == 4) {
    __atomic_store_n(reinterpret_cast<uint32_t*>(operation.address), static_cast<uint32_t>(operation.value),
                     __ATOMIC_RELEASE);
  } else {
    __atomic_store_n(reinterpret_cast<uint64_t*>(operation.address), operation.value, __ATOMIC_RELEASE);
  }
}

template <typename Word, typename Signed>
bool Holds(Word word, Word value, unsigned int compare) {
  switch (compare) {
    case CU_STREAM_WAIT_VALUE_GEQ: return static_cast<Signed>(static_cast<Word>(word - value)) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ: return word == value;
    case CU_STREAM_WAIT_VALUE_AND: return (word & value) != 0;
    default: return static_cast<Word>(~(word | value)) != 0;
  }
}

bool IsThere(const MemoryOperation& operation) {
  const uint64_t word = Read(operation);
  if (operation.bytes == 8) return Holds<uint64_t, int64_t>(word, operation.value, operation.compare);
  return Holds<uint32_t, int32_t>(static_cast<uint32_t>(word), static_cast<uint32_t>(operation.value),
                                  operation.compare);
}

class MemoryWork : public Work {
 public:
  explicit MemoryWork(const MemoryOperation& operation) : operation_(operation) {}
  bool Touches(uint64_t start, uint64_t size) const override {
    return start < operation_.address + operation_.bytes && operation_.address < start + size;
  }
  const char* name() const override { return operation_.waits ? "wait for a word" : "write of a word"; }

  void Run(Stream& stream, bool skip) override {
    if (skip) return;
    if (!operation_.waits) {
      RunGuarded(stream, [this] { Write(operation_); });
      return;
    }
    ++g_waited_for;
    bool there = false;
    const auto look = [&] { there = IsThere(operation_); };
    while (!stream.context()->failed() && RunGuarded(stream, look) && !there) SleepUntil(NowNs() + kPollNs);
    --g_waited_for;
  }

 private:
  const MemoryOperation operation_;
};

CUresult CheckPlace(const MemoryOperation& operation) {
  if (operation.address == 0 || operation.address % operation.bytes != 0) return CUDA_ERROR_INVALID_VALUE;
  const MemorySide side =
      MemorySideOf(operation.address, operation.bytes, operation.waits ? "source" : "destination");
  return side == MemorySide::kDevice || side == MemorySide::kPinned ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CheckPlaces(const std::vector<MemoryOperation>& operations) {
  for (const MemoryOperation& operation : operations) {
    if (CUresult result = CheckPlace(operation); result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult Queue(Stream& stream, const std::vector<MemoryOperation>& operations) {
  if (CUresult result = CheckPlaces(operations); result != CUDA_SUCCESS) return result;
  for (const MemoryOperation& operation : operations)
    stream.context()->Enqueue(stream, new MemoryWork(operation));
  return CUDA_SUCCESS;
}

class BatchNode : public Operation {
 public:
  explicit BatchNode(std::vector<MemoryOperation> operations) : operations_(std::move(operations)) {}
  CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP; }
  CUresult Submit(Stream& stream) const override { return Queue(stream, operations_); }

 private:
  const std::vector<MemoryOperation> operations_;
};

}  // namespace

CUresult SubmitMemoryOperations(Stream& stream, std::vector<MemoryOperation> operations) {
  bool capturing = false;
  if (CUresult result = EnterQueueing(stream, &capturing); result != CUDA_SUCCESS) return result;
  if (!capturing) return Queue(stream, operations);
  if (CUresult result = CheckPlaces(operations); result != CUDA_SUCCESS) return result;
  return RecordOperation(stream, std::make_shared<BatchNode>(std::move(operations)));
}

int WordsWaitedFor() { return g_waited_for.load(); }

}  // namespace simcuda
