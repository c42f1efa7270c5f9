// Driver functions: copies in batches, of one and of three dimensions, and copies with attributes. A batch is
// checked whole before anything is queued. Its copies have no order among them: the last one goes first.
#include "integration/simcuda/driver/copies/copy.h"
#include "integration/simcuda/driver/core/fail_points.h"
#include "integration/simcuda/driver/execution/context.h"

#if CUDA_VERSION >= 12080

namespace simcuda {
namespace {

constexpr size_t kNoCopy = SIZE_MAX;  // an error that is none of a copy

struct OneCopy {
  CopyShape shape;
  SourceOrder order = SourceOrder::kStream;
  size_t index = 0;  // in the call's list
};

// The stream of a batch, which must not be the legacy one.
template <Form kForm>
CUresult EnterBatch(CUstream handle, Stream** stream) {
  if (CUresult result = EnterStream(handle, kForm, stream); result != CUDA_SUCCESS) return result;
  return (*stream)->kind() == StreamKind::kLegacy ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult ReadOrder(CUmemcpySrcAccessOrder given, unsigned int flags, SourceOrder* order) {
  if ((flags & ~static_cast<unsigned int>(CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (given < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM || given > CU_MEMCPY_SRC_ACCESS_ORDER_ANY)
    return CUDA_ERROR_INVALID_VALUE;
  *order = given == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ? SourceOrder::kStream : SourceOrder::kAny;
  return CUDA_SUCCESS;
}

CUresult SubmitAll(Stream& stream, const std::vector<OneCopy>& copies, size_t* failed) {
  for (const OneCopy& copy : copies) {
    *failed = copy.index;
    if (CUresult result = CheckCopy(copy.shape); result != CUDA_SUCCESS) return result;
  }
  for (size_t i = copies.size(); i-- > 0;) {
    *failed = copies[i].index;
    const CUresult result = SubmitCopy(stream, copies[i].shape, CopyReturn::kAsync, copies[i].order);
    if (result != CUDA_SUCCESS) return result;
  }
  *failed = kNoCopy;
  return CUDA_SUCCESS;
}

// Which copies an attribute is for: from its index to the next one's. The first must be 0, and they must
// rise.
bool AreIndices(const size_t* indices, size_t count, size_t copies) {
  if (indices == nullptr || count == 0 || count > copies || indices[0] != 0) return false;
  for (size_t i = 1; i < count; ++i) {
    if (indices[i] <= indices[i - 1] || indices[i] >= copies) return false;
  }
  return true;
}

struct LinearBatch {
  const CUdeviceptr* destinations;
  const CUdeviceptr* sources;
  const size_t* sizes;
  size_t count;
  const CUmemcpyAttributes* attributes;
  const size_t* indices;
  size_t attribute_count;
};

template <Form kForm>
CUresult CopyLinear(const LinearBatch& batch, size_t* failed, CUstream handle) {
  Stream* stream = nullptr;
  *failed = kNoCopy;
  if (CUresult result = EnterBatch<kForm>(handle, &stream); result != CUDA_SUCCESS) return result;
  if (batch.destinations == nullptr || batch.sources == nullptr || batch.sizes == nullptr ||
      batch.attributes == nullptr || batch.count == 0 ||
      !AreIndices(batch.indices, batch.attribute_count, batch.count)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::vector<OneCopy> copies;
  size_t attribute = 0;
  for (size_t i = 0; i < batch.count; ++i) {
    if (attribute + 1 < batch.attribute_count && batch.indices[attribute + 1] == i) ++attribute;
    const CUmemcpyAttributes& given = batch.attributes[attribute];
    const uint64_t bytes = batch.sizes[i];
    OneCopy copy{{batch.destinations[i], batch.sources[i], bytes, 1, bytes, bytes}, SourceOrder::kStream, i};
    if (CUresult result = ReadOrder(given.srcAccessOrder, given.flags, &copy.order); result != CUDA_SUCCESS)
      return result;
    copies.push_back(copy);
  }
  return SubmitAll(*stream, copies, failed);
}

struct Operand {
  uint64_t address, pitch, layer;
};

// A side of a copy of three dimensions; there are no arrays here.
CUresult ReadOperand(const CUmemcpy3DOperand& given, const CUextent3D& extent, Operand* operand) {
  if (given.type != CU_MEMCPY_OPERAND_TYPE_POINTER)
    return given.type == CU_MEMCPY_OPERAND_TYPE_ARRAY ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
  const uint64_t pitch = given.op.ptr.rowLength != 0 ? given.op.ptr.rowLength : extent.width;
  const uint64_t height = given.op.ptr.layerHeight != 0 ? given.op.ptr.layerHeight : extent.height;
  if (pitch < extent.width || height < extent.height) return CUDA_ERROR_INVALID_VALUE;
  *operand = {given.op.ptr.ptr, pitch, pitch * height};
  return CUDA_SUCCESS;
}

CUresult ReadPitched(const CUDA_MEMCPY3D_BATCH_OP& given, size_t index, std::vector<OneCopy>* copies) {
  const CUextent3D& extent = given.extent;
  SourceOrder order = SourceOrder::kStream;
  Operand from = {}, to = {};
  if (extent.width == 0 || extent.height == 0 || extent.depth == 0) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = ReadOrder(given.srcAccessOrder, given.flags, &order);
  if (result == CUDA_SUCCESS) result = ReadOperand(given.src, extent, &from);
  if (result == CUDA_SUCCESS) result = ReadOperand(given.dst, extent, &to);
  for (uint64_t layer = 0; result == CUDA_SUCCESS && layer < extent.depth; ++layer) {
    copies->push_back({{to.address + layer * to.layer, from.address + layer * from.layer, extent.width,
                        extent.height, to.pitch, from.pitch},
                       order,
                       index});
  }
  return result;
}

CUresult CopyPitched(Stream& stream, const CUDA_MEMCPY3D_BATCH_OP* operations, size_t count, size_t* failed) {
  std::vector<OneCopy> copies;
  for (size_t i = 0; i < count; ++i) {
    *failed = i;
    if (CUresult result = ReadPitched(operations[i], i, &copies); result != CUDA_SUCCESS) return result;
  }
  return SubmitAll(stream, copies, failed);
}

template <Form kForm>
CUresult CopyPitchedBatch(size_t count, const CUDA_MEMCPY3D_BATCH_OP* operations, size_t* failed,
                          unsigned long long flags, CUstream handle) {
  Stream* stream = nullptr;
  *failed = kNoCopy;
  if (CUresult result = EnterBatch<kForm>(handle, &stream); result != CUDA_SUCCESS) return result;
  if (count == 0 || operations == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return CopyPitched(*stream, operations, count, failed);
}

// The first forms, which say which copy was to blame, and the second ones.
template <Form kForm>
CUresult Batch(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count,
               CUmemcpyAttributes* attributes, size_t* indices, size_t attribute_count, size_t* failed,
               CUstream stream) {
  size_t unwanted = 0;
  return CopyLinear<kForm>({to, from, sizes, count, attributes, indices, attribute_count},
                           failed != nullptr ? failed : &unwanted, stream);
}
template <Form kForm>
CUresult BatchV2(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count,
                 CUmemcpyAttributes* attributes, size_t* indices, size_t attribute_count, CUstream stream) {
  return Batch<kForm>(to, from, sizes, count, attributes, indices, attribute_count, nullptr, stream);
}
template <Form kForm>
CUresult PitchedBatch(size_t count, CUDA_MEMCPY3D_BATCH_OP* operations, size_t* failed,
                      unsigned long long flags, CUstream stream) {
  size_t unwanted = 0;
  return CopyPitchedBatch<kForm>(count, operations, failed != nullptr ? failed : &unwanted, flags, stream);
}
template <Form kForm>
CUresult PitchedBatchV2(size_t count, CUDA_MEMCPY3D_BATCH_OP* operations, unsigned long long flags,
                        CUstream stream) {
  return PitchedBatch<kForm>(count, operations, nullptr, flags, stream);
}

// One copy, on any stream.
template <Form kForm>
CUresult WithAttributes(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUmemcpyAttributes* attributes,
                        CUstream handle) {
  Stream* stream = nullptr;
  SourceOrder order = SourceOrder::kStream;
  if (CUresult result = EnterStream(handle, kForm, &stream); result != CUDA_SUCCESS) return result;
  if (attributes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = ReadOrder(attributes->srcAccessOrder, attributes->flags, &order);
  if (result != CUDA_SUCCESS) return result;
  return SubmitCopy(*stream, {to, from, bytes, 1, bytes, bytes}, CopyReturn::kAsync, order);
}
template <Form kForm>
CUresult PitchedWithAttributes(CUDA_MEMCPY3D_BATCH_OP* operation, unsigned long long flags, CUstream handle) {
  Stream* stream = nullptr;
  size_t failed = 0;
  if (CUresult result = EnterStream(handle, kForm, &stream); result != CUDA_SUCCESS) return result;
  if (operation == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return CopyPitched(*stream, operation, 1, &failed);
}

}  // namespace
}  // namespace simcuda

SIMCUDA_BOTH_FORMS(cuMemcpyBatchAsync, _ptsz, simcuda::Batch,
                   (CUdeviceptr * d, CUdeviceptr* s, size_t* b, size_t n, CUmemcpyAttributes* a, size_t* i,
                    size_t k, size_t* f, CUstream t),
                   (d, s, b, n, a, i, k, f, t))
SIMCUDA_BOTH_FORMS(cuMemcpyBatchAsync_v2, _ptsz, simcuda::BatchV2,
                   (CUdeviceptr * d, CUdeviceptr* s, size_t* b, size_t n, CUmemcpyAttributes* a, size_t* i,
                    size_t k, CUstream t),
                   (d, s, b, n, a, i, k, t))
SIMCUDA_BOTH_FORMS(cuMemcpy3DBatchAsync, _ptsz, simcuda::PitchedBatch,
                   (size_t n, CUDA_MEMCPY3D_BATCH_OP* o, size_t* f, unsigned long long g, CUstream t),
                   (n, o, f, g, t))
SIMCUDA_BOTH_FORMS(cuMemcpy3DBatchAsync_v2, _ptsz, simcuda::PitchedBatchV2,
                   (size_t n, CUDA_MEMCPY3D_BATCH_OP* o, unsigned long long g, CUstream t), (n, o, g, t))
SIMCUDA_BOTH_FORMS(cuMemcpyWithAttributesAsync, _ptsz, simcuda::WithAttributes,
                   (CUdeviceptr d, CUdeviceptr s, size_t n, CUmemcpyAttributes* a, CUstream t),
                   (d, s, n, a, t))
SIMCUDA_BOTH_FORMS(cuMemcpy3DWithAttributesAsync, _ptsz, simcuda::PitchedWithAttributes,
                   (CUDA_MEMCPY3D_BATCH_OP * o, unsigned long long g, CUstream t), (o, g, t))

#endif
