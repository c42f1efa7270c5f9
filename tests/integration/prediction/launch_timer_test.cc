#include "integration/prediction/launch_timer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace spillway::integration {
namespace {

using allocator::CudaDriver;
using allocator::StreamRef;
using policy::Nanos;

constexpr StreamRef kMain = {nullptr, false, nullptr};
const StreamRef kSide = {reinterpret_cast<CUstream>(0x1000), false, nullptr};
constexpr StreamRef kPerThread = {nullptr, true, nullptr};

// A GPU whose streams run what they are given one after the other, from the host's time on: an event is
// reached when the work before it is. Times are the test's own.
class FakeGpu : public os::Clock {
 public:
  static FakeGpu& Get() {
    static FakeGpu gpu;
    return gpu;
  }
  void Reset() {
    std::lock_guard<std::mutex> lock(mu_);
    host_ = 0;
    records_ = 0;
    stuck_ = refuses_ = false;
    streams_.clear();
    events_.clear();
  }
  int64_t NowNanos() const override {
    std::lock_guard<std::mutex> lock(mu_);
    return host_;
  }
  void PassHostTime(Nanos time) {
    std::lock_guard<std::mutex> lock(mu_);
    host_ += time;
  }
  // Work of that length on the stream, begun when the host has given it and what came before is done.
  void Work(CUstream stream, Nanos length) {
    std::lock_guard<std::mutex> lock(mu_);
    Nanos& end = EndOf(stream);
    end = std::max(end, host_) + length;
  }
  void Finish() {
    std::lock_guard<std::mutex> lock(mu_);
    for (const auto& [stream, end] : streams_) host_ = std::max(host_, end);
  }
  void set_stuck(bool stuck) { stuck_ = stuck; }
  void set_refuses(bool refuses) { refuses_ = refuses; }
  uint64_t records() const { return records_; }
  size_t events() const { return events_.size(); }

  static CudaDriver Driver() {
    CudaDriver driver;
    driver.cuCtxGetCurrent = [](CUcontext* context) { return *context = nullptr, CUDA_SUCCESS; };
    driver.cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode*) { return CUDA_SUCCESS; };
    driver.cuEventCreate = [](CUevent* event, unsigned int) { return Get().Create(event); };
    driver.cuEventRecord = [](CUevent event, CUstream stream) { return Get().Record(event, stream); };
    driver.cuEventQuery = [](CUevent event) { return Get().Query(event); };
    driver.cuEventElapsedTime = [](float* ms, CUevent a, CUevent b) { return Get().Elapsed(ms, a, b); };
    return driver;
  }

 private:
  // The per-thread default stream's handle names another stream in each thread.
  Nanos& EndOf(CUstream stream) {
    thread_local char identity;
    const void* key = stream;
    if (stream == CU_STREAM_PER_THREAD) key = &identity;
    return streams_[key];
  }
  CUresult Create(CUevent* event) {
    std::lock_guard<std::mutex> lock(mu_);
    events_.push_back(-1);
    *event = reinterpret_cast<CUevent>(events_.size());
    return CUDA_SUCCESS;
  }
  Nanos& At(CUevent event) { return events_[reinterpret_cast<uintptr_t>(event) - 1]; }
  CUresult Record(CUevent event, CUstream stream) {
    std::lock_guard<std::mutex> lock(mu_);
    if (refuses_) return CUDA_ERROR_INVALID_HANDLE;
    ++records_;
    host_ += 500;  // what the call costs
    At(event) = std::max(EndOf(stream), host_);
    return CUDA_SUCCESS;
  }
  CUresult Query(CUevent event) {
    std::lock_guard<std::mutex> lock(mu_);
    return stuck_ || At(event) > host_ ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
  }
  CUresult Elapsed(float* milliseconds, CUevent start, CUevent end) {
    std::lock_guard<std::mutex> lock(mu_);
    if (At(start) > host_ || At(end) > host_) return CUDA_ERROR_NOT_READY;
    *milliseconds = static_cast<float>(static_cast<double>(At(end) - At(start)) / 1e6);
    return CUDA_SUCCESS;
  }

  mutable std::mutex mu_;
  Nanos host_ = 0;
  uint64_t records_ = 0;
  std::atomic<bool> stuck_{false}, refuses_{false};
  std::map<const void*, Nanos> streams_;
  std::vector<Nanos> events_;
};

