// The stand-in driver's streams and events: what runs after what, and who waits for whom.
#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <utility>

#include "tests/integration/simcuda/driver_test_base.h"
#include "tests/integration/simcuda/driver_waiting.h"

namespace simcuda_test {
namespace {

class DriverOrderTest : public DriverTest {
 public:
  // Appends `mark` to the trace when it runs and `gate` is open.
  CUresult Mark(CUstream stream, char mark) {
    return Mark(stream, mark, [] {});
  }
  CUresult Mark(CUstream stream, char mark, const Gate& gate) { return Mark(stream, mark, gate.Wait()); }
  std::string Trace() {
    std::lock_guard<std::mutex> lock(mutex_);
    return trace_;
  }

  // Nothing but `trace` has run, although streams had the time.
  void ExpectNoMoreThan(const std::string& trace) {
    EXPECT_TRUE(WaitUntil([&] { return Trace().size() >= trace.size(); }));
    LetStreamsRun();
    EXPECT_EQ(Trace(), trace);
  }

  std::mutex mutex_;
  std::string trace_;

 private:
  CUresult Mark(CUstream stream, char mark, std::function<void()> wait) {
    const Kernel kernel("mark", 0, [this, mark, wait = std::move(wait)](uint64_t*) {
      wait();
      std::lock_guard<std::mutex> lock(mutex_);
      trace_ += mark;
    });
    return kernel.Launch(stream, {});
  }
};

TEST_F(DriverOrderTest, OneStreamRunsInOrder) {
  TestStream stream(CU_STREAM_NON_BLOCKING);
  const Gate gate;
  for (char mark = 'a'; mark <= 'z'; ++mark)
    ASSERT_EQ(mark == 'c' ? Mark(stream, mark, gate) : Mark(stream, mark), CUDA_SUCCESS);
  ExpectNoMoreThan("ab");
  gate.Open();
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Trace(), "abcdefghijklmnopqrstuvwxyz");
}

TEST_F(DriverOrderTest, TheHostWaitsWhenItIsFarAheadOfTheDevice) {
  constexpr int kMaxAhead = 1024;
  TestStream stream(CU_STREAM_NON_BLOCKING);
  std::atomic<int> ran{0}, most{0};
  HostCall launches;
  const Kernel kernel("count", 0, [&](uint64_t*) {
    if (ran.load() % 64 == 0) launches.UntilItWaits();
    ++ran;
  });
  launches.Run([&] {
    for (int launched = 1; launched <= 3 * kMaxAhead; ++launched) {
      ASSERT_EQ(kernel.Launch(stream, {}), CUDA_SUCCESS);
      most = std::max(most.load(), launched - ran.load());
    }
  });
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_LE(most, kMaxAhead);
}

TEST_F(DriverOrderTest, LegacyStreamWaitsForBlockingStreams) {
  TestStream blocking(CU_STREAM_DEFAULT);
  const Gate gate;
  ASSERT_EQ(Mark(blocking, 'b', gate), CUDA_SUCCESS);
  ASSERT_EQ(Mark(nullptr, 'l'), CUDA_SUCCESS);
  ExpectNoMoreThan("");
  gate.Open();
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Trace(), "bl");
}

TEST_F(DriverOrderTest, BlockingStreamsWaitForTheLegacyStream) {
  TestStream blocking(CU_STREAM_DEFAULT);
  const Gate gate;
  ASSERT_EQ(Mark(CU_STREAM_LEGACY, 'l', gate), CUDA_SUCCESS);
  ASSERT_EQ(Mark(blocking, 'b'), CUDA_SUCCESS);
  ExpectNoMoreThan("");
  gate.Open();
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Trace(), "lb");
}

TEST_F(DriverOrderTest, NonBlockingStreamsDoNotWaitForTheLegacyStream) {
  TestStream free_stream(CU_STREAM_NON_BLOCKING);
  const Gate gate;
  ASSERT_EQ(Mark(nullptr, 'l', gate), CUDA_SUCCESS);
  ASSERT_EQ(Mark(free_stream, 'n'), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(free_stream), CUDA_SUCCESS);
  EXPECT_EQ(Trace(), "n");
  gate.Open();
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Trace(), "nl");
}

TEST_F(DriverOrderTest, LegacyWorkLiesBetweenBlockingWork) {
  TestStream first(CU_STREAM_DEFAULT), second(CU_STREAM_DEFAULT);
  const Gate first_gate, legacy_gate;
  ASSERT_EQ(Mark(first, 'a', first_gate), CUDA_SUCCESS);
  ASSERT_EQ(Mark(nullptr, 'b', legacy_gate), CUDA_SUCCESS);
  ASSERT_EQ(Mark(second, 'c'), CUDA_SUCCESS);
  ExpectNoMoreThan("");
  first_gate.Open();
  ExpectNoMoreThan("a");
  legacy_gate.Open();
  ASSERT_EQ(cuStreamSynchronize(second), CUDA_SUCCESS);
  EXPECT_EQ(Trace(), "abc");
}

