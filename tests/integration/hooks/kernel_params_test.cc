#include "integration/hooks/kernel_params.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tests/fakes/test_map.h"
#include "tests/fuzz/kernel_params_fuzz.h"

namespace spillway::integration {
namespace {

using allocator::AccessSet;
using allocator::BlockId;

class KernelParamsTest : public testing::Test {
 protected:
  KernelParamsTest() : map_(MakeTestMap()) { PlaceBlocks(map_.get(), 0, 8); }

  uint64_t Address(uint32_t index, int64_t offset = 0) const {
    return BlockAddress(*map_, 0, index) + offset;
  }

  // Scans one parameter of these bytes, `shift` bytes off alignment.
  std::vector<uint32_t> Scan(const void* bytes, size_t size, size_t shift = 0) const {
    std::vector<char> moved(size + shift);
    std::memcpy(moved.data() + shift, bytes, size);
    const void* const params[] = {moved.data() + shift};
    ParamLayout layout;
    layout.Append(size);
    AccessSet set;
    ScanKernelParams(params, layout, *map_, &set);
    return Indices(set);
  }
  static std::vector<uint32_t> Indices(const AccessSet& set) {
    std::vector<uint32_t> indices;
    for (const BlockId id : set) indices.push_back(id.index() - 1);
    return indices;
  }
  using Found = std::vector<uint32_t>;

  const std::unique_ptr<allocator::AddressMap> map_;
};

TEST_F(KernelParamsTest, FindsStartInteriorLastByteAndOnePastTheEnd) {
  for (const int64_t offset : {int64_t{0}, int64_t{12345}, int64_t{kTestBlockBytes - 1}}) {
    const uint64_t address = Address(2, offset);
    EXPECT_EQ(Scan(&address, 8), (Found{2})) << offset;
  }
  // One past the end may be the end of block 2 or, less the guard chunk, the start of block 3: both count.
  const uint64_t end = Address(2, kTestBlockBytes);
  EXPECT_EQ(Scan(&end, 8), (Found{2, 3}));
}

TEST_F(KernelParamsTest, IgnoresWhatIsNotOurs) {
  for (const uint64_t address :
       {uint64_t{0}, uint64_t{1} << 40, kTestBase - 1, kTestBase + (uint64_t{1} << 32), ~uint64_t{0},
        Address(7, kTestBlockBytes + 2 * kTestChunk)}) {
    EXPECT_EQ(Scan(&address, 8), Found()) << std::hex << address;
  }
}

TEST_F(KernelParamsTest, SkipsSmallParametersAndKeepsTheirPlaces) {
  const uint32_t number = 7;
  const uint64_t pointer = Address(4);
  const uint16_t small = 1;
  const void* const params[] = {&number, &pointer, &small, &pointer};
  ParamLayout layout;
  for (const size_t size : {4, 8, 2, 8}) layout.Append(size);
  EXPECT_EQ(layout.count(), 4u);
  EXPECT_EQ(layout.entries().size(), 2u);
  AccessSet set;
  ScanKernelParams(params, layout, *map_, &set);
  EXPECT_EQ(Indices(set), (Found{4}));
}

TEST_F(KernelParamsTest, LooksThroughStructsWholly) {
  struct {
    int32_t sizes[5] = {1, 2, 3, 4, 5};
    int32_t pad = 0;
    uint64_t pointers[3];
    int32_t tail = 9;
  } value;
  value.pointers[0] = Address(0);
  value.pointers[1] = Address(5, 100);
  value.pointers[2] = Address(0, 8);
  EXPECT_EQ(Scan(&value, sizeof(value)), (Found{0, 5}));
  // Without alignment, and with a size that is no multiple of eight.
  EXPECT_EQ(Scan(&value, sizeof(value), 3), (Found{0, 5}));
  EXPECT_EQ(Scan(&value, 24 + 8 + 7), (Found{0}));
}

TEST_F(KernelParamsTest, LooksThroughTheLargestParameters) {
  std::vector<uint64_t> words(32764 / 8, 0);
  words.front() = Address(1);
  words.back() = Address(6);
  EXPECT_EQ(Scan(words.data(), 8 * words.size()), (Found{1, 6}));
}

TEST_F(KernelParamsTest, ToleratesNullParameters) {
  const void* const params[] = {nullptr};
  ParamLayout layout;
  layout.Append(16);
  AccessSet set;
  ScanKernelParams(params, layout, *map_, &set);
  EXPECT_TRUE(set.empty());
  ScanKernelParams(params, ParamLayout(), *map_, &set);  // a kernel without parameters
}

TEST_F(KernelParamsTest, ReadsTheExtraForm) {
  uint64_t buffer[4] = {1, Address(3), 2, Address(2, 4)};
  size_t size = sizeof(buffer);
  void* forwards[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                      CU_LAUNCH_PARAM_END};
  void* backwards[] = {CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_BUFFER_POINTER, buffer,
                       CU_LAUNCH_PARAM_END};
  for (void** extra : {forwards, backwards}) {
    const ExtraBuffer found = FindExtraBuffer(extra);
    EXPECT_EQ(found.bytes, buffer);
    EXPECT_EQ(found.size, size);
    AccessSet set;
    ScanBytes(found.bytes, found.size, *map_, &set);
    EXPECT_EQ(Indices(set), (Found{3, 2}));
  }
}

TEST_F(KernelParamsTest, ExtraListsThatNameNoBufferGiveNone) {
  size_t size = 8;
  void* only_size[] = {CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
  void* empty[] = {CU_LAUNCH_PARAM_END};
  void* unknown_key[] = {reinterpret_cast<void*>(77), &size, CU_LAUNCH_PARAM_END};
  EXPECT_EQ(FindExtraBuffer(nullptr).bytes, nullptr);
  for (void** extra : {only_size, empty, unknown_key}) EXPECT_EQ(FindExtraBuffer(extra).bytes, nullptr);
}

TEST_F(KernelParamsTest, AgreesWithANaiveScanOnRandomInput) {
  std::mt19937_64 random(2026);
  size_t named = 0;
  for (int round = 0; round < 400; ++round) {
    std::vector<uint8_t> input(100 + random() % 3000);
    for (uint8_t& byte : input) byte = static_cast<uint8_t>(random());
    named += FuzzKernelParams(input.data(), input.size());
  }
  EXPECT_GT(named, 1000u);  // the inputs did name blocks
}

}  // namespace
}  // namespace spillway::integration
