// Numbers that kernels get by value, beside pointers: the words that they make must not lie among the blocks. The bytes
// are those of PyTorch's OffsetCalculator (torch 2.11, OffsetCalculator.cuh and IntegerDivider.cuh), which elementwise
// and index kernels carry: for each dimension a divisor, its magic number and a shift, of 32 bits each, then strides.

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "integration/hooks/kernel_params.h"
#include "tests/fakes/test_map.h"

namespace spillway::integration {
namespace {

constexpr uint64_t kDriversChoice = 0x302000000;  // without a hint (memory_pool.cc of simcuda has the source)
constexpr uint64_t kLiveBytes = uint64_t{80} << 30;
constexpr int kMaxDimensions = 16;
constexpr int kOperands = 3;

struct Divider {
  uint32_t divisor = 1, magic = 1, shift = 0;
};

// The least shift with 2^shift >= divisor, and the number that divides by it in one multiplication.
Divider DividerOf(uint32_t divisor) {
  Divider made = {divisor, 0, 0};
  while ((uint64_t{1} << made.shift) < divisor) ++made.shift;
  const uint64_t above = (uint64_t{1} << made.shift) - divisor;
  made.magic = static_cast<uint32_t>((above << 32) / divisor + 1);
  return made;
}

struct OffsetCalculator {
  int32_t dimensions = 0;
  Divider sizes[kMaxDimensions];
  uint32_t strides[kMaxDimensions][kOperands] = {};
};

// `shape`: the fastest dimension first. The first operand is contiguous, the second is broadcast along the slowest
// dimension, the third along the fastest.
OffsetCalculator CalculatorOf(const std::vector<uint32_t>& shape) {
  OffsetCalculator made;
  made.dimensions = static_cast<int32_t>(shape.size());
  uint32_t stride = 4;
  for (size_t i = 0; i < shape.size(); ++i) {
    made.sizes[i] = DividerOf(shape[i]);
    made.strides[i][0] = stride;
    made.strides[i][1] = i + 1 == shape.size() ? 0 : stride;
    made.strides[i][2] = i == 0 ? 0 : stride;
    stride *= shape[i];
  }
  return made;
}

// Usual shapes of training: widths of models by sequences, batches and heads; images by channels; a vocabulary.
std::vector<std::vector<uint32_t>> UsualShapes() {
  std::vector<std::vector<uint32_t>> shapes;
  for (const uint32_t width :
       {64u, 128u, 320u, 768u, 1024u, 1280u, 1536u, 3072u, 4096u, 5120u, 11008u, 14336u, 50257u, 151936u}) {
    for (const uint32_t rows : {128u, 1000u, 1024u, 2048u}) {
      shapes.push_back({width, rows});
      shapes.push_back({width, rows, 12});
    }
  }
  return shapes;
}

// Launches of an elementwise kernel that name a block though none of their pointers does.
int FalseHits(const allocator::AddressMap& map) {
  int hits = 0;
  for (const std::vector<uint32_t>& shape : UsualShapes()) {
    const OffsetCalculator calculator = CalculatorOf(shape);
    uint64_t pointers[kOperands] = {};
    const void* const params[] = {&pointers, &calculator};
    ParamLayout layout;
    layout.Append(sizeof(pointers));
    layout.Append(sizeof(calculator));
    allocator::AccessSet set;
    ScanKernelParams(params, layout, map, &set);
    hits += !set.empty();
  }
  return hits;
}

// `live` bytes of blocks from `base` on.
std::unique_ptr<allocator::AddressMap> MapWithBlocks(uint64_t base, uint64_t live) {
  auto map = MakeTestMap(1, uint64_t{4} << 40, base);
  map->Assign(base, live, allocator::BlockId(0, 1));
  return map;
}

TEST(NumberWordsTest, TheMagicNumberDivides) {
  for (const uint32_t divisor : {1u, 3u, 768u, 3072u, 50257u, 65537u}) {
    const Divider divider = DividerOf(divisor);
    for (const uint32_t n : {0u, 1u, 767u, 768u, 1'000'003u, 2'147'483'647u}) {
      const uint64_t high = (uint64_t{n} * divider.magic) >> 32;
      EXPECT_EQ((high + n) >> divider.shift, n / divisor) << n << " / " << divisor;
    }
  }
  // As the review of the wheel's headers found them.
  EXPECT_EQ((uint64_t{DividerOf(768).shift} << 32) | DividerOf(768).magic, 0xa55555556u);
  EXPECT_EQ((uint64_t{DividerOf(50257).shift} << 32) | DividerOf(50257).magic, 0x104dd414c4u);
}

TEST(NumberWordsTest, AmongBlocksWhereTheDriverPlacesThemNumbersAreTakenForAddresses) {
  EXPECT_EQ(UsualShapes().size(), 112u);
  const int at_20_gib = FalseHits(*MapWithBlocks(kDriversChoice, uint64_t{20} << 30));
  const int at_80_gib = FalseHits(*MapWithBlocks(kDriversChoice, kLiveBytes));
  RecordProperty("false_hits_at_20_GiB", at_20_gib);
  RecordProperty("false_hits_at_80_GiB", at_80_gib);
  EXPECT_GT(at_20_gib, 20);
  EXPECT_GT(at_80_gib, 80);
}

TEST(NumberWordsTest, AmongBlocksAtAHintTheyAreNot) {
  for (const uint64_t hint : allocator::kAddressHints) {
    EXPECT_EQ(FalseHits(*MapWithBlocks(hint, kLiveBytes)), 0) << hint;
    EXPECT_EQ(FalseHits(*MapWithBlocks(hint, uint64_t{4} << 40)), 0) << "however much is live";
  }
}

}  // namespace
}  // namespace spillway::integration
