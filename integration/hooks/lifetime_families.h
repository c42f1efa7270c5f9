// Families for things that begin or end: modules and kernels, streams, captures, contexts. They keep the
// registry of functions up to date, record where kernels come from, and report to every Residency that a
// stream is about to be destroyed or captured. They run on the thread of the call. Only a green context is
// refused, if not all blocks fit the GPU at once.

#ifndef SPILLWAY_INTEGRATION_HOOKS_LIFETIME_FAMILIES_H_
#define SPILLWAY_INTEGRATION_HOOKS_LIFETIME_FAMILIES_H_

#include <vector>

#include "integration/hooks/hook_context.h"
#include "integration/hooks/hook_families.h"
#include "integration/hooks/launch_gate.h"

namespace spillway::integration {

// Calls visit(residency) for each device that has one; does nothing before the context is published. Streams
// and captures are reported to all devices, since the handle does not show the device.
template <typename Visitor>
void ForEachResidency(HookState* state, Visitor&& visit) {
  HookContext* const context = ContextOf(state);
  if (context == nullptr) return;
  for (int device = 0; device < allocator::kMaxDevices; ++device) {
    allocator::Residency* const residency = context->Of(device);
    if (residency != nullptr) visit(residency);
  }
}

// Calls that load kernels. They may need device memory, as others do. The kernels' origin is recorded, for
// audit mode and for deny lists that name libraries. The handles of an earlier module with this handle are
// forgotten: it may have ended with its context, unseen.

// (handle, image in memory, ...). The call is inlined into the wrapper, so that the return address is the
// loader's: an image that was made at run time lies in no library, and counts as its caller's.
struct ImageLoaded {
  template <typename H, typename... Rest>
  __attribute__((always_inline)) static CUresult Call(const RowInfo&,
                                                      CUresult(CUDAAPI* real)(H*, const void*, Rest...),
                                                      H* handle, const void* image, Rest... rest) {
    const void* const caller = __builtin_return_address(0);
    HookState* const state = GetHookState();
    const CUresult result = CallWithRetry(state, kUnknownBytes, [&] { return real(handle, image, rest...); });
    if (result != CUDA_SUCCESS || handle == nullptr) return result;
    state->functions.Forget(*handle);  // those of an earlier module
    state->origins.RecordImage(*handle, image, caller);
    return result;
  }
};

// (handle, path, ...): a module or library from a file. The path names its origin, so no return address is
// needed.
struct FileLoaded {
  template <typename H, typename... Rest>
  static CUresult Call(const RowInfo&, CUresult(CUDAAPI* real)(H*, const char*, Rest...), H* handle,
                       const char* path, Rest... rest) {
    HookState* const state = GetHookState();
    const CUresult result = CallWithRetry(state, kUnknownBytes, [&] { return real(handle, path, rest...); });
    if (result != CUDA_SUCCESS || handle == nullptr) return result;
    state->functions.Forget(*handle);
    state->origins.RecordFile(*handle, path);
    return result;
  }
};

// (handle): the end of a module or a library. Its handles are dropped, since the next one may get them. The
// addresses that were copied into its globals pin nothing any more, unless the driver refuses.
struct ModuleEnd {
  template <typename H>
  static CUresult Call(const RowInfo&, CUresult(CUDAAPI* real)(H), H module) {
    GetHookState()->functions.Forget(module);
    const CUresult result = real(module);
    if (result == CUDA_SUCCESS) RecordGlobalsGone(module);
    return result;
  }
};
// Wraps calls by which a context ends, or one of its users leaves it. No handle is dropped: it may still be
// good, and one that comes back is given out anew, which one of the families below sees. The end is recorded
// on both sides of the real call, since other threads are given handles meanwhile.
struct ContextEnd {
  template <typename From>
  static CUresult Call(const RowInfo&, CUresult(CUDAAPI* real)(From), From from) {
    FunctionRegistry* const functions = &GetHookState()->functions;
    // Recorded even if the call fails: then the next handles are asked for anew without need.
    functions->RecordContextEnd();
    const CUresult result = real(from);
    functions->RecordContextEnd();
    return result;
  }
};
// cuDevicePrimaryCtxReset: the external memory on the device is gone, too.
struct DeviceReset {
  static CUresult Call(const RowInfo& row, decltype(&::cuDevicePrimaryCtxReset) real, CUdevice device) {
    const CUresult result = ContextEnd::Call(row, real, device);
    if (result == CUDA_SUCCESS) GetHookState()->external.ForgetDevice(device);
    return result;
  }
};

// Calls that give out handles of kernels. The kind of each handle, and the object that it ends with, are
// recorded before the caller has it. A launch may use a CUkernel in place of a CUfunction, and no question of
// the driver tells them apart. The code is loaded here if loading is lazy, which may need device memory.

// (handle*, from, ...): one handle of a module, a library or a kernel.
struct HandleFound {
  template <typename H, typename From, typename... Rest>
  static CUresult Call(const RowInfo&, CUresult(CUDAAPI* real)(H*, From, Rest...), H* handle, From from,
                       Rest... rest) {
    HookState* const state = GetHookState();
    const CUresult result = CallWithRetry(state, kUnknownBytes, [&] { return real(handle, from, rest...); });
    if (result == CUDA_SUCCESS && handle != nullptr) Record(&state->functions, *handle, from);
    return result;
  }
  // The registry has a function for each pair of what is given out and what it comes from, by their types.
  static void Record(FunctionRegistry* functions, CUfunction function, CUmodule module) {
    functions->RecordFunction(function, module);
  }
  static void Record(FunctionRegistry* functions, CUkernel kernel, CUlibrary library) {
    functions->RecordKernel(kernel, library);
  }
  static void Record(FunctionRegistry* functions, CUfunction function, CUkernel kernel) {
    functions->RecordFunctionOf(function, kernel);
  }
  static void Record(FunctionRegistry* functions, CUmodule module, CUlibrary library) {
    functions->RecordModuleOf(module, library);
  }
};

// (handles*, most, from): the driver fills as many places as there are kernels; the rest stay as they were.
struct HandlesFound {
  template <typename H, typename From>
  static CUresult Call(const RowInfo&, CUresult(CUDAAPI* real)(H*, unsigned int, From), H* handles,
                       unsigned int most, From from) {
    HookState* const state = GetHookState();
    const CUresult result = CallWithRetry(state, kUnknownBytes, [&] { return real(handles, most, from); });
    const unsigned int given = result == CUDA_SUCCESS && handles != nullptr ? Count(*state, from) : 0;
    for (unsigned int i = 0; i < given && i < most; ++i) {
      HandleFound::Record(&state->functions, handles[i], from);
    }
    return result;
  }

