// Driver functions: cuGetProcAddress in both versions, and the private tables, of which we have none.
#include "integration/simcuda/driver/driver_api.h"
#include "integration/simcuda/driver/get_proc_address.h"

namespace {

CUresult LookUpFunction(const char* symbol, void** address, int version, cuuint64_t flags,
                        CUdriverProcAddressQueryResult* status) {
  constexpr cuuint64_t kKnownFlags =
      CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  if (symbol == nullptr || address == nullptr || (flags & ~kKnownFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  const simcuda::LookUp found = simcuda::FindDriverFunction(
      symbol, version, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0);
  *address = found.address;
  if (status != nullptr) {
    *status = found.address != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
              : found.name_known       ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                       : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return found.address != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // namespace

SIMCUDA_API CUresult cuGetProcAddress(const char* symbol, void** address, int version, cuuint64_t flags) {
  return LookUpFunction(symbol, address, version, flags, nullptr);
}

SIMCUDA_API CUresult cuGetProcAddress_v2(const char* symbol, void** address, int version, cuuint64_t flags,
                                         CUdriverProcAddressQueryResult* status) {
  return LookUpFunction(symbol, address, version, flags, status);
}

SIMCUDA_API CUresult cuGetExportTable(const void** table, const CUuuid* id) {
  if (table != nullptr) *table = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}
