// Driver functions: cuGetProcAddress in both versions, and the private tables, of which we have none.
#include "integration/simcuda/driver/api/get_proc_address.h"
#include "integration/simcuda/driver/core/driver_api.h"

namespace {

constexpr cuuint64_t kKnownFlags =
    CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

simcuda::LookUp Find(const char* symbol, int version, cuuint64_t flags) {
  return simcuda::FindDriverFunction(symbol, version,
                                     (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0);
}

}  // namespace

// A missing function is an error in the first form alone, which then leaves the pointer as it is.
SIMCUDA_API CUresult cuGetProcAddress(const char* symbol, void** address, int version, cuuint64_t flags) {
  if (symbol == nullptr || address == nullptr || (flags & ~kKnownFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  const simcuda::LookUp found = Find(symbol, version, flags);
  if (found.address == nullptr) return CUDA_ERROR_NOT_FOUND;
  *address = found.address;
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuGetProcAddress_v2(const char* symbol, void** address, int version, cuuint64_t flags,
                                         CUdriverProcAddressQueryResult* status) {
  if (symbol == nullptr || address == nullptr || (flags & ~kKnownFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  const simcuda::LookUp found = Find(symbol, version, flags);
  *address = found.address;
  if (status != nullptr) {
    *status = found.address != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
              : found.name_known       ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                       : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuGetExportTable(const void** table, const CUuuid* id) {
  if (table != nullptr) *table = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}
