// Several threads on several streams use the stand-in driver at once; run under ThreadSanitizer as well.
#include <atomic>
#include <random>

#include "tests/integration/simcuda/driver_test_base.h"

namespace simcuda_test {
namespace {

class DriverStressTest : public DriverTest {};

// Each thread maps, launches, copies and unmaps in its own range, ordered by events.
TEST_F(DriverStressTest, ThreadsDoNotDisturbEachOther) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 150;
  CUcontext context = nullptr;
  ASSERT_EQ(cuCtxGetCurrent(&context), CUDA_SUCCESS);
  const uint64_t before = Stats().physical_bytes[0];
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      ASSERT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
      Range range(4 * kChunk);
      Chunk chunk;
      const Kernel add("stress_add", 1, [](uint64_t* addresses) { ++*At<uint64_t>(addresses[0]); });
      TestStream first(t % 2 == 0 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT),
          second(CU_STREAM_NON_BLOCKING);
      TestEvent event(CU_EVENT_DISABLE_TIMING), back(CU_EVENT_DISABLE_TIMING);
      uint64_t expected = 0;
      for (int round = 0; round < kRounds; ++round) {
        const CUdeviceptr at = range.start + static_cast<uint64_t>(round % 4) * kChunk;
        chunk.MapAt(at);
        if (round == 0) {
          ASSERT_EQ(cuMemsetD8Async(at, 0, 64, first), CUDA_SUCCESS);
        }
        for (int i = 0; i < 10; ++i) {
          const CUstream stream = i % 2 == 0 ? first : second;
          ASSERT_EQ(add.Launch(stream, {at}), CUDA_SUCCESS);
          ASSERT_EQ(cuEventRecord(i % 2 == 0 ? event : back, stream), CUDA_SUCCESS);
          ASSERT_EQ(cuStreamWaitEvent(i % 2 == 0 ? second : first, i % 2 == 0 ? event : back, 0),
                    CUDA_SUCCESS);
          ++expected;
        }
        uint64_t value = 0;
        ASSERT_EQ(cuMemcpyDtoHAsync(&value, at, 8, first), CUDA_SUCCESS);
        ASSERT_EQ(cuStreamSynchronize(first), CUDA_SUCCESS);
        if (value != expected) ++wrong;
        ASSERT_EQ(cuMemUnmap(at, kChunk), CUDA_SUCCESS);
        if (round % 16 == 0) {
          CUdeviceptr pointer = 0;
          ASSERT_EQ(cuMemAlloc(&pointer, 100 * kMiB / 1024), CUDA_SUCCESS);
          ASSERT_EQ(cuMemFree(pointer), CUDA_SUCCESS);
          ASSERT_EQ(add.Launch(CU_STREAM_PER_THREAD, {reinterpret_cast<uint64_t>(new uint64_t(0))}),
                    CUDA_SUCCESS);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Stats().physical_bytes[0], before);
}

// Random work on the legacy stream and on blocking ones from several threads must never deadlock.
TEST_F(DriverStressTest, LegacyOrderHasNoCircle) {
  constexpr int kThreads = 3;
  CUcontext context = nullptr;
  ASSERT_EQ(cuCtxGetCurrent(&context), CUDA_SUCCESS);
  TestStream blocking[2] = {TestStream(CU_STREAM_DEFAULT), TestStream(CU_STREAM_DEFAULT)};
  std::atomic<int> ran{0};
  const Kernel count("count", 0, [&](uint64_t*) { ++ran; });
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      ASSERT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < 3000; ++i) {
        const unsigned choice = random() % 4;
        const CUstream stream = choice == 0   ? CU_STREAM_LEGACY
                                : choice == 1 ? CU_STREAM_PER_THREAD
                                              : blocking[choice - 2].stream;
        ASSERT_EQ(count.Launch(stream, {}), CUDA_SUCCESS);
        if (i % 500 == 0) {
          ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(ran, kThreads * 3000);
}

}  // namespace
}  // namespace simcuda_test
