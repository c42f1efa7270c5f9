// What the product takes for granted about a driver's virtual memory, kernels and copies, tried on the device that is
// there. Figures that decide nothing are printed as "measured:" lines.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "tests/gpu/gpu.h"

namespace spillway::gpu {
namespace {

// A word of device memory that kernels count differences in.
class Differences {
 public:
  Differences() {
    gpu_.Must(gpu_.mem_alloc(&word_, sizeof(uint32_t)), "cuMemAlloc");
    const uint32_t zero = 0;
    Copy([&] { return gpu_.driver().cuMemcpyHtoDAsync_v2(word_, &zero, sizeof(zero), stream_); });
  }
  ~Differences() { (void)gpu_.mem_free(word_); }
  CUdeviceptr word() const { return word_; }
  uint32_t Read() {
    gpu_.Synchronize();
    uint32_t value = ~0u;
    Copy([&] { return gpu_.driver().cuMemcpyDtoHAsync_v2(&value, word_, sizeof(value), stream_); });
    return value;
  }

 private:
  template <typename Call>
  void Copy(Call call) {
    gpu_.Must(call(), "copying a word");
    gpu_.Must(gpu_.driver().cuStreamSynchronize(stream_), "cuStreamSynchronize");
  }
  const Gpu& gpu_ = Gpu::Get();
  const CUstream stream_ = gpu_.NewStream();
  CUdeviceptr word_ = 0;
};

class DriverTest : public testing::Test {
 protected:
  const Gpu& gpu_ = Gpu::Get();
  const CUstream stream_ = gpu_.NewStream();
  Differences differences_;
};

TEST_F(DriverTest, ChunksAreOfTwoMebibytes) {
  CUmemAllocationProp kind = {};
  kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  size_t least = 0;
  ASSERT_EQ(GPU_FUNCTION(cuMemGetAllocationGranularity)(&least, &kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
            CUDA_SUCCESS);
  EXPECT_EQ(2 * kMiB % least, 0u) << least;
}

TEST_F(DriverTest, AKernelsParameterLayoutIsTold) {
  ASSERT_NE(GPU_FUNCTION(cuFuncGetParamInfo), nullptr);
  const size_t sizes[] = {8, 8, 4};
  for (size_t i = 0; i < 3; ++i) {
    size_t offset = 0;
    size_t size = 0;
    ASSERT_EQ(GPU_FUNCTION(cuFuncGetParamInfo)(gpu_.fill(), i, &offset, &size), CUDA_SUCCESS);
    EXPECT_EQ(offset, i * 8);
    EXPECT_EQ(size, sizes[i]);
  }
  size_t offset = 0;
  size_t size = 0;
  EXPECT_EQ(GPU_FUNCTION(cuFuncGetParamInfo)(gpu_.fill(), 3, &offset, &size), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverTest, ChunksKeepTheirBytesWithoutAMappingAndAtAnotherAddress) {
  Mapping here(16 * kMiB);
  Mapping there(16 * kMiB);
  gpu_.Fill(stream_, here.address(), here.bytes(), 7);
  gpu_.Synchronize();
  ASSERT_EQ(here.Unmap(), CUDA_SUCCESS);  // eight chunks in one call
  ASSERT_EQ(there.Unmap(), CUDA_SUCCESS);
  here.Map(there.address());
  gpu_.Compare(stream_, here.address(), here.bytes(), 7, differences_.word());
  EXPECT_EQ(differences_.Read(), 0u);
  ASSERT_EQ(here.Unmap(), CUDA_SUCCESS);
  here.Map();
  gpu_.Compare(stream_, here.address(), here.bytes(), 7, differences_.word());
  EXPECT_EQ(differences_.Read(), 0u);
  there.Map();
}

// A kernel that was wrong about something is seen: the comparison itself can fail.
TEST_F(DriverTest, OtherBytesAreNoticed) {
  Mapping mapping(2 * kMiB);
  gpu_.Fill(stream_, mapping.address(), mapping.bytes(), 1);
  gpu_.Compare(stream_, mapping.address(), mapping.bytes(), 2, differences_.word());
  EXPECT_EQ(differences_.Read(), mapping.bytes() / 4);
}

TEST_F(DriverTest, MappingsComeAndGoWhileKernelsUseOthers) {
  const uint64_t bytes = (gpu_.is_simcuda() ? 4 : 64) * kMiB;  // on a GPU enough to be at it all the time
  Mapping used(bytes);
  Mapping other(bytes);
  const CUstream busy = gpu_.NewStream();
  const uint64_t not_ready = Mapping::not_ready();
  constexpr int kRounds = 100;
  for (int round = 0; round < kRounds; ++round) {
    gpu_.Fill(busy, used.address(), used.bytes(), round);
    gpu_.Compare(busy, used.address(), used.bytes(), round, differences_.word());
    ASSERT_EQ(other.Unmap(), CUDA_SUCCESS);
    other.Map();
  }
  EXPECT_EQ(differences_.Read(), 0u);
  std::printf("measured: cuMemSetAccess answered NOT_READY %d times in %d rounds under load\n",
              static_cast<int>(Mapping::not_ready() - not_ready), kRounds);
}

// The product never relies on either answer: it unmaps only what no queued work uses.
TEST_F(DriverTest, TellsWhetherUnmapWaitsForKernels) {
  Mapping other(2 * kMiB);
  const CUstream busy = gpu_.NewStream();
  gpu_.Synchronize();
  constexpr uint64_t kSpinNanos = 200'000'000;
  gpu_.Spin(busy, kSpinNanos);
  const Clock::time_point start = Clock::now();
  ASSERT_EQ(other.Unmap(), CUDA_SUCCESS);
  const double unmap = MicrosSince(start);
  const Clock::time_point again = Clock::now();
  other.Map();
  const double map = MicrosSince(again);
  gpu_.Synchronize();
  std::printf(
      "measured: beside a kernel of 200 ms, unmapping 2 MiB took %.0f us, mapping it with access %.0f us\n",
      unmap, map);
}

// A fault: the copy into memory that was mapped a moment ago is ordered before the kernel by an event alone.
TEST_F(DriverTest, AnEventOrdersACopyIntoFreshMemoryBeforeAKernel) {
  constexpr uint64_t kBytes = 32 * kMiB;
  void* const host =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  ASSERT_NE(host, MAP_FAILED);
  ASSERT_EQ(gpu_.driver().cuMemHostRegister_v2(host, kBytes, CU_MEMHOSTREGISTER_PORTABLE), CUDA_SUCCESS);
  Mapping block(kBytes);
  const CUstream copies = gpu_.NewStream();
  CUevent arrived = nullptr;
  ASSERT_EQ(gpu_.driver().cuEventCreate(&arrived, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  for (uint32_t round = 1; round <= 8; ++round) {
    gpu_.Fill(stream_, block.address(), kBytes, round);
    gpu_.Synchronize();
    ASSERT_EQ(gpu_.driver().cuMemcpyDtoHAsync_v2(host, block.address(), kBytes, copies), CUDA_SUCCESS);
    gpu_.Synchronize();
    ASSERT_EQ(block.Unmap(), CUDA_SUCCESS);
    block.Map();
    gpu_.Fill(stream_, block.address(), kBytes, 0);  // what was there must not be what is found
    gpu_.Synchronize();
    ASSERT_EQ(gpu_.driver().cuMemcpyHtoDAsync_v2(block.address(), host, kBytes, copies), CUDA_SUCCESS);
    ASSERT_EQ(gpu_.driver().cuEventRecord(arrived, copies), CUDA_SUCCESS);
    ASSERT_EQ(gpu_.driver().cuStreamWaitEvent(stream_, arrived, 0), CUDA_SUCCESS);
    gpu_.Compare(stream_, block.address(), kBytes, round, differences_.word());
  }
  EXPECT_EQ(differences_.Read(), 0u);
  EXPECT_EQ(GPU_FUNCTION(cuEventDestroy_v2)(arrived), CUDA_SUCCESS);
  EXPECT_EQ(gpu_.driver().cuMemHostUnregister(host), CUDA_SUCCESS);
  munmap(host, kBytes);
}

TEST_F(DriverTest, AnEventThatWasNotReachedIsNotComplete) {
  CUevent event = nullptr;
  ASSERT_EQ(gpu_.driver().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  gpu_.Spin(stream_, 100'000'000);
  ASSERT_EQ(gpu_.driver().cuEventRecord(event, stream_), CUDA_SUCCESS);
  EXPECT_EQ(gpu_.driver().cuEventQuery(event), CUDA_ERROR_NOT_READY);
  ASSERT_EQ(gpu_.driver().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(gpu_.driver().cuEventQuery(event), CUDA_SUCCESS);
  EXPECT_EQ(GPU_FUNCTION(cuEventDestroy_v2)(event), CUDA_SUCCESS);
}

}  // namespace
}  // namespace spillway::gpu
