// The stand-in runtime over the stand-in driver, used as a CUDA program uses it: memory, copies, streams, events,
// launches of registered kernels, errors, forks. The program links the runtime; the driver comes by LD_LIBRARY_PATH.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "integration/simcuda/driver/simcuda.h"
#include "integration/simcuda/runtime/runtime_api.h"

namespace {

constexpr char kSpinName[] = "_ZN2at4cuda40_GLOBAL__N__758183f4_8_Sleep_cu_088d913f11spin_kernelEl";

// The host stubs of the "compiled" kernels: only their addresses count.
char spin_stub, add_stub, unknown_stub, removed_stub, never_registered_stub;

void** RegisterKernel(const char* stub, const char* name) {
  void** handle = __cudaRegisterFatBinary(nullptr);
  __cudaRegisterFunction(handle, stub, nullptr, name, -1, nullptr, nullptr, nullptr, nullptr, nullptr);
  __cudaRegisterFatBinaryEnd(handle);
  return handle;
}

// values[i] += addend, as a kernel with two parameters.
void RunAdd(const simcuda_launch* launch, void** params) {
  float* values;
  float addend;
  std::memcpy(&values, params[0], sizeof(values));
  std::memcpy(&addend, params[1], sizeof(addend));
  for (unsigned i = 0; i < launch->grid[0] * launch->block[0]; ++i) values[i] += addend;
}

void RegisterAddWithDriver() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  ASSERT_NE(driver, nullptr);
  const auto register_kernel =
      reinterpret_cast<decltype(&simcuda_register_kernel)>(dlsym(driver, "simcuda_register_kernel"));
  ASSERT_NE(register_kernel, nullptr);
  const simcuda_parameter parameters[] = {{0, 8}, {8, 4}};
  const simcuda_kernel kernel{"_Z3addPff", RunAdd, nullptr, parameters, 2};
  ASSERT_EQ(register_kernel(&kernel, nullptr), 0);
}

class RuntimeApiTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    cudaGetLastError();
  }
};

TEST_F(RuntimeApiTest, ReportsDevices) {
  int count = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_GE(count, 1);
  cudaDeviceProp prop;
  ASSERT_EQ(cudaGetDeviceProperties(&prop, 0), cudaSuccess);
  EXPECT_GT(std::strlen(prop.name), 0u);
  EXPECT_GT(prop.totalGlobalMem, 0u);
  EXPECT_EQ(prop.warpSize, 32);
  int major = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), cudaSuccess);
  EXPECT_EQ(prop.major, major);
  EXPECT_EQ(cudaGetDeviceProperties(&prop, count), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaSetDevice(count), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaSetDevice(-1), cudaErrorInvalidDevice);
  int device = -1;
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(device, 0);
}

TEST_F(RuntimeApiTest, EveryThreadHasADevice) {
  std::thread([] {
    void* pointer = nullptr;
    EXPECT_EQ(cudaMalloc(&pointer, 1 << 20), cudaSuccess);
    EXPECT_EQ(cudaFree(pointer), cudaSuccess);
    int device = -1;
    EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
    EXPECT_EQ(device, 0);
  }).join();
}

