// Families that load kernels: as any call that may want device memory, and noted where they come from, for audit mode
// and deny lists that name libraries.

#ifndef SPILLWAY_INTEGRATION_HOOKS_MODULE_FAMILIES_H_
#define SPILLWAY_INTEGRATION_HOOKS_MODULE_FAMILIES_H_

#include "integration/hooks/hook_families.h"

namespace spillway::integration {

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

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_MODULE_FAMILIES_H_