 private:
  // Returns how many kernels there are, by the driver's answer, since the call does not report how many
  // places it has filled. 0 if the driver does not answer: those handles are of unknown origin then, and
  // their launches reach every block.
  static unsigned int Count(const HookState& state, CUmodule module) {
    return Ask(state.real.Ask<Row::cuModuleGetFunctionCount>(), module);
  }
  static unsigned int Count(const HookState& state, CUlibrary library) {
    return Ask(state.real.Ask<Row::cuLibraryGetKernelCount>(), library);
  }
  template <typename Question, typename From>
  static unsigned int Ask(Question ask, From from) {
    unsigned int count = 0;
    return ask != nullptr && ask(&count, from) == CUDA_SUCCESS ? count : 0;
  }
};

// (node, parameters*): the handle of a node's kernel is given out, in the member of its kind. Its module may
// be one that no call has shown.
struct NodeKernelFound {
  template <typename Params>
  static CUresult Call(const RowInfo&, CUresult(CUDAAPI* real)(CUgraphNode, Params*), CUgraphNode node,
                       Params* params) {
    const CUresult result = real(node, params);
    if (result != CUDA_SUCCESS || params == nullptr) return result;
    RecordKernelOfNode(&GetHookState()->functions, *params);
    return result;
  }
};

// (stream): an event must cover the stream's last uses before it is destroyed. Later the driver would not
// take one, and nothing would show when a block that it used last may leave.
struct StreamEnd {
  static CUresult Call(const RowInfo&, decltype(&::cuStreamDestroy) real, CUstream stream) {
    HookState* const state = GetHookState();
    ForEachResidency(state, [&](allocator::Residency* residency) { residency->OnStreamDestroy(stream); });
    return real(stream);
  }
};

// Wraps calls that make a context beside the primary one, which may become current. Each launch asks the
// driver from now on which is current, since the handle of a default stream does not show it. This is never
// taken back.
struct ContextMade {
  template <typename... A>
  static CUresult Call(const RowInfo&, CUresult(CUDAAPI* real)(A...), A... args) {
    HookState* const state = GetHookState();
    if (state != nullptr) state->other_contexts.store(true);
    return CallWithRetry(state, kUnknownBytes, [&] { return real(args...); });
  }
};
// A green context may be current to one thread at a time, so the device's thread cannot follow its default
// stream: evictions end. The call reaches every block, and is refused if they do not fit.
struct GreenContextMade {
  template <typename... A>
  static CUresult Call(const RowInfo& row, CUresult(CUDAAPI* real)(A...), A... args) {
    if (HookState* const state = GetHookState(); state != nullptr) state->other_contexts.store(true);
    return NotFollowed::Call(row, real, args...);
  }
};

// A capture is counted before the real call, so that no captured launch is taken for a real one, and
// uncounted if the call failed.
struct CaptureBegin {
  template <typename... Rest>
  static CUresult Call(const RowInfo&, CUresult(CUDAAPI* real)(CUstream, Rest...), CUstream stream,
                       Rest... rest) {
    HookState* const state = GetHookState();
    state->captures.fetch_add(1);  // counted before it begins, since launches look at the count
    ForEachResidency(state, [&](allocator::Residency* residency) { residency->OnCaptureBegin(stream); });
    const CUresult result = real(stream, rest...);
    if (result != CUDA_SUCCESS) {
      state->captures.fetch_sub(1);
      ForEachResidency(state, [&](allocator::Residency* residency) { residency->OnCaptureEnd(stream); });
    }
    return result;
  }
};
// (stream, ..., graph, ...): the captured work is added to a graph; or, anew, its nodes are captured once
// more, in the same order, with other parameters.
template <bool kAnew>
struct CaptureInto {
  template <typename... Rest>
  static CUresult Call(const RowInfo& row, CUresult(CUDAAPI* real)(CUstream, Rest...), CUstream stream,
                       Rest... rest) {
    HookState* const state = GetHookState();
    const CUresult result = CaptureBegin::Call(row, real, stream, rest...);
    if (result != CUDA_SUCCESS) return result;
    // The id is asked for after the real call; before it there is none.
    const uint64_t capture = CaptureOf(*state, {stream, row.per_thread_default});
    const CUgraph graph = FirstOf<CUgraph>(rest...);
    // A capture into a graph that is not followed cannot be followed either.
    state->graphs.CaptureInto(capture, graph);
    if (kAnew) state->graphs.Recapture(capture, graph);
    return result;
  }
};
// (stream, ...): what is captured becomes a command list of a graphics API, whose executions nobody sees, so
// what it names must stay where it is.
struct CaptureToList {
  template <typename... Rest>
  static CUresult Call(const RowInfo& row, CUresult(CUDAAPI* real)(CUstream, Rest...), CUstream stream,
                       Rest... rest) {
    HookState* const state = GetHookState();
    const CUresult result = CaptureBegin::Call(row, real, stream, rest...);
    if (result == CUDA_SUCCESS)
      state->graphs.LoseCapture(CaptureOf(*state, {stream, row.per_thread_default}));
    return result;
  }
};
// Wraps the end of a capture: its graph names what it named. The capture is no longer counted if the driver's
// answer is that of a capture that has ended, well or invalidated. After any other answer it may go on; a
// capture that is counted although it has ended costs each launch a question.
struct CaptureEnd {
  template <typename... Rest>
  static CUresult Call(const RowInfo& row, CUresult(CUDAAPI* real)(CUstream, Rest...), CUstream stream,
                       Rest... rest) {
    HookState* const state = GetHookState();
    // The id is asked for before the real call; after it the stream has no capture.
    const uint64_t capture = CaptureOf(*state, {stream, row.per_thread_default});
    const CUresult result = real(stream, rest...);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_STREAM_CAPTURE_INVALIDATED &&
        result != CUDA_ERROR_STREAM_CAPTURE_UNJOINED) {
      return result;
    }
    state->captures.fetch_sub(1);
    ForEachResidency(state, [&](allocator::Residency* residency) { residency->OnCaptureEnd(stream); });
    // A capture that has failed names nothing any more. A command list has no graph; CaptureToList has
    // recorded it as lost.
    CUgraph* const graph = FirstOf<CUgraph*>(rest...);
    state->graphs.EndCapture(capture, result == CUDA_SUCCESS && graph != nullptr ? *graph : nullptr);
    return result;
  }
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_LIFETIME_FAMILIES_H_