TEST_F(RuntimeApiTest, CopiesThereAndBack) {
  std::vector<int> source(100'000);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<int>(i * 7);
  const size_t bytes = source.size() * sizeof(int);
  void* first = nullptr;
  void* second = nullptr;
  ASSERT_EQ(cudaMalloc(&first, bytes), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&second, bytes), cudaSuccess);
  std::vector<int> back(source.size());
  EXPECT_EQ(cudaMemcpy(first, source.data(), bytes, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(second, first, bytes, cudaMemcpyDeviceToDevice, nullptr), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(back.data(), second, bytes, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(back, source);
  EXPECT_EQ(cudaMemset(first, 0, bytes), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(back.data(), first, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(back, std::vector<int>(source.size()));
  EXPECT_EQ(cudaMemcpy(back.data(), first, bytes, static_cast<cudaMemcpyKind>(7)),
            cudaErrorInvalidMemcpyDirection);
  EXPECT_EQ(cudaFree(first), cudaSuccess);
  EXPECT_EQ(cudaFree(second), cudaSuccess);
}

TEST_F(RuntimeApiTest, CopiesRectangles) {
  constexpr size_t kPitch = 64, kWidth = 40, kHeight = 8;
  std::vector<unsigned char> source(kPitch * kHeight), back(kWidth * kHeight);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<unsigned char>(i);
  void* device = nullptr;
  ASSERT_EQ(cudaMalloc(&device, source.size()), cudaSuccess);
  ASSERT_EQ(cudaMemcpy2DAsync(device, kPitch, source.data(), kPitch, kWidth, kHeight, cudaMemcpyHostToDevice,
                              nullptr),
            cudaSuccess);
  ASSERT_EQ(cudaMemcpy2DAsync(back.data(), kWidth, device, kPitch, kWidth, kHeight, cudaMemcpyDeviceToHost,
                              nullptr),
            cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (size_t row = 0; row < kHeight; ++row) {
    EXPECT_EQ(std::memcmp(&back[row * kWidth], &source[row * kPitch], kWidth), 0) << row;
  }
  EXPECT_EQ(cudaMemcpy2DAsync(device, 8, source.data(), 8, kWidth, 2, cudaMemcpyHostToDevice, nullptr),
            cudaErrorInvalidPitchValue);
  cudaFree(device);
}

TEST_F(RuntimeApiTest, KnowsItsPointers) {
  void* device = nullptr;
  void* pinned = nullptr;
  int local = 0;
  ASSERT_EQ(cudaMalloc(&device, 1 << 20), cudaSuccess);
  ASSERT_EQ(cudaHostAlloc(&pinned, 1 << 16, cudaHostAllocDefault), cudaSuccess);
  cudaPointerAttributes attributes;
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, static_cast<char*>(device) + 100), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(attributes.device, 0);
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, pinned), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  EXPECT_EQ(attributes.hostPointer, pinned);
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, &local), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
  EXPECT_EQ(attributes.devicePointer, nullptr);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
}

TEST_F(RuntimeApiTest, CountsMemory) {
  size_t free_before = 0, free_after = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free_before, &total), cudaSuccess);
  void* pointer = nullptr;
  ASSERT_EQ(cudaMalloc(&pointer, 64 << 20), cudaSuccess);
  ASSERT_EQ(cudaMemGetInfo(&free_after, &total), cudaSuccess);
  EXPECT_GE(free_before - free_after, size_t{64} << 20);
  ASSERT_EQ(cudaFree(pointer), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&pointer, total + (1 << 20)), cudaErrorMemoryAllocation);
  EXPECT_EQ(pointer, nullptr);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_STREQ(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
  EXPECT_STREQ(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation");
  EXPECT_EQ(cudaMalloc(&pointer, 0), cudaSuccess);
  EXPECT_EQ(pointer, nullptr);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
}

TEST_F(RuntimeApiTest, LastErrorBelongsToTheThread) {
  EXPECT_EQ(cudaSetDevice(999), cudaErrorInvalidDevice);
  std::thread([] { EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess); }).join();
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
}

TEST_F(RuntimeApiTest, RunsTheTwinOfSpinOnItsStream) {
  RegisterKernel(&spin_stub, kSpinName);
  cudaKernel_t kernel = nullptr;
  ASSERT_EQ(__cudaGetKernel(&kernel, &spin_stub), cudaSuccess);
  cudaStream_t stream = nullptr;
  cudaEvent_t begin = nullptr, end = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&begin), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&end), cudaSuccess);
  int khz = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0), cudaSuccess);
  int64_t cycles = 100 * static_cast<int64_t>(khz > 0 ? khz : 1'000'000);  // 100 ms
  void* args[] = {&cycles};

  ASSERT_EQ(cudaEventRecord(begin, stream), cudaSuccess);
  ASSERT_EQ(__cudaLaunchKernel(kernel, dim3(1), dim3(1), args, 0, stream), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(end, stream), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(end), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  ASSERT_EQ(cudaEventSynchronize(end), cudaSuccess);
  float milliseconds = 0;
  ASSERT_EQ(cudaEventElapsedTime(&milliseconds, begin, end), cudaSuccess);
  EXPECT_GE(milliseconds, 99.0f);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(begin), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(end), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  cudaGetLastError();
}

