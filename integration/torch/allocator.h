// SpillwayAllocator: PyTorch's CUDA allocator while Spillway runs. It wraps the native one, which keeps every
// block up to 1 MiB, and private pools (PoolMemory gives them their segments). Larger blocks come from the
// engine through the C ABI. All pointers have one deleter, which tells the two kinds apart by address. It
// owns the facts that PyTorch asks for about our blocks: ledgers, statistics, history. install.cc creates it;
// PyTorch calls it on any thread. A request that cannot be met raises c10::OutOfMemoryError, as with
// PyTorch's own allocator.

#ifndef SPILLWAY_INTEGRATION_TORCH_ALLOCATOR_H_
#define SPILLWAY_INTEGRATION_TORCH_ALLOCATOR_H_

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "integration/engine/spillway.h"
#include "integration/torch/compat.h"
#include "integration/torch/device_ledger.h"
#include "integration/torch/fork_mark.h"
#include "integration/torch/out_of_memory.h"
#include "integration/torch/pool_filters.h"
#include "integration/torch/pool_memory.h"
#include "integration/torch/trace_log.h"
#include "io/os/sync.h"

namespace spillway::integration {

class SpillwayAllocator final : public CompatAllocator {
 public:
  // Creates the one object, which is never destroyed: tensors die after static destructors.
  static SpillwayAllocator* Install(const spillway_api* api);

  // c10::Allocator
  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* destination, const void* source, size_t count) const override;

  // c10::DeviceAllocator
  bool initialized() override;
  void emptyCache(PoolId pool) override;
  using CUDAAllocator::recordStream;
  void recordStream(const c10::DataPtr& pointer, c10::cuda::CUDAStream stream) override;
  torch_stats::DeviceStats getDeviceStats(c10::DeviceIndex device) override;
  void resetAccumulatedStats(c10::DeviceIndex device) override;
  void resetPeakStats(c10::DeviceIndex device) override;
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override;

  // CUDAAllocator: blocks. The engine's and native's are distinguished by their address.
  void* raw_alloc(size_t bytes) override;
  void* raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override;
  void raw_delete(void* pointer) override;
  void init(int device_count) override;
  double getMemoryFraction(c10::DeviceIndex device) override;
  void setMemoryFraction(double fraction, c10::DeviceIndex device) override;
  void cacheInfo(c10::DeviceIndex device, size_t* largest) override;
  void* getBaseAllocation(void* pointer, size_t* bytes) override;
  torch_cuda::SnapshotInfo snapshot(PoolId pool, bool include_traces) override;

  // CUDAAllocator: private pools, all native's
  void beginAllocateToPool(c10::DeviceIndex device, PoolId pool,
                           std::function<bool(cudaStream_t)> filter) override;
  void endAllocateToPool(c10::DeviceIndex device, PoolId pool) override;
  void releasePool(c10::DeviceIndex device, PoolId pool) override;
  bool checkPoolLiveAllocations(c10::DeviceIndex device, PoolId pool,
                                const std::unordered_set<void*>& expected) override;
  std::shared_ptr<torch_cuda::AllocatorState> getCheckpointState(c10::DeviceIndex device,
                                                                 PoolId pool) override;
  torch_cuda::CheckpointDelta setCheckpointPoolState(
      c10::DeviceIndex device, std::shared_ptr<torch_cuda::AllocatorState> state) override;

  // CUDAAllocator: other processes and devices. Copies of our blocks between devices take the peer form.
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override;
  void enablePeerAccess(c10::DeviceIndex device, c10::DeviceIndex peer) override;
  cudaError_t memcpyAsync(void* destination, int destination_device, const void* source, int source_device,
                          size_t count, cudaStream_t stream, bool p2p_enabled) override;

  // CUDAAllocator: history. Native keeps its own; TraceLog keeps that of our blocks.
  bool isHistoryEnabled() override;
  void recordHistory(bool enabled, torch_cuda::CreateContextFn recorder, size_t max_entries,
                     torch_cuda::RecordContext when, bool clear,
                     const std::vector<std::string>& skip_actions) override;
  void pushCompileContext(std::string& text) override;
  void popCompileContext() override;
  void attachOutOfMemoryObserver(torch_cuda::OutOfMemoryObserver observer) override;
  void attachAllocatorTraceTracker(torch_cuda::AllocatorTraceTracker tracker) override;

