// Memory and events that two processes share. The second one is a death test's: it starts this program anew, and finds
// the handles of the first in its environment.
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "tests/integration/simcuda/driver_test_base.h"
#include "tests/integration/simcuda/driver_waiting.h"

namespace simcuda_test {
namespace {

template <typename Handle>
void ToEnvironment(const char* name, const Handle& handle) {
  std::string text;
  for (const char byte : handle.reserved) {
    const auto value = static_cast<unsigned char>(byte);
    for (const int digit : {value >> 4, value & 15}) text += "0123456789abcdef"[digit];
  }
  setenv(name, text.c_str(), 0);  // in the second process those of the first stay
}
template <typename Handle>
Handle FromEnvironment(const char* name) {
  Handle handle = {};
  const std::string text = std::getenv(name);
  for (size_t i = 0; i < sizeof(handle.reserved) && 2 * i + 1 < text.size(); ++i)
    handle.reserved[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  return handle;
}

class DriverIpcTest : public DriverTest {
 protected:
  void SetUp() override {
    first_ = std::getenv(kMemory) == nullptr;
    ASSERT_EQ(cuMemAlloc(&memory_, 3 * kMiB), CUDA_SUCCESS);
    ASSERT_EQ(cuMemsetD8(memory_, 7, 3 * kMiB), CUDA_SUCCESS);
    ASSERT_EQ(cuIpcGetMemHandle(&handle_, memory_ + 4096), CUDA_SUCCESS);
    ToEnvironment(kMemory, handle_);
  }
  void TearDown() override {
    DriverTest::TearDown();
    EXPECT_EQ(cuMemFree(memory_), CUDA_SUCCESS);
    unsetenv(kMemory);
    unsetenv(kEvent);
  }
  static constexpr const char* kMemory = "SIMCUDA_TEST_MEMORY";
  static constexpr const char* kEvent = "SIMCUDA_TEST_EVENT";
  CUdeviceptr memory_ = 0;
  CUipcMemHandle handle_ = {};
  bool first_ = true;  // this is the process that shares
};

[[noreturn]] void End(bool good) { std::_Exit(good ? 0 : 1); }

TEST_F(DriverIpcTest, AnotherProcessReadsAndWritesTheMemory) {
  const uint64_t held = Stats().physical_bytes[0];
  EXPECT_EXIT(
      {
        const auto handle = FromEnvironment<CUipcMemHandle>(kMemory);
        const uint64_t before = Stats().physical_bytes[0];
        CUdeviceptr opened = 0;
        CUdeviceptr again = 0;
        bool good = cuIpcOpenMemHandle(&opened, handle, 1) == CUDA_SUCCESS &&
                    cuIpcOpenMemHandle(&again, handle, 1) == CUDA_SUCCESS && opened == again;
        good = good && Stats().physical_bytes[0] == before;  // counted where it was made
        good = good && *At<unsigned char>(opened + 3 * kMiB - 1) == 7;
        good = good && cuMemsetD8(opened, 9, kMiB) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS;
        good = good && cuMemFree(opened) == CUDA_ERROR_INVALID_VALUE;
        good = good && cuIpcGetMemHandle(&handle_, opened) == CUDA_ERROR_INVALID_VALUE;
        good = good && cuIpcCloseMemHandle(opened) == CUDA_SUCCESS && *At<unsigned char>(opened) == 9;
        good = good && cuIpcCloseMemHandle(opened) == CUDA_SUCCESS;
        good = good && cuIpcCloseMemHandle(opened) == CUDA_ERROR_INVALID_VALUE;
        End(good);
      },
      ::testing::ExitedWithCode(0), "");
  EXPECT_EQ(*At<unsigned char>(memory_ + kMiB - 1), 9);
  EXPECT_EQ(*At<unsigned char>(memory_ + kMiB), 7);
  EXPECT_EQ(Stats().physical_bytes[0], held);
}

TEST_F(DriverIpcTest, AHandleOfWhatIsGoneIsRefused) {
  CUdeviceptr other = 0;
  CUipcMemHandle handle = {};
  ASSERT_EQ(cuMemAlloc(&other, kMiB), CUDA_SUCCESS);
  ASSERT_EQ(cuIpcGetMemHandle(&handle, other), CUDA_SUCCESS);
  ASSERT_EQ(cuMemFree(other), CUDA_SUCCESS);
  if (first_) {
    unsetenv(kMemory);
    ToEnvironment(kMemory, handle);
  }
  EXPECT_EXIT(
      {
        CUdeviceptr opened = 0;
        End(cuIpcOpenMemHandle(&opened, FromEnvironment<CUipcMemHandle>(kMemory), 1) ==
            CUDA_ERROR_INVALID_HANDLE);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(DriverIpcTest, AnotherProcessWaitsForAnEvent) {
  constexpr unsigned kFlags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
  const TestEvent event(kFlags);
  const TestStream stream(CU_STREAM_NON_BLOCKING);
  CUipcEventHandle handle = {};
  ASSERT_EQ(cuIpcGetEventHandle(&handle, event), CUDA_SUCCESS);
  ToEnvironment(kEvent, handle);
  ASSERT_EQ(cuMemsetD8(memory_, 0, 4096), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  if (first_) simcuda_hold_streams(1);
  ASSERT_EQ(cuMemsetD8Async(memory_, 42, 64, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(event, stream), CUDA_SUCCESS);
  std::thread releases;
  if (first_) {
    releases = std::thread([this] {  // once the other process waits
      const std::atomic_ref<pid_t> other(*At<pid_t>(memory_ + 100));
      EXPECT_TRUE(WaitUntil([&] { return other.load() != 0 && ThreadWaits(other.load()); }));
      simcuda_hold_streams(0);
    });
  }
  EXPECT_EXIT(
      {
        CUdeviceptr opened = 0;
        CUevent shared = nullptr;
        CUstream waiting = nullptr;
        bool good =
            cuIpcOpenMemHandle(&opened, FromEnvironment<CUipcMemHandle>(kMemory), 1) == CUDA_SUCCESS &&
            cuIpcOpenEventHandle(&shared, FromEnvironment<CUipcEventHandle>(kEvent)) == CUDA_SUCCESS;
        good = good && cuEventQuery(shared) == CUDA_ERROR_NOT_READY;
        good = good && cuStreamCreate(&waiting, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
        good = good && cuStreamWaitEvent(waiting, shared, 0) == CUDA_SUCCESS;
        good = good && cuMemcpyAsync(opened + 200, opened, 8, waiting) == CUDA_SUCCESS;
        if (good) std::atomic_ref<pid_t>(*At<pid_t>(opened + 100)).store(gettid());
        good = good && cuStreamSynchronize(waiting) == CUDA_SUCCESS && *At<unsigned char>(opened + 207) == 42;
        good = good && cuEventSynchronize(shared) == CUDA_SUCCESS && cuEventDestroy(shared) == CUDA_SUCCESS;
        End(good);
      },
      ::testing::ExitedWithCode(0), "");
  std::atomic_ref(*At<unsigned char>(memory_ + 100)).store(1);  // also where the other process ended early
  if (releases.joinable()) releases.join();
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
}

TEST_F(DriverIpcTest, WhatIsNotForOtherProcesses) {
  const TestEvent plain(CU_EVENT_DISABLE_TIMING);
  CUipcEventHandle event = {};
  CUevent opened_event = nullptr;
  EXPECT_EQ(cuIpcGetEventHandle(&event, plain), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuIpcOpenEventHandle(&opened_event, event), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuEventCreate(&opened_event, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);  // with times
  CUdeviceptr opened = 0;
  EXPECT_EQ(cuIpcOpenMemHandle(&opened, CUipcMemHandle{}, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuIpcOpenMemHandle(&opened, handle_, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuIpcCloseMemHandle(memory_), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace simcuda_test
