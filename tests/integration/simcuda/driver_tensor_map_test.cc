// Tensor maps: what goes in comes out by simcuda_decode_tensor_map, the address is not to be seen, and the documented
// rules are kept.
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "tests/integration/simcuda/driver_test_base.h"

namespace simcuda_test {
namespace {

// The arguments of a valid tiled map of 3 dimensions; tests change one at a time.
struct Tiled {
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  cuuint32_t rank = 3;
  uint64_t address = 0;
  cuuint64_t dims[5] = {64, 100, 7, 1, 1};
  cuuint64_t strides[4] = {128, 12800, 0, 0};
  cuuint32_t box[5] = {64, 16, 1, 1, 1};
  cuuint32_t steps[5] = {1, 1, 1, 1, 1};
  CUtensorMapInterleave interleave = CU_TENSOR_MAP_INTERLEAVE_NONE;
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
  CUtensorMapFloatOOBfill fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;

  CUresult Encode(CUtensorMap* map) const {
    return cuTensorMapEncodeTiled(map, type, rank, reinterpret_cast<void*>(address), dims, strides, box,
                                  steps, interleave, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, fill);
  }
};

simcuda_tensor_map Decode(const CUtensorMap& map) {
  simcuda_tensor_map decoded = {};
  decoded.struct_bytes = sizeof(decoded);
  EXPECT_EQ(simcuda_decode_tensor_map(&map, &decoded), 0);
  return decoded;
}

class DriverTensorMapTest : public DriverTest {
 protected:
  void SetUp() override {
    ASSERT_EQ(cuMemAlloc(&memory_, kMiB), CUDA_SUCCESS);
    tiled_.address = memory_ + 4096;
  }
  void TearDown() override {
    DriverTest::TearDown();
    EXPECT_EQ(cuMemFree(memory_), CUDA_SUCCESS);
  }
  CUdeviceptr memory_ = 0;
  Tiled tiled_;
  CUtensorMap map_ = {};
};

TEST_F(DriverTensorMapTest, TiledRoundTrip) {
  ASSERT_EQ(tiled_.Encode(&map_), CUDA_SUCCESS);
  const simcuda_tensor_map decoded = Decode(map_);
  EXPECT_EQ(decoded.kind, SIMCUDA_TENSOR_TILED);
  EXPECT_EQ(decoded.address, tiled_.address);
  EXPECT_EQ(decoded.rank, 3u);
  EXPECT_EQ(decoded.element_bits, 16u);
  EXPECT_EQ(decoded.dim[0], 64u);
  EXPECT_EQ(decoded.dim[1], 100u);
  EXPECT_EQ(decoded.dim[2], 7u);
  EXPECT_EQ(decoded.stride[0], 2u);
  EXPECT_EQ(decoded.stride[1], 128u);
  EXPECT_EQ(decoded.stride[2], 12800u);
  EXPECT_EQ(decoded.box[0], 64u);
  EXPECT_EQ(decoded.box[1], 16u);
  EXPECT_EQ(decoded.bytes, 6 * 12800 + 99 * 128 + 128u);
}

TEST_F(DriverTensorMapTest, NoWordLooksLikeThePointer) {
  ASSERT_EQ(tiled_.Encode(&map_), CUDA_SUCCESS);
  char bytes[sizeof(map_)];
  std::memcpy(bytes, &map_, sizeof(map_));
  for (size_t at = 0; at + 8 <= sizeof(bytes); ++at) {  // at any alignment
    uint64_t word;
    std::memcpy(&word, bytes + at, sizeof(word));
    EXPECT_GE(word - memory_, kMiB) << "at byte " << at;
  }
}

TEST_F(DriverTensorMapTest, LargestSizesSurvive) {
  tiled_.rank = 5;
  for (int i = 0; i < 5; ++i) tiled_.dims[i] = uint64_t{1} << 32;
  for (int i = 0; i < 4; ++i) tiled_.strides[i] = (uint64_t{1} << 40) - 16;
  for (int i = 1; i < 5; ++i) tiled_.box[i] = 256;
  for (int i = 0; i < 5; ++i) tiled_.steps[i] = 8;
  ASSERT_EQ(tiled_.Encode(&map_), CUDA_SUCCESS);
  const simcuda_tensor_map decoded = Decode(map_);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(decoded.dim[i], uint64_t{1} << 32);
  for (int i = 1; i < 5; ++i) EXPECT_EQ(decoded.stride[i], (uint64_t{1} << 40) - 16);
  EXPECT_EQ(decoded.box[4], 256u);
  EXPECT_EQ(decoded.element_stride[4], 8u);
}

TEST_F(DriverTensorMapTest, ReplaceAddressChangesNothingElse) {
  ASSERT_EQ(tiled_.Encode(&map_), CUDA_SUCCESS);
  const simcuda_tensor_map before = Decode(map_);
  ASSERT_EQ(cuTensorMapReplaceAddress(&map_, reinterpret_cast<void*>(memory_ + 16)), CUDA_SUCCESS);
  simcuda_tensor_map after = Decode(map_);
  EXPECT_EQ(after.address, memory_ + 16);
  after.address = before.address;
  EXPECT_EQ(std::memcmp(&before, &after, sizeof(before)), 0);
  EXPECT_EQ(cuTensorMapReplaceAddress(&map_, reinterpret_cast<void*>(memory_ + 8)), CUDA_ERROR_INVALID_VALUE);
  CUtensorMap none = {};
  EXPECT_EQ(cuTensorMapReplaceAddress(&none, reinterpret_cast<void*>(memory_)), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverTensorMapTest, BadArgumentsAreRefused) {
  const auto refused = [&](auto change) {
    Tiled bad = tiled_;
    change(bad);
    return bad.Encode(&map_) == CUDA_ERROR_INVALID_VALUE;
  };
  EXPECT_FALSE(refused([](Tiled&) {}));
  EXPECT_TRUE(refused([](Tiled& t) { t.address += 8; }));
  EXPECT_TRUE(refused([](Tiled& t) { t.rank = 0; }));
  EXPECT_TRUE(refused([](Tiled& t) { t.rank = 6; }));
  EXPECT_TRUE(refused([](Tiled& t) { t.dims[1] = 0; }));
  EXPECT_TRUE(refused([](Tiled& t) { t.dims[1] = (uint64_t{1} << 32) + 1; }));
  EXPECT_TRUE(refused([](Tiled& t) { t.strides[0] = 120; }));
  EXPECT_TRUE(refused([](Tiled& t) { t.strides[1] = uint64_t{1} << 40; }));
  EXPECT_TRUE(refused([](Tiled& t) { t.box[1] = 257; }));
  EXPECT_TRUE(refused([](Tiled& t) { t.box[0] = 60; }));  // 120 bytes
  EXPECT_TRUE(refused([](Tiled& t) { t.steps[1] = 9; }));
  EXPECT_TRUE(refused([](Tiled& t) { t.swizzle = CU_TENSOR_MAP_SWIZZLE_64B; }));  // box of 128 bytes
  EXPECT_TRUE(refused([](Tiled& t) { t.interleave = CU_TENSOR_MAP_INTERLEAVE_32B; }));
  EXPECT_TRUE(refused([](Tiled& t) {
    t.type = CU_TENSOR_MAP_DATA_TYPE_INT32;
    t.fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA;
    t.box[0] = 16;
  }));
  EXPECT_TRUE(refused([](Tiled& t) {  // 32-byte interleave wants addresses and strides in units of 32
    t.interleave = CU_TENSOR_MAP_INTERLEAVE_32B;
    t.swizzle = CU_TENSOR_MAP_SWIZZLE_32B;
    t.address += 16;
  }));
  alignas(64) char misaligned[sizeof(CUtensorMap) + 16];
  EXPECT_EQ(tiled_.Encode(reinterpret_cast<CUtensorMap*>(misaligned + 16)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(tiled_.Encode(nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverTensorMapTest, Im2colRoundTrip) {
  const cuuint64_t dims[4] = {64, 20, 10, 3};
  const cuuint64_t strides[3] = {128, 2560, 25600};
  const cuuint32_t steps[4] = {1, 1, 1, 1};
  const int lower[2] = {-1, -2};
  int upper[2] = {1, 127};
  void* address = reinterpret_cast<void*>(tiled_.address);
  const auto encode = [&] {
    return cuTensorMapEncodeIm2col(&map_, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4, address, dims, strides, lower,
                                   upper, 64, 1024, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                   CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  ASSERT_EQ(encode(), CUDA_SUCCESS);
  const simcuda_tensor_map decoded = Decode(map_);
  EXPECT_EQ(decoded.kind, SIMCUDA_TENSOR_IM2COL);
  EXPECT_EQ(decoded.address, tiled_.address);
  EXPECT_EQ(decoded.lower_corner[0], -1);
  EXPECT_EQ(decoded.lower_corner[1], -2);
  EXPECT_EQ(decoded.upper_corner[1], 127);
  EXPECT_EQ(decoded.channels_per_pixel, 64u);
  EXPECT_EQ(decoded.pixels_per_column, 1024u);
  upper[1] = 128;
  EXPECT_EQ(encode(), CUDA_ERROR_INVALID_VALUE);
}

#if CUDA_VERSION >= 12080
TEST_F(DriverTensorMapTest, Im2colWideRoundTrip) {
  const cuuint64_t dims[3] = {64, 20, 3};
  const cuuint64_t strides[2] = {128, 2560};
  const cuuint32_t steps[3] = {1, 1, 1};
  ASSERT_EQ(cuTensorMapEncodeIm2colWide(&map_, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3,
                                        reinterpret_cast<void*>(tiled_.address), dims, strides, -3, 4, 64,
                                        128, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                        CU_TENSOR_MAP_IM2COL_WIDE_MODE_W, CU_TENSOR_MAP_SWIZZLE_128B,
                                        CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
            CUDA_SUCCESS);
  const simcuda_tensor_map decoded = Decode(map_);
  EXPECT_EQ(decoded.kind, SIMCUDA_TENSOR_IM2COL_WIDE);
  EXPECT_EQ(decoded.lower_corner[0], -3);
  EXPECT_EQ(decoded.upper_corner[0], 4);
}
#endif

// A kernel that takes a tensor map by value and writes through it.
CUfunction WriterThroughMap() {
  static const simcuda_parameter parameters[] = {{0, sizeof(CUtensorMap)}};
  static CUfunction function = [] {
    const simcuda_kernel kernel = {"map_writer",
                                   [](const simcuda_launch*, void** params) {
                                     simcuda_tensor_map map = {};
                                     map.struct_bytes = sizeof(map);
                                     if (simcuda_decode_tensor_map(params[0], &map) != 0) return;
                                     *At<uint32_t>(map.address) = 99;
                                   },
                                   nullptr, parameters, 1};
    CUfunction made = nullptr;
    EXPECT_EQ(simcuda_register_kernel(&kernel, &made), 0);
    return made;
  }();
  return function;
}

TEST_F(DriverTensorMapTest, KernelWritesThroughTheMap) {
  ASSERT_EQ(tiled_.Encode(&map_), CUDA_SUCCESS);
  void* parameters[] = {&map_};
  ASSERT_EQ(cuLaunchKernel(WriterThroughMap(), 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr),
            CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(*At<uint32_t>(tiled_.address), 99u);
}

using DriverTensorMapDeathTest = DriverTensorMapTest;

TEST_F(DriverTensorMapDeathTest, UnmapUnderAQueuedMapStops) {
  EXPECT_EXIT(
      {
        Range range(kChunk);
        Chunk chunk;
        chunk.MapAt(range.start);
        Tiled tiled;
        tiled.address = range.start + kMiB;
        CUtensorMap map = {};
        if (tiled.Encode(&map) != CUDA_SUCCESS) _exit(3);
        simcuda_hold_streams(1);
        void* parameters[] = {&map};
        cuLaunchKernel(WriterThroughMap(), 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr);
        cuMemUnmap(range.start, kChunk);
      },
      ::testing::KilledBySignal(SIGABRT), "cuMemUnmap of .* map_writer on stream .* will touch it");
}

}  // namespace
}  // namespace simcuda_test
