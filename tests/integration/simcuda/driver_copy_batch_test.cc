// Copies in batches, of one and of three dimensions.
#include <numeric>

#include "tests/integration/simcuda/driver_test_base.h"

#if CUDA_VERSION >= 13000  // the functions' second forms

namespace simcuda_test {
namespace {

constexpr size_t kBytes = 64 << 10;

class DriverCopyBatchTest : public DriverTest {
 protected:
  void SetUp() override {
    ASSERT_EQ(cuMemAlloc(&memory_, 4 * kBytes), CUDA_SUCCESS);
    for (unsigned i = 0; i < 4; ++i)
      ASSERT_EQ(cuMemsetD8(Part(i), static_cast<unsigned char>(i + 1), kBytes), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  }
  void TearDown() override {
    DriverTest::TearDown();
    EXPECT_EQ(cuMemFree(memory_), CUDA_SUCCESS);
  }
  CUdeviceptr Part(size_t index) const { return memory_ + index * kBytes; }
  static CUmemcpyAttributes Reading(CUmemcpySrcAccessOrder order) {
    CUmemcpyAttributes attributes = {};
    attributes.srcAccessOrder = order;
    return attributes;
  }

  CUdeviceptr memory_ = 0;
  TestStream stream_{CU_STREAM_NON_BLOCKING};
};

TEST_F(DriverCopyBatchTest, AllCopiesAreDoneInStreamOrder) {
  std::vector<unsigned char> host(kBytes, 9), back(kBytes, 0);
  CUdeviceptr to[] = {Part(1), Part(3), reinterpret_cast<CUdeviceptr>(back.data())};
  CUdeviceptr from[] = {Part(0), reinterpret_cast<CUdeviceptr>(host.data()), Part(2)};
  size_t sizes[] = {kBytes, kBytes, kBytes}, indices[] = {0, 1};
  CUmemcpyAttributes attributes[] = {Reading(CU_MEMCPY_SRC_ACCESS_ORDER_STREAM),
                                     Reading(CU_MEMCPY_SRC_ACCESS_ORDER_STREAM)};
  attributes[1].flags = CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE;
  ASSERT_EQ(cuMemsetD8Async(Part(0), 7, kBytes, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyBatchAsync(to, from, sizes, 3, attributes, indices, 2, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(*At<unsigned char>(Part(1) + kBytes - 1), 7);
  EXPECT_EQ(*At<unsigned char>(Part(3)), 9);
  EXPECT_EQ(back[5], 3);
}

TEST_F(DriverCopyBatchTest, ASourceOfAnyOrderIsReadDuringTheCall) {
  for (const auto order : {CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL, CU_MEMCPY_SRC_ACCESS_ORDER_ANY}) {
    simcuda_hold_streams(1);
    ASSERT_EQ(cuMemsetD8Async(Part(0), 42, kBytes, stream_), CUDA_SUCCESS);
    uint64_t host = 1234;
    CUdeviceptr to[] = {Part(1), Part(2)}, from[] = {Part(0), reinterpret_cast<CUdeviceptr>(&host)};
    size_t sizes[] = {kBytes, sizeof(host)}, index = 0;
    CUmemcpyAttributes attributes = Reading(order);
    ASSERT_EQ(cuMemcpyBatchAsync(to, from, sizes, 2, &attributes, &index, 1, stream_), CUDA_SUCCESS);
    host = 0;
    const unsigned char before = *At<unsigned char>(Part(0));
    simcuda_hold_streams(0);
    ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
    EXPECT_EQ(*At<unsigned char>(Part(1)), before);  // not what the stream wrote before the copy
    EXPECT_EQ(*At<uint64_t>(Part(2)), 1234u);
    ASSERT_EQ(cuMemsetD8(Part(0), 1, kBytes), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  }
}

TEST_F(DriverCopyBatchTest, ABatchIsRefusedWhole) {
  CUdeviceptr to[] = {Part(1), Part(2)}, from[] = {Part(0), Part(3)};
  size_t sizes[] = {kBytes, kBytes}, indices[] = {0, 1};
  CUmemcpyAttributes attributes[] = {Reading(CU_MEMCPY_SRC_ACCESS_ORDER_STREAM),
                                     Reading(CU_MEMCPY_SRC_ACCESS_ORDER_STREAM)};
  const auto call = [&](size_t count, size_t attribute_count, CUstream stream) {
    return cuMemcpyBatchAsync(to, from, sizes, count, attributes, indices, attribute_count, stream);
  };
  EXPECT_EQ(call(2, 1, nullptr), CUDA_ERROR_INVALID_VALUE);  // the legacy stream
  EXPECT_EQ(call(2, 1, CU_STREAM_LEGACY), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(call(0, 0, stream_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(call(2, 0, stream_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(call(1, 2, stream_), CUDA_ERROR_INVALID_VALUE);
  indices[0] = 1;
  EXPECT_EQ(call(2, 1, stream_), CUDA_ERROR_INVALID_VALUE);
  indices[0] = indices[1] = 0;
  EXPECT_EQ(call(2, 2, stream_), CUDA_ERROR_INVALID_VALUE);
  indices[1] = 1;
  attributes[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
  EXPECT_EQ(call(2, 2, stream_), CUDA_ERROR_INVALID_VALUE);
  attributes[1] = Reading(CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);
  attributes[1].flags = 2;
  EXPECT_EQ(call(2, 2, stream_), CUDA_ERROR_INVALID_VALUE);
  attributes[1].flags = 0;
  from[1] = 0;
  EXPECT_EQ(call(2, 2, stream_), CUDA_ERROR_INVALID_VALUE);
  Range range(kChunk);
  from[1] = range.start;  // nothing is mapped there
  EXPECT_EQ(call(2, 2, stream_), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(*At<unsigned char>(Part(1)), 2);  // nothing was copied
}

CUDA_MEMCPY3D_BATCH_OP Pitched(CUdeviceptr to, CUdeviceptr from) {
  CUDA_MEMCPY3D_BATCH_OP operation = {};
  operation.src.type = operation.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  operation.src.op.ptr.ptr = from;
  operation.dst.op.ptr.ptr = to;
  operation.extent = {16, 3, 2};
  operation.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  return operation;
}

TEST_F(DriverCopyBatchTest, ThreeDimensionsWithRowsAndLayersOfTheirOwn) {
  std::iota(At<unsigned char>(Part(0)), At<unsigned char>(Part(0)) + 256, static_cast<unsigned char>(0));
  CUDA_MEMCPY3D_BATCH_OP operations[] = {Pitched(Part(1), Part(0)), Pitched(Part(2), Part(0))};
  operations[0].src.op.ptr.rowLength = 32;
  operations[0].src.op.ptr.layerHeight = 4;
  operations[1].dst.op.ptr.rowLength = 64;
  ASSERT_EQ(cuMemcpy3DBatchAsync(2, operations, 0, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  for (unsigned layer = 0; layer < 2; ++layer) {
    for (unsigned row = 0; row < 3; ++row) {
      EXPECT_EQ(*At<unsigned char>(Part(1) + (layer * 3 + row) * 16 + 5), layer * 128 + row * 32 + 5);
      EXPECT_EQ(*At<unsigned char>(Part(2) + (layer * 3 + row) * 64 + 5), (layer * 3 + row) * 16 + 5);
    }
  }
  EXPECT_EQ(*At<unsigned char>(Part(2) + 16), 3);  // between the rows
}

TEST_F(DriverCopyBatchTest, ThreeDimensionsAreRefusedWhole) {
  const auto refused = [&](const CUDA_MEMCPY3D_BATCH_OP& second, CUresult code) {
    CUDA_MEMCPY3D_BATCH_OP operations[] = {Pitched(Part(1), Part(0)), second};
    EXPECT_EQ(cuMemcpy3DBatchAsync(2, operations, 0, stream_), code);
  };
  CUDA_MEMCPY3D_BATCH_OP bad = Pitched(Part(2), Part(0));
  bad.extent.depth = 0;
  refused(bad, CUDA_ERROR_INVALID_VALUE);
  bad = Pitched(Part(2), Part(0));
  bad.src.op.ptr.rowLength = 8;
  refused(bad, CUDA_ERROR_INVALID_VALUE);
  bad = Pitched(Part(2), Part(0));
  bad.dst.op.ptr.layerHeight = 2;
  refused(bad, CUDA_ERROR_INVALID_VALUE);
  bad = Pitched(Part(2), Part(0));
  bad.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
  refused(bad, CUDA_ERROR_INVALID_VALUE);
  bad = Pitched(Part(2), Part(0));
  bad.dst.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
  refused(bad, CUDA_ERROR_NOT_SUPPORTED);
  CUDA_MEMCPY3D_BATCH_OP good = Pitched(Part(1), Part(0));
  EXPECT_EQ(cuMemcpy3DBatchAsync(1, &good, 1, stream_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpy3DBatchAsync(1, &good, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(*At<unsigned char>(Part(1)), 2);
}

}  // namespace
}  // namespace simcuda_test

#endif
