// The stand-in driver's settings: failures, modeled copy engines, kernel times, delays, log and statistics.
#include <cstdio>
#include <fstream>
#include <sstream>

#include "tests/integration/simcuda/driver_test_base.h"

namespace simcuda_test {
namespace {

class DriverSettingsTest : public DriverTest {
 protected:
  static std::string LogPath() { return "driver_settings_test." + std::to_string(getpid()) + ".log"; }
  static void SetUpTestSuite() {
    setenv("SIMCUDA_LOG", LogPath().c_str(), 1);
    DriverTest::SetUpTestSuite();
  }
  static void TearDownTestSuite() { std::remove(LogPath().c_str()); }
  static std::vector<std::vector<std::string>> LogLines() {
    simcuda_flush_log();
    std::ifstream file(LogPath());
    std::vector<std::vector<std::string>> lines;
    for (std::string line; std::getline(file, line);) {
      std::stringstream columns(line);
      lines.emplace_back();
      for (std::string column; std::getline(columns, column, '\t');) lines.back().push_back(column);
    }
    return lines;
  }
  static CUresult Create() {
    CUmemGenericAllocationHandle handle = 0;
    const CUmemAllocationProp properties = DeviceMemory();
    const CUresult result = cuMemCreate(&handle, kChunk, &properties, 0);
    if (result == CUDA_SUCCESS) cuMemRelease(handle);
    return result;
  }
};

TEST_F(DriverSettingsTest, NthCreateFails) {
  ASSERT_EQ(simcuda_set("FAIL_CREATE", "2"), 0);
  EXPECT_EQ(Create(), CUDA_SUCCESS);
  EXPECT_EQ(Create(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(Create(), CUDA_SUCCESS);
  simcuda_reset_failures();
  EXPECT_EQ(Create(), CUDA_SUCCESS);
  EXPECT_EQ(Create(), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(DriverSettingsTest, SetAccessIsNotReadyEveryNthTime) {
  ASSERT_EQ(simcuda_set("FAIL_SET_ACCESS_EVERY", "3"), 0);
  Range range(kChunk);
  Chunk chunk;
  ASSERT_EQ(cuMemMap(range.start, kChunk, 0, chunk.handle, 0), CUDA_SUCCESS);
  std::string results;
  for (int i = 0; i < 6; ++i) results += AllowAccess(range.start, kChunk) == CUDA_ERROR_NOT_READY ? 'n' : 'y';
  EXPECT_EQ(results, "yynyyn");
  ASSERT_EQ(cuMemUnmap(range.start, kChunk), CUDA_SUCCESS);
}

TEST_F(DriverSettingsTest, NthCopyFails) {
  CUdeviceptr pointer = 0;
  ASSERT_EQ(cuMemAlloc(&pointer, 64), CUDA_SUCCESS);
  char host[64] = {};
  ASSERT_EQ(cuMemsetD8(pointer, 0, 64), CUDA_SUCCESS);
  ASSERT_EQ(simcuda_set("FAIL_COPY", "2"), 0);
  EXPECT_EQ(cuMemcpyDtoH(host, pointer, 64), CUDA_SUCCESS);
  EXPECT_EQ(cuMemcpyDtoH(host, pointer, 64), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(cuMemcpyDtoH(host, pointer, 64), CUDA_SUCCESS);
  ASSERT_EQ(cuMemFree(pointer), CUDA_SUCCESS);
}

TEST_F(DriverSettingsTest, BadSettingsAreRefused) {
  EXPECT_NE(simcuda_set("MODE", "loud"), 0);
  EXPECT_NE(simcuda_set("NO_SUCH_SETTING", "1"), 0);
  EXPECT_NE(simcuda_set("COPY_BANDWIDTH", "fast"), 0);
  EXPECT_NE(simcuda_set("KERNEL_TIME", "-1"), 0);
  EXPECT_NE(simcuda_set("GRANULARITY", "64KiB"), 0) << "too late: cuInit has been called";
}

// One copy of 8 MiB at 160 MiB/s takes 50 ms; two of one direction follow each other, of both overlap.
TEST_F(DriverSettingsTest, CopyEnginesTakeTheirTime) {
  constexpr uint64_t kBytes = 8 * kMiB;
  CUdeviceptr device = 0;
  void* host = nullptr;
  ASSERT_EQ(cuMemAlloc(&device, 2 * kBytes), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAllocHost(&host, 2 * kBytes), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyHtoD(device, host, 2 * kBytes), CUDA_SUCCESS);  // pages are there
  ASSERT_EQ(simcuda_set("COPY_BANDWIDTH", "160MiB"), 0);
  TestStream first(CU_STREAM_NON_BLOCKING), second(CU_STREAM_NON_BLOCKING);
  const auto call = [&] {
    const double start = Seconds();
    EXPECT_EQ(cuMemcpyHtoDAsync(device, host, kBytes, first), CUDA_SUCCESS);
    const double taken = Seconds() - start;
    EXPECT_EQ(cuMemcpyHtoDAsync(device + kBytes, static_cast<char*>(host) + kBytes, kBytes, second),
              CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_GE(Seconds() - start, 0.0995);
    return taken;
  };
  EXPECT_LT(Soonest(0.045, call), 0.045) << "the call itself does not wait";

  ASSERT_EQ(simcuda_set("COPY_LATENCY_DTOH", "20000"), 0);
  const double before = Seconds();
  ASSERT_EQ(cuMemcpyDtoHAsync(host, device, 4096, first), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_GE(Seconds() - before, 0.020);
  const auto within = [&] {
    const double start = Seconds();
    EXPECT_EQ(cuMemcpyDtoDAsync(device, device + kBytes, kBytes, first), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    return Seconds() - start;
  };
  EXPECT_LT(Soonest(0.045, within), 0.045) << "device to device has no engine";
  ASSERT_EQ(cuMemFreeHost(host), CUDA_SUCCESS);
  ASSERT_EQ(cuMemFree(device), CUDA_SUCCESS);
}

TEST_F(DriverSettingsTest, LogShowsCopiesAndKernelsAtTheSameTime) {
  CUdeviceptr device = 0;
  void* host = nullptr;
  ASSERT_EQ(cuMemAlloc(&device, kMiB), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAllocHost(&host, kMiB), CUDA_SUCCESS);
  ASSERT_EQ(simcuda_set("KERNEL_TIME", "40000"), 0);
  ASSERT_EQ(simcuda_set("COPY_LATENCY", "40000"), 0);
  TestStream compute(CU_STREAM_NON_BLOCKING), copy(CU_STREAM_NON_BLOCKING);
  unsigned long long compute_id = 0;
  ASSERT_EQ(cuStreamGetId(compute, &compute_id), CUDA_SUCCESS);
  const Kernel kernel("logged kernel", 0, [](uint64_t*) {});
  const size_t before = LogLines().size();
  ASSERT_EQ(kernel.Launch(compute, {}), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyHtoDAsync(device, host, kMiB, copy), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  const auto lines = LogLines();
  ASSERT_EQ(lines.size(), before + 2);
  std::vector<std::string> kernel_line = lines[before], copy_line = lines[before + 1];
  if (kernel_line[0] != "kernel") std::swap(kernel_line, copy_line);
  ASSERT_EQ(kernel_line.size(), 8u);
  EXPECT_EQ(kernel_line[1], std::to_string(compute_id));
  EXPECT_EQ(kernel_line[7], "logged kernel");
  EXPECT_EQ(copy_line[0], "copy");
  EXPECT_EQ(copy_line[5], std::to_string(kMiB));
  EXPECT_EQ(copy_line[6], "htod");
  const auto start = [](const auto& line) { return std::stoll(line[3]); };
  const auto end = [](const auto& line) { return std::stoll(line[4]); };
  EXPECT_GE(end(kernel_line) - start(kernel_line), 40'000'000);
  const int64_t overlap =
      std::min(end(kernel_line), end(copy_line)) - std::max(start(kernel_line), start(copy_line));
  EXPECT_GT(overlap, 15'000'000);
  ASSERT_EQ(cuMemFreeHost(host), CUDA_SUCCESS);
  ASSERT_EQ(cuMemFree(device), CUDA_SUCCESS);
}

TEST_F(DriverSettingsTest, DelaysHappenAndKeepTheOrder) {
  ASSERT_EQ(simcuda_set("DELAY", "4000"), 0);
  TestStream stream(CU_STREAM_NON_BLOCKING);
  std::string trace;
  const double start = Seconds();
  for (char mark = 'a'; mark < 'u'; ++mark) {
    const Kernel kernel("delayed", 0, [&trace, mark](uint64_t*) { trace += mark; });
    ASSERT_EQ(kernel.Launch(stream, {}), CUDA_SUCCESS);
  }
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(trace, "abcdefghijklmnopqrst");
  EXPECT_GT(Seconds() - start, 0.010) << "20 delays of 2 ms on average";
}

TEST_F(DriverSettingsTest, DevicesLookLikeGpus) {
  int count = 0;
  ASSERT_EQ(cuDeviceGetCount(&count), CUDA_SUCCESS);
  EXPECT_EQ(count, 2);
  CUdevice device = -1;
  EXPECT_EQ(cuDeviceGet(&device, 2), CUDA_ERROR_INVALID_DEVICE);
  int value = 0;
  ASSERT_EQ(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 1), CUDA_SUCCESS);
  EXPECT_EQ(value, 9);
  ASSERT_EQ(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1),
            CUDA_SUCCESS);
  EXPECT_EQ(value, 1);
  CUuuid first, second;
  ASSERT_EQ(cuDeviceGetUuid(&first, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuDeviceGetUuid(&second, 1), CUDA_SUCCESS);
  EXPECT_NE(std::string(first.bytes, 16), std::string(second.bytes, 16));
  const char* text = nullptr;
  ASSERT_EQ(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "CUDA_ERROR_OUT_OF_MEMORY");
  ASSERT_EQ(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "out of memory");
  EXPECT_EQ(cuGetErrorName(static_cast<CUresult>(12345), &text), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverSettingsTest, ContextsStack) {
  CUcontext primary = nullptr, second = nullptr, seen = nullptr;
  ASSERT_EQ(cuCtxGetCurrent(&primary), CUDA_SUCCESS);
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&second, 1), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxPushCurrent(second), CUDA_SUCCESS);
  CUdevice device = -1;
  ASSERT_EQ(cuCtxGetDevice(&device), CUDA_SUCCESS);
  EXPECT_EQ(device, 1);
  ASSERT_EQ(cuCtxPopCurrent(&seen), CUDA_SUCCESS);
  EXPECT_EQ(seen, second);
  ASSERT_EQ(cuCtxGetDevice(&device), CUDA_SUCCESS);
  EXPECT_EQ(device, 0);
  unsigned flags = 0;
  int active = 0;
  ASSERT_EQ(cuDevicePrimaryCtxGetState(1, &flags, &active), CUDA_SUCCESS);
  EXPECT_EQ(active, 1);
  ASSERT_EQ(cuDevicePrimaryCtxRelease(1), CUDA_SUCCESS);
  ASSERT_EQ(cuDevicePrimaryCtxGetState(1, &flags, &active), CUDA_SUCCESS);
  EXPECT_EQ(active, 0);
  EXPECT_EQ(cuDevicePrimaryCtxRelease(1), CUDA_ERROR_INVALID_CONTEXT);
  std::thread([] {
    CUdeviceptr pointer = 0;
    EXPECT_EQ(cuMemAlloc(&pointer, 10), CUDA_ERROR_INVALID_CONTEXT);
  }).join();
}

}  // namespace
}  // namespace simcuda_test
