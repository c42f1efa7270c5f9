// The differences between the PyTorch minors that Spillway serves (versions.txt), and nothing else: the
// members of PyTorch's allocator interface that not all minors have, each below the minor that brought it,
// and the older forms of those that changed. SpillwayAllocator is written for the forms of 2.11. The next
// minor that is served adds its own group here; tests/integration/torch/virtuals_test names the members that
// are missing. Calls that concern native alone are forwarded. A call that may concern a block of Spillway's
// asks the derived class through the hooks below. Only SpillwayAllocator uses this. PyTorch calls it on any
// thread; native throws c10::Error, which goes to PyTorch.

#ifndef SPILLWAY_INTEGRATION_TORCH_COMPAT_H_
#define SPILLWAY_INTEGRATION_TORCH_COMPAT_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "integration/torch/compat_types.h"
#include "integration/torch/native_forms.h"

namespace spillway::integration {

// The allocator interface of this minor, less the members that all minors share. Thread-safe.
class CompatAllocator : public torch_cuda::CUDAAllocator {
 public:
  using TraceAction = torch_cuda::TraceEntry::Action;

  // ---- Forms of 2.11 that older minors call in another form, or never.

  // A pure declaration gives SpillwayAllocator the form of 2.11 to override if this minor's interface lacks
  // it. A final member is the minor's own form. It calls the form of 2.11, and asks for nothing that the
  // minor does not know.
#if !SPILLWAY_TORCH_SINCE(6)
  virtual double getMemoryFraction(c10::DeviceIndex device) = 0;
#endif

#if !SPILLWAY_TORCH_SINCE(8)
  virtual void emptyCache(PoolId pool) = 0;
  void emptyCache() final { emptyCache(kNoPool); }
  torch_cuda::SnapshotInfo snapshot() final { return snapshot(kNoPool, true); }
  void recordHistory(bool enabled, torch_cuda::CreateContextFn recorder, size_t max_entries,
                     torch_cuda::RecordContext when) final {
    recordHistory(enabled, recorder, max_entries, when, false, {});
  }
  virtual void pushCompileContext(std::string& text) = 0;
  virtual void popCompileContext() = 0;
#elif !SPILLWAY_TORCH_SINCE(11)
  torch_cuda::SnapshotInfo snapshot(PoolId pool) final { return snapshot(pool, true); }
  void recordHistory(bool enabled, torch_cuda::CreateContextFn recorder, size_t max_entries,
                     torch_cuda::RecordContext when, bool clear) final {
    recordHistory(enabled, recorder, max_entries, when, clear, {});
  }
#endif

#if !SPILLWAY_TORCH_SINCE(10)
  // PyTorch asks the runtime itself before 2.10. Our limits and the text of our refusals ask this.
  virtual std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) = 0;
#endif

#if !SPILLWAY_TORCH_SINCE(11)
  virtual torch_cuda::SnapshotInfo snapshot(PoolId pool, bool include_traces) = 0;
  virtual void recordHistory(bool enabled, torch_cuda::CreateContextFn recorder, size_t max_entries,
                             torch_cuda::RecordContext when, bool clear,
                             const std::vector<std::string>& skip_actions) = 0;
#endif

  // ---- Members that later minors brought.

#if SPILLWAY_TORCH_SINCE(5)
  // For torch.multiprocessing. A block of ours has no memory that another process could open. PyTorch before
  // 2.5 asks for the block's base instead (kBaseIsForSharing).
  torch_cuda::ShareableHandle shareIpcHandle(void* pointer) override {
    RefuseToShareOurs(pointer);
    return native_->shareIpcHandle(pointer);
  }
  // Annotates native's history with texts that belong to no block.
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& annotation) override {
    native_->recordAnnotation(annotation);
  }
#endif

#if SPILLWAY_TORCH_SINCE(6)
  // The switch of the cache. Native keeps it, and SpillwayAllocator asks native before it takes a block.
  void enable(bool value) override { native_->enable(value); }
  bool isEnabled() const override { return native_->isEnabled(); }
  // Private pools are native's, and so is the count of their users. The call that adds a user has had three
  // forms, which stand below.
  int getPoolUseCount(c10::DeviceIndex device, PoolId pool) override {
    return native_->getPoolUseCount(device, pool);
  }
#endif

#if SPILLWAY_TORCH_SINCE(11)
  void createOrIncrefPool(c10::DeviceIndex device, PoolId pool,
                          std::shared_ptr<CUDAAllocator> allocator) override {
    const bool is_new = RecordPool(device, pool);
    if (is_new && allocator == nullptr) allocator = PoolAllocator(device);
    native_->createOrIncrefPool(device, pool, std::move(allocator));
  }
  // Sets whether native may take memory of the pool for blocks outside of it. Blocks of ours never come from
  // a pool.
  void setUseOnOOM(c10::DeviceIndex device, PoolId pool, bool use_on_oom) override {
    native_->setUseOnOOM(device, pool, use_on_oom);
  }
