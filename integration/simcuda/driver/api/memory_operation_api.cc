// Driver functions: stream memory operations. The functions of the first interface are NOT_SUPPORTED, as on a
// driver that was not told to allow them.
#include "integration/simcuda/driver/copies/memory_operation.h"
#include "integration/simcuda/driver/core/fail_points.h"
#include "integration/simcuda/driver/execution/context.h"

namespace simcuda {
namespace {

constexpr unsigned int kMaxOperations = 255;

CUresult DescribeWait(CUdeviceptr address, uint64_t value, unsigned int bytes, unsigned int flags,
                      MemoryOperation* operation) {
  const unsigned int compare =
      flags & ~static_cast<unsigned int>(CU_STREAM_WAIT_VALUE_FLUSH);  // nothing to flush
  if (compare > CU_STREAM_WAIT_VALUE_NOR) return CUDA_ERROR_INVALID_VALUE;
  *operation = {address, value, bytes, true, compare};
  return CUDA_SUCCESS;
}

CUresult DescribeWrite(CUdeviceptr address, uint64_t value, unsigned int bytes, unsigned int flags,
                       MemoryOperation* operation) {
  if (flags != CU_STREAM_WRITE_VALUE_DEFAULT) return CUDA_ERROR_INVALID_VALUE;
  *operation = {address, value, bytes, false, 0};
  return CUDA_SUCCESS;
}

// *some: there is something to queue; barriers and flushes are kept by the order of a stream here.
CUresult Describe(const CUstreamBatchMemOpParams& given, MemoryOperation* operation, bool* some) {
  const auto& wait = given.waitValue;
  const auto& write = given.writeValue;
  *some = true;
  switch (given.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      return DescribeWait(wait.address, wait.value, 4, wait.flags, operation);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return DescribeWait(wait.address, wait.value64, 8, wait.flags, operation);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return DescribeWrite(write.address, write.value, 4, write.flags, operation);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return DescribeWrite(write.address, write.value64, 8, write.flags, operation);
    default: *some = false;
  }
  const bool known =
      given.operation == CU_STREAM_MEM_OP_BARRIER
          ? given.memoryBarrier.flags <= CU_STREAM_MEMORY_BARRIER_TYPE_GPU
          : given.operation == CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES && given.flushRemoteWrites.flags == 0;
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

template <Form kForm, unsigned int kBytes>
CUresult Wait(CUstream handle, CUdeviceptr address, uint64_t value, unsigned int flags) {
  Stream* stream = nullptr;
  MemoryOperation operation;
  if (CUresult result = EnterStream(handle, kForm, &stream); result != CUDA_SUCCESS) return result;
  if (CUresult result = DescribeWait(address, value, kBytes, flags, &operation); result != CUDA_SUCCESS)
    return result;
  return SubmitMemoryOperations(*stream, {operation});
}

template <Form kForm, unsigned int kBytes>
CUresult Write(CUstream handle, CUdeviceptr address, uint64_t value, unsigned int flags) {
  Stream* stream = nullptr;
  MemoryOperation operation;
  if (CUresult result = EnterStream(handle, kForm, &stream); result != CUDA_SUCCESS) return result;
  if (CUresult result = DescribeWrite(address, value, kBytes, flags, &operation); result != CUDA_SUCCESS)
    return result;
  return SubmitMemoryOperations(*stream, {operation});
}

template <Form kForm>
CUresult Wait32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
  return Wait<kForm, 4>(stream, address, value, flags);
}
template <Form kForm>
CUresult Wait64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) {
  return Wait<kForm, 8>(stream, address, value, flags);
}
template <Form kForm>
CUresult Write32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags) {
  return Write<kForm, 4>(stream, address, value, flags);
}
template <Form kForm>
CUresult Write64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags) {
  return Write<kForm, 8>(stream, address, value, flags);
}

template <Form kForm>
CUresult Batch(CUstream handle, unsigned int count, const CUstreamBatchMemOpParams* given,
               unsigned int flags) {
  Stream* stream = nullptr;
  if (CUresult result = EnterStream(handle, kForm, &stream); result != CUDA_SUCCESS) return result;
  if (given == nullptr || count == 0 || count > kMaxOperations || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  std::vector<MemoryOperation> operations;
  for (unsigned int i = 0; i < count; ++i) {
    MemoryOperation operation;
    bool some = false;
    if (CUresult result = Describe(given[i], &operation, &some); result != CUDA_SUCCESS) return result;
    if (some) operations.push_back(operation);
  }
  return SubmitMemoryOperations(*stream, std::move(operations));
}

}  // namespace
}  // namespace simcuda

SIMCUDA_BOTH_FORMS(cuStreamWaitValue32_v2, _ptsz, simcuda::Wait32,
                   (CUstream s, CUdeviceptr a, cuuint32_t v, unsigned int f), (s, a, v, f))
SIMCUDA_BOTH_FORMS(cuStreamWaitValue64_v2, _ptsz, simcuda::Wait64,
                   (CUstream s, CUdeviceptr a, cuuint64_t v, unsigned int f), (s, a, v, f))
SIMCUDA_BOTH_FORMS(cuStreamWriteValue32_v2, _ptsz, simcuda::Write32,
                   (CUstream s, CUdeviceptr a, cuuint32_t v, unsigned int f), (s, a, v, f))
SIMCUDA_BOTH_FORMS(cuStreamWriteValue64_v2, _ptsz, simcuda::Write64,
                   (CUstream s, CUdeviceptr a, cuuint64_t v, unsigned int f), (s, a, v, f))
SIMCUDA_BOTH_FORMS(cuStreamBatchMemOp_v2, _ptsz, simcuda::Batch,
                   (CUstream s, unsigned int n, CUstreamBatchMemOpParams* p, unsigned int f), (s, n, p, f))
