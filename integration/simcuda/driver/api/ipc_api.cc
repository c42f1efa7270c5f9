// Driver functions: memory and events for other processes of this machine (CUDA IPC).
#include <unistd.h>

#include <cstring>

#include "integration/simcuda/driver/core/fail_points.h"
#include "integration/simcuda/driver/execution/context.h"
#include "integration/simcuda/driver/machine/driver.h"
#include "integration/simcuda/driver/memory/address_space.h"
#include "integration/simcuda/driver/memory/ipc_file.h"

using simcuda::AddressInfo;
using simcuda::AllocationKind;
using simcuda::Context;
using simcuda::GetAddressSpace;
using simcuda::IpcFile;

SIMCUDA_API CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr pointer) {
  SIMCUDA_FAIL_POINT(cuIpcGetMemHandle);
  Context* context = nullptr;
  if (CUresult result = simcuda::EnterContext(&context); result != CUDA_SUCCESS) return result;
  const AddressInfo info = GetAddressSpace().Find(pointer);
  // Mapped handles are exported by cuMemExportToShareableHandle; what came from elsewhere is not exported on.
  const bool plain =
      info.mapped && info.mapping.physical == nullptr && info.mapping.kind == AllocationKind::kPlain;
  if (handle == nullptr || !plain) return CUDA_ERROR_INVALID_VALUE;
  // The pages move into a file: nothing may be under way on them meanwhile.
  if (!GetAddressSpace().IsShared(info.mapping.start))
    static_cast<Context*>(info.mapping.context)->Synchronize();
  IpcFile file;
  if (CUresult result = GetAddressSpace().Share(info.mapping.start, &file); result != CUDA_SUCCESS)
    return result;
  *handle = {};
  std::memcpy(handle, &file, sizeof(file));
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pointer, CUipcMemHandle handle, unsigned int flags) {
  SIMCUDA_FAIL_POINT(cuIpcOpenMemHandle_v2);
  Context* context = nullptr;
  if (CUresult result = simcuda::EnterContext(&context); result != CUDA_SUCCESS) return result;
  IpcFile file;
  std::memcpy(&file, &handle, sizeof(file));
  if (pointer == nullptr || flags > CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS ||
      !simcuda::IsIpcFile(simcuda::IpcKind::kMemory, file)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // A handle cannot be opened where it was made.
  if (file.process == static_cast<uint64_t>(getpid())) return CUDA_ERROR_INVALID_CONTEXT;
  simcuda::Device* const device = simcuda::FindDevice(file.device);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  uint64_t start = 0;
  const CUresult result = GetAddressSpace().Import(file, device, context, &start);
  if (result == CUDA_SUCCESS) *pointer = start;
  return result;
}
SIMCUDA_API CUresult cuIpcOpenMemHandle(CUdeviceptr* pointer, CUipcMemHandle handle, unsigned int flags) {
  return cuIpcOpenMemHandle_v2(pointer, handle, flags);
}

SIMCUDA_API CUresult cuIpcCloseMemHandle(CUdeviceptr pointer) {
  SIMCUDA_FAIL_POINT(cuIpcCloseMemHandle);
  Context* context = nullptr;
  if (CUresult result = simcuda::EnterContext(&context); result != CUDA_SUCCESS) return result;
  simcuda::Mapping mapping;
  bool last = false;
  if (!GetAddressSpace().FindImport(pointer, &mapping, &last)) return CUDA_ERROR_INVALID_VALUE;
  if (last) static_cast<Context*>(mapping.context)->Synchronize();
  return GetAddressSpace().CloseImport(pointer);
}
