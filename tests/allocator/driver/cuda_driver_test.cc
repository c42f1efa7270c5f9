// A driver's code as a status, and back.

#include "allocator/driver/cuda_driver.h"

#include <gtest/gtest.h>

#include "tests/allocator/core_fixture.h"

namespace spillway::allocator {
namespace {

TEST(CudaDriverTest, ACodeTravelsInItsStatus) {
  const CudaDriver* const driver = CoreDevice::Driver();
  for (const CUresult code : {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_ASSERT, CUDA_ERROR_ILLEGAL_ADDRESS,
                              CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_UNKNOWN, static_cast<CUresult>(1001)}) {
    const absl::Status status = driver->ToStatus(code, "a call");
    EXPECT_EQ(ResultOf(status), code) << status;
    absl::Status copy = status;
    EXPECT_EQ(ResultOf(copy), code);
  }
  EXPECT_EQ(driver->ToStatus(CUDA_ERROR_ASSERT, "a call").code(), absl::StatusCode::kInternal);
}

TEST(CudaDriverTest, WithoutACodeOutOfMemoryIsTold) {
  EXPECT_EQ(ResultOf(absl::OkStatus()), CUDA_SUCCESS);
  EXPECT_EQ(ResultOf(CoreDevice::Driver()->ToStatus(CUDA_SUCCESS, "a call")), CUDA_SUCCESS);
  EXPECT_EQ(ResultOf(absl::ResourceExhaustedError("no memory")), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(ResultOf(absl::InternalError("a defect")), CUDA_ERROR_UNKNOWN);
}

}  // namespace
}  // namespace spillway::allocator
