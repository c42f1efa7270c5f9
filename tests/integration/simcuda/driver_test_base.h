// What the tests of the stand-in driver share: a device of 256 MiB (two of them), kernels whose bodies are lambdas,
// and mapped ranges that undo themselves.
#ifndef SPILLWAY_TESTS_INTEGRATION_SIMCUDA_DRIVER_TEST_BASE_H_
#define SPILLWAY_TESTS_INTEGRATION_SIMCUDA_DRIVER_TEST_BASE_H_

#include <cuda.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "integration/simcuda/driver/simcuda.h"

namespace simcuda_test {

inline constexpr uint64_t kMiB = 1 << 20;
inline constexpr uint64_t kChunk = 2 * kMiB;
inline constexpr uint64_t kCapacity = 256 * kMiB;

inline double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Runs `measure` until what it returns is less than `enough`, and returns the least: a busy machine makes a
// time longer, never shorter. A time that is always too long is so at the last try as well.
template <typename Measure>
double Soonest(double enough, Measure measure) {
  constexpr int kTries = 8;
  double least = measure();
  for (int i = 1; i < kTries && least >= enough; ++i) least = std::min(least, measure());
  return least;
}

// A kernel whose body is a C++ function; it takes one pointer to that function and `pointers` addresses.
class Kernel {
 public:
  using Body = std::function<void(uint64_t* addresses)>;
  Kernel(const std::string& name, size_t pointers, Body body)
      : pointers_(pointers), body_(Keep(std::move(body))) {
    std::vector<simcuda_parameter> parameters;
    for (size_t i = 0; i < pointers + 1; ++i) parameters.push_back({i * 8, 8});
    const simcuda_kernel kernel = {name.c_str(), &Run, nullptr, parameters.data(), parameters.size()};
    EXPECT_EQ(simcuda_register_kernel(&kernel, &function_), 0);
  }
  CUfunction function() const { return function_; }

  CUresult Launch(CUstream stream, std::vector<uint64_t> addresses) const {
    EXPECT_EQ(addresses.size(), pointers_);
    Body* body = body_;
    std::vector<void*> parameters = {&body};
    for (uint64_t& address : addresses) parameters.push_back(&address);
    return cuLaunchKernel(function_, 1, 1, 1, 1, 1, 1, 0, stream, parameters.data(), nullptr);
  }

 private:
  // Never destroyed: a queued launch may outlive the test.
  static Body* Keep(Body body) {
    static auto* mutex = new std::mutex;
    static auto* bodies = new std::vector<Body*>;
    std::lock_guard<std::mutex> lock(*mutex);
    bodies->push_back(new Body(std::move(body)));
    return bodies->back();
  }
  static void Run(const simcuda_launch* launch, void** parameters) {
    std::vector<uint64_t> addresses;
    for (size_t i = 1; i < launch->buffer_bytes / 8; ++i)
      addresses.push_back(*static_cast<uint64_t*>(parameters[i]));
    (**static_cast<Body**>(parameters[0]))(addresses.data());
  }
  size_t pointers_;
  Body* body_;
  CUfunction function_ = nullptr;
};

inline CUmemAllocationProp DeviceMemory(int device = 0) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

// Lets the processor touch a handle that lies in host memory.
inline CUresult AllowHost(CUdeviceptr start, size_t size) {
  const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  return cuMemSetAccess(start, size, &access, 1);
}

inline CUresult AllowAccess(CUdeviceptr start, size_t size, int device = 0) {
  CUmemAccessDesc access = {};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return cuMemSetAccess(start, size, &access, 1);
}

// A reservation; frees itself when nothing is mapped in it any more.
struct Range {
  explicit Range(size_t bytes) : size(bytes) {
    EXPECT_EQ(cuMemAddressReserve(&start, size, 0, 0, 0), CUDA_SUCCESS);
  }
  ~Range() { EXPECT_EQ(cuMemAddressFree(start, size), CUDA_SUCCESS); }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
  CUdeviceptr start = 0;
  size_t size;
};

// A physical handle.
struct Chunk {
  explicit Chunk(size_t bytes = kChunk) : size(bytes) {
    const CUmemAllocationProp properties = DeviceMemory();
    EXPECT_EQ(cuMemCreate(&handle, size, &properties, 0), CUDA_SUCCESS);
  }
  ~Chunk() { EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS); }
  Chunk(const Chunk&) = delete;
  Chunk& operator=(const Chunk&) = delete;
  void MapAt(CUdeviceptr start) const {
    ASSERT_EQ(cuMemMap(start, size, 0, handle, 0), CUDA_SUCCESS);
    ASSERT_EQ(AllowAccess(start, size), CUDA_SUCCESS);
  }
  CUmemGenericAllocationHandle handle = 0;
  size_t size;
};

