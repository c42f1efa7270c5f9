// NativeForms: PyTorch's native allocator, called by us in the forms of 2.11 whatever the minor is. What has
// one form in all minors is reached through the arrow. What an older native does not have is answered as if
// nobody had used it. CompatAllocator and SpillwayAllocator call it, on any thread; native throws c10::Error,
// which goes to the caller.

#ifndef SPILLWAY_INTEGRATION_TORCH_NATIVE_FORMS_H_
#define SPILLWAY_INTEGRATION_TORCH_NATIVE_FORMS_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "integration/torch/compat_types.h"

namespace spillway::integration {

// A pointer and nothing else: each call is passed on at once. An #if names the minor that brought the form
// below it; beside it stands what older ones are asked, or what is answered in their place.
class NativeForms {
 public:
  explicit NativeForms(torch_cuda::CUDAAllocator* native) : native_(native) {}
  // What has one form in all minors. A member that is named below is not to be called through it.
  torch_cuda::CUDAAllocator* operator->() const { return native_; }

  // isEnabled: false once PyTorch was set to work without its cache; larger blocks are left to native then,
  // too. getMemoryFraction: 1.0 is no limit.
#if SPILLWAY_TORCH_SINCE(6)
  bool isEnabled() const { return native_->isEnabled(); }
  double getMemoryFraction(c10::DeviceIndex device) const { return native_->getMemoryFraction(device); }
#else
  bool isEnabled() const { return true; }
  double getMemoryFraction(c10::DeviceIndex) const { return 1.0; }
#endif

#if SPILLWAY_TORCH_SINCE(8)
  // kNoPool: everything that native caches. Before 2.8 there is nothing less to ask for.
  void emptyCache(PoolId pool) const { native_->emptyCache(pool); }
  // Names of the compiled regions that the thread is in, for the events of native's history.
  void pushCompileContext(std::string& text) const { native_->pushCompileContext(text); }
  void popCompileContext() const { native_->popCompileContext(); }
#else
  void emptyCache(PoolId) const { native_->emptyCache(); }
  void pushCompileContext(std::string&) const {}
  void popCompileContext() const {}
#endif

  // Makes the pool, which must not be there yet, with a first user and with memory of `allocator`. What makes
  // one of that number a second time raises. Up to 2.7 a pool cannot be given an allocator, and up to 2.10 not
  // beside expandable_segments.
#if SPILLWAY_TORCH_SINCE(11)
  static constexpr bool kMakesPools = true;
  void MakePool(c10::DeviceIndex device, PoolId pool,
                const std::shared_ptr<torch_cuda::CUDAAllocator>& allocator) const {
    native_->createOrIncrefPool(device, pool, allocator);
  }
#else
  static constexpr bool kMakesPools = false;
  void MakePool(c10::DeviceIndex, PoolId, const std::shared_ptr<torch_cuda::CUDAAllocator>&) const {}
#endif

#if SPILLWAY_TORCH_SINCE(10)
  // The text that the user has given for later events of the history; empty when there is none.
  std::string getUserMetadata() const { return native_->getUserMetadata(); }
#else
  std::string getUserMetadata() const { return ""; }
#endif

  // An older native cannot leave out its traces, before 2.8 not the other pools either. PyTorch of that minor
  // never asks it to (compat.h).
  torch_cuda::SnapshotInfo snapshot(PoolId pool, bool include_traces) const {
#if SPILLWAY_TORCH_SINCE(11)
    return native_->snapshot(pool, include_traces);
#elif SPILLWAY_TORCH_SINCE(8)
    return native_->snapshot(pool);
#else
    return native_->snapshot();
#endif
  }

  // What is dropped here an older PyTorch cannot have asked for: `clear` is of 2.8, `skip_actions` of 2.11.
  void recordHistory(bool enabled, torch_cuda::CreateContextFn recorder, size_t max_entries,
                     torch_cuda::RecordContext when, bool clear,
                     const std::vector<std::string>& skip_actions) const {
#if SPILLWAY_TORCH_SINCE(11)
    native_->recordHistory(enabled, recorder, max_entries, when, clear, skip_actions);
#elif SPILLWAY_TORCH_SINCE(8)
    native_->recordHistory(enabled, recorder, max_entries, when, clear);
#else
    native_->recordHistory(enabled, recorder, max_entries, when);
#endif
  }

 private:
  torch_cuda::CUDAAllocator* const native_;
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_TORCH_NATIVE_FORMS_H_
