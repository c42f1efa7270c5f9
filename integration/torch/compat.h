// What differs between the PyTorch minors that Spillway serves (versions.txt), and nothing else: the members
// that PyTorch's allocator interface gained after 2.11, each below the minor that brought it. A minor that is
// served next adds its own group here; tests/integration/torch/virtuals_test names the members that are
// missing. Each member is native's business, and is forwarded; where a block of Spillway's may be meant, the
// derived class is asked through the hooks below. SpillwayAllocator alone uses this. PyTorch calls on any
// thread; native throws c10::Error, which goes to its caller.

#ifndef SPILLWAY_INTEGRATION_TORCH_COMPAT_H_
#define SPILLWAY_INTEGRATION_TORCH_COMPAT_H_

#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/headeronly/version.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

// Whether PyTorch 2.`minor` or a newer one is compiled against.
#define SPILLWAY_TORCH_SINCE(minor) (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= (minor))

namespace spillway::integration {

namespace torch_cuda = c10::cuda::CUDACachingAllocator;

// The allocator interface of this minor, less what all minors have in common. Any thread.
class CompatAllocator : public torch_cuda::CUDAAllocator {
 public:
  using TraceAction = c10::CachingDeviceAllocator::TraceEntry::Action;

#if SPILLWAY_TORCH_SINCE(12)
  std::shared_ptr<c10::GatheredContext> getContextForPointer(const void* pointer) override {
    return Owns(pointer) ? ContextOfOurs(pointer) : native_->getContextForPointer(pointer);
  }

  // Native calls it for its own refusals. Refusals of ours go to the observers of out-of-memory.
  void attachOomRejectionObserver(torch_cuda::OomRejectionObserver observer) override {
    native_->attachOomRejectionObserver(std::move(observer));
  }
#endif

#if SPILLWAY_TORCH_SINCE(13)
  void markCaptureBegin(c10::DeviceIndex device) override { native_->markCaptureBegin(device); }
  void markCaptureEnd(c10::DeviceIndex device) override { native_->markCaptureEnd(device); }

  // The address is one in native's expandable segments, whatever the size.
  c10::DataPtr allocateWithAddress(size_t bytes, void* address) override {
    return AdoptNative(native_->allocateWithAddress(bytes, address), bytes);
  }
#endif

#if SPILLWAY_TORCH_SINCE(14)
  bool supportsUserMetadata() override { return native_->supportsUserMetadata(); }
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

  // Hooks. `pointer` of the last two is one that Owns() has accepted.
  virtual bool Owns(const void* pointer) const = 0;
  // The stack that history kept of the block's allocation, or null.
  virtual std::shared_ptr<c10::GatheredContext> ContextOfOurs(const void* pointer) = 0;
  // Adds an event about a live block to the history; nothing when there is no such block.
  virtual void RecordForOurs(TraceAction action, const void* pointer, const std::string& metadata) = 0;
  // Gives a block that native has just handed out our deleter, and notes it in the statistics.
  virtual c10::DataPtr AdoptNative(c10::DataPtr pointer, size_t bytes) = 0;

  torch_cuda::CUDAAllocator* const native_;
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_TORCH_COMPAT_H_
