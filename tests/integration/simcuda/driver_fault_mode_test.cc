// SIMCUDA_MODE=fault: a touch of unmapped memory ends the kernel or copy and fails the context, as on a GPU.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>

#include "tests/integration/simcuda/driver_test_base.h"

namespace simcuda_test {
namespace {

class DriverFaultModeTest : public DriverTest {
 protected:
  void SetUp() override { ASSERT_EQ(simcuda_set("MODE", "fault"), 0); }
};

TEST_F(DriverFaultModeTest, KernelEndsAndEveryLaterCallSaysIllegalAddress) {
  Range range(2 * kChunk);
  std::atomic<bool> went_on{false};
  std::atomic<bool> later_ran{false};
  const Kernel stray("stray", 1, [&](uint64_t* addresses) {
    *At<volatile int>(addresses[0]) = 1;
    went_on = true;
  });
  const Kernel later("later", 0, [&](uint64_t*) { later_ran = true; });
  {
    CUevent event = nullptr;  // ends with the context
    CUstream stream = nullptr;
    ASSERT_EQ(cuEventCreate(&event, CU_EVENT_DEFAULT), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    testing::internal::CaptureStderr();
    ASSERT_EQ(stray.Launch(stream, {range.start + 8}), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("nothing is mapped at offset 8"), std::string::npos) << said;
    EXPECT_NE(said.find("\"stray\""), std::string::npos) << said;
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
    EXPECT_EQ(later.Launch(stream, {}), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(cuEventRecord(event, stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    CUdeviceptr pointer = 0;
    EXPECT_EQ(cuMemAlloc(&pointer, 4096), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(Stats().missed_accesses, 1u);
    EXPECT_EQ(cuStreamDestroy(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  }
  EXPECT_FALSE(went_on);
  EXPECT_FALSE(later_ran);
  EXPECT_EQ(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  simcuda_reset_stats();
}

TEST_F(DriverFaultModeTest, QueuedWorkBehindTheFaultDoesNotRun) {
  Range range(kChunk);
  std::atomic<bool> later_ran{false};
  const Kernel stray("stray_first", 1, [](uint64_t* addresses) { *At<volatile int>(addresses[0]) = 1; });
  const Kernel later("queued_later", 0, [&](uint64_t*) { later_ran = true; });
  simcuda_hold_streams(1);
  ASSERT_EQ(stray.Launch(nullptr, {range.start}), CUDA_SUCCESS);
  ASSERT_EQ(later.Launch(nullptr, {}), CUDA_SUCCESS);
  simcuda_hold_streams(0);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_FALSE(later_ran);
  EXPECT_EQ(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);  // the range ends before TearDown
}

TEST_F(DriverFaultModeTest, CopyAndMemsetFault) {
  Range range(kChunk);
  char host[64] = {};
  EXPECT_EQ(cuMemcpyHtoD(range.start, host, sizeof(host)), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemsetD8(range.start, 1, 64), CUDA_SUCCESS);  // returns before the device has done it
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);  // the range ends before TearDown
}

TEST_F(DriverFaultModeTest, UnmapUnderAQueuedKernelBecomesItsFault) {
  Range range(kChunk);
  Chunk chunk;
  chunk.MapAt(range.start);
  const Kernel user("late_user", 1, [](uint64_t* addresses) { *At<volatile int>(addresses[0]) = 1; });
  simcuda_hold_streams(1);
  ASSERT_EQ(user.Launch(nullptr, {range.start}), CUDA_SUCCESS);
  EXPECT_EQ(cuMemUnmap(range.start, kChunk), CUDA_SUCCESS);
  simcuda_hold_streams(0);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_NE(std::strstr(simcuda_device_error(), "it was unmapped"), nullptr) << simcuda_device_error();
  EXPECT_EQ(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);  // the range ends before TearDown
}

TEST_F(DriverFaultModeTest, OtherContextsGoOn) {
  Range range(kChunk);
  const Kernel stray("stray_here", 1, [](uint64_t* addresses) { *At<volatile int>(addresses[0]) = 1; });
  ASSERT_EQ(stray.Launch(nullptr, {range.start}), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  CUcontext other = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&other, 1), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxPushCurrent(other), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(0), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxPopCurrent(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);  // the range ends before TearDown
}

using DriverFaultModeDeathTest = DriverFaultModeTest;

TEST_F(DriverFaultModeDeathTest, HostTouchStillEndsTheProcess) {
  EXPECT_EXIT(
      {
        Range range(kChunk);
        *At<volatile int>(range.start) = 1;
      },
      ::testing::KilledBySignal(SIGABRT), "was touched but is not mapped");
}

// The thread's objects are gone when exit handlers run; the driver must still answer there.
void CallFromExit() {
  CUcontext context = nullptr;
  const bool current = cuCtxGetCurrent(&context) == CUDA_SUCCESS && context != nullptr;
  const bool set = cuCtxSetCurrent(context) == CUDA_SUCCESS && cuCtxPushCurrent(context) == CUDA_SUCCESS;
  CUdeviceptr pointer = 0;
  const bool used = cuMemAlloc(&pointer, 4096) == CUDA_SUCCESS &&
                    cuStreamSynchronize(nullptr) == CUDA_SUCCESS &&
                    cuStreamSynchronize(CU_STREAM_PER_THREAD) == CUDA_SUCCESS;
  _exit(current && set && used ? 0 : 1);
}

TEST_F(DriverFaultModeDeathTest, CallsFromExitHandlersWork) {
  EXPECT_EXIT(
      {
        std::atexit(&CallFromExit);
        std::exit(2);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace simcuda_test
