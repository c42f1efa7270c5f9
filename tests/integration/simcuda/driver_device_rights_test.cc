// SIMCUDA_PROTECTION_KEYS: device memory is closed to the host, and open to what stands for the GPU.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>

#include "tests/integration/simcuda/driver_test_base.h"

namespace simcuda_test {
namespace {

class DeviceRightsTest : public DriverTest {
 protected:
  static void SetUpTestSuite() {
    setenv("SIMCUDA_PROTECTION_KEYS", "try", 0);
    DriverTest::SetUpTestSuite();
  }
  void SetUp() override {
    if (simcuda_is_memory_closed() == 0)
      GTEST_SKIP() << "this machine has no memory protection keys (ospke in /proc/cpuinfo)";
  }
};
using DeviceRightsDeathTest = DeviceRightsTest;

constexpr char kTouched[] = "was touched by who may not";

int Read(CUdeviceptr address) { return *At<volatile int>(address); }

CUdeviceptr Allocated(size_t bytes = 4096) {
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAlloc(&address, bytes), CUDA_SUCCESS);
  return address;
}

// The word as a copy of the driver's brings it.
int Fetched(CUdeviceptr address) {
  int word = 0;
  EXPECT_EQ(cuMemcpyDtoH(&word, address, sizeof(word)), CUDA_SUCCESS);
  return word;
}

TEST_F(DeviceRightsDeathTest, AHostThreadThatReadsIsEnded) {
  Range range(kChunk);
  Chunk chunk;
  chunk.MapAt(range.start);
  const CUdeviceptr allocated = Allocated();
  EXPECT_EXIT(Read(range.start + 64), ::testing::KilledBySignal(SIGSEGV), kTouched);
  EXPECT_EXIT(Read(allocated), ::testing::KilledBySignal(SIGSEGV), "touched by a host thread");
  EXPECT_EXIT(*At<volatile int>(allocated) = 1, ::testing::KilledBySignal(SIGSEGV), kTouched);
  EXPECT_EQ(cuMemFree(allocated), CUDA_SUCCESS);
  EXPECT_EQ(cuMemUnmap(range.start, kChunk), CUDA_SUCCESS);
}

TEST_F(DeviceRightsDeathTest, InEveryModeAsOnHardware) {
  for (const char* mode : {"strict", "report", "fault", "off"}) {
    const CUdeviceptr allocated = Allocated();
    EXPECT_EXIT(
        {
          simcuda_set("MODE", mode);
          Read(allocated);
        },
        ::testing::KilledBySignal(SIGSEGV), "")
        << mode;
    EXPECT_EQ(cuMemFree(allocated), CUDA_SUCCESS);
  }
}

TEST_F(DeviceRightsDeathTest, AGlobalOfAModuleIsDeviceMemory) {
  const Kernel kernel("of_the_module", 0, [](uint64_t*) {});
  CUmodule module = nullptr;
  CUdeviceptr global = 0;
  ASSERT_EQ(cuModuleLoadData(&module, SIMCUDA_IMAGE_MAGIC "\nof_the_module\n.global table 64\n"),
            CUDA_SUCCESS);
  ASSERT_EQ(cuModuleGetGlobal(&global, nullptr, module, "table"), CUDA_SUCCESS);
  EXPECT_EQ(Fetched(global), 0);
  EXPECT_EXIT(Read(global), ::testing::KilledBySignal(SIGSEGV), kTouched);
  EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
}

TEST_F(DeviceRightsTest, KernelsCopiesAndFillsReachIt) {
  const CUdeviceptr one = Allocated(), other = Allocated();
  const Kernel add("add_one", 2,
                   [](uint64_t* addresses) { *At<int>(addresses[1]) = Read(addresses[0]) + 1; });
  EXPECT_EQ(cuMemsetD32(one, 4, 16), CUDA_SUCCESS);
  EXPECT_EQ(add.Launch(nullptr, {one, other}), CUDA_SUCCESS);
  EXPECT_EQ(Fetched(other), 5);
  EXPECT_EQ(cuMemcpyDtoD(one, other, 4), CUDA_SUCCESS);
  EXPECT_EQ(Fetched(one), 5);
  const int word = 9;
  EXPECT_EQ(cuMemcpyHtoD(one, &word, sizeof(word)), CUDA_SUCCESS);
  EXPECT_EQ(Fetched(one), 9);
  EXPECT_EQ(cuStreamWriteValue32(nullptr, one, 11, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamWaitValue32(nullptr, one, 11, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
  // The driver takes a device address for the source of a copy from the host.
  EXPECT_EQ(cuMemcpyHtoD(other, At<void>(one), sizeof(word)), CUDA_SUCCESS);
  EXPECT_EQ(Fetched(other), 11);
  EXPECT_EQ(cuMemFree(one), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(other), CUDA_SUCCESS);
}

TEST_F(DeviceRightsTest, ThreadsThatAKernelStartsReachIt) {
  const CUdeviceptr word = Allocated();
  const Kernel kernel("with_a_helper", 1,
                      [](uint64_t* addresses) { std::thread([&] { *At<int>(addresses[0]) = 21; }).join(); });
  EXPECT_EQ(kernel.Launch(nullptr, {word}), CUDA_SUCCESS);
  EXPECT_EQ(Fetched(word), 21);
  EXPECT_EQ(cuMemFree(word), CUDA_SUCCESS);
}

// Runs on the thread of a stream, which had the rights for the kernel in front.
TEST_F(DeviceRightsDeathTest, AHostFunctionIsTheHosts) {
  static CUdeviceptr word = 0;
  word = Allocated();
  EXPECT_EXIT(
      {
        const Kernel kernel("in_front", 1, [](uint64_t* addresses) { *At<int>(addresses[0]) = 1; });
        kernel.Launch(nullptr, {word});
        cuLaunchHostFunc(
            nullptr, [](void*) { Read(word); }, nullptr);
        cuCtxSynchronize();
      },
      ::testing::KilledBySignal(SIGSEGV), "touched by kernel or copy \"host function\"");
  EXPECT_EQ(cuMemFree(word), CUDA_SUCCESS);
}

// The signal handler leaves the kernel by a jump: with the rights that signal handlers have, which are none.
TEST_F(DeviceRightsDeathTest, AKernelThatHasFaultedLeavesItsStreamWithoutRights) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer's own handler calls ours, and the jump leaves both";
#endif
  static CUdeviceptr word = 0;
  word = Allocated();
  EXPECT_EXIT(
      {
        Range range(kChunk);
        simcuda_set("MODE", "fault");
        const Kernel stray("stray", 1, [](uint64_t* addresses) { Read(addresses[0]); });
        stray.Launch(nullptr, {range.start});
        const bool failed = cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS;
        cuDevicePrimaryCtxReset(0);
        cuLaunchHostFunc(
            nullptr, [](void*) { Read(word); }, nullptr);
        cuCtxSynchronize();
        _exit(failed ? 2 : 3);
      },
      ::testing::KilledBySignal(SIGSEGV), kTouched);
  EXPECT_EQ(cuMemFree(word), CUDA_SUCCESS);
}

// A touch that the handler lets in goes on with the rights that the kernel had.
TEST_F(DeviceRightsTest, AKernelThatIsLetInGoesOn) {
  Range range(kChunk);
  const CUdeviceptr word = Allocated();
  ASSERT_EQ(simcuda_set("MODE", "report"), 0);
  const Kernel stray("let_in", 2, [](uint64_t* addresses) {
    Read(addresses[0]);
    *At<int>(addresses[1]) = 31;
  });
  EXPECT_EQ(stray.Launch(nullptr, {range.start, word}), CUDA_SUCCESS);
  EXPECT_EQ(Fetched(word), 31);
  EXPECT_EQ(Stats().missed_accesses, 1u);
  EXPECT_EQ(cuMemFree(word), CUDA_SUCCESS);
  simcuda_reset_stats();
}

TEST_F(DeviceRightsTest, ASystemCallOfTheHostsFindsNothingThere) {
  const CUdeviceptr word = Allocated();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(write(ends[1], At<void>(word), 4), -1);
  EXPECT_EQ(errno, EFAULT);
  ASSERT_EQ(write(ends[1], "word", 4), 4);
  EXPECT_EQ(read(ends[0], At<void>(word), 4), -1);
  EXPECT_EQ(errno, EFAULT);
  close(ends[0]);
  close(ends[1]);
  EXPECT_EQ(cuMemFree(word), CUDA_SUCCESS);
}

TEST_F(DeviceRightsTest, HostMemoryStaysOpen) {
  void* pinned = nullptr;
  ASSERT_EQ(cuMemHostAlloc(&pinned, 4096, CU_MEMHOSTALLOC_DEVICEMAP), CUDA_SUCCESS);
  std::memset(pinned, 3, 4096);
  EXPECT_EQ(cuMemFreeHost(pinned), CUDA_SUCCESS);

  // Where device memory was: its address and its pages' home come again.
  Range range(kChunk);
  {
    Chunk chunk;
    chunk.MapAt(range.start);
    EXPECT_EQ(cuMemUnmap(range.start, kChunk), CUDA_SUCCESS);
  }
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_HOST;
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_EQ(cuMemCreate(&handle, kChunk, &properties, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemMap(range.start, kChunk, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(AllowAccess(range.start, kChunk), CUDA_SUCCESS);
  // A handle in host memory is the processor's, too, once it has been opened to it.
  EXPECT_EXIT(*At<volatile int>(range.start), testing::KilledBySignal(SIGSEGV), "touched by a host thread");
  ASSERT_EQ(AllowHost(range.start, kChunk), CUDA_SUCCESS);
  *At<int>(range.start) = 17;
  EXPECT_EQ(Fetched(range.start), 17);
  EXPECT_EQ(cuMemUnmap(range.start, kChunk), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
}

TEST_F(DeviceRightsDeathTest, MemoryThatComesBackIsClosedAgain) {
  Range range(kChunk);
  Chunk chunk;
  for (int i = 0; i < 2; ++i) {
    chunk.MapAt(range.start);
    EXPECT_EQ(cuMemsetD32(range.start, 6, 4), CUDA_SUCCESS);
    EXPECT_EQ(Fetched(range.start), 6);
    EXPECT_EXIT(Read(range.start), ::testing::KilledBySignal(SIGSEGV), kTouched);
    EXPECT_EQ(cuMemUnmap(range.start, kChunk), CUDA_SUCCESS);
  }
}

TEST_F(DeviceRightsDeathTest, AnAllocationForOtherProcessesIsClosed) {
  const CUdeviceptr word = Allocated();
  EXPECT_EQ(cuMemsetD32(word, 8, 4), CUDA_SUCCESS);
  CUipcMemHandle handle = {};
  ASSERT_EQ(cuIpcGetMemHandle(&handle, word), CUDA_SUCCESS);
  EXPECT_EQ(Fetched(word), 8);
  EXPECT_EXIT(Read(word), ::testing::KilledBySignal(SIGSEGV), kTouched);
  EXPECT_EQ(cuMemFree(word), CUDA_SUCCESS);
}

}  // namespace
}  // namespace simcuda_test
