// What a machine's costs (SIMCUDA_HARDWARE) leave in order: fills, waits of one stream for another, loads of code beside
// launches, and misuse that is seen before a call's time passes.
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "tests/integration/simcuda/driver_hardware_base.h"
#include "tests/integration/simcuda/driver_waiting.h"

namespace simcuda_test {
namespace {

constexpr const char* kDeviceRate = R"("device_gb_per_s": {"value": 100, "source": "a test"})";

class DriverHardwareOrderTest : public DriverHardwareTest {
 protected:
  int UseWithLoads(const std::string& holds);
  // A thread with the context of the one that starts it.
  static std::thread Start(const std::function<void()>& body) {
    CUcontext context = nullptr;
    EXPECT_EQ(cuCtxGetCurrent(&context), CUDA_SUCCESS);
    return std::thread([body, context] {
      EXPECT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
      body();
    });
  }
};
using DriverHardwareOrderDeathTest = DriverHardwareOrderTest;

TEST_F(DriverHardwareOrderTest, AFillTakesTheDevicesTime) {
  const DeviceBytes device(4'000'000);
  const TestStream stream(CU_STREAM_NON_BLOCKING);
  const TestEvent start, end;
  ASSERT_EQ(cuMemsetD8(device.start, 1, 4'000'000), CUDA_SUCCESS);  // the pages are there
  ASSERT_EQ(cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  ASSERT_EQ(UseWith(kDeviceRate, R"("device_gb_per_s": {"value": 0.1, "source": "a test"})"), 0);
  const double begin = Seconds();
  EXPECT_EQ(cuEventRecord(start, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuMemsetD8Async(device.start, 7, 4'000'000, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuEventRecord(end, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuEventSynchronize(end), CUDA_SUCCESS);
  EXPECT_GE(Seconds() - begin, 0.039) << "it has not ended before";
  EXPECT_GE(Between(start, end), 39);
}

TEST_F(DriverHardwareOrderTest, AFillThatTakesThisMachineLongerIsCounted) {
  const DeviceBytes device(64 * kMiB);
  const TestStream stream(CU_STREAM_NON_BLOCKING);
  const TestEvent start, end;
  ASSERT_EQ(UseWith(kDeviceRate, R"("device_gb_per_s": {"value": 1000000, "source": "a test"})"), 0);
  EXPECT_EQ(cuEventRecord(start, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuMemsetD8Async(device.start, 7, 64 * kMiB, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuEventRecord(end, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Costs().overruns, 1u);
  EXPECT_GT(Costs().overrun_ns, 0u);
  EXPECT_GE(Between(start, end), static_cast<double>(Costs().overrun_ns) / 1e6)
      << "what follows begins behind it";
}

TEST_F(DriverHardwareOrderTest, AWaitEndsWithTheWorkThatItIsFor) {
  constexpr double kLate = 0.06;  // seconds, in which the brief kernel's time passes
  std::atomic<int> begun{0};
  const Kernel slow("a_slow_kernel_of_another_stream", 0, [&](uint64_t*) {
    ++begun;
    begun.notify_one();
  });
  const Kernel brief("a_brief_kernel", 0, [](uint64_t*) {});
  ASSERT_EQ(UseWith(R"("table": [)",
                    R"("table": [{"part_of_name": "brief", "us": {"value": 2000, "source": "a test"}},)"),
            0);
  const TestStream stream(CU_STREAM_NON_BLOCKING), other(CU_STREAM_NON_BLOCKING);
  const TestEvent first, second, waited[2];
  const auto wait = [&](CUevent event, CUevent mark) {
    const double start = Seconds();
    simcuda_hold_streams(1);  // this thread of the stand-in wakes late
    EXPECT_EQ(brief.Launch(stream, {}), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamWaitEvent(stream, event, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuEventRecord(mark, stream), CUDA_SUCCESS);
    EXPECT_TRUE(WaitUntil([&] { return Seconds() - start >= kLate; }));
    simcuda_hold_streams(0);
    EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  };
  EXPECT_EQ(slow.Launch(other, {}), CUDA_SUCCESS);
  EXPECT_EQ(cuEventRecord(first, other), CUDA_SUCCESS);
  begun.wait(0);
  wait(first, waited[0]);
  EXPECT_GE(Between(first, waited[0]), 0) << "not before the work that it waited for";
  const double start = Seconds();
  EXPECT_EQ(cuEventRecord(second, other), CUDA_SUCCESS);
  EXPECT_EQ(slow.Launch(other, {}), CUDA_SUCCESS);
  begun.wait(1);
  wait(second, waited[1]);
  EXPECT_LT(Between(second, waited[1]), 10 + 1000 * (Seconds() - start - kLate))
      << "nor behind what followed that";
  EXPECT_EQ(cuStreamSynchronize(other), CUDA_SUCCESS);
}

TEST_F(DriverHardwareOrderDeathTest, HostMemoryIsGivenUpBeforeItsTimePasses) {
  EXPECT_EXIT(
      {
        std::vector<char> memory(20'000'000);
        CUdeviceptr device = 0;
        cuMemAlloc(&device, memory.size());
        cuMemHostRegister(memory.data(), memory.size(), 0);
        UseWith(R"("cuMemHostUnregister": {)",
                R"("cuMemHostUnregister": {"call_us": {"value": 500000, "source": "a test"}, )");
        simcuda_set("TIME_SCALE", "4");
        CUstream stream = nullptr;
        cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
        cuMemcpyHtoDAsync(device, memory.data(), memory.size(), stream);  // 80 ms
        cuMemHostUnregister(memory.data());
      },
      ::testing::KilledBySignal(SIGABRT), "cuMemHostUnregister");
}

TEST_F(DriverHardwareOrderTest, LoadingCodeWaitsForTheGpuAndHoldsLaunchesUp) {
  std::atomic<bool> ended{false};
  HostCall load, launch;
  const Gate load_waits;
  const Kernel quick("a_quick_kernel_during_a_load", 0, [](uint64_t*) {});
  const Kernel busy("a_busy_kernel", 0, [&](uint64_t*) {
    load.UntilItWaits();
    load_waits.Open();
    launch.UntilItWaits();
    ended = true;
  });
  const TestStream stream(CU_STREAM_NON_BLOCKING), other(CU_STREAM_NON_BLOCKING);
  ASSERT_EQ(Use(Profile()), 0);
  EXPECT_EQ(busy.Launch(stream, {}), CUDA_SUCCESS);
  std::thread launches = Start([&, wait = load_waits.Wait()] {
    wait();
    launch.Run([&] {
      EXPECT_EQ(quick.Launch(other, {}), CUDA_SUCCESS);
      EXPECT_TRUE(ended) << "the launch did not wait for the load, which waits for the GPU";
    });
  });
  const std::string image = std::string(SIMCUDA_IMAGE_MAGIC) + "\na_busy_kernel\n";
  CUmodule module = nullptr;
  load.Run([&] {
    EXPECT_EQ(cuModuleLoadData(&module, image.c_str()), CUDA_SUCCESS);
    EXPECT_TRUE(ended);
  });
  launches.join();
  EXPECT_EQ(Costs().call_ns[SIMCUDA_CALLS - 1], 1'000'000u);
  EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
}

// The profile above with loads that hold that, and questions for events that hold nothing.
int DriverHardwareOrderTest::UseWithLoads(const std::string& holds) {
  std::string text = Profile();
  const auto set = [&](const std::string& call, const std::string& held, const std::string& now) {
    const std::string part = '"' + call + R"(": {"holds": ")" + held;
    const size_t at = text.find(part);
    EXPECT_NE(at, std::string::npos) << part;
    text.replace(at + part.size() - held.size(), held.size(), now);
  };
  set("cuModuleLoadData", "context", holds);
  set("cuEventQuery", "memory", "nothing");
  return Use(text);
}

CUresult ReserveAndFree() {
  CUdeviceptr at = 0;
  const CUresult result = cuMemAddressReserve(&at, 2 * kMiB, 0, 0, 0);
  if (result == CUDA_SUCCESS) cuMemAddressFree(at, 2 * kMiB);
  return result;
}

// Which calls wait for a load, by what it holds and by the form of the driver.
TEST_F(DriverHardwareOrderTest, ALoadHoldsWhatTheProfileSays) {
  struct Case {
    const char* holds;
    const char* form;
    bool launch, reserve, query;  // that wait
  };
  for (const Case& c :
       {Case{"context", "wait", true, false, false}, Case{"memory", "wait", true, true, false},
        Case{"memory", "pass", false, true, false}, Case{"everything", "wait", true, true, true},
        Case{"everything", "pass", true, true, true}, Case{"nothing", "wait", false, false, false}}) {
    SCOPED_TRACE(std::string(c.holds) + ", " + c.form);
    std::atomic<bool> ended{false};
    HostCall load, calls[3];
    const bool waits[] = {c.launch, c.reserve, c.query};
    const Gate load_waits;
    const Kernel quick("a_quick_kernel_during_a_load", 0, [](uint64_t*) {});
    const Kernel busy("a_busy_kernel", 0, [&](uint64_t*) {
      load.UntilItWaits();
      load_waits.Open();
      for (int i = 0; i < 3; ++i) waits[i] ? calls[i].UntilItWaits() : calls[i].UntilItReturns();
      ended = true;
    });
    const TestStream stream(CU_STREAM_NON_BLOCKING), other(CU_STREAM_NON_BLOCKING);
    const TestEvent event;
    ASSERT_EQ(cuEventRecord(event, other), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(other), CUDA_SUCCESS);
    ASSERT_EQ(UseWithLoads(c.holds), 0);
    ASSERT_EQ(simcuda_set("HARDWARE_FORM", c.form), 0);
    EXPECT_EQ(busy.Launch(stream, {}), CUDA_SUCCESS);
    const auto start = [&](int number, const std::function<CUresult()>& call) {
      return Start([&, number, call, wait = load_waits.Wait()] {
        wait();
        calls[number].Run([&] {
          EXPECT_EQ(call(), CUDA_SUCCESS);
          EXPECT_EQ(ended, waits[number]) << number;
        });
      });
    };
    std::thread threads[] = {start(0, [&] { return quick.Launch(other, {}); }), start(1, &ReserveAndFree),
                             start(2, [&] { return cuEventQuery(event); })};
    const std::string image = std::string(SIMCUDA_IMAGE_MAGIC) + "\na_busy_kernel\n";
    CUmodule module = nullptr;
    load.Run([&] {
      EXPECT_EQ(cuModuleLoadData(&module, image.c_str()), CUDA_SUCCESS);
      EXPECT_TRUE(ended);
    });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamSynchronize(other), CUDA_SUCCESS);
  }
}

TEST_F(DriverHardwareOrderTest, LaunchesThatOverlapDoNotKeepALoadWaiting) {
  const Kernel quick("a_quick_kernel_of_many", 0, [](uint64_t*) {});
  ASSERT_EQ(UseWith(R"("cuLaunchKernel": {)",
                    R"("cuLaunchKernel": {"call_us": {"value": 5000, "source": "a test"}, )"),
            0);
  constexpr int kMax = 200;  // a second and more
  std::atomic<bool> loaded{false};
  std::atomic<int> launched{0};
  const auto launch = [&] {
    const TestStream stream(CU_STREAM_NON_BLOCKING);
    while (!loaded && ++launched < kMax) EXPECT_EQ(quick.Launch(stream, {}), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  };
  std::thread one = Start(launch), two = Start(launch), three = Start(launch);
  EXPECT_TRUE(WaitUntil([&] { return launched >= 6; }));
  const std::string image = std::string(SIMCUDA_IMAGE_MAGIC) + "\na_quick_kernel_of_many\n";
  CUmodule module = nullptr;
  EXPECT_EQ(cuModuleLoadData(&module, image.c_str()), CUDA_SUCCESS);
  loaded = true;
  for (std::thread* thread : {&one, &two, &three}) thread->join();
  EXPECT_LT(launched, kMax / 2);
  EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
}

}  // namespace
}  // namespace simcuda_test
