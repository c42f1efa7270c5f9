// Driver functions: contexts.
#include <algorithm>
#include <mutex>

#include "integration/simcuda/driver/core/fail_points.h"
#include "integration/simcuda/driver/execution/context.h"
#include "integration/simcuda/driver/execution/event.h"
#include "integration/simcuda/driver/graphs/capture.h"
#include "integration/simcuda/driver/kernels/module.h"
#include "integration/simcuda/driver/machine/driver.h"

namespace simcuda {
namespace {

std::mutex g_primary_mutex;
Context* g_primary[SIMCUDA_DEVICES_MAX] = {};  // guarded by g_primary_mutex
unsigned int g_primary_flags[SIMCUDA_DEVICES_MAX] = {};

void EndPrimary(Context* context) {
  EndModulesOf(*context);
  context->Reset();
  EndEventsOf(*context);
}

CUresult ReleasePrimary(CUdevice ordinal) {
  Device* device = nullptr;
  if (CUresult result = EnterDevice(ordinal, &device); result != CUDA_SUCCESS) return result;
  Context* last = nullptr;
  {
    std::lock_guard<std::mutex> lock(g_primary_mutex);
    Context* context = g_primary[ordinal];
    if (context == nullptr || context->retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (--context->retained == 0) last = context;
  }
  if (last != nullptr) EndPrimary(last);
  return CUDA_SUCCESS;
}

CUresult ResetPrimary(CUdevice ordinal) {
  Device* device = nullptr;
  if (CUresult result = EnterDevice(ordinal, &device); result != CUDA_SUCCESS) return result;
  Context* context = nullptr;
  {
    std::lock_guard<std::mutex> lock(g_primary_mutex);
    context = g_primary[ordinal];
    if (context != nullptr) context->retained = 0;
  }
  if (context != nullptr) EndPrimary(context);
  return CUDA_SUCCESS;
}

CUresult SetPrimaryFlags(CUdevice ordinal, unsigned int flags) {
  Device* device = nullptr;
  if (CUresult result = EnterDevice(ordinal, &device); result != CUDA_SUCCESS) return result;
  std::lock_guard<std::mutex> lock(g_primary_mutex);
  g_primary_flags[ordinal] = flags;
  if (g_primary[ordinal] != nullptr) g_primary[ordinal]->flags = flags;
  return CUDA_SUCCESS;
}

CUresult CreateContext(CUcontext* handle, unsigned int flags, CUdevice ordinal) {
  Device* device = nullptr;
  if (CUresult result = EnterDevice(ordinal, &device); result != CUDA_SUCCESS) return result;
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto* context = new Context(device, false);
  context->flags = flags;
  ContextStack().push_back(context);
  *handle = context->handle();
  return CUDA_SUCCESS;
}

CUresult DestroyContext(CUcontext handle) {
  if (!IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  Context* context = Context::FromHandle(handle);
  if (context == nullptr) return BadHandle(handle, "a CUcontext", CUDA_ERROR_INVALID_CONTEXT);
  if (context->is_primary()) return CUDA_ERROR_INVALID_CONTEXT;
  auto& stack = ContextStack();
  if (!stack.empty() && stack.back() == context) stack.pop_back();
  EndModulesOf(*context);
  context->Destroy();  // the object stays: old streams refer to it
  EndEventsOf(*context);
  return CUDA_SUCCESS;
}

CUresult PopContext(CUcontext* handle) {
  if (!IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  auto& stack = ContextStack();
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (handle != nullptr) *handle = stack.back() == nullptr ? nullptr : stack.back()->handle();
  stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult PushContext(CUcontext handle) {
  if (!IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  Context* context = Context::FromHandle(handle);
  if (context == nullptr) return BadHandle(handle, "a CUcontext", CUDA_ERROR_INVALID_CONTEXT);
  ContextStack().push_back(context);
  return CUDA_SUCCESS;
}

// The context of a handle, or the current one for null.
CUresult EnterGiven(CUcontext handle, Context** context) {
  if (!IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  *context = handle == nullptr ? CurrentContext() : Context::FromHandle(handle);
  if (*context != nullptr) return CUDA_SUCCESS;
  return handle == nullptr ? CUDA_ERROR_INVALID_CONTEXT
                           : BadHandle(handle, "a CUcontext", CUDA_ERROR_INVALID_CONTEXT);
}

CUresult SynchronizeContext(CUcontext handle) {
  Context* context = nullptr;
  if (CUresult result = EnterGiven(handle, &context); result != CUDA_SUCCESS) return result;
  if (CUresult result = CheckContextUse(*context); result != CUDA_SUCCESS) return result;
  context->Synchronize();
  return context->status();
}

}  // namespace

Context& PrimaryContext(Device& device) {
  std::lock_guard<std::mutex> lock(g_primary_mutex);
  Context*& context = g_primary[device.ordinal()];
  if (context == nullptr) {
    context = new Context(&device, true);
    context->flags = g_primary_flags[device.ordinal()];
  }
  return *context;
}

CUresult PrimaryStatus(const Device& device) {
  std::lock_guard<std::mutex> lock(g_primary_mutex);
  const Context* context = g_primary[device.ordinal()];
  return context == nullptr ? CUDA_SUCCESS : context->status();
}

}  // namespace simcuda

using simcuda::Context;
using simcuda::ContextStack;
using simcuda::CurrentContext;
using simcuda::Device;

SIMCUDA_API CUresult cuDevicePrimaryCtxRetain(CUcontext* handle, CUdevice ordinal) {
  SIMCUDA_FAIL_POINT(cuDevicePrimaryCtxRetain);
  Device* device = nullptr;
  if (CUresult result = simcuda::EnterDevice(ordinal, &device); result != CUDA_SUCCESS) return result;
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context& context = simcuda::PrimaryContext(*device);
  std::lock_guard<std::mutex> lock(simcuda::g_primary_mutex);
  ++context.retained;
  *handle = context.handle();
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned int* flags, int* active) {
  SIMCUDA_FAIL_POINT(cuDevicePrimaryCtxGetState);
  Device* device = nullptr;
  if (CUresult result = simcuda::EnterDevice(ordinal, &device); result != CUDA_SUCCESS) return result;
  std::lock_guard<std::mutex> lock(simcuda::g_primary_mutex);
  const Context* context = simcuda::g_primary[ordinal];
  if (flags != nullptr) *flags = simcuda::g_primary_flags[ordinal];
  if (active != nullptr) *active = context != nullptr && context->retained > 0 ? 1 : 0;
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  SIMCUDA_FAIL_POINT(cuDevicePrimaryCtxRelease_v2);
  return simcuda::ReleasePrimary(device);
}
SIMCUDA_API CUresult cuDevicePrimaryCtxRelease(CUdevice device) { return simcuda::ReleasePrimary(device); }
SIMCUDA_API CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) { return simcuda::ResetPrimary(device); }
SIMCUDA_API CUresult cuDevicePrimaryCtxReset(CUdevice device) { return simcuda::ResetPrimary(device); }
SIMCUDA_API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags) {
  return simcuda::SetPrimaryFlags(device, flags);
}
SIMCUDA_API CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags) {
  return simcuda::SetPrimaryFlags(device, flags);
}

SIMCUDA_API CUresult cuCtxCreate_v2(CUcontext* context, unsigned int flags, CUdevice device) {
  return simcuda::CreateContext(context, flags, device);
}
SIMCUDA_API CUresult cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam* affinity, int count,
                                    unsigned int flags, CUdevice device) {
  return count != 0 ? CUDA_ERROR_NOT_SUPPORTED : simcuda::CreateContext(context, flags, device);
}
#if CUDA_VERSION >= 12050
SIMCUDA_API CUresult cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* parameters, unsigned int flags,
                                    CUdevice device) {
  return parameters != nullptr ? CUDA_ERROR_NOT_SUPPORTED : simcuda::CreateContext(context, flags, device);
}
#endif
SIMCUDA_API CUresult cuCtxDestroy_v2(CUcontext context) { return simcuda::DestroyContext(context); }
SIMCUDA_API CUresult cuCtxDestroy(CUcontext context) { return simcuda::DestroyContext(context); }
SIMCUDA_API CUresult cuCtxPushCurrent_v2(CUcontext context) {
  SIMCUDA_FAIL_POINT(cuCtxPushCurrent_v2);
  return simcuda::PushContext(context);
}
SIMCUDA_API CUresult cuCtxPushCurrent(CUcontext context) { return simcuda::PushContext(context); }
SIMCUDA_API CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  SIMCUDA_FAIL_POINT(cuCtxPopCurrent_v2);
  return simcuda::PopContext(context);
}
SIMCUDA_API CUresult cuCtxPopCurrent(CUcontext* context) { return simcuda::PopContext(context); }