  // Returns the name that torch.cuda.get_allocator_backend() shows.
  std::string name() override;

 private:
  static constexpr size_t kNoLimit = SIZE_MAX;

  SpillwayAllocator(const spillway_api* api, CUDAAllocator* native);

  static void Delete(void* pointer);  // the one deleter
  // The engine calls this before the first kernel that writes addresses into memory of native's. The memory
  // that native frees is reported to the engine from then on.
  static void ReportNativeFrees();
  void RecordNativeEvent(const torch_cuda::TraceEntry& event) const;

  // CompatAllocator. Owns() accepts the engine's blocks that PyTorch got from us. Segments of pools are
  // native's to divide.
  bool Owns(const void* pointer) const override {
    return api_->owns(pointer) != 0 && !pool_memory_.Contains(pointer);
  }
  void RefuseToShareOurs(const void* pointer) const override;
  TraceLog::Context ContextOfOurs(const void* pointer) override;
  void RecordForOurs(TraceAction action, const void* pointer, const std::string& metadata) override;
  c10::DataPtr AdoptNative(c10::DataPtr pointer, size_t bytes) override;
  bool RecordPool(c10::DeviceIndex device, PoolId pool) override { return pools_.AddUser(device, pool); }
  std::shared_ptr<CUDAAllocator> PoolAllocator(c10::DeviceIndex device) override;

  // Gives native a pool whose memory is the engine's. Returns false if native has made the pool, or will.
  bool MakePool(c10::DeviceIndex device, PoolId pool);
  // Returns whether a block of this size on this stream is to come from the engine.
  bool IsOurs(size_t bytes, c10::DeviceIndex device, cudaStream_t stream);
  // Returns null if the engine is not to be used (forked child, exit): the caller asks native then.
  void* AllocateOurs(size_t bytes, c10::DeviceIndex device, cudaStream_t stream);
  // Raises what PyTorch raises for a driver's code, or an error with the engine's text for a failure of its
  // own. `what` names the operation. Does nothing for success, or if the engine does not run.
  void CheckEngine(int result, const char* what) const;
  void Enlist(void* pointer, size_t bytes, c10::DeviceIndex device, cudaStream_t stream,
              TraceLog::Context context);
  [[noreturn]] void Refuse(size_t bytes, c10::DeviceIndex device, cudaStream_t stream,
                           TraceLog::Context context);
  void Free(void* pointer);
  c10::DataPtr Adopt(c10::DataPtr pointer) const;  // native's deleter becomes ours
  void RecordNativeAllocation(size_t bytes, c10::DeviceIndex device);
  void EmptyNativeCache(PoolId pool);
  void ReportToProfiler(void* pointer, int64_t bytes, c10::DeviceIndex device);
  DeviceLedger& LedgerOf(c10::DeviceIndex device) { return ledgers_[static_cast<size_t>(device)]; }
  spillway_device_stats EngineStats(c10::DeviceIndex device) const;
  // Reports the engine's reserved bytes and their peak, less those that native counts as its segments.
  void GetReserved(c10::DeviceIndex device, size_t* now, size_t* peak) const;

  static SpillwayAllocator* instance_;

  // Constant after construction.
  const spillway_api* const api_;
  const c10::DeleterFnPtr native_deleter_;  // of native's cached blocks
  const ForkMark fork_;                     // a child may not call the engine

  // Internally synchronized.
  std::atomic<int> device_count_{0};
  std::array<DeviceLedger, C10_COMPILE_TIME_MAX_GPUS> ledgers_;
  std::array<std::atomic<double>, C10_COMPILE_TIME_MAX_GPUS> fractions_;
  std::array<std::atomic<size_t>, C10_COMPILE_TIME_MAX_GPUS>
      limits_;  // the same in bytes; kNoLimit from 1.0 on
  PoolFilters pools_;
  PoolMemory pool_memory_;
  TraceLog trace_;

  os::Mutex mu_{os::LockRank::kRegistry};
  std::vector<torch_cuda::OutOfMemoryObserver> observers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_TORCH_ALLOCATOR_H_
