#include "tests/fuzz/kernel_params_fuzz.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "integration/hooks/kernel_params.h"
#include "io/os/check.h"
#include "tests/fakes/test_map.h"

namespace spillway::integration {
namespace {

using allocator::AccessSet;
using allocator::AddressMap;
using allocator::BlockId;

constexpr uint32_t kBlocks = 40;

const AddressMap& Map() {
  static const AddressMap* const map = [] {
    auto made = MakeTestMap();
    PlaceBlocks(made.get(), 0, kBlocks);
    return made.release();
  }();
  return *map;
}

// What an address names, by looking at every block.
void NaiveCollect(uint64_t address, std::set<uint32_t>* found) {
  for (uint32_t index = 0; index < kBlocks; ++index) {
    const uint64_t begin = BlockAddress(Map(), 0, index);
    const uint64_t end = begin + kTestBlockBytes;
    // One guard chunk lies on either side.
    if (address >= begin - kTestChunk && address < end + kTestChunk) found->insert(index + 1);
  }
}

// Takes small numbers from the front of the input.
struct Reader {
  const uint8_t* data;
  size_t size;
  uint8_t Byte() {
    if (size == 0) return 0;
    --size;
    return *data++;
  }
};

// An address to put into the bytes: a fuzzer would hardly guess the base.
struct Plant {
  uint64_t address;
  size_t at;
};
std::vector<Plant> ReadPlants(Reader* reader) {
  std::vector<Plant> plants(reader->Byte() % 16);
  for (Plant& plant : plants) {
    const uint64_t chunk = reader->Byte();
    plant.address = kTestBase + chunk * kTestChunk + (reader->Byte() & 3) * (kTestChunk / 4);
    plant.at = reader->Byte() | reader->Byte() << 8;
    if (reader->Byte() < 200) plant.at &= ~size_t{7};
  }
  return plants;
}

void CheckEqual(const AccessSet& set, const std::set<uint32_t>& expected) {
  std::set<uint32_t> found;
  for (const BlockId id : set) SPILLWAY_CHECK(found.insert(id.index()).second);  // no repeats
  SPILLWAY_CHECK(found == expected);
}

}  // namespace

size_t FuzzKernelParams(const uint8_t* data, size_t size) {
  Reader reader{data, size};
  const std::vector<Plant> plants = ReadPlants(&reader);
  ParamLayout layout;
  std::vector<size_t> sizes;
  size_t total = 0;
  for (int count = reader.Byte() % 80; count > 0; --count) {
    const uint8_t kind = reader.Byte();
    const size_t bytes = kind < 200 ? size_t{kind} % 33 : size_t{reader.Byte()} * 16;
    layout.Append(bytes);
    sizes.push_back(bytes);
    total += bytes;
  }
  std::vector<uint8_t> bytes(total + 1);
  for (uint8_t& byte : bytes) byte = reader.Byte();
  for (const Plant& plant : plants) {
    if (bytes.size() >= 8) {
      std::memcpy(bytes.data() + plant.at % (bytes.size() - 7), &plant.address, sizeof(plant.address));
    }
  }

  // The parameters lie one behind the other, at any alignment.
  std::vector<const void*> params;
  std::set<uint32_t> expected;
  size_t at = 0;
  for (const size_t one : sizes) {
    params.push_back(bytes.data() + at);
    for (size_t word = 0; word + 8 <= one; word += 8) {
      uint64_t address;
      std::memcpy(&address, bytes.data() + at + word, sizeof(address));
      NaiveCollect(address, &expected);
    }
    at += one;
  }
  AccessSet set;
  ScanKernelParams(params.data(), layout, Map(), &set);
  CheckEqual(set, expected);
  AccessSet one_by_one;  // as on processors without AVX2: the same blocks in the same order
  ScanKernelParams(params.data(), layout, Map(), &one_by_one, ScanWay::kOneByOne);
  SPILLWAY_CHECK(std::ranges::equal(set, one_by_one));

  std::set<uint32_t> expected_in_buffer;
  for (size_t word = 0; word + 8 <= bytes.size(); word += 8) {
    uint64_t address;
    std::memcpy(&address, bytes.data() + word, sizeof(address));
    NaiveCollect(address, &expected_in_buffer);
  }
  AccessSet buffer_set;
  ScanBytes(bytes.data(), bytes.size(), Map(), &buffer_set);
  CheckEqual(buffer_set, expected_in_buffer);
  one_by_one.Clear();
  ScanBytes(bytes.data(), bytes.size(), Map(), &one_by_one, ScanWay::kOneByOne);
  SPILLWAY_CHECK(std::ranges::equal(buffer_set, one_by_one));
  return set.size() + buffer_set.size();
}

}  // namespace spillway::integration
