// The costs of a machine (SIMCUDA_HARDWARE): what calls take, who waits for whom, what the link does with copies in
// both directions, and which profiles are refused. Times of the stand-in are compared with the profile's only from
// below, or where they lie on its own time lines: the machine that runs the test may be busy.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <thread>

#include "tests/integration/simcuda/driver_hardware_base.h"
#include "tests/integration/simcuda/driver_waiting.h"

namespace simcuda_test {
namespace {

// Handles mapped one behind the other.
struct MappedChunks {
  explicit MappedChunks(size_t count) : range(count * kChunk), chunks(count) {
    for (size_t i = 0; i < count; ++i)
      EXPECT_EQ(cuMemMap(range.start + i * kChunk, kChunk, 0, chunks[i].handle, 0), CUDA_SUCCESS);
  }
  ~MappedChunks() { EXPECT_EQ(cuMemUnmap(range.start, range.size), CUDA_SUCCESS); }
  Range range;
  std::vector<Chunk> chunks;
};

TEST_F(DriverHardwareTest, WithoutAProfileNothingIsCounted) {
  MappedChunks mapped(1);
  EXPECT_EQ(AllowAccess(mapped.range.start, mapped.range.size), CUDA_SUCCESS);
  EXPECT_EQ(Costs().time_scale, 0);
  EXPECT_EQ(Costs().calls[kSetAccess], 0u);
  EXPECT_EQ(Costs().memory_lock_ns, 0u);
}

TEST_F(DriverHardwareTest, ACallTakesItsTimeForEachHandle) {
  MappedChunks mapped(3);
  ASSERT_EQ(Use(Profile()), 0);
  const double start = Seconds();
  EXPECT_EQ(AllowAccess(mapped.range.start, mapped.range.size), CUDA_SUCCESS);
  EXPECT_GE(Seconds() - start, 0.059);
  EXPECT_EQ(Costs().calls[kSetAccess], 1u);
  EXPECT_EQ(Costs().call_ns[kSetAccess], 60'000'000u);
  EXPECT_EQ(Costs().memory_lock_ns, 60'000'000u);
  EXPECT_EQ(Costs().longest_memory_call_ns, 60'000'000u);
  EXPECT_STREQ(simcuda_call_name(kSetAccess), "cuMemSetAccess");
  EXPECT_EQ(simcuda_call_name(SIMCUDA_CALLS), nullptr);
}

TEST_F(DriverHardwareTest, TheEndOfAssumedFiguresAndTheTimeScaleAreChosen) {
  MappedChunks mapped(1);
  ASSERT_EQ(Use(Profile()), 0);
  ASSERT_EQ(simcuda_set("HARDWARE_END", "low"), 0);
  ASSERT_EQ(simcuda_set("TIME_SCALE", "2.5"), 0);
  EXPECT_EQ(AllowAccess(mapped.range.start, mapped.range.size), CUDA_SUCCESS);
  EXPECT_EQ(Costs().call_ns[kSetAccess], 25'000'000u);
  EXPECT_EQ(Costs().time_scale, 2.5);
  EXPECT_NE(simcuda_set("TIME_SCALE", "21"), 0);
  EXPECT_NE(simcuda_set("TIME_SCALE", "0.5"), 0);
  EXPECT_NE(simcuda_set("HARDWARE_END", "middle"), 0);
  EXPECT_NE(simcuda_set("HARDWARE_FORM", "both"), 0);
  EXPECT_NE(simcuda_set("COPY_BYTES", "none"), 0);
}

// The longest that a launch waited while another thread gave access to five handles, 100 ms.
class DriverHardwareFormTest : public DriverHardwareTest {
 protected:
  uint64_t LongestWait(const char* form) {
    const Kernel kernel(std::string("beside_") + form, 0, [](uint64_t*) {});
    MappedChunks mapped(5);
    EXPECT_EQ(Use(Profile()), 0);
    EXPECT_EQ(simcuda_set("HARDWARE_FORM", form), 0);
    std::thread access([&] { EXPECT_EQ(AllowAccess(mapped.range.start, mapped.range.size), CUDA_SUCCESS); });
    EXPECT_TRUE(WaitUntil([] { return Costs().calls[kSetAccess] != 0; }));
    const TestStream stream(CU_STREAM_NON_BLOCKING);
    EXPECT_EQ(kernel.Launch(stream, {}), CUDA_SUCCESS);
    EXPECT_EQ(Costs().calls[kLaunch], 1u);
    access.join();
    EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(simcuda_set("HARDWARE", ""), 0);
    return Costs().longest_enqueue_wait_ns;
  }
};

TEST_F(DriverHardwareFormTest, ALaunchWaitsForTheMemoryLock) {
  const uint64_t waited = LongestWait("wait");
  EXPECT_GT(waited, 0u);
  EXPECT_LE(waited, 100'000'000u) << "for one call, not for more";
}

TEST_F(DriverHardwareFormTest, OrItPasses) { EXPECT_EQ(LongestWait("pass"), 0u); }

TEST_F(DriverHardwareTest, CopiesShareTheLinkAndKeepItsTime) {
  constexpr size_t kBytes = 20'000'000;
  const PinnedBytes host(2 * kBytes);
  const DeviceBytes device(2 * kBytes);
  const TestStream in(CU_STREAM_NON_BLOCKING), out(CU_STREAM_NON_BLOCKING);
  const TestEvent in_start, in_end, out_start, out_end;
  char* const other = static_cast<char*>(host.data) + kBytes;
  const auto copy = [&](bool inward, bool outward) {
    simcuda_hold_streams(1);
    if (inward) {
      EXPECT_EQ(cuEventRecord(in_start, in), CUDA_SUCCESS);
      EXPECT_EQ(cuMemcpyHtoDAsync(device.start, host.data, kBytes, in), CUDA_SUCCESS);
      EXPECT_EQ(cuEventRecord(in_end, in), CUDA_SUCCESS);
    }
    if (outward) {
      EXPECT_EQ(cuEventRecord(out_start, out), CUDA_SUCCESS);
      EXPECT_EQ(cuMemcpyDtoHAsync(other, device.start + kBytes, kBytes, out), CUDA_SUCCESS);
      EXPECT_EQ(cuEventRecord(out_end, out), CUDA_SUCCESS);
    }
    simcuda_hold_streams(0);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  };
  copy(true, true);  // the pages are there
  ASSERT_EQ(Use(Profile()), 0);
  ASSERT_EQ(simcuda_set("TIME_SCALE", "4"), 0);
  ASSERT_EQ(simcuda_set("COPY_BYTES", "sample"), 0);
  const auto in_alone = [&] {
    copy(true, false);
    return Between(in_start, in_end);
  };
  const auto out_alone = [&] {
    copy(false, true);
    return Between(out_start, out_end);
  };
  EXPECT_NEAR(Soonest(90, in_alone), 80, 10);
  EXPECT_NEAR(Soonest(110, out_alone), 100, 10) << "20 of them setting up";
  double in_beside = 0;
  const auto both = [&] {
    copy(true, true);
    in_beside = Between(in_start, in_end);
    return std::max(in_beside - 30, Between(out_start, out_end));
  };
  EXPECT_NEAR(Soonest(110, both), 100, 10) << "out is not slowed";
  EXPECT_NEAR(in_beside, 130, 15) << "half as fast until the other ends at 100";
}

TEST_F(DriverHardwareTest, ASampledCopyMovesTheFirstWordsAlone) {
  constexpr size_t kBytes = 1 << 20;
  const PinnedBytes host(kBytes);
  const DeviceBytes device(kBytes);
  ASSERT_EQ(cuMemsetD8(device.start, 7, kBytes), CUDA_SUCCESS);
  ASSERT_EQ(Use(Profile()), 0);
  ASSERT_EQ(simcuda_set("COPY_BYTES", "sample"), 0);
  ASSERT_EQ(cuMemcpyDtoH(host.data, device.start, kBytes), CUDA_SUCCESS);
  const char* const bytes = static_cast<const char*>(host.data);
  EXPECT_EQ(bytes[0], 7);
  EXPECT_EQ(bytes[64 << 10], 7);
  EXPECT_EQ(bytes[1000], 0);
  ASSERT_EQ(cuMemcpyDtoH(host.data, device.start, 4096), CUDA_SUCCESS);
  EXPECT_EQ(bytes[1000], 7) << "small copies are whole";
}

TEST_F(DriverHardwareTest, KernelsTakeTheTimeOfTheTable) {
  const Kernel slow("a_slow_kernel", 0, [](uint64_t*) {}), quick("a_quick_kernel", 0, [](uint64_t*) {});
  ASSERT_EQ(Use(Profile()), 0);
  const TestStream stream(CU_STREAM_NON_BLOCKING);
  const TestEvent start, middle, end;
  const auto of_a_quick_one = [&] {
    simcuda_hold_streams(1);
    EXPECT_EQ(slow.Launch(stream, {}), CUDA_SUCCESS);  // what follows is queued long before its turn
    EXPECT_EQ(cuEventRecord(start, stream), CUDA_SUCCESS);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(slow.Launch(stream, {}), CUDA_SUCCESS);
    EXPECT_EQ(cuEventRecord(middle, stream), CUDA_SUCCESS);
    EXPECT_EQ(quick.Launch(stream, {}), CUDA_SUCCESS);
    EXPECT_EQ(cuEventRecord(end, stream), CUDA_SUCCESS);
    simcuda_hold_streams(0);
    EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
    return Between(middle, end);
  };
  EXPECT_LT(Soonest(30, of_a_quick_one), 30);
  EXPECT_NEAR(Between(start, middle), 90, 1) << "late wake-ups of the stream's thread do not add up";
}

TEST_F(DriverHardwareTest, KernelsTakeLongerByTheHostMemoryThatTheyReach) {
  Range block(3 * kChunk);  // one chunk of the device, one of the host, and a gap
  CUmemAllocationProp properties = DeviceMemory();
  CUmemGenericAllocationHandle handles[2] = {};
  ASSERT_EQ(cuMemCreate(&handles[0], kChunk, &properties, 0), CUDA_SUCCESS);
  properties.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
  ASSERT_EQ(cuMemCreate(&handles[1], kChunk, &properties, 0), CUDA_SUCCESS);
  for (int i = 0; i < 2; ++i)
    ASSERT_EQ(cuMemMap(block.start + i * kChunk, kChunk, 0, handles[i], 0), CUDA_SUCCESS);
  ASSERT_EQ(AllowAccess(block.start, 2 * kChunk), CUDA_SUCCESS);
  const Kernel quick("a_quick_kernel", 2, [](uint64_t*) {});
  ASSERT_EQ(Use(Profile()), 0);
  const TestStream stream(CU_STREAM_NON_BLOCKING);
  const TestEvent start, end;
  const auto takes = [&](uint64_t first, uint64_t second) {
    EXPECT_EQ(cuEventRecord(start, stream), CUDA_SUCCESS);
    EXPECT_EQ(quick.Launch(stream, {first, second}), CUDA_SUCCESS);
    EXPECT_EQ(cuEventRecord(end, stream), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
    return Between(start, end);
  };
  const double chunk_ms = kChunk / 1e5;  // 0.1 GB/s
  EXPECT_NEAR(Soonest(chunk_ms + 5, [&] { return takes(block.start, block.start + kChunk / 2); }), chunk_ms,
              5)
      << "the block counts once";
  EXPECT_LT(Soonest(chunk_ms / 2, [&] { return takes(block.start + 2 * kChunk, 17); }), chunk_ms / 2)
      << "nothing is mapped there";
  EXPECT_EQ(simcuda_set("HARDWARE", ""), 0);
  ASSERT_EQ(cuMemUnmap(block.start, 2 * kChunk), CUDA_SUCCESS);
  for (const CUmemGenericAllocationHandle handle : handles) ASSERT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
}

TEST_F(DriverHardwareTest, ARegistrationTakesLongerByThePagesThatItMakes) {
  constexpr size_t kBytes = 8 << 20, kThere = 2 << 20;
  ASSERT_EQ(
      UseWith(
          R"("cuMemHostRegister": {"holds": "memory")",
          R"("cuMemHostRegister": {"holds": "memory", "empty_gib_us": {"value": 1024000, "source": "a test"})"),
      0);
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  madvise(memory, kBytes, MADV_NOHUGEPAGE);
  std::memset(memory, 7, kThere);
  const auto takes_ms = [&] {
    const uint64_t before = Costs().call_ns[kHostRegister];
    EXPECT_EQ(cuMemHostRegister(memory, kBytes, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuMemHostUnregister(memory), CUDA_SUCCESS);
    return static_cast<double>(Costs().call_ns[kHostRegister] - before) / 1e6;
  };
  EXPECT_NEAR(takes_ms(), 6, 0.01) << "1 ms for each MiB that is not there";
  unsigned char pages[kBytes / 4096];
  ASSERT_EQ(mincore(memory, kBytes, pages), 0);
  EXPECT_EQ(std::count_if(std::begin(pages), std::end(pages), [](unsigned char page) { return page & 1; }),
            static_cast<std::ptrdiff_t>(std::size(pages)));
  EXPECT_EQ(takes_ms(), 0) << "now they are all there";
  EXPECT_EQ(static_cast<char*>(memory)[kThere - 1], 7);
  munmap(memory, kBytes);
  EXPECT_NE(UseWith(R"("cuMemAlloc": {"holds": "memory")",
                    R"("cuMemAlloc": {"holds": "memory", "empty_gib_us": {"value": 1, "source": "a test"})"),
            0);
}

TEST_F(DriverHardwareTest, TheDriversOwnProcessorTimeIsKnownByThread) {
  MappedChunks mapped(1);
  ASSERT_EQ(Use(Profile()), 0);
  EXPECT_EQ(simcuda_thread_cpu_ns(gettid()), 0u);
  EXPECT_EQ(AllowAccess(mapped.range.start, mapped.range.size), CUDA_SUCCESS);
  EXPECT_GT(simcuda_thread_cpu_ns(gettid()), 0u);
  EXPECT_LT(simcuda_thread_cpu_ns(gettid()), 20'000'000u) << "it sleeps, but at the end";
}

TEST_F(DriverHardwareTest, ProfilesThatAreNotUnderstoodAreRefused) {
  const std::string access = R"({"low": 10000, "high": 20000, "assumed": "a test"})";
  EXPECT_NE(simcuda_set("HARDWARE", "./no-such-file.json"), 0);
  EXPECT_NE(simcuda_set("HARDWARE", "no-such-machine"), 0);
  EXPECT_NE(Use("not JSON"), 0);
  EXPECT_NE(Use("{}"), 0);
  EXPECT_NE(UseWith(access, R"({"low": 10000, "high": 20000})"), 0) << "no source";
  EXPECT_NE(UseWith(access, R"({"value": 1, "assumed": "one end alone"})"), 0);
  EXPECT_NE(UseWith(access, R"({"low": 3, "high": 2, "assumed": "the wrong way round"})"), 0);
  EXPECT_NE(UseWith(access, R"({"value": 1, "low": 1, "high": 2, "source": "both kinds"})"), 0);
  EXPECT_NE(UseWith(access, R"({"value": -1, "source": "less than nothing"})"), 0);
  EXPECT_NE(UseWith(access, R"({"value": "1", "source": "a word"})"), 0);
  EXPECT_NE(UseWith(access, "7"), 0);
  EXPECT_NE(UseWith("\"cuMemSetAccess\"", "\"cuMemSetAccesses\""), 0);
  EXPECT_NE(UseWith("\"cuMemSetAccess\": {\"holds\": \"memory\"", "\"cuMemSetAccess\": {\"holds\": \"all\""),
            0);
  EXPECT_NE(UseWith("handle_us", "handle_ms"), 0);
  EXPECT_NE(UseWith("pageable_gb_per_s", "pageable"), 0);
  EXPECT_NE(UseWith("\"both_gb_per_s\": {\"value\": 0.5", "\"both_gb_per_s\": {\"value\": 2"), 0);
  EXPECT_NE(UseWith("part_of_name", "name"), 0);
  EXPECT_EQ(Use(Profile()), 0);
}

TEST_F(DriverHardwareTest, EveryProfileOfTheTreeIsUnderstoodAtBothEnds) {
  for (const char* name : {"a100", "h100", "h200", "rtx4090"}) {
    for (const char* end : {"low", "high"}) {
      EXPECT_EQ(simcuda_set("HARDWARE_END", end), 0) << name;
      EXPECT_EQ(simcuda_set("HARDWARE", name), 0) << name;
    }
  }
}

}  // namespace
}  // namespace simcuda_test