TEST_F(RuntimeApiTest, RunsAKernelThatTheDriverKnowsByName) {
  RegisterKernel(&add_stub, "_Z3addPff");
  RegisterAddWithDriver();
  void* device = nullptr;
  std::vector<float> values(64, 1.0f);
  ASSERT_EQ(cudaMalloc(&device, 256), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(device, values.data(), 256, cudaMemcpyHostToDevice), cudaSuccess);
  float addend = 2.5f;
  void* args[] = {&device, &addend};

  // By the stub's address, as older compilers launch, with the configuration from the <<<>>>.
  ASSERT_EQ(__cudaPushCallConfiguration(dim3(2), dim3(32), 0, nullptr), 0u);
  dim3 grid, block;
  size_t shared = 1;
  cudaStream_t stream = cudaStreamPerThread;
  ASSERT_EQ(__cudaPopCallConfiguration(&grid, &block, &shared, &stream), cudaSuccess);
  EXPECT_EQ(grid.x, 2u);
  EXPECT_EQ(block.x, 32u);
  EXPECT_EQ(shared, 0u);
  EXPECT_EQ(stream, nullptr);
  ASSERT_EQ(cudaLaunchKernel(&add_stub, grid, block, args, shared, stream), cudaSuccess);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(64);
  config.blockDim = dim3(1);
  ASSERT_EQ(cudaLaunchKernelExC(&config, &add_stub, args), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(values.data(), device, 256, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(values, std::vector<float>(64, 6.0f));
  EXPECT_EQ(__cudaPopCallConfiguration(&grid, &block, &shared, &stream), cudaErrorMissingConfiguration);
  cudaGetLastError();
  EXPECT_EQ(cudaFree(device), cudaSuccess);
}

TEST_F(RuntimeApiTest, HostFunctionsAndCallbacksRunInOrder) {
  static std::atomic<int> sum{0};
  sum = 1;
  int three = 3;
  ASSERT_EQ(cudaLaunchHostFunc(
                nullptr, [](void* data) { sum = sum * *static_cast<int*>(data); }, &three),
            cudaSuccess);
  const cudaError_t added = cudaStreamAddCallback(
      nullptr,
      [](cudaStream_t, cudaError_t status, void* data) {
        if (status == cudaSuccess) sum = sum + *static_cast<int*>(data);
      },
      &three, 0);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  // The driver may lack callbacks; it must then say so.
  if (added == cudaSuccess) {
    EXPECT_EQ(sum, 6);
  } else {
    EXPECT_EQ(added, cudaErrorNotSupported);
    EXPECT_EQ(sum, 3);
  }
}

TEST_F(RuntimeApiTest, DescribesKernels) {
  RegisterKernel(&unknown_stub, "_Z13no_such_thingPfi");
  cudaFuncAttributes attributes;
  ASSERT_EQ(cudaFuncGetAttributes(&attributes, &unknown_stub), cudaSuccess);
  EXPECT_GT(attributes.maxThreadsPerBlock, 0);
  EXPECT_EQ(cudaFuncSetAttribute(&unknown_stub, cudaFuncAttributeMaxDynamicSharedMemorySize, 1024),
            cudaSuccess);
  int blocks = 0;
  ASSERT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, &unknown_stub, 256, 0), cudaSuccess);
  EXPECT_GE(blocks, 1);
  EXPECT_EQ(cudaFuncGetAttributes(&attributes, &never_registered_stub), cudaErrorInvalidDeviceFunction);
  EXPECT_EQ(cudaLaunchKernel(&never_registered_stub, dim3(1), dim3(1), nullptr, 0, nullptr),
            cudaErrorInvalidDeviceFunction);
  cudaGetLastError();
}