struct Launch {
  uint64_t tag = 1;
  Nanos length = 100'000;
  Nanos unseen = 0;  // launches that name no block follow
  Nanos waits = 0;   // for our own transfers, enqueued on its stream
  StreamRef stream = kMain;
  policy::TraceBlock block = 7;
};

// What the gate does with launches.
class LaunchTimerTest : public ::testing::Test {
 protected:
  LaunchTimerTest() : driver_(FakeGpu::Driver()) {
    gpu_.Reset();
    LaunchTimerOptions options;
    options.driver = &driver_;
    options.clock = &gpu_;
    timer_ = std::make_unique<LaunchTimer>(options, &wants_marks_);
    for (policy::TraceBlock block = 1; block <= 7; ++block) sizes_[block] = 1 << 20;
  }

  static constexpr Nanos kHostNanos = 5000;  // of a launch

  void Run(const Launch& launch, bool fails = false) {
    const bool marked = wants_marks_.load();
    if (marked) timer_->OnEnter(launch.stream);
    gpu_.Work(launch.stream.Explicit(), launch.waits);
    if (marked) timer_->OnReady(launch.stream);
    if (fails) return;
    gpu_.Work(launch.stream.Explicit(), launch.length);
    timer_->OnLaunch(trace_.end());
    trace_.AddLaunch(launch.tag, std::vector<policy::TraceBlock>{launch.block});
    gpu_.PassHostTime(kHostNanos);
    gpu_.Work(launch.stream.Explicit(), launch.unseen);
  }
  // Iterations of the job; the reader polls now and then. The host is a few launches ahead of the GPU.
  // `known_launches`: what the reader knows of the length of an iteration; 0: nothing.
  void RunIterations(const std::vector<Launch>& iteration, int iterations, uint32_t known_launches) {
    for (int i = 0; i < iterations; ++i) {
      size_t place = 0;
      for (const Launch& launch : iteration) {
        Run(launch);
        if (++place % 50 == 0) Read(known_launches);
      }
      gpu_.Finish();
      Read(known_launches);
    }
  }
  void Read(uint32_t known_launches) { timer_->Poll(trace_, known_launches, sizes_, &times_); }

  Nanos TimeOf(uint64_t tag) const {
    return times_.Of({policy::KindOf(tag, std::vector<policy::Bytes>{1 << 20})});
  }
  static void ExpectNear(Nanos found, Nanos expected) {
    EXPECT_NEAR(static_cast<double>(found), static_cast<double>(expected),
                0.001 * static_cast<double>(expected) + 600);
  }

  FakeGpu& gpu_ = FakeGpu::Get();
  const CudaDriver driver_;
  std::atomic<bool> wants_marks_{false};
  std::unique_ptr<LaunchTimer> timer_;
  policy::Trace trace_;
  policy::BlockSizes sizes_;
  policy::KernelTimes times_;
};