TEST_F(DriverOrderTest, DestroyedBlockingStreamStillPrecedesLegacyWork) {
  CUstream stream = nullptr;
  ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_DEFAULT), CUDA_SUCCESS);
  const Gate gate;
  ASSERT_EQ(Mark(stream, 'd', gate), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamDestroy(stream), CUDA_SUCCESS);
  const HandlesAreAnswered answered;
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
  ASSERT_EQ(Mark(nullptr, 'l'), CUDA_SUCCESS);
  ExpectNoMoreThan("");
  gate.Open();
  ASSERT_EQ(cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Trace(), "dl");
}

TEST_F(DriverOrderTest, PerThreadStreamIsTheThreadsOwn) {
  unsigned long long own = 0, legacy = 0, other = 0;
  ASSERT_EQ(cuStreamGetId(CU_STREAM_PER_THREAD, &own), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamGetId(nullptr, &legacy), CUDA_SUCCESS);
  CUcontext context = nullptr;
  ASSERT_EQ(cuCtxGetCurrent(&context), CUDA_SUCCESS);
  std::thread([&] {
    EXPECT_EQ(cuStreamGetId(CU_STREAM_PER_THREAD, &other), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamGetId(CU_STREAM_PER_THREAD, &other), CUDA_SUCCESS);
  }).join();
  EXPECT_NE(own, legacy);
  EXPECT_NE(own, other);
  // It synchronises with the legacy stream.
  const Gate gate;
  ASSERT_EQ(Mark(CU_STREAM_PER_THREAD, 'p', gate), CUDA_SUCCESS);
  ASSERT_EQ(Mark(nullptr, 'l'), CUDA_SUCCESS);
  ExpectNoMoreThan("");
  gate.Open();
  ASSERT_EQ(cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Trace(), "pl");
}

TEST_F(DriverOrderTest, PerThreadFormsUseThePerThreadStream) {
  // The legacy stream is busy; work of the per-thread form on a non-blocking path must not be queued on it.
  void* address = nullptr;
  CUdriverProcAddressQueryResult status;
  ASSERT_EQ(cuGetProcAddress("cuStreamGetId", &address, 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
                             &status),
            CUDA_SUCCESS);
  unsigned long long by_form = 0, by_handle = 0;
  ASSERT_EQ(reinterpret_cast<CUresult (*)(CUstream, unsigned long long*)>(address)(nullptr, &by_form),
            CUDA_SUCCESS);
  ASSERT_EQ(cuStreamGetId(CU_STREAM_PER_THREAD, &by_handle), CUDA_SUCCESS);
  EXPECT_EQ(by_form, by_handle);
}

TEST_F(DriverOrderTest, EventOrdersStreams) {
  TestStream first(CU_STREAM_NON_BLOCKING), second(CU_STREAM_NON_BLOCKING);
  TestEvent event(CU_EVENT_DISABLE_TIMING);
  EXPECT_EQ(cuEventQuery(event), CUDA_SUCCESS) << "never recorded";
  const Gate gate, never;
  ASSERT_EQ(Mark(first, '1', gate), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(event, first), CUDA_SUCCESS);
  EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
  ASSERT_EQ(cuStreamWaitEvent(second, event, 0), CUDA_SUCCESS);
  ASSERT_EQ(Mark(second, '2'), CUDA_SUCCESS);
  ASSERT_EQ(Mark(first, '3', never), CUDA_SUCCESS);
  ExpectNoMoreThan("");
  gate.Open();
  ASSERT_EQ(cuStreamSynchronize(second), CUDA_SUCCESS);
  EXPECT_EQ(Trace(), "12");
  EXPECT_EQ(cuEventQuery(event), CUDA_SUCCESS);
}

