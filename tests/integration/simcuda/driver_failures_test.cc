// SIMCUDA_FAIL: the n-th call of any function of the product's own list fails, with a code of choice, and does nothing.
// And what a driver refuses of memory, host memory and events.
#include <dlfcn.h>
#include <sys/mman.h>

#include <initializer_list>

#include "tests/integration/simcuda/driver_test_base.h"

namespace simcuda_test {
namespace {

class DriverFailuresTest : public DriverTest {
 protected:
  void TearDown() override {
    EXPECT_EQ(simcuda_set("FAIL", ""), 0);
    DriverTest::TearDown();
  }
};

TEST_F(DriverFailuresTest, TheNthCallFailsAndDoesNothing) {
  Range range(2 * kChunk);
  Chunk chunk;
  ASSERT_EQ(simcuda_set("FAIL", "cuMemMap:2:2,cuMemUnmap:1"), 0);
  EXPECT_EQ(cuMemMap(range.start, kChunk, 0, chunk.handle, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemUnmap(range.start, kChunk), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(AllowAccess(range.start, kChunk), CUDA_SUCCESS) << "still mapped";
  EXPECT_EQ(cuMemUnmap(range.start, kChunk), CUDA_SUCCESS);
  EXPECT_EQ(cuMemMap(range.start, kChunk, 0, chunk.handle, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemMap(range.start, kChunk, 0, chunk.handle, 0), CUDA_SUCCESS) << "that was the third";
  EXPECT_EQ(cuMemUnmap(range.start, kChunk), CUDA_SUCCESS);
}

TEST_F(DriverFailuresTest, FromThenOnUntilTheRulesChange) {
  ASSERT_EQ(simcuda_set("FAIL", "cuEventCreate:2+:600"), 0);
  TestEvent first;
  CUevent event = nullptr;
  EXPECT_EQ(cuEventCreate(&event, 0), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuEventCreate(&event, 0), CUDA_ERROR_NOT_READY);
  simcuda_reset_failures();
  TestEvent again;
  EXPECT_EQ(cuEventCreate(&event, 0), CUDA_ERROR_NOT_READY) << "counts began anew";
  ASSERT_EQ(simcuda_set("FAIL", ""), 0);
  TestEvent last;
}

TEST_F(DriverFailuresTest, EachFormCountsForItself) {
  ASSERT_EQ(simcuda_set("FAIL", "cuStreamSynchronize:1:2,cuStreamQuery_ptsz:1:2"), 0);
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuStreamSynchronize(nullptr), CUDA_SUCCESS);
}

TEST_F(DriverFailuresTest, RulesThatAreNotUnderstoodAreRefused) {
  for (const char* rule :
       {"cuMemMap", "cuMemMap:", "cuMemMap:0", "cuMemMap:x", "cuMemMap:1:0", "cuMemMap:1:x", "cuMemMap:1;2",
        "cuNoSuchCall:1", "cuMemMap:1,:", ":1", "cuMemMap:1+x"}) {
    EXPECT_NE(simcuda_set("FAIL", rule), 0) << rule;
  }
}

// Each function that Spillway calls for itself can be made to fail: without a fail point a call with these arguments,
// which no driver takes, answers something else.
#define DRIVER_ENTRY(symbol) #symbol,
#define HOOK_QUESTION(symbol) #symbol,
const char* const kProductCalls[] = {
#include "allocator/driver/driver_entries.def"
#include "integration/hooks/hook_questions.def"
};
#undef HOOK_QUESTION
#undef DRIVER_ENTRY

TEST_F(DriverFailuresTest, EveryCallOfTheProductHasAFailPoint) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  for (const char* name : kProductCalls) {
    ASSERT_EQ(simcuda_set("FAIL", (std::string(name) + ":1:913").c_str()), 0) << name;
    using Any = CUresult (*)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                             uint64_t, uint64_t, uint64_t);
    const auto call = reinterpret_cast<Any>(dlsym(driver, name));
    ASSERT_NE(call, nullptr) << name;
    EXPECT_EQ(static_cast<int>(call(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)), 913) << name;
  }
  dlclose(driver);
}

// ---- What a driver refuses.

TEST_F(DriverFailuresTest, AccessIsNothingReadOrBoth) {
  Range range(kChunk);
  Chunk chunk;
  ASSERT_EQ(cuMemMap(range.start, kChunk, 0, chunk.handle, 0), CUDA_SUCCESS);
  CUmemAccessDesc access[2] = {};
  access[0].location.type = access[1].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access[0].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  access[1].flags = static_cast<CUmemAccess_flags>(2);
  EXPECT_EQ(cuMemSetAccess(range.start, kChunk, access, 2), CUDA_ERROR_INVALID_VALUE);
  unsigned long long flags = 7;
  EXPECT_EQ(cuMemGetAccess(&flags, &access[0].location, range.start), CUDA_SUCCESS);
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE) << "none of a refused call is carried out";
  access[1].flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
  EXPECT_EQ(cuMemSetAccess(range.start, kChunk, access, 2), CUDA_SUCCESS);
  EXPECT_EQ(cuMemSetAccess(range.start, kChunk / 2, access, 1), CUDA_ERROR_INVALID_VALUE)
      << "part of a handle";
  EXPECT_EQ(cuMemUnmap(range.start, kChunk), CUDA_SUCCESS);
  EXPECT_EQ(cuMemSetAccess(range.start, kChunk, access, 1), CUDA_ERROR_INVALID_VALUE) << "not mapped";
}

TEST_F(DriverFailuresTest, MappingsLieInOneReservationAndOverNothing) {
  Range range(3 * kChunk);
  Chunk chunk(2 * kChunk), other;
  EXPECT_EQ(cuMemMap(range.start, 2 * kChunk, kChunk, chunk.handle, 0), CUDA_ERROR_INVALID_VALUE)
      << "an offset";
  EXPECT_EQ(cuMemMap(range.start, 2 * kChunk, 0, chunk.handle, 1), CUDA_ERROR_INVALID_VALUE) << "flags";
  EXPECT_EQ(cuMemMap(range.start, kChunk / 2, 0, chunk.handle, 0), CUDA_ERROR_INVALID_VALUE) << "size";
  EXPECT_EQ(cuMemMap(range.start + 4096, kChunk, 0, other.handle, 0), CUDA_ERROR_INVALID_VALUE)
      << "alignment";
  EXPECT_EQ(cuMemMap(range.start + 2 * kChunk, 2 * kChunk, 0, chunk.handle, 0), CUDA_ERROR_INVALID_VALUE)
      << "outside";
  EXPECT_EQ(cuMemMap(range.start, 3 * kChunk, 0, chunk.handle, 0), CUDA_ERROR_INVALID_VALUE)
      << "more than there is";
  ASSERT_EQ(cuMemMap(range.start, 2 * kChunk, 0, chunk.handle, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemMap(range.start + kChunk, kChunk, 0, other.handle, 0), CUDA_ERROR_INVALID_VALUE)
      << "on a mapping";
  EXPECT_EQ(cuMemUnmap(range.start, kChunk), CUDA_ERROR_INVALID_VALUE) << "part of a mapping";
  EXPECT_EQ(cuMemAddressFree(range.start, range.size), CUDA_ERROR_INVALID_VALUE) << "while mapped";
  EXPECT_EQ(cuMemUnmap(range.start, 2 * kChunk), CUDA_SUCCESS);
}

TEST_F(DriverFailuresTest, AReleasedHandleLastsAsLongAsItsMapping) {
  Range range(kChunk);
  const CUmemAllocationProp properties = DeviceMemory();
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_EQ(cuMemCreate(&handle, kChunk, &properties, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemMap(range.start, kChunk, 0, handle, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  const HandlesAreAnswered answered;
  EXPECT_EQ(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE) << "it is nobody's any more";
  EXPECT_EQ(AllowAccess(range.start, kChunk), CUDA_SUCCESS);
  EXPECT_EQ(cuMemUnmap(range.start, kChunk), CUDA_SUCCESS);
  EXPECT_EQ(cuMemMap(range.start, kChunk, 0, handle, 0), CUDA_ERROR_INVALID_VALUE) << "and now it is gone";
  EXPECT_EQ(cuMemCreate(&handle, kChunk + 4096, &properties, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemCreate(&handle, kChunk, &properties, 1), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverFailuresTest, HostMemoryIsRegisteredOnceAndMustBeThere) {
  void* const memory = mmap(nullptr, kChunk, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  EXPECT_EQ(cuMemHostRegister(memory, kChunk, 0x40), CUDA_ERROR_INVALID_VALUE) << "flags";
  EXPECT_EQ(cuMemHostRegister(memory, kChunk, CU_MEMHOSTREGISTER_PORTABLE), CUDA_SUCCESS);
  EXPECT_EQ(cuMemHostRegister(memory, kChunk, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(cuMemHostUnregister(memory), CUDA_SUCCESS);
  EXPECT_EQ(cuMemHostUnregister(memory), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  munmap(memory, kChunk);
  EXPECT_EQ(cuMemHostRegister(memory, kChunk, 0), CUDA_ERROR_INVALID_VALUE) << "nothing is there";
}

TEST_F(DriverFailuresTest, HostMemoryIsNotTakenFromQueuedCopies) {
  std::vector<char> memory(1 << 16);
  ASSERT_EQ(cuMemHostRegister(memory.data(), memory.size(), 0), CUDA_SUCCESS);
  CUdeviceptr device = 0;
  ASSERT_EQ(cuMemAlloc(&device, memory.size()), CUDA_SUCCESS);
  TestStream stream(CU_STREAM_NON_BLOCKING);
  ASSERT_EQ(simcuda_set("UNREGISTER", "pass"), 0);  // what is held never ends
  simcuda_hold_streams(1);
  ASSERT_EQ(cuMemcpyHtoDAsync(device, memory.data(), memory.size(), stream), CUDA_SUCCESS);
  EXPECT_EQ(simcuda_set("MODE", "report"), 0);
  const uint64_t before = Stats().misuses;
  EXPECT_EQ(cuMemHostUnregister(memory.data()), CUDA_SUCCESS);
  EXPECT_EQ(Stats().misuses, before + 1);
  simcuda_hold_streams(0);
  ASSERT_EQ(simcuda_set("UNREGISTER", "wait"), 0);
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(device), CUDA_SUCCESS);
}

TEST_F(DriverFailuresTest, EventsAndTheirFlags) {
  TestEvent event;
  EXPECT_EQ(cuEventQuery(event), CUDA_SUCCESS) << "never recorded";
  EXPECT_EQ(cuStreamWaitEvent(nullptr, event, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamWaitEvent(nullptr, event, 0), CUDA_SUCCESS);
  CUevent made = nullptr;
  EXPECT_EQ(cuEventCreate(&made, 0x40), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuEventCreate(&made, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE) << "with timing";
}

}  // namespace
}  // namespace simcuda_test
