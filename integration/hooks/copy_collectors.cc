#include "integration/hooks/copy_collectors.h"

namespace spillway::integration {

bool IsReadableHost(const HookState& state, CUdeviceptr address) {
  const auto query = state.real.Get<Row::cuPointerGetAttribute>();
  if (query == nullptr) return false;
  unsigned int type = 0;
  const CUresult result = query(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
  // The driver does not know pageable memory: INVALID_VALUE.
  return result == CUDA_ERROR_INVALID_VALUE || (result == CUDA_SUCCESS && type == CU_MEMORYTYPE_HOST);
}

void CollectUnknownSource(Touch* touch, CUdeviceptr source, uint64_t bytes) {
  constexpr uint64_t kSmall = 64 * 1024;
  if (bytes < sizeof(uint64_t) || bytes > kSmall || source == 0 || touch->map().Contains(source)) return;
  if (IsReadableHost(*touch->state(), source)) {
    touch->PointerTable(reinterpret_cast<const void*>(source), bytes);
  }
}

}  // namespace spillway::integration