TEST_F(RuntimeApiTest, ForgetsKernelsOfAClosedLibrary) {
  void** handle = RegisterKernel(&removed_stub, "_Z7removedv");
  cudaKernel_t kernel = nullptr;
  EXPECT_EQ(__cudaGetKernel(&kernel, &removed_stub), cudaSuccess);
  __cudaUnregisterFatBinary(handle);
  EXPECT_EQ(__cudaGetKernel(&kernel, &removed_stub), cudaErrorInvalidDeviceFunction);
  RegisterKernel(&removed_stub, "_Z7removedv");
  EXPECT_EQ(__cudaGetKernel(&kernel, &removed_stub), cudaSuccess);
  cudaGetLastError();
}

TEST_F(RuntimeApiTest, RegistersManyKernelsQuickly) {
  static char stubs[100'000];
  void** handle = __cudaRegisterFatBinary(nullptr);
  const auto begin = std::chrono::steady_clock::now();
  for (char& stub : stubs) {
    __cudaRegisterFunction(handle, &stub, nullptr, "_Z4manyv", -1, nullptr, nullptr, nullptr, nullptr,
                           nullptr);
  }
  const auto end = std::chrono::steady_clock::now();
  // 20 ms on the slowest machine seen; a look-up for each would be far over it.
  EXPECT_LT(std::chrono::duration<double>(end - begin).count(), 0.5);
  cudaKernel_t kernel = nullptr;
  EXPECT_EQ(__cudaGetKernel(&kernel, &stubs[99'999]), cudaSuccess);
}

TEST_F(RuntimeApiTest, AnswersForCapture) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
  EXPECT_EQ(cudaStreamIsCapturing(stream, &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
  status = cudaStreamCaptureStatusActive;
  unsigned long long id = 5;
  EXPECT_EQ(cudaStreamGetCaptureInfo(stream, &status, &id, nullptr, nullptr, nullptr, nullptr), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST_F(RuntimeApiTest, HandsOutDriverEntryPoints) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
  ASSERT_EQ(
      cudaGetDriverEntryPointByVersion("cuDriverGetVersion", &function, 12000, cudaEnableDefault, &status),
      cudaSuccess);
  ASSERT_NE(function, nullptr);
  EXPECT_EQ(status, cudaDriverEntryPointSuccess);
  int by_driver = 0, by_runtime = 0;
  ASSERT_EQ(reinterpret_cast<CUresult (*)(int*)>(function)(&by_driver), CUDA_SUCCESS);
  ASSERT_EQ(cudaDriverGetVersion(&by_runtime), cudaSuccess);
  EXPECT_EQ(by_driver, by_runtime);
  EXPECT_EQ(cudaGetDriverEntryPointByVersion("cuNoSuchThing", &function, 12000, cudaEnableDefault, &status),
            cudaSuccess);
  EXPECT_EQ(status, cudaDriverEntryPointSymbolNotFound);
  EXPECT_EQ(function, nullptr);
}

TEST_F(RuntimeApiTest, FailsInAForkedChild) {
  ASSERT_EQ(cudaFree(nullptr), cudaSuccess);
  const pid_t child = fork();
  if (child == 0) {
    int count = 0;
    void* pointer = nullptr;
    const bool refused = cudaGetDeviceCount(&count) == cudaErrorInitializationError &&
                         cudaMalloc(&pointer, 1024) == cudaErrorInitializationError && pointer == nullptr;
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

using RuntimeApiDeathTest = RuntimeApiTest;

TEST_F(RuntimeApiDeathTest, AKernelWithoutABodyStopsWithItsName) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  static char stub;
  RegisterKernel(&stub, "_ZN4acme11fused_thingIfLi4EEEvPT_i");
  EXPECT_EXIT(cudaLaunchKernel(&stub, dim3(1), dim3(1), nullptr, 0, nullptr),
              ::testing::KilledBySignal(SIGABRT), "void acme::fused_thing<float, 4>\\(float\\*, int\\)");
}

}  // namespace
