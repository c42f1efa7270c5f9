#include "integration/hooks/copy_access_sets.h"

namespace spillway::integration {
bool IsReadableHost(const HookState& state, CUdeviceptr address) {
  const auto query = state.real.Get<Row::cuPointerGetAttribute>();
  if (query == nullptr) return false;
  unsigned int type = 0;
  const CUresult result = query(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
  // The driver does not know pageable memory: INVALID_VALUE.
  return result == CUDA_ERROR_INVALID_VALUE || (result == CUDA_SUCCESS && type == CU_MEMORYTYPE_HOST);
}

void CollectUnknownSource(AccessSetBuilder* builder, CUdeviceptr destination, CUdeviceptr source,
                          uint64_t bytes) {
  if (bytes < sizeof(uint64_t) || bytes > AccessSetBuilder::kLargestPointerTable || source == 0 ||
      builder->map().Contains(source) || !IsReadableHost(*builder->state(), source)) {
    builder->WritesFromDevice(destination, source, bytes);
    return;
  }
  builder->WritesFromHost(destination, reinterpret_cast<const void*>(source), bytes);
}

void CollectPitchedWrite(AccessSetBuilder* builder, const PitchedPlace& to, const PitchedPlace& from,
                         uint64_t width, uint64_t rows, uint64_t layers) {
  const bool small = width * rows * layers <= AccessSetBuilder::kLargestPointerTable;
  const bool from_host = small && from.address != 0 && !builder->map().Contains(from.address) &&
                         IsReadableHost(*builder->state(), from.address);
  for (uint64_t layer = 0; layer < layers; ++layer) {
    for (uint64_t row = 0; row < rows; ++row) {
      const uint64_t destination = to.address + layer * to.layer + row * to.pitch;
      const uint64_t source = from.address + layer * from.layer + row * from.pitch;
      if (from_host) {
        builder->WritesFromHost(destination, reinterpret_cast<const void*>(source), width);
      } else {
        builder->WritesFromDevice(destination, source, width);
      }
    }
  }
}

}  // namespace spillway::integration
