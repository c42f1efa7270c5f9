// Driver functions: prefetches and discards. They are for managed memory, of which there is none here:
// they refuse every range, as a driver does for memory of other kinds.
#include "integration/simcuda/driver/core/fail_points.h"
#include "integration/simcuda/driver/execution/context.h"
#include "integration/simcuda/driver/machine/driver.h"

namespace simcuda {
namespace {

CUresult CheckLocation(const CUmemLocation& location) {
  const bool device = location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  return device && FindDevice(location.id) == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

template <Form kForm>
CUresult Refuse(CUstream handle) {
  Stream* stream = nullptr;
  const CUresult result = EnterStream(handle, kForm, &stream);
  return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
}

template <Form kForm>
CUresult Prefetch(CUdeviceptr, size_t, CUdevice device, CUstream stream) {
  if (device != CU_DEVICE_CPU && FindDevice(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  return Refuse<kForm>(stream);
}
template <Form kForm>
CUresult PrefetchV2(CUdeviceptr, size_t, const CUmemLocation& location, CUstream stream) {
  const CUresult result = CheckLocation(location);
  return result != CUDA_SUCCESS ? result : Refuse<kForm>(stream);
}
template <Form kForm>
CUresult PrefetchBatch(const CUmemLocation* locations, size_t count, CUstream stream) {
  for (size_t i = 0; locations != nullptr && i < count; ++i) {
    if (CUresult result = CheckLocation(locations[i]); result != CUDA_SUCCESS) return result;
  }
  return Refuse<kForm>(stream);
}

}  // namespace
}  // namespace simcuda

SIMCUDA_BOTH_FORMS(cuMemPrefetchAsync, _ptsz, simcuda::Prefetch,
                   (CUdeviceptr a, size_t n, CUdevice d, CUstream s), (a, n, d, s))
SIMCUDA_BOTH_FORMS(cuMemPrefetchAsync_v2, _ptsz, simcuda::PrefetchV2,
                   (CUdeviceptr a, size_t n, CUmemLocation l, unsigned int, CUstream s), (a, n, l, s))
SIMCUDA_BOTH_FORMS(cuMemPrefetchBatchAsync, _ptsz, simcuda::PrefetchBatch,
                   (CUdeviceptr*, size_t*, size_t, CUmemLocation* l, size_t*, size_t k, unsigned long long,
                    CUstream s),
                   (l, k, s))
SIMCUDA_BOTH_FORMS(cuMemDiscardBatchAsync, _ptsz, simcuda::Refuse,
                   (CUdeviceptr*, size_t*, size_t, unsigned long long, CUstream s), (s))
SIMCUDA_BOTH_FORMS(cuMemDiscardAndPrefetchBatchAsync, _ptsz, simcuda::PrefetchBatch,
                   (CUdeviceptr*, size_t*, size_t, CUmemLocation* l, size_t*, size_t k, unsigned long long,
                    CUstream s),
                   (l, k, s))