TEST_F(DriverOrderTest, WaitRefersToTheRecordBeforeIt) {
  TestStream first(CU_STREAM_NON_BLOCKING), second(CU_STREAM_NON_BLOCKING);
  TestEvent event;
  ASSERT_EQ(cuEventRecord(event, first), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamWaitEvent(second, event, 0), CUDA_SUCCESS);
  const Gate gate;
  ASSERT_EQ(Mark(first, 'x', gate), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(event, first), CUDA_SUCCESS);
  ASSERT_EQ(Mark(second, 'y'), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(second), CUDA_SUCCESS);
  EXPECT_EQ(Trace(), "y");
  gate.Open();
  ASSERT_EQ(cuEventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(Trace(), "yx");
}

TEST_F(DriverOrderTest, EventsMeasureTime) {
  TestStream stream(CU_STREAM_NON_BLOCKING);
  TestEvent start, end, untimed(CU_EVENT_DISABLE_TIMING), unrecorded;
  float milliseconds = 0;
  const Gate gate;
  const double before = Seconds();
  ASSERT_EQ(cuEventRecord(start, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuEventSynchronize(start), CUDA_SUCCESS);
  const double begun = Seconds();
  ASSERT_EQ(Mark(stream, 'a', gate), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(end, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(untimed, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuEventElapsedTime(&milliseconds, start, end), CUDA_ERROR_NOT_READY);
  LetStreamsRun();
  const double ends = Seconds();
  gate.Open();
  ASSERT_EQ(cuEventSynchronize(untimed), CUDA_SUCCESS);
  const double after = Seconds();
  ASSERT_EQ(cuEventElapsedTime(&milliseconds, start, end), CUDA_SUCCESS);
  constexpr double kRounding = 0.001;  // ms
  EXPECT_GE(milliseconds, 1000 * (ends - begun) - kRounding);
  EXPECT_LE(milliseconds, 1000 * (after - before) + kRounding);
  EXPECT_EQ(cuEventElapsedTime(&milliseconds, start, untimed), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuEventElapsedTime(&milliseconds, start, unrecorded), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(DriverOrderTest, DestroyedEventHarmsNobody) {
  TestStream stream(CU_STREAM_NON_BLOCKING), other(CU_STREAM_NON_BLOCKING);
  const Gate gate;
  ASSERT_EQ(Mark(stream, 'a', gate), CUDA_SUCCESS);
  CUevent event = nullptr;
  ASSERT_EQ(cuEventCreate(&event, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(event, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamWaitEvent(other, event, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuEventDestroy(event), CUDA_SUCCESS);
  const HandlesAreAnswered answered;
  EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
  TestEvent again;  // likely the same memory
  ASSERT_EQ(Mark(other, 'b'), CUDA_SUCCESS);
  ExpectNoMoreThan("");
  gate.Open();
  ASSERT_EQ(cuStreamSynchronize(other), CUDA_SUCCESS);
  EXPECT_EQ(Trace(), "ab");
  EXPECT_EQ(cuEventQuery(again), CUDA_SUCCESS);
}

TEST_F(DriverOrderTest, QueriesSayNotReadyWhileWorkIsQueued) {
  TestStream stream(CU_STREAM_DEFAULT);
  const Gate gate;
  ASSERT_EQ(Mark(stream, 'a', gate), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY) << "the legacy stream includes blocking streams";
  gate.Open();
  ASSERT_EQ(cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(stream), CUDA_SUCCESS);
}

TEST_F(DriverOrderTest, HostFunctionsRunInOrder) {
  TestStream stream(CU_STREAM_NON_BLOCKING);
  const Gate gate;
  ASSERT_EQ(Mark(stream, 'a', gate), CUDA_SUCCESS);
  ASSERT_EQ(cuLaunchHostFunc(
                stream,
                [](void* self) {
                  auto* test = static_cast<DriverOrderTest*>(self);
                  std::lock_guard<std::mutex> lock(test->mutex_);
                  test->trace_ += 'h';
                },
                this),
            CUDA_SUCCESS);
  ASSERT_EQ(Mark(stream, 'b'), CUDA_SUCCESS);
  ExpectNoMoreThan("");
  gate.Open();
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Trace(), "ahb");
}

TEST_F(DriverOrderTest, StreamsTellAboutThemselves) {
  int least = 9, greatest = 9, priority = 9;
  ASSERT_EQ(cuCtxGetStreamPriorityRange(&least, &greatest), CUDA_SUCCESS);
  EXPECT_LT(greatest, least);
  CUstream stream = nullptr;
  ASSERT_EQ(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest - 10), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamGetPriority(stream, &priority), CUDA_SUCCESS);
  EXPECT_EQ(priority, greatest);
  unsigned flags = 9;
  ASSERT_EQ(cuStreamGetFlags(stream, &flags), CUDA_SUCCESS);
  EXPECT_EQ(flags, CU_STREAM_NON_BLOCKING);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  ASSERT_EQ(cuStreamIsCapturing(stream, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
  ASSERT_EQ(cuStreamDestroy(stream), CUDA_SUCCESS);
  const HandlesAreAnswered answered;
  EXPECT_EQ(cuStreamDestroy(stream), CUDA_ERROR_INVALID_HANDLE);
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  ASSERT_EQ(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
  ASSERT_EQ(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
}

TEST_F(DriverOrderTest, ManyStreamsReuseTheirPlaces) {
  unsigned long long last = 0;
  for (int i = 0; i < 2000; ++i) {
    TestStream stream(i % 2 == 0 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
    unsigned long long id = 0;
    ASSERT_EQ(cuStreamGetId(stream, &id), CUDA_SUCCESS);
    ASSERT_GT(id, last) << "ids are not used again";
    last = id;
    if (i % 100 == 0) {
      ASSERT_EQ(Mark(stream, 'm'), CUDA_SUCCESS);
    }
  }
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_TRUE(WaitUntil([&] { return Trace().size() >= 20; })) << "destroyed streams finish on their own";
}

}  // namespace
}  // namespace simcuda_test