SIMCUDA_API CUresult cuCtxSetCurrent(CUcontext handle) {
  SIMCUDA_FAIL_POINT(cuCtxSetCurrent);
  if (!simcuda::IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  auto& stack = ContextStack();
  if (handle == nullptr) {
    if (!stack.empty()) stack.pop_back();
    return CUDA_SUCCESS;
  }
  Context* context = Context::FromHandle(handle);
  if (context == nullptr) return simcuda::BadHandle(handle, "a CUcontext", CUDA_ERROR_INVALID_CONTEXT);
  if (stack.empty()) {
    stack.push_back(context);
  } else {
    stack.back() = context;
  }
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuCtxGetCurrent(CUcontext* handle) {
  SIMCUDA_FAIL_POINT(cuCtxGetCurrent);
  if (!simcuda::IsAlive()) return CUDA_ERROR_NOT_INITIALIZED;
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *handle = CurrentContext() == nullptr ? nullptr : CurrentContext()->handle();
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuCtxGetDevice(CUdevice* device) {
  SIMCUDA_FAIL_POINT(cuCtxGetDevice);
  Context* context = nullptr;
  if (CUresult result = simcuda::EnterGiven(nullptr, &context); result != CUDA_SUCCESS) return result;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = context->device().ordinal();
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext handle) {
  Context* context = nullptr;
  if (CUresult result = simcuda::EnterGiven(handle, &context); result != CUDA_SUCCESS) return result;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = context->device().ordinal();
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuCtxGetFlags(unsigned int* flags) {
  Context* context = nullptr;
  if (CUresult result = simcuda::EnterGiven(nullptr, &context); result != CUDA_SUCCESS) return result;
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = context->flags;
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuCtxSetFlags(unsigned int flags) {
  Context* context = nullptr;
  if (CUresult result = simcuda::EnterGiven(nullptr, &context); result != CUDA_SUCCESS) return result;
  context->flags = flags;
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuCtxGetId(CUcontext handle, unsigned long long* id) {
  Context* context = nullptr;
  if (CUresult result = simcuda::EnterGiven(handle, &context); result != CUDA_SUCCESS) return result;
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = context->id();
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuCtxGetApiVersion(CUcontext handle, unsigned int* version) {
  Context* context = nullptr;
  if (CUresult result = simcuda::EnterGiven(handle, &context); result != CUDA_SUCCESS) return result;
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = 3020;
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuCtxGetLimit(size_t* value, CUlimit limit) {
  Context* context = nullptr;
  if (CUresult result = simcuda::EnterContext(&context); result != CUDA_SUCCESS) return result;
  if (value == nullptr || limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_INVALID_VALUE;
  *value = context->limits[limit];
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  Context* context = nullptr;
  if (CUresult result = simcuda::EnterContext(&context); result != CUDA_SUCCESS) return result;
  if (limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_INVALID_VALUE;
  context->limits[limit] = value;
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuCtxGetCacheConfig(CUfunc_cache* config) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *config = CU_FUNC_CACHE_PREFER_NONE;
  return CUDA_SUCCESS;
}
SIMCUDA_API CUresult cuCtxSetCacheConfig(CUfunc_cache config) { return CUDA_SUCCESS; }
SIMCUDA_API CUresult cuCtxResetPersistingL2Cache(void) { return CUDA_SUCCESS; }

SIMCUDA_API CUresult cuCtxSynchronize(void) {
  SIMCUDA_FAIL_POINT(cuCtxSynchronize);
  return simcuda::SynchronizeContext(nullptr);
}
SIMCUDA_API CUresult cuCtxSynchronize_v2(CUcontext context) { return simcuda::SynchronizeContext(context); }

// All devices share one address space, so access needs no switching on; what was switched is remembered for
// the errors.
SIMCUDA_API CUresult cuCtxEnablePeerAccess(CUcontext handle, unsigned int flags) {
  Context* context = nullptr;
  if (CUresult result = simcuda::EnterContext(&context); result != CUDA_SUCCESS) return result;
  Context* peer = Context::FromHandle(handle);
  if (peer == nullptr) return simcuda::BadHandle(handle, "a CUcontext", CUDA_ERROR_INVALID_CONTEXT);
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (&peer->device() == &context->device()) return CUDA_ERROR_INVALID_DEVICE;
  return context->SetPeer(peer, true) ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}
SIMCUDA_API CUresult cuCtxDisablePeerAccess(CUcontext handle) {
  Context* context = nullptr;
  if (CUresult result = simcuda::EnterContext(&context); result != CUDA_SUCCESS) return result;
  Context* peer = Context::FromHandle(handle);
  if (peer == nullptr) return simcuda::BadHandle(handle, "a CUcontext", CUDA_ERROR_INVALID_CONTEXT);
  return context->SetPeer(peer, false) ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}
