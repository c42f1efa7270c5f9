// Families for things that begin or end: modules and kernels, streams, captures, contexts. They keep the
// registry of functions true, note where kernels come from, and inform every Residency before a stream is
// lost to it. On the thread of the call; nothing is refused.

#ifndef SPILLWAY_INTEGRATION_HOOKS_LIFETIME_FAMILIES_H_
#define SPILLWAY_INTEGRATION_HOOKS_LIFETIME_FAMILIES_H_

#include <vector>

#include "integration/hooks/hook_context.h"
#include "integration/hooks/hook_families.h"
#include "integration/hooks/launch_gate.h"
#include "integration/hooks/pin_ends.h"

namespace spillway::integration {

// Calls visit(residency) for each device that has one; nothing before the context is published.
template <typename Visitor>
void ForEachResidency(HookState* state, Visitor&& visit) {
  HookContext* const context = ContextOf(state);
  if (context == nullptr) return;
  for (int device = 0; device < allocator::kMaxDevices; ++device) {
    allocator::Residency* const residency = context->Of(device);
    if (residency != nullptr) visit(residency);
  }
}

// Calls that load kernels: as any call that may want device memory, and noted where they come from, for audit
// mode and deny lists that name libraries.

// (handle, image in memory, ...). Inlined into the wrapper, whose caller is who loads the image.
struct ImageLoaded {
  template <typename H, typename... Rest>
  __attribute__((always_inline)) static CUresult Call(const RowInfo&,
                                                      CUresult(CUDAAPI* real)(H*, const void*, Rest...),
                                                      H* handle, const void* image, Rest... rest) {
    const void* const caller = __builtin_return_address(0);
    HookState* const state = GetHookState();
    const CUresult result = CallOthers(state, 0, [&] { return real(handle, image, rest...); });
    if (result == CUDA_SUCCESS && handle != nullptr) state->origins.NoteImage(*handle, image, caller);
    return result;
  }
};

// (handle, path, ...).
struct FileLoaded {
  template <typename H, typename... Rest>
  static CUresult Call(const RowInfo&, CUresult(CUDAAPI* real)(H*, const char*, Rest...), H* handle,
                       const char* path, Rest... rest) {
    HookState* const state = GetHookState();
    const CUresult result = CallOthers(state, 0, [&] { return real(handle, path, rest...); });
    if (result == CUDA_SUCCESS && handle != nullptr) state->origins.NoteFile(*handle, path);
    return result;
  }
};

// Handles die with their module; those of a library or a context are not known one by one.
struct ModuleEnd {
  static CUresult Call(const RowInfo&, decltype(&::cuModuleUnload) real, CUmodule module) {
    GetHookState()->functions.DropModule(module);
    const CUresult result = real(module);
    NoteGlobalsGone(module);
    return result;
  }
};
struct AllFunctionsEnd {
  template <typename H>
  static CUresult Call(const RowInfo&, CUresult(CUDAAPI* real)(H), H handle) {
    GetHookState()->functions.DropAll();
    return real(handle);
  }
};
struct LibraryEnd {
  static CUresult Call(const RowInfo&, decltype(&::cuLibraryUnload) real, CUlibrary library) {
    GetHookState()->functions.DropAll();
    const CUresult result = real(library);
    NoteGlobalsGone(library);
    return result;
  }
};
// cuDevicePrimaryCtxReset: what others had on the device is gone as well.
struct DeviceReset {
  static CUresult Call(const RowInfo&, decltype(&::cuDevicePrimaryCtxReset) real, CUdevice device) {
    HookState* const state = GetHookState();
    state->functions.DropAll();
    const CUresult result = real(device);
    if (result == CUDA_SUCCESS) state->foreign.ForgetDevice(device);
    return result;
  }
};

// Kernel handles, told apart from functions by where they come from.
struct KernelFound {
  static CUresult Call(const RowInfo&, decltype(&::cuLibraryGetKernel) real, CUkernel* kernel,
                       CUlibrary library, const char* name) {
    const CUresult result = CallOthers(GetHookState(), 0, [&] { return real(kernel, library, name); });
    if (result == CUDA_SUCCESS && kernel != nullptr) GetHookState()->functions.NoteKernel(*kernel);
    return result;
  }
  static CUresult Call(const RowInfo&, decltype(&::cuLibraryEnumerateKernels) real, CUkernel* kernels,
                       unsigned int count, CUlibrary library) {
    const CUresult result = CallOthers(GetHookState(), 0, [&] { return real(kernels, count, library); });
    for (unsigned int i = 0; result == CUDA_SUCCESS && kernels != nullptr && i < count; ++i) {
      if (kernels[i] != nullptr) GetHookState()->functions.NoteKernel(kernels[i]);
    }
    return result;
  }
};

// Before a stream is gone, its last uses must be covered by an event.
struct StreamEnd {
  static CUresult Call(const RowInfo&, decltype(&::cuStreamDestroy) real, CUstream stream) {
    HookState* const state = GetHookState();
    std::vector<HoldTicket> launched;
    state->graphs.ForgetStream(stream, &launched);
    for (const HoldTicket& ticket : launched) NoteHiddenUse(state, ticket, stream);
    ForEachResidency(state, [&](allocator::Residency* residency) { residency->OnStreamDestroy(stream); });
    return real(stream);
  }
};

// Counted before the real call, so that no captured launch is taken for a real one; uncounted when it failed.
struct CaptureBegin {
  template <typename... Rest>
  static CUresult Call(const RowInfo&, CUresult(CUDAAPI* real)(CUstream, Rest...), CUstream stream,
                       Rest... rest) {
    HookState* const state = GetHookState();
    state->captures.fetch_add(1);
    ForEachResidency(state, [&](allocator::Residency* residency) { residency->OnCaptureBegin(stream); });
    const CUresult result = real(stream, rest...);
    if (result != CUDA_SUCCESS) {
      state->captures.fetch_sub(1);
      ForEachResidency(state, [&](allocator::Residency* residency) { residency->OnCaptureEnd(stream); });
    }
    return result;
  }
};
struct CaptureEnd {
  template <typename... Rest>
  static CUresult Call(const RowInfo& row, CUresult(CUDAAPI* real)(CUstream, Rest...), CUstream stream,
                       Rest... rest) {
    HookState* const state = GetHookState();
    const uint64_t capture = CaptureOf(*state, {stream, row.per_thread_default});
    const CUresult result = real(stream, rest...);
    // An invalidated capture ends as well; only a stream that captured nothing leaves the count alone.
    if (result == CUDA_ERROR_ILLEGAL_STATE || result == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED ||
        result == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD || result == CUDA_ERROR_INVALID_VALUE) {
      return result;
    }
    state->captures.fetch_sub(1);
    ForEachResidency(state, [&](allocator::Residency* residency) { residency->OnCaptureEnd(stream); });
    // What was captured is held as long as the graph; a capture that comes to nothing will not run. The one
    // form that gives no graph keeps it where it is, in the process for good.
    CUgraph* const graph = FirstOf<CUgraph*>(rest...);
    GraphHolds::Ended ended;
    if (result != CUDA_SUCCESS) {
      state->graphs.EndCapture(capture, nullptr, &ended);
    } else if (graph != nullptr && *graph != nullptr) {
      state->graphs.EndCapture(capture, *graph, &ended);
    }
    EndGraphHolds(state, &ended);
    return result;
  }
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_LIFETIME_FAMILIES_H_
