// Launches on streams and in contexts of which the driver does not tell.

#include <gtest/gtest.h>

#include "tests/allocator/motion_helpers.h"

namespace spillway::allocator {
namespace {

std::atomic<CUresult> capture_answer{CUDA_SUCCESS};
CUresult FailingCapture(CUstream stream, CUstreamCaptureStatus* status) {
  if (capture_answer.load() != CUDA_SUCCESS) return capture_answer.load();
  return CoreDevice::Driver()->cuStreamIsCapturing(stream, status);
}

// What it launches may go into a graph, which is launched again without us.
TEST(LaunchesContextTest, OnAStreamOfWhichTheDriverDoesNotTellTheBlocksStay) {
  CudaDriver driver = *CoreDevice::Driver();
  driver.cuStreamIsCapturing = &FailingCapture;
  CoreSetup setup;
  setup.driver = &driver;
  CoreDevice device(setup);
  const CUstream stream = device.NewStream();
  const CUdeviceptr block = Filled(device, 5);
  device->OnCaptureBegin(stream);
  capture_answer.store(CUDA_ERROR_UNKNOWN);
  device->RecordOverlap({stream, false});
  EXPECT_EQ(device->Stats().overlapping_launches, 0u);
  EXPECT_EQ(device.Launch(stream, {block}, [](const auto&) {}), CUDA_SUCCESS);
  bool ran = false;
  EXPECT_EQ(device.Launch(
                stream, {block}, [&](const auto&) { ran = true; }, 1, CoreDevice::Way::kReachingAll),
            CUDA_ERROR_UNKNOWN);
  capture_answer.store(CUDA_SUCCESS);
  device->OnCaptureEnd(stream);
  device.Synchronize();
  EXPECT_FALSE(ran) << "a graph would reach every block";
  const TableLock lock(device->core()->table);
  EXPECT_NE(BlockAt(device, block)->pin_reasons, 0u);
}

const CUcontext kOtherContext = reinterpret_cast<CUcontext>(0x5550);
CUresult OtherContextIsRefused(CUcontext context) {
  if (context == kOtherContext) return CUDA_ERROR_UNKNOWN;
  return CoreDevice::Driver()->cuCtxPushCurrent_v2(context);
}

// A default stream is another one in every context.
TEST(LaunchesContextTest, NothingIsLaunchedInAnotherContextThanItsOwn) {
  CudaDriver driver = *CoreDevice::Driver();
  driver.cuCtxPushCurrent_v2 = &OtherContextIsRefused;
  CoreSetup setup;
  setup.driver = &driver;
  CoreDevice device(setup);
  const CUdeviceptr block = Filled(device, 5);
  AccessSet set;
  device.addresses().Collect(block, &set);
  bool called = false;
  const auto launch = [&] {
    called = true;
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(device->RunPinned(set, {nullptr, false, kOtherContext}, 1, launch), CUDA_ERROR_UNKNOWN);
  EXPECT_FALSE(called);
}

std::atomic<bool> context_fails{false};
CUresult FailingContext(CUcontext* context) {
  if (context_fails.load()) return CUDA_ERROR_UNKNOWN;
  return CoreDevice::Driver()->cuCtxGetCurrent(context);
}

TEST(LaunchesContextTest, AUseOnADefaultStreamThatIsNotKnownIsRefused) {
  CudaDriver driver = *CoreDevice::Driver();
  driver.cuCtxGetCurrent = &FailingContext;
  CoreSetup setup;
  setup.driver = &driver;
  CoreDevice device(setup);
  const CUdeviceptr block = Filled(device, 5);
  context_fails.store(true);
  EXPECT_FALSE(device->RecordStream(block, nullptr).ok());
  EXPECT_TRUE(device->RecordStream(block, device.NewStream()).ok()) << "its handle tells";
  context_fails.store(false);
  EXPECT_TRUE(device->RecordStream(block, nullptr).ok());
}

}  // namespace
}  // namespace spillway::allocator
