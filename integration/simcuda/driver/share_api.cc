// Driver functions: handles for other processes. They can be made, so that what an application exports is seen; opening
// them works in the process that made them where CUDA allows it, and is NOT_SUPPORTED elsewhere (the memory is private).
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "integration/simcuda/driver/address_space.h"
#include "integration/simcuda/driver/context.h"
#include "integration/simcuda/driver/driver.h"

namespace simcuda {
namespace {

constexpr uint64_t kTag = 0x5348415245313233;

// What a handle of either kind carries.
struct Shared {
  uint64_t tag;
  uint64_t process;
  uint64_t what;  // the allocation's address, or the physical handle
};
static_assert(sizeof(Shared) <= sizeof(CUipcMemHandle));

uint64_t ThisProcess() { return static_cast<uint64_t>(getpid()); }

}  // namespace
}  // namespace simcuda

using simcuda::AddressInfo;
using simcuda::AllocationKind;
using simcuda::GetAddressSpace;
using simcuda::Shared;

SIMCUDA_API CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr pointer) {
  simcuda::Context* context = nullptr;
  if (CUresult result = simcuda::EnterContext(&context); result != CUDA_SUCCESS) return result;
  const AddressInfo info = GetAddressSpace().Find(pointer);
  // Mapped handles are exported by cuMemExportToShareableHandle.
  const bool plain =
      info.mapped && info.mapping.physical == nullptr && info.mapping.kind == AllocationKind::kPlain;
  if (handle == nullptr || !plain) return CUDA_ERROR_INVALID_VALUE;
  const Shared shared = {simcuda::kTag, simcuda::ThisProcess(), info.mapping.start};
  *handle = {};
  std::memcpy(handle, &shared, sizeof(shared));
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pointer, CUipcMemHandle handle, unsigned int flags) {
  simcuda::Context* context = nullptr;
  if (CUresult result = simcuda::EnterContext(&context); result != CUDA_SUCCESS) return result;
  Shared shared;
  std::memcpy(&shared, &handle, sizeof(shared));
  if (pointer == nullptr || flags > CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || shared.tag != simcuda::kTag)
    return CUDA_ERROR_INVALID_VALUE;
  // A handle cannot be opened where it was made.
  return shared.process == simcuda::ThisProcess() ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_NOT_SUPPORTED;
}
SIMCUDA_API CUresult cuIpcOpenMemHandle(CUdeviceptr* pointer, CUipcMemHandle handle, unsigned int flags) {
  return cuIpcOpenMemHandle_v2(pointer, handle, flags);
}
SIMCUDA_API CUresult cuIpcCloseMemHandle(CUdeviceptr) { return CUDA_ERROR_INVALID_VALUE; }

SIMCUDA_API CUresult cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle,
                                                  CUmemAllocationHandleType type, unsigned long long flags) {
  if (CUresult result = simcuda::EnterAny(); result != CUDA_SUCCESS) return result;
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  CUmemAllocationProp properties = {};
  if (CUresult result = GetAddressSpace().GetProperties(handle, &properties); result != CUDA_SUCCESS)
    return result;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  if (properties.requestedHandleTypes != type) return CUDA_ERROR_INVALID_VALUE;
  const int descriptor = memfd_create("simcuda-handle", MFD_CLOEXEC);
  if (descriptor < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  const Shared shared = {simcuda::kTag, simcuda::ThisProcess(), handle};
  if (pwrite(descriptor, &shared, sizeof(shared), 0) != static_cast<ssize_t>(sizeof(shared))) {
    close(descriptor);
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  *static_cast<int*>(out) = descriptor;
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* os_handle,
                                                    CUmemAllocationHandleType type) {
  if (CUresult result = simcuda::EnterAny(); result != CUDA_SUCCESS) return result;
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  const int descriptor = static_cast<int>(reinterpret_cast<intptr_t>(os_handle));
  Shared shared;
  if (pread(descriptor, &shared, sizeof(shared), 0) != static_cast<ssize_t>(sizeof(shared)) ||
      shared.tag != simcuda::kTag) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (shared.process != simcuda::ThisProcess()) return CUDA_ERROR_NOT_SUPPORTED;
  const CUresult result = GetAddressSpace().RetainHandle(shared.what);
  if (result == CUDA_SUCCESS) *handle = shared.what;
  return result;
}