struct TestStream {
  explicit TestStream(unsigned flags) { EXPECT_EQ(cuStreamCreate(&stream, flags), CUDA_SUCCESS); }
  ~TestStream() { EXPECT_EQ(cuStreamDestroy(stream), CUDA_SUCCESS); }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  operator CUstream() const { return stream; }
  CUstream stream = nullptr;
};

struct TestEvent {
  explicit TestEvent(unsigned flags = CU_EVENT_DEFAULT) {
    EXPECT_EQ(cuEventCreate(&event, flags), CUDA_SUCCESS);
  }
  ~TestEvent() { EXPECT_EQ(cuEventDestroy(event), CUDA_SUCCESS); }
  TestEvent(const TestEvent&) = delete;
  TestEvent& operator=(const TestEvent&) = delete;
  operator CUevent() const { return event; }
  CUevent event = nullptr;
};

// Handles that are none are answered with a code while it lives, as by a driver that checks them.
struct HandlesAreAnswered {
  HandlesAreAnswered() { EXPECT_EQ(simcuda_set("HANDLES", "answer"), 0); }
  ~HandlesAreAnswered() { EXPECT_EQ(simcuda_set("HANDLES", "stop"), 0); }
  HandlesAreAnswered(const HandlesAreAnswered&) = delete;
  HandlesAreAnswered& operator=(const HandlesAreAnswered&) = delete;
};

template <typename T>
T* At(CUdeviceptr address) {
  return reinterpret_cast<T*>(address);
}

class DriverTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    // Death tests start the program anew: a fork would find the driver dead.
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    setenv("SIMCUDA_MEMORY", "256MiB", 0);
    setenv("SIMCUDA_DEVICES", "2", 0);
    ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
    CUcontext context = nullptr;
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
  }

  void TearDown() override {
    simcuda_hold_streams(0);
    if (cuCtxSynchronize() != CUDA_SUCCESS) cuDevicePrimaryCtxReset(0);
    for (const char* name :
         {"COPY_BANDWIDTH", "COPY_LATENCY", "KERNEL_TIME", "DELAY", "FAIL_CREATE", "FAIL_CREATE_EVERY",
          "FAIL_SET_ACCESS", "FAIL_SET_ACCESS_EVERY", "FAIL_COPY", "FAIL_COPY_EVERY"}) {
      EXPECT_EQ(simcuda_set(name, "0"), 0);
    }
    EXPECT_EQ(simcuda_set("POISON", "recycle"), 0);
    EXPECT_EQ(simcuda_set("MODE", "strict"), 0);
    simcuda_reset_failures();
    simcuda_set_memory(0, kCapacity);
  }

  static simcuda_stats Stats() {
    simcuda_stats stats = {};
    stats.struct_bytes = sizeof(stats);
    EXPECT_EQ(simcuda_get_stats(&stats), 0);
    return stats;
  }
};

}  // namespace simcuda_test

#endif  // SPILLWAY_TESTS_INTEGRATION_SIMCUDA_DRIVER_TEST_BASE_H_
