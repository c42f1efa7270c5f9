// NativeForms: PyTorch's native allocator, called by us in the forms of 2.11 whatever the minor is. A member
// with one form in all minors is reached through the arrow. A question that an older native does not know is
// answered as if nobody had used the feature. CompatAllocator and SpillwayAllocator call it, on any thread;
// native throws c10::Error, which goes to the caller.

#ifndef SPILLWAY_INTEGRATION_TORCH_NATIVE_FORMS_H_
#define SPILLWAY_INTEGRATION_TORCH_NATIVE_FORMS_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "integration/torch/compat_types.h"

namespace spillway::integration {

// This is a pointer and nothing else: each call is passed on at once. An #if names the minor that brought the
// form below it. Beside it stands the question that older ones are asked, or the answer in their place.
class NativeForms {
 public:
  explicit NativeForms(torch_cuda::CUDAAllocator* native) : native_(native) {}
  // Reaches the members that have one form in all minors. A member that is named below is not to be called
  // through it.
  torch_cuda::CUDAAllocator* operator->() const { return native_; }

  // isEnabled is false once PyTorch was set to work without its cache; larger blocks are left to native then,
  // too. getMemoryFraction: 1.0 is no limit.
#if SPILLWAY_TORCH_SINCE(6)
  bool isEnabled() const { return native_->isEnabled(); }
  double getMemoryFraction(c10::DeviceIndex device) const { return native_->getMemoryFraction(device); }
#else
  bool isEnabled() const { return true; }
  double getMemoryFraction(c10::DeviceIndex) const { return 1.0; }
#endif

#if SPILLWAY_TORCH_SINCE(8)
  // kNoPool: everything that native caches. PyTorch before 2.8 cannot ask for less.
  void emptyCache(PoolId pool) const { native_->emptyCache(pool); }
  // Names of the compiled regions that the thread is in, for the events of native's history.
  void pushCompileContext(std::string& text) const { native_->pushCompileContext(text); }
  void popCompileContext() const { native_->popCompileContext(); }
#else
  void emptyCache(PoolId) const { native_->emptyCache(); }
  void pushCompileContext(std::string&) const {}
  void popCompileContext() const {}
#endif

  // Makes the pool, which must not exist yet, with a first user and with memory of `allocator`. Making one of
  // that number a second time raises. A pool cannot be given an allocator up to 2.7, nor beside
  // expandable_segments up to 2.10.
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
  // Returns the text that the user has given for later events of the history; empty if there is none.
  std::string getUserMetadata() const { return native_->getUserMetadata(); }
#else
  std::string getUserMetadata() const { return ""; }
#endif

  // An older native cannot leave out its traces, nor, before 2.8, the other pools. PyTorch of that minor
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

  // An older PyTorch cannot have asked for the arguments that are dropped here: `clear` came with 2.8,
  // `skip_actions` with 2.11.
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
