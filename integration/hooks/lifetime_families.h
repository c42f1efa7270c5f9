// Families for things that begin or end: modules and kernels, streams, captures, contexts. They keep the
// registry of functions true, note where kernels come from, and report to every Residency that a stream is
// about to be destroyed or captured. They run on the thread of the call; nothing is refused.

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

// Calls that load kernels may need device memory, as others do. The kernels' origin is noted, for audit mode
// and for deny lists that name libraries.

// (handle, image in memory, ...). Inlined into the wrapper, so that the return address is that of the loader.
struct ImageLoaded {
  template <typename H, typename... Rest>
  __attribute__((always_inline)) static CUresult Call(const RowInfo&,
                                                      CUresult(CUDAAPI* real)(H*, const void*, Rest...),
                                                      H* handle, const void* image, Rest... rest) {
    const void* const caller = __builtin_return_address(0);
    HookState* const state = GetHookState();
    const CUresult result = CallWithRetry(state, kUnknownBytes, [&] { return real(handle, image, rest...); });
    if (result == CUDA_SUCCESS && handle != nullptr) state->origins.NoteImage(*handle, image, caller);
    return result;
  }
};

// (handle, path, ...): a module or library from a file.
struct FileLoaded {
  template <typename H, typename... Rest>
  static CUresult Call(const RowInfo&, CUresult(CUDAAPI* real)(H*, const char*, Rest...), H* handle,
                       const char* path, Rest... rest) {
    HookState* const state = GetHookState();
    const CUresult result = CallWithRetry(state, kUnknownBytes, [&] { return real(handle, path, rest...); });
    if (result == CUDA_SUCCESS && handle != nullptr) state->origins.NoteFile(*handle, path);
    return result;
  }
};

// A module's end drops its handles. Those of a library or a context are not known one by one, so all are
// dropped.
struct ModuleEnd {
  static CUresult Call(const RowInfo&, decltype(&::cuModuleUnload) real, CUmodule module) {
    GetHookState()->functions.DropModule(module);
    const CUresult result = real(module);
    NoteGlobalsGone(module);
    return result;
  }
};
// A context ends: all handles are dropped.
struct AllFunctionsEnd {
  template <typename H>
  static CUresult Call(const RowInfo&, CUresult(CUDAAPI* real)(H), H handle) {
    GetHookState()->functions.DropAll();
    return real(handle);
  }
};
// A library ends: all handles are dropped, and what was copied into its globals pins nothing any more.
struct LibraryEnd {
  static CUresult Call(const RowInfo&, decltype(&::cuLibraryUnload) real, CUlibrary library) {
    GetHookState()->functions.DropAll();
    const CUresult result = real(library);
    NoteGlobalsGone(library);
    return result;
  }
};
// cuDevicePrimaryCtxReset: the external memory on the device is gone as well.
struct DeviceReset {
  static CUresult Call(const RowInfo&, decltype(&::cuDevicePrimaryCtxReset) real, CUdevice device) {
    HookState* const state = GetHookState();
    state->functions.DropAll();
    const CUresult result = real(device);
    if (result == CUDA_SUCCESS) state->external.ForgetDevice(device);
    return result;
  }
};

// Calls that give out CUkernel handles: they are noted, since a launch may use one in place of a CUfunction.
struct KernelFound {
  static CUresult Call(const RowInfo&, decltype(&::cuLibraryGetKernel) real, CUkernel* kernel,
                       CUlibrary library, const char* name) {
    const CUresult result =
        CallWithRetry(GetHookState(), kUnknownBytes, [&] { return real(kernel, library, name); });
    if (result == CUDA_SUCCESS && kernel != nullptr) GetHookState()->functions.NoteKernel(*kernel);
    return result;
  }
  static CUresult Call(const RowInfo&, decltype(&::cuLibraryEnumerateKernels) real, CUkernel* kernels,
                       unsigned int count, CUlibrary library) {
    const CUresult result =
        CallWithRetry(GetHookState(), kUnknownBytes, [&] { return real(kernels, count, library); });
    for (unsigned int i = 0; result == CUDA_SUCCESS && kernels != nullptr && i < count; ++i) {
      if (kernels[i] != nullptr) GetHookState()->functions.NoteKernel(kernels[i]);
    }
    return result;
  }
};

// Before a stream is destroyed, an event must cover its last uses.
struct StreamEnd {
  static CUresult Call(const RowInfo&, decltype(&::cuStreamDestroy) real, CUstream stream) {
    HookState* const state = GetHookState();
    std::vector<PinTicket> launched;
    state->graphs.ForgetStream(stream, &launched);
    for (const PinTicket& ticket : launched) NoteTicketUse(state, ticket, stream);
    ForEachResidency(state, [&](allocator::Residency* residency) { residency->OnStreamDestroy(stream); });
    return real(stream);
  }
};

// A capture is counted before the real call, so that no captured launch is taken for a real one, and
// uncounted when the call failed.
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
// A capture ends: its pins go to the graph that it has become. The capture is no longer counted, unless the
// driver answers that the stream captured nothing.
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
    // What was captured is pinned as long as the graph exists; a capture that failed will not run. With the
    // one form that gives no graph, the pins last as long as the process.
    CUgraph* const graph = FirstOf<CUgraph*>(rest...);
    GraphPins::Ended ended;
    if (result != CUDA_SUCCESS) {
      state->graphs.EndCapture(capture, nullptr, &ended);
    } else if (graph != nullptr && *graph != nullptr) {
      state->graphs.EndCapture(capture, *graph, &ended);
    }
    EndGraphPins(state, &ended);
    return result;
  }
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_LIFETIME_FAMILIES_H_