TEST_F(LaunchTimerTest, MeasuresALaunchWithWhatFollowsAndWithoutOurWaits) {
  const std::vector<Launch> iteration = {
      {1, 200'000}, {2, 300'000, 50'000}, {3, 100'000, 0, 5'000'000}, {4, 400'000}};
  RunIterations(iteration, 200, 4);
  ExpectNear(TimeOf(1), 200'000);
  ExpectNear(TimeOf(2), 350'000);  // not launch 3's wait of 5 ms
  ExpectNear(TimeOf(3), 100'000);
  ExpectNear(TimeOf(4), 400'000);
  EXPECT_EQ(timer_->abandoned(), 0u);
}

// What names no block is counted where it runs, as between the weights that an optimizer goes through: the times
// of an iteration's launches add up to the iteration.
TEST_F(LaunchTimerTest, UnseenWorkBelongsToItsPlace) {
  std::vector<Launch> iteration;
  for (policy::TraceBlock block = 1; block <= 6; ++block)
    iteration.push_back({1, 100'000, block % 3 == 0 ? 900'000 : 0, 0, kMain, block});
  RunIterations(iteration, 200, static_cast<uint32_t>(iteration.size()));
  const policy::LaunchIndex first = trace_.end() - 2 * iteration.size();
  for (size_t i = 0; i < iteration.size(); ++i) {
    ExpectNear(times_.Of(policy::KindAt(trace_, first + i, first + i + 1, sizes_)),
               iteration[i].length + iteration[i].unseen);
  }
}

TEST_F(LaunchTimerTest, CoversAnIterationOfManyKindsWithinTen) {
  std::vector<Launch> iteration;
  for (uint64_t i = 0; i < 500; ++i) iteration.push_back({i, 50'000 + static_cast<Nanos>(i) * 100});
  RunIterations(iteration, 2, 0);  // no iteration is known at first
  const uint64_t before = timer_->measured();
  EXPECT_GT(before, 30u);
  RunIterations(iteration, 8, 500);
  int known = 0;
  for (const Launch& launch : iteration) {
    if (TimeOf(launch.tag) == 0) continue;
    ++known;
    ExpectNear(TimeOf(launch.tag), launch.length);
  }
  EXPECT_GT(known, 200);  // of 500 kinds: each is another function, which no job has
}

TEST_F(LaunchTimerTest, CoversAnIterationOfLayersAtOnce) {
  std::vector<Launch> iteration;
  for (uint64_t i = 0; i < 600; ++i)
    iteration.push_back({i % 40, 100'000 + static_cast<Nanos>(i % 40) * 1000});
  RunIterations(iteration, 2, 0);
  RunIterations(iteration, 3, 600);
  for (uint64_t kind = 0; kind < 40; ++kind) ExpectNear(TimeOf(kind), iteration[kind].length);
}

TEST_F(LaunchTimerTest, CostsLessThanAPercentOfTheTime) {
  const std::vector<Launch> iteration = {{1, 4000}, {2, 5000}, {3, 3000}};  // as short as launches are
  gpu_.Finish();
  const Nanos begin = gpu_.NowNanos();
  for (int i = 0; i < 20'000; ++i) {
    for (const Launch& launch : iteration) Run(launch);
    if (i % 70 == 0) Read(3);
  }
  const double time = static_cast<double>(gpu_.NowNanos() - begin);
  const double spent = static_cast<double>(gpu_.records()) * (LaunchTimer::kSampleNanos / 2 + 500);
  EXPECT_GT(timer_->measured(), 50u);
  // What may be spent from the start on, once, is left out.
  EXPECT_LT(spent - 2 * LaunchTimer::kTargets * (LaunchTimer::kSampleNanos / 2 + 500), 0.01 * time);
}

// An event between programmatic dependent launches keeps the second from beginning before the first has ended.
TEST_F(LaunchTimerTest, EventsBetweenOverlappingLaunchesCostLessThanAPercent) {
  constexpr double kOverlap = 4000;
  const Nanos begin = gpu_.NowNanos();
  for (int i = 0; i < 60'000; ++i) {
    Run({1, 4000});
    if (i % 200 == 0) Read(0);  // no iteration is known: the larger share
  }
  EXPECT_GT(timer_->measured(), 200u);
  const double events = static_cast<double>(gpu_.records()) - 2 * LaunchTimer::kTargets;
  EXPECT_LT(events * kOverlap, 0.01 * static_cast<double>(gpu_.NowNanos() - begin));
}

TEST_F(LaunchTimerTest, RecordsNothingBeforeTheReaderHasChosen) {
  for (int i = 0; i < 100; ++i) Run({});
  EXPECT_FALSE(wants_marks_.load());
  EXPECT_EQ(gpu_.records(), 0u);
  EXPECT_EQ(gpu_.events(), 0u);
}

TEST_F(LaunchTimerTest, ALaunchBeforeAnotherStreamsIsMeasuredAlone) {
  const std::vector<Launch> iteration = {{1, 200'000}, {2, 300'000, 0, 0, kSide}, {3, 100'000}};
  RunIterations(iteration, 300, 3);
  EXPECT_GT(timer_->abandoned(), 0u);
  ExpectNear(TimeOf(1), 200'000);
  ExpectNear(TimeOf(2), 300'000);
  // Followed by launch 1, on the same stream: the host's waiting for the end of each iteration counts.
  EXPECT_GE(TimeOf(3), 99'000);
  EXPECT_LE(TimeOf(3), 130'000);
}

TEST_F(LaunchTimerTest, AFailedLaunchIsNotMeasured) {
  RunIterations({{1, 200'000}}, 1, 1);  // targets are there now
  for (int i = 0; i < 200; ++i) {
    Run({9, 7'000'000}, true);
    Run({1, 200'000});
    gpu_.Finish();
    Read(1);
  }
  ExpectNear(TimeOf(1), 200'000);
  EXPECT_EQ(TimeOf(9), 0);
}

TEST_F(LaunchTimerTest, AnInterruptedSampleHasNoEnd) {
  for (int i = 0; i < 500; ++i) {
    Run({1, 200'000});
    const uint64_t records = gpu_.records();
    const bool open = wants_marks_.load() && records % 2 == 1;
    timer_->OnInterrupt();
    timer_->OnEnter(kMain);
    if (open) {
      EXPECT_EQ(gpu_.records(), records);
    }
    gpu_.Finish();
    Read(1);
  }
  EXPECT_EQ(timer_->measured(), 0u);
}

TEST_F(LaunchTimerTest, LaunchesInOtherContextsAreNotSampled) {
  Launch elsewhere;
  elsewhere.stream.context = reinterpret_cast<CUcontext>(0x77);
  for (int i = 0; i < 200; ++i) {
    Run(elsewhere);
    Read(1);
  }
  EXPECT_EQ(gpu_.records(), 0u);
  RunIterations({{1, 200'000}}, 100, 1);  // and do not keep others from being sampled
  ExpectNear(TimeOf(1), 200'000);
}

TEST_F(LaunchTimerTest, AGpuThatStandsStillTakesNoMoreThanThePool) {
  gpu_.set_stuck(true);
  RunIterations({{1, 1'000'000}}, 3000, 1);
  EXPECT_EQ(timer_->measured(), 0u);
  EXPECT_LE(gpu_.records(), 2 * LaunchTimer::kSamples);
  EXPECT_EQ(gpu_.events(), 2 * LaunchTimer::kSamples);
  gpu_.set_stuck(false);
  RunIterations({{1, 1'000'000}}, 300, 1);
  ExpectNear(TimeOf(1), 1'000'000);
}

TEST_F(LaunchTimerTest, ADriverThatRefusesIsNoHarm) {
  gpu_.set_refuses(true);
  RunIterations({{1, 200'000}}, 100, 1);
  EXPECT_EQ(timer_->measured(), 0u);
  gpu_.set_refuses(false);
  RunIterations({{1, 200'000}}, 100, 1);
  ExpectNear(TimeOf(1), 200'000);
}

// Launches of two threads on their per-thread default streams: the handle means the caller's own, so a sample
// may only be ended by the thread that began it.
TEST_F(LaunchTimerTest, APerThreadStreamIsMarkedByItsOwnThreadAlone) {
  Launch own;
  own.stream = kPerThread;
  own.length = 200'000;
  RunIterations({own}, 1, 1);
  for (int i = 0; i < 200; ++i) {
    Run(own);
    std::thread([&] {
      Launch other;
      other.tag = 2;
      other.length = 90'000'000;
      other.stream = kPerThread;
      Run(other);
    }).join();
    gpu_.Finish();
    Read(2);
  }
  // Each is measured alone, on its stream: an end on the other's would be 90 ms late or early.
  ExpectNear(TimeOf(1), 200'000);
  ExpectNear(TimeOf(2), 90'000'000);
}

TEST_F(LaunchTimerTest, ManyThreadsAtOnce) {
  std::atomic<uint64_t> next{0};
  std::atomic<int> running{3};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      const StreamRef stream = t == 2 ? kPerThread : kMain;
      for (int i = 0; i < 20'000; ++i) {
        if (wants_marks_.load(std::memory_order_relaxed)) {
          timer_->OnEnter(stream);
          timer_->OnReady(stream);
        }
        gpu_.Work(stream.Explicit(), 1000);
        timer_->OnLaunch(next.fetch_add(1));
        gpu_.PassHostTime(3000);
        if (i % 500 == 0) timer_->OnInterrupt();
      }
      --running;
    });
  }
  while (running.load() > 0) {
    const uint64_t reported = next.load();
    while (trace_.end() + 3 < reported) trace_.AddLaunch(1, std::vector<policy::TraceBlock>{7});
    Read(0);
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  while (trace_.end() < next.load() + 1) trace_.AddLaunch(1, std::vector<policy::TraceBlock>{7});
  gpu_.Finish();
  Read(0);
  EXPECT_LE(gpu_.events(), 2 * LaunchTimer::kSamples);
  EXPECT_GE(gpu_.records(), 2 * timer_->measured());
}

}  // namespace
}  // namespace spillway::integration
