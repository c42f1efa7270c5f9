// Prefetches and discards of memory that is not managed.
#include "tests/integration/simcuda/driver_test_base.h"

namespace simcuda_test {
namespace {

class DriverPrefetchTest : public DriverTest {};

TEST_F(DriverPrefetchTest, MemoryThatIsNotManagedIsRefusedAndStaysAsItIs) {
  CUdeviceptr memory = 0;
  ASSERT_EQ(cuMemAlloc(&memory, kMiB), CUDA_SUCCESS);
  ASSERT_EQ(cuMemsetD8(memory, 7, kMiB), CUDA_SUCCESS);
  const TestStream stream(CU_STREAM_NON_BLOCKING);
  CUmemLocation here = {};
  here.type = CU_MEM_LOCATION_TYPE_DEVICE;
#if CUDA_VERSION >= 13000
  size_t bytes = kMiB, index = 0;
  EXPECT_EQ(cuMemPrefetchAsync(memory, kMiB, here, 0, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemDiscardBatchAsync(&memory, &bytes, 1, 0, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemPrefetchBatchAsync(&memory, &bytes, 1, &here, &index, 1, 0, stream),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemDiscardAndPrefetchBatchAsync(&memory, &bytes, 1, &here, &index, 1, 0, stream),
            CUDA_ERROR_INVALID_VALUE);
  here.id = 7;
  EXPECT_EQ(cuMemPrefetchAsync(memory, kMiB, here, 0, stream), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cuMemPrefetchBatchAsync(&memory, &bytes, 1, &here, &index, 1, 0, stream),
            CUDA_ERROR_INVALID_DEVICE);
#else
  EXPECT_EQ(cuMemPrefetchAsync_v2(memory, kMiB, here, 0, stream), CUDA_ERROR_INVALID_VALUE);
#endif
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(*At<unsigned char>(memory + 5), 7);
  EXPECT_EQ(cuMemFree(memory), CUDA_SUCCESS);
}

}  // namespace
}  // namespace simcuda_test
