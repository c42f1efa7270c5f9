// After an error code that ends a context nothing runs any more, and every call that needs the context
// answers with the code; calls that only read what the host knows go on.
#include <atomic>
#include <cstring>
#include <map>
#include <utility>

#include "integration/simcuda/driver/core/sticky_errors.h"
#include "tests/integration/simcuda/driver_test_base.h"

namespace simcuda_test {
namespace {

class DriverStickyTest : public DriverTest, public ::testing::WithParamInterface<int> {
 protected:
  // Everything that a call may need, made while the context is well.
  void SetUp() override {
    ASSERT_EQ(cuMemAlloc(&plain_, kChunk), CUDA_SUCCESS);
    ASSERT_EQ(cuMemAddressReserve(&range_, 4 * kChunk, 0, 0, 0), CUDA_SUCCESS);
    const CUmemAllocationProp properties = DeviceMemory();
    ASSERT_EQ(cuMemCreate(&mapped_, kChunk, &properties, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuMemCreate(&loose_, kChunk, &properties, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuMemMap(range_, kChunk, 0, mapped_, 0), CUDA_SUCCESS);
    ASSERT_EQ(AllowAccess(range_, kChunk), CUDA_SUCCESS);
    ASSERT_EQ(cuMemHostAlloc(&host_, kChunk, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(cuEventCreate(&event_, CU_EVENT_DEFAULT), CUDA_SUCCESS);
    ASSERT_EQ(cuEventCreate(&spare_event_, CU_EVENT_DEFAULT), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamCreate(&spare_stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(cuEventRecord(event_, stream_), CUDA_SUCCESS);
    ASSERT_EQ(cuModuleLoadData(&module_, image_.c_str()), CUDA_SUCCESS);
  }
  void TearDown() override {
    EXPECT_EQ(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);  // frees plain_; streams, events and the module end
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(cuMemUnmap(range_, kChunk), CUDA_SUCCESS) << "a failed context kept the mapping";
    EXPECT_EQ(cuMemRelease(mapped_), CUDA_SUCCESS);
    EXPECT_EQ(cuMemRelease(loose_), CUDA_SUCCESS) << "a failed context kept the handle";
    EXPECT_EQ(cuMemAddressFree(range_, 4 * kChunk), CUDA_SUCCESS);
    EXPECT_EQ(cuMemFreeHost(host_), CUDA_SUCCESS);
    simcuda_reset_stats();
    DriverTest::TearDown();
  }

  // Calls that answer with the context's error, by name.
  std::map<std::string, CUresult> CallAll() {
    const CUmemAllocationProp properties = DeviceMemory();
    std::map<std::string, CUresult> results;
    CUdeviceptr pointer = 0;
    CUmemGenericAllocationHandle handle = 0;
    CUevent event = nullptr;
    CUstream stream = nullptr;
    CUmodule module = nullptr;
    CUlibrary library = nullptr;
    CUgraph graph = nullptr;
    void* host = nullptr;
    size_t size = 0, total = 0;
    float milliseconds = 0;
    results["launch"] = later_.Launch(stream_, {});
    results["launch legacy"] = later_.Launch(nullptr, {});
    results["cuLaunchHostFunc"] = cuLaunchHostFunc(
        stream_, [](void*) {}, nullptr);
    results["cuMemcpyHtoD"] = cuMemcpyHtoD(plain_, host_, 64);
    results["cuMemcpyDtoH"] = cuMemcpyDtoH(host_, plain_, 64);
    results["cuMemcpyDtoDAsync"] = cuMemcpyDtoDAsync(plain_, plain_ + 64, 64, stream_);
    results["cuMemcpyHtoDAsync"] = cuMemcpyHtoDAsync(plain_, host_, 64, stream_);
    results["cuMemcpyDtoHAsync"] = cuMemcpyDtoHAsync(host_, plain_, 64, stream_);
    results["cuMemsetD8"] = cuMemsetD8(plain_, 1, 64);
    results["cuMemsetD32Async"] = cuMemsetD32Async(plain_, 1, 16, stream_);
    results["cuStreamSynchronize"] = cuStreamSynchronize(stream_);
    results["cuStreamQuery"] = cuStreamQuery(stream_);
    results["cuStreamWaitEvent"] = cuStreamWaitEvent(stream_, event_, 0);
    results["cuStreamCreate"] = cuStreamCreate(&stream, 0);
    results["cuStreamBeginCapture"] = cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED);
    results["cuStreamDestroy"] = cuStreamDestroy(std::exchange(spare_stream_, nullptr));
    results["cuStreamEndCapture"] = cuStreamEndCapture(stream_, &graph);
    results["cuEventCreate"] = cuEventCreate(&event, 0);
    results["cuEventRecord"] = cuEventRecord(event_, stream_);
    results["cuEventQuery"] = cuEventQuery(event_);
    results["cuEventSynchronize"] = cuEventSynchronize(event_);
    results["cuEventElapsedTime"] = cuEventElapsedTime(&milliseconds, event_, event_);
    results["cuEventDestroy"] = cuEventDestroy(std::exchange(spare_event_, nullptr));
    results["cuCtxSynchronize"] = cuCtxSynchronize();
    results["cuMemAlloc"] = cuMemAlloc(&pointer, 4096);
    results["cuMemFree"] = cuMemFree(plain_);
    results["cuMemFree of nothing"] = cuMemFree(0);
    results["cuMemGetInfo"] = cuMemGetInfo(&size, &total);
    results["cuMemHostAlloc"] = cuMemHostAlloc(&host, 4096, 0);
    results["cuMemFreeHost"] = cuMemFreeHost(host_);
    results["cuMemHostRegister"] = cuMemHostRegister(page_, sizeof(page_), 0);
    results["cuMemCreate"] = cuMemCreate(&handle, kChunk, &properties, 0);
    results["cuMemRelease"] = cuMemRelease(loose_);
    results["cuMemAddressReserve"] = cuMemAddressReserve(&pointer, kChunk, 0, 0, 0);
    results["cuMemAddressFree"] = cuMemAddressFree(range_, 4 * kChunk);
    results["cuMemMap"] = cuMemMap(range_ + kChunk, kChunk, 0, loose_, 0);
    results["cuMemUnmap"] = cuMemUnmap(range_, kChunk);
    results["cuMemSetAccess"] = AllowAccess(range_, kChunk);
    results["cuModuleLoadData"] = cuModuleLoadData(&module, image_.c_str());
    results["cuModuleUnload"] = cuModuleUnload(module_);
    results["cuLibraryLoadData"] =
        cuLibraryLoadData(&library, image_.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0);
    return results;
  }

  std::atomic<int> ran_{0};
  const Kernel later_{"sticky_later", 0, [this](uint64_t*) { ++ran_; }};
  const std::string image_ = std::string(SIMCUDA_IMAGE_MAGIC) + "\nsticky_later\n";
  CUdeviceptr plain_ = 0, range_ = 0;
  CUmemGenericAllocationHandle mapped_ = 0, loose_ = 0;
  CUstream stream_ = nullptr, spare_stream_ = nullptr;
  CUevent event_ = nullptr, spare_event_ = nullptr;
  CUmodule module_ = nullptr;
  void* host_ = nullptr;
  alignas(4096) char page_[4096];
};

TEST_P(DriverStickyTest, EveryCallThatNeedsTheContextAnswersWithTheCode) {
  const auto code = static_cast<CUresult>(GetParam());
  const Kernel failing("sticky_failing", 0,
                       [&](uint64_t*) { simcuda_fail_device(GetParam(), "on purpose"); });
  ASSERT_EQ(failing.Launch(stream_, {}), CUDA_SUCCESS) << "the launch itself knows nothing of it";
  EXPECT_EQ(cuStreamSynchronize(stream_), code);
  EXPECT_STREQ(simcuda_device_error(), "on purpose");
  for (const auto& [call, result] : CallAll()) EXPECT_EQ(result, code) << call;
  // On a thread without a context, too.
  std::thread([&] {
    EXPECT_EQ(cuMemUnmap(range_, kChunk), code);
    EXPECT_EQ(cuEventQuery(event_), code);
  }).join();
}

TEST_P(DriverStickyTest, NothingRunsBehindIt) {
  const Kernel failing("sticky_first", 0, [&](uint64_t*) { simcuda_fail_device(GetParam(), "first"); });
  std::memset(host_, 7, 64);
  ASSERT_EQ(cuMemcpyHtoD(plain_, host_, 64), CUDA_SUCCESS);
  simcuda_reset_stats();
  simcuda_hold_streams(1);
  ASSERT_EQ(failing.Launch(stream_, {}), CUDA_SUCCESS);
  ASSERT_EQ(later_.Launch(stream_, {}), CUDA_SUCCESS);
  ASSERT_EQ(cuMemsetD8Async(plain_, 1, 64, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoHAsync(host_, plain_ + 64, 64, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(event_, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamWaitEvent(spare_stream_, event_, 0), CUDA_SUCCESS);
  ASSERT_EQ(later_.Launch(spare_stream_, {}), CUDA_SUCCESS);  // of another stream, behind it in time
  simcuda_hold_streams(0);
  EXPECT_EQ(cuCtxSynchronize(), GetParam());
  EXPECT_EQ(ran_, 0);
  EXPECT_EQ(Stats().launches, 1u);
  EXPECT_EQ(Stats().copies, 0u);
  EXPECT_EQ(Stats().memsets, 0u);
  EXPECT_EQ(static_cast<char*>(host_)[0], 7);
  EXPECT_EQ(*At<char>(plain_), 7);
  EXPECT_EQ(cuStreamDestroy(std::exchange(spare_stream_, nullptr)), GetParam());
  EXPECT_EQ(cuEventDestroy(std::exchange(spare_event_, nullptr)), GetParam());
}

TEST_P(DriverStickyTest, WhatTheHostKnowsIsStillTold) {
  ASSERT_EQ(simcuda_fail_device(GetParam(), "told"), CUDA_SUCCESS);
  EXPECT_EQ(simcuda_fail_device(CUDA_ERROR_ECC_UNCORRECTABLE, "later"), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), GetParam()) << "the first error stays";
  CUdevice device = -1;
  CUcontext context = nullptr;
  int count = 0, value = 0;
  size_t granularity = 0;
  const char* text = nullptr;
  unsigned int type = 0;
  const CUmemAllocationProp properties = DeviceMemory();
  EXPECT_EQ(cuInit(0), CUDA_SUCCESS);
  EXPECT_EQ(cuDeviceGet(&device, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuDeviceGetCount(&count), CUDA_SUCCESS);
  EXPECT_EQ(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxGetCurrent(&context), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxPushCurrent(context), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxPopCurrent(&context), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxGetDevice(&device), CUDA_SUCCESS);
  EXPECT_EQ(cuGetErrorString(static_cast<CUresult>(GetParam()), &text), CUDA_SUCCESS);
  EXPECT_EQ(cuGetErrorName(static_cast<CUresult>(GetParam()), &text), CUDA_SUCCESS);
  EXPECT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, plain_), CUDA_SUCCESS);
  EXPECT_EQ(cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
            CUDA_SUCCESS);
  EXPECT_EQ(cuStreamDestroy(std::exchange(spare_stream_, nullptr)), GetParam());
  EXPECT_EQ(cuEventDestroy(std::exchange(spare_event_, nullptr)), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Codes, DriverStickyTest, ::testing::ValuesIn(simcuda::kStickyErrors));

using DriverStickyCodesTest = DriverTest;

TEST_F(DriverStickyCodesTest, OtherCodesEndNoContext) {
  for (const CUresult code : {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_NOT_READY, CUDA_ERROR_UNKNOWN,
                              CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, CUDA_SUCCESS}) {
    EXPECT_EQ(simcuda_fail_device(code, "no"), CUDA_ERROR_INVALID_VALUE);
  }
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  const char* text = nullptr;
  ASSERT_EQ(cuGetErrorString(CUDA_ERROR_ASSERT, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "device-side assert triggered");
  std::thread([] {
    EXPECT_EQ(simcuda_fail_device(CUDA_ERROR_ASSERT, ""), CUDA_ERROR_INVALID_CONTEXT);
  }).join();
}

TEST_F(DriverStickyCodesTest, AnotherDevicesContextGoesOn) {
  ASSERT_EQ(simcuda_fail_device(CUDA_ERROR_ASSERT, "here"), CUDA_SUCCESS);
  CUcontext other = nullptr;
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp here = DeviceMemory(0), there = DeviceMemory(1);
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&other, 1), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxPushCurrent(other), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(cuMemCreate(&handle, kChunk, &here, 0), CUDA_ERROR_ASSERT) << "memory of the device that failed";
  ASSERT_EQ(cuMemCreate(&handle, kChunk, &there, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxPopCurrent(nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuDevicePrimaryCtxRelease(1), CUDA_SUCCESS);
  ASSERT_EQ(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
}

}  // namespace
}  // namespace simcuda_test
