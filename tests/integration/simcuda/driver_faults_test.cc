// What the stand-in driver does about misuse: touches of unmapped memory, memory taken away under queued work,
// errors inside kernels, and forks.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <stdexcept>

#include "tests/integration/simcuda/driver_test_base.h"
#include "tests/integration/simcuda/driver_waiting.h"

namespace simcuda_test {
namespace {

class DriverFaultsTest : public DriverTest {};
using DriverFaultsDeathTest = DriverFaultsTest;

TEST_F(DriverFaultsDeathTest, KernelThatTouchesUnmappedMemoryIsNamed) {
  EXPECT_EXIT(
      {
        Range range(4 * kChunk);
        const Kernel stray("stray_kernel", 1, [](uint64_t* addresses) { *At<int>(addresses[0]) = 1; });
        stray.Launch(nullptr, {range.start + kChunk + 40});
        cuCtxSynchronize();
      },
      ::testing::KilledBySignal(SIGABRT),
      "was touched but is not mapped: nothing is mapped at offset 2097192.*"
      "\n.*stray_kernel");
}

TEST_F(DriverFaultsDeathTest, UnmapIsRememberedInTheMessage) {
  EXPECT_EXIT(
      {
        Range range(kChunk);
        Chunk chunk;
        chunk.MapAt(range.start);
        cuMemUnmap(range.start, kChunk);
        *At<volatile int>(range.start) = 1;
      },
      ::testing::KilledBySignal(SIGABRT), "it was unmapped .* ms ago.*\n.*a host thread");
}

TEST_F(DriverFaultsDeathTest, MappingWithoutAccessIsNamed) {
  EXPECT_EXIT(
      {
        Range range(kChunk);
        Chunk chunk;
        cuMemMap(range.start, kChunk, 0, chunk.handle, 0);
        *At<volatile int>(range.start) = 1;
      },
      ::testing::KilledBySignal(SIGABRT), "mapped, but cuMemSetAccess gave nobody access");
}

TEST_F(DriverFaultsDeathTest, FreedAllocationIsNamed) {
  EXPECT_EXIT(
      {
        CUdeviceptr pointer = 0;
        cuMemAlloc(&pointer, kMiB);
        cuMemFree(pointer);
        *At<volatile int>(pointer + 100) = 1;
      },
      ::testing::KilledBySignal(SIGABRT), "no reservation and no allocation is there; it was freed");
}

TEST_F(DriverFaultsDeathTest, OverrunOfAnAllocationHitsTheGuard) {
  EXPECT_EXIT(
      {
        CUdeviceptr first = 0;
        CUdeviceptr second = 0;
        cuMemAlloc(&first, 4096);
        cuMemAlloc(&second, 4096);
        *At<volatile char>(first + 4096) = 1;
      },
      ::testing::KilledBySignal(SIGABRT), "was touched but is not mapped");
}

TEST_F(DriverFaultsDeathTest, UnmapUnderAQueuedKernelStops) {
  EXPECT_EXIT(
      {
        Range range(kChunk);
        Chunk chunk;
        chunk.MapAt(range.start);
        simcuda_hold_streams(1);
        const Kernel user("later_user", 2, [](uint64_t*) {});
        std::vector<uint64_t> addresses(1, 1234);
        addresses.push_back(range.start + 77);
        user.Launch(nullptr, addresses);
        cuMemUnmap(range.start, kChunk);
      },
      ::testing::KilledBySignal(SIGABRT), "cuMemUnmap of .* later_user on stream .* will touch it");
}

TEST_F(DriverFaultsDeathTest, UnmapUnderARunningKernelStops) {
  EXPECT_EXIT(
      {
        Range range(kChunk);
        Chunk chunk;
        chunk.MapAt(range.start);
        std::atomic<bool> running{false};
        const Gate gate;
        const Kernel user("slow_user", 1, [&running, wait = gate.Wait()](uint64_t*) {
          running = true;
          running.notify_one();
          wait();
        });
        user.Launch(nullptr, {range.start});
        running.wait(false);
        cuMemUnmap(range.start, kChunk);
      },
      ::testing::KilledBySignal(SIGABRT), "running slow_user");
}

TEST_F(DriverFaultsDeathTest, UnmapUnderAQueuedCopyStops) {
  EXPECT_EXIT(
      {
        Range range(kChunk);
        Chunk chunk;
        chunk.MapAt(range.start);
        void* host = nullptr;
        cuMemAllocHost(&host, 4096);
        TestStream stream(CU_STREAM_NON_BLOCKING);
        simcuda_hold_streams(1);
        cuMemcpyHtoDAsync(range.start + kChunk - 4096, host, 4096, stream);
        cuMemUnmap(range.start, kChunk);
      },
      ::testing::KilledBySignal(SIGABRT), "htod on stream");
}

TEST_F(DriverFaultsDeathTest, FreeUnderWorkOfAnotherContextStops) {
  EXPECT_EXIT(
      {
        CUdeviceptr pointer = 0;
        cuMemAlloc(&pointer, kMiB);
        CUcontext other = nullptr;
        cuDevicePrimaryCtxRetain(&other, 1);
        cuCtxPushCurrent(other);
        simcuda_hold_streams(1);
        const Kernel user("library_user", 1, [](uint64_t*) {});
        user.Launch(nullptr, {pointer});
        cuCtxPopCurrent(nullptr);
        cuMemFree(pointer);
      },
      ::testing::KilledBySignal(SIGABRT), "cuMemFree of .*library_user");
}

TEST_F(DriverFaultsTest, FinishedWorkTouchesNothing) {
  Range range(kChunk);
  Chunk chunk;
  chunk.MapAt(range.start);
  const Kernel user("finished_user", 1, [](uint64_t* addresses) { *At<int>(addresses[0]) = 1; });
  ASSERT_EQ(user.Launch(nullptr, {range.start}), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(cuMemUnmap(range.start, kChunk), CUDA_SUCCESS);
}

TEST_F(DriverFaultsTest, ReportModeCountsAndGoesOn) {
  ASSERT_EQ(simcuda_set("MODE", "report"), 0);
  const uint64_t before = simcuda_missed_accesses();
  Range range(2 * kChunk);
  uint64_t seen = 0;
  const Kernel stray("reported_kernel", 1, [&](uint64_t* addresses) { seen = *At<uint64_t>(addresses[0]); });
  ASSERT_EQ(stray.Launch(nullptr, {range.start + 8192}), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(simcuda_missed_accesses(), before + 1);
  EXPECT_EQ(seen, 0xfffefffefffefffeu);
  // What is mapped there later replaces what was let in.
  Chunk chunk;
  chunk.MapAt(range.start);
  std::memset(At<char>(range.start), 1, kChunk);
  ASSERT_EQ(cuMemUnmap(range.start, kChunk), CUDA_SUCCESS);
  ASSERT_EQ(stray.Launch(nullptr, {range.start + 8192}), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(simcuda_missed_accesses(), before + 2);
}

TEST_F(DriverFaultsTest, ReportModeCountsMisuse) {
  ASSERT_EQ(simcuda_set("MODE", "report"), 0);
  const uint64_t before = Stats().misuses;
  Range range(kChunk);
  Chunk chunk;
  chunk.MapAt(range.start);
  simcuda_hold_streams(1);
  const Kernel user("misused", 1, [](uint64_t*) {});
  ASSERT_EQ(user.Launch(nullptr, {range.start}), CUDA_SUCCESS);
  EXPECT_EQ(cuMemUnmap(range.start, kChunk), CUDA_SUCCESS);
  EXPECT_EQ(Stats().misuses, before + 1);
}

TEST_F(DriverFaultsTest, CopyOfUnmappedMemoryIsRefused) {
  Range range(2 * kChunk);
  Chunk chunk;
  chunk.MapAt(range.start);
  std::vector<char> host(kChunk);
  EXPECT_EQ(cuMemcpyHtoD(range.start + kChunk, host.data(), 10), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyDtoH(host.data(), range.start + kChunk - 5, 10), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD8(range.start + kChunk - 5, 0, 10), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyDtoH(host.data(), range.start + kChunk - 10, 10), CUDA_SUCCESS);
  ASSERT_EQ(cuMemUnmap(range.start, kChunk), CUDA_SUCCESS);
}

volatile int* Nowhere() {
  volatile uintptr_t address = 16;
  return reinterpret_cast<volatile int*>(address);
}

TEST_F(DriverFaultsDeathTest, OtherFaultsEndAsWithoutTheDriver) {
  // Killed by the signal; under a sanitizer, which owns the default action, an exit with an error.
  EXPECT_EXIT(
      *Nowhere() = 1, [](int status) { return status != 0; }, "");
}

// Has a handler of its own before cuInit. Holds in the child of the death test, which runs this test alone.
class DriverChainDeathTest : public DriverTest {
 protected:
  static void SetUpTestSuite() {
    struct sigaction action = {};
    action.sa_handler = [](int) {
      constexpr char kText[] = "the handler that was there before\n";
      if (write(STDERR_FILENO, kText, sizeof(kText) - 1) > 0) std::_Exit(42);
    };
    sigaction(SIGSEGV, &action, &before_);
    DriverTest::SetUpTestSuite();
  }
  // In the parent, the driver's handler was there first.
  static void TearDownTestSuite() { sigaction(SIGSEGV, &before_, nullptr); }

 private:
  static struct sigaction before_;
};
struct sigaction DriverChainDeathTest::before_;

TEST_F(DriverChainDeathTest, OtherFaultsGoToTheHandlerBefore) {
  EXPECT_EXIT(*Nowhere() = 1, ::testing::ExitedWithCode(42), "the handler that was there before");
}

TEST_F(DriverFaultsTest, ExceptionInAKernelIsAStickyError) {
  const Kernel failing("failing_kernel", 0,
                       [](uint64_t*) { throw std::runtime_error("index 7 is out of bounds"); });
  std::atomic<bool> ran{false};
  const Kernel next("next_kernel", 0, [&](uint64_t*) { ran = true; });
  simcuda_hold_streams(1);
  ASSERT_EQ(failing.Launch(nullptr, {}), CUDA_SUCCESS);
  ASSERT_EQ(next.Launch(nullptr, {}), CUDA_SUCCESS);
  simcuda_hold_streams(0);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_FALSE(ran) << "work behind the error does not run";
  EXPECT_EQ(next.Launch(nullptr, {}), CUDA_ERROR_LAUNCH_FAILED);
  CUdeviceptr pointer = 0;
  EXPECT_EQ(cuMemAlloc(&pointer, 10), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_STREQ(simcuda_device_error(), "kernel failing_kernel: index 7 is out of bounds");
  ASSERT_EQ(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_STREQ(simcuda_device_error(), "");
}

TEST_F(DriverFaultsTest, KernelCanSetTheErrorItself) {
  const Kernel failing("self_failing", 0, [](uint64_t*) { simcuda_set_device_error("device-side assert"); });
  ASSERT_EQ(failing.Launch(nullptr, {}), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(nullptr), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_STREQ(simcuda_device_error(), "device-side assert");
  ASSERT_EQ(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
}

TEST_F(DriverFaultsTest, ForkedChildFindsTheDriverDead) {
  CUdeviceptr pointer = 0;
  ASSERT_EQ(cuMemAlloc(&pointer, kMiB), CUDA_SUCCESS);
  TestStream stream(CU_STREAM_NON_BLOCKING);
  const Gate gate;
  const Kernel slow("during_fork", 0, [wait = gate.Wait()](uint64_t*) { wait(); });
  ASSERT_EQ(slow.Launch(stream, {}), CUDA_SUCCESS);
  const pid_t child = fork();
  if (child == 0) {
    int failures = 0;
    CUdeviceptr other = 0;
    int count = 0;
    failures += cuInit(0) != CUDA_ERROR_NOT_INITIALIZED;
    failures += cuDeviceGetCount(&count) != CUDA_ERROR_NOT_INITIALIZED;
    failures += cuMemAlloc(&other, 10) != CUDA_ERROR_NOT_INITIALIZED;
    failures += cuMemFree(pointer) != CUDA_ERROR_NOT_INITIALIZED;
    failures += cuStreamSynchronize(stream) != CUDA_ERROR_NOT_INITIALIZED;
    failures += cuCtxSynchronize() != CUDA_ERROR_NOT_INITIALIZED;
    // The device's memory is not inherited.
    int pipe_ends[2];
    failures += pipe(pipe_ends) != 0 || write(pipe_ends[1], At<void>(pointer), 1) != -1;
    std::_Exit(failures);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  gate.Open();
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  ASSERT_EQ(cuMemFree(pointer), CUDA_SUCCESS);
}

}  // namespace
}  // namespace simcuda_test