#elif SPILLWAY_TORCH_SINCE(8)
  void createOrIncrefPool(c10::DeviceIndex device, PoolId pool, CUDAAllocator* allocator) override {
    (void)RecordPool(device, pool);
    native_->createOrIncrefPool(device, pool, allocator);
  }
  void setUseOnOOM(c10::DeviceIndex device, PoolId pool) override { native_->setUseOnOOM(device, pool); }
#elif SPILLWAY_TORCH_SINCE(6)
  void ensureExistsAndIncrefPool(c10::DeviceIndex device, PoolId pool) override {
    (void)RecordPool(device, pool);
    native_->ensureExistsAndIncrefPool(device, pool);
  }
#endif

#if SPILLWAY_TORCH_SINCE(10)
  // Reports native's segments alone, since a block of ours is no expandable segment.
  std::vector<torch_cuda::StreamSegmentSize> getExpandableSegmentSizes(c10::DeviceIndex device) override {
    return native_->getExpandableSegmentSizes(device);
  }
  void setNoSplit(c10::DeviceIndex device, PoolId pool) override { native_->setNoSplit(device, pool); }
  // Native keeps the text. Events of ours take it from there when they are recorded.
  void setUserMetadata(const std::string& metadata) override { native_->setUserMetadata(metadata); }
  std::string getUserMetadata() override { return native_->getUserMetadata(); }
#endif

#if SPILLWAY_TORCH_SINCE(12)
  std::shared_ptr<c10::GatheredContext> getContextForPointer(const void* pointer) override {
    return Owns(pointer) ? ContextOfOurs(pointer) : native_->getContextForPointer(pointer);
  }

  // Native calls the observer for its own refusals. Refusals of ours go to the observers of out-of-memory.
  void attachOomRejectionObserver(torch_cuda::OomRejectionObserver observer) override {
    native_->attachOomRejectionObserver(std::move(observer));
  }
#endif

#if SPILLWAY_TORCH_SINCE(13)
  // PyTorch reports when a capture has really begun. For blocks of ours the runtime is asked about the stream
  // instead, at each allocation (allocator.cc).
  void markCaptureBegin(c10::DeviceIndex device) override { native_->markCaptureBegin(device); }
  void markCaptureEnd(c10::DeviceIndex device) override { native_->markCaptureEnd(device); }

  // The address is one in native's expandable segments, whatever the size.
  c10::DataPtr allocateWithAddress(size_t bytes, void* address) override {
    return AdoptNative(native_->allocateWithAddress(bytes, address), bytes);
  }
#endif

#if SPILLWAY_TORCH_SINCE(14)
  bool supportsUserMetadata() override { return native_->supportsUserMetadata(); }
  // Adds a text about a live block, as an event of its own.
  void annotateMemory(const void* pointer, const std::string& metadata) override {
    if (Owns(pointer)) {
      RecordForOurs(TraceAction::ANNOTATE, pointer, metadata);
    } else {
      native_->annotateMemory(pointer, metadata);
    }
  }
#endif

 protected:
  explicit CompatAllocator(torch_cuda::CUDAAllocator* native) : native_(native) {}

  // Hooks. The `pointer` of the last two is one that Owns() has accepted.
  virtual bool Owns(const void* pointer) const = 0;
  // Throws for a block of ours, with the alternative in its text.
  virtual void RefuseToShareOurs(const void* pointer) const = 0;
  // Returns the stack that history kept of the block's allocation, or null.
  virtual std::shared_ptr<c10::GatheredContext> ContextOfOurs(const void* pointer) = 0;
  // Adds an event about a live block to the history; does nothing if there is no such block.
  virtual void RecordForOurs(TraceAction action, const void* pointer, const std::string& metadata) = 0;
  // Gives a block that native has just handed out our deleter, and records it in the statistics.
  virtual c10::DataPtr AdoptNative(c10::DataPtr pointer, size_t bytes) = 0;
  // Counts one more user of the pool. Returns true for its first one, for whom native makes the pool.
  virtual bool RecordPool(c10::DeviceIndex device, PoolId pool) = 0;
  // Returns the allocator for a pool of the device that names none; null: native's own.
  virtual std::shared_ptr<torch_cuda::CUDAAllocator> PoolAllocator(c10::DeviceIndex device) = 0;

  // Constant after construction.
  const NativeForms native_;
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_TORCH_COMPAT_H_
