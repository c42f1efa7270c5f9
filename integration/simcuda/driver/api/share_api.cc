// Driver functions: file descriptors of physical handles. They can be made, so that what an application
// exports is seen; opening them works in the process that made them, and is NOT_SUPPORTED elsewhere (the
// memory is private).
#include <sys/mman.h>
#include <unistd.h>

#include "integration/simcuda/driver/execution/context.h"
#include "integration/simcuda/driver/machine/driver.h"
#include "integration/simcuda/driver/memory/address_space.h"

namespace simcuda {
namespace {

constexpr uint64_t kTag = 0x5348415245313233;

// The content of the descriptor's file.
struct Shared {
  uint64_t tag;
  uint64_t process;
  uint64_t what;  // the physical handle
};

uint64_t ThisProcess() { return static_cast<uint64_t>(getpid()); }

}  // namespace
}  // namespace simcuda

using simcuda::GetAddressSpace;
using simcuda::Shared;

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
