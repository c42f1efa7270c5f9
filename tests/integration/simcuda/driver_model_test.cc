// Random virtual memory operations against a simple model, with the smallest granularity: handles keep their
// content, addresses keep their rules, and the process keeps its number of mappings.
#include <fstream>
#include <map>
#include <random>

#include "tests/integration/simcuda/driver_test_base.h"

namespace simcuda_test {
namespace {

constexpr uint64_t kSmall = 64 << 10;
constexpr int kSlots = 64;

class DriverModelTest : public DriverTest {
 protected:
  static void SetUpTestSuite() {
    setenv("SIMCUDA_GRANULARITY", "64KiB", 1);
    DriverTest::SetUpTestSuite();
  }
  static int MappingsOfProcess() {
    std::ifstream maps("/proc/self/maps");
    int count = 0;
    for (std::string line; std::getline(maps, line);) ++count;
    return count;
  }
};

struct ModelHandle {
  uint64_t size = 0;
  int slot = -1;  // -1: not mapped
  uint64_t value = 0;
};

class Model {
 public:
  explicit Model(uint32_t seed) : random_(seed), range_(kSlots * kSmall) {
    EXPECT_EQ(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  }
  ~Model() {
    while (!handles_.empty()) Drop(handles_.begin());
    EXPECT_EQ(cuStreamDestroy(stream_), CUDA_SUCCESS);
  }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  void Step() {
    const unsigned choice = Random(10);
    if (handles_.empty() || (choice < 2 && handles_.size() < 24)) return Create();
    auto it = std::next(handles_.begin(), Random(static_cast<unsigned>(handles_.size())));
    if (choice < 3) return Drop(it);
    if (it->second.slot < 0) return Map(it);
    if (choice < 6) return Unmap(it);
    Write(it);
  }

 private:
  unsigned Random(unsigned below) { return static_cast<unsigned>(random_() % below); }
  CUdeviceptr AddressOf(int slot) const { return range_.start + static_cast<uint64_t>(slot) * kSmall; }

  void Create() {
    CUmemGenericAllocationHandle handle = 0;
    ModelHandle model;
    model.size = kSmall * (1 + Random(4));
    const CUmemAllocationProp properties = DeviceMemory();
    ASSERT_EQ(cuMemCreate(&handle, model.size, &properties, 0), CUDA_SUCCESS);
    model.value = 0xfffefffefffefffe;  // poison
    handles_[handle] = model;
  }

  void Map(std::map<CUmemGenericAllocationHandle, ModelHandle>::iterator it) {
    const int slot = static_cast<int>(Random(kSlots));
    const int slots = static_cast<int>(it->second.size / kSmall);
    bool is_free = slot + slots <= kSlots;
    for (int i = 0; is_free && i < slots; ++i) is_free = used_.count(slot + i) == 0;
    const CUresult result = cuMemMap(AddressOf(slot), it->second.size, 0, it->first, 0);
    ASSERT_EQ(result, is_free ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
    if (!is_free) return;
    for (int i = 0; i < slots; ++i) used_[slot + i] = it->first;
    it->second.slot = slot;
    ASSERT_EQ(AllowAccess(AddressOf(slot), it->second.size), CUDA_SUCCESS);
    Check(it->second);
  }

  void Unmap(std::map<CUmemGenericAllocationHandle, ModelHandle>::iterator it) {
    ModelHandle& model = it->second;
    if (model.size > kSmall) {
      ASSERT_EQ(cuMemUnmap(AddressOf(model.slot), kSmall), CUDA_ERROR_INVALID_VALUE);
    }
    Check(model);
    ASSERT_EQ(cuMemUnmap(AddressOf(model.slot), model.size), CUDA_SUCCESS);
    for (uint64_t i = 0; i < model.size / kSmall; ++i) used_.erase(model.slot + static_cast<int>(i));
    model.slot = -1;
  }

  void Write(std::map<CUmemGenericAllocationHandle, ModelHandle>::iterator it) {
    ModelHandle& model = it->second;
    const uint32_t value = random_();
    model.value = uint64_t{value} << 32 | value;
    ASSERT_EQ(cuMemsetD32Async(AddressOf(model.slot), value, model.size / 4, stream_), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  }

  void Check(const ModelHandle& model) const {
    const CUdeviceptr start = AddressOf(model.slot);
    for (uint64_t at : {uint64_t{0}, model.size / 2, model.size - 8}) {
      ASSERT_EQ(*At<uint64_t>(start + at), model.value) << "offset " << at;
    }
  }

  void Drop(std::map<CUmemGenericAllocationHandle, ModelHandle>::iterator it) {
    if (it->second.slot >= 0) Unmap(it);
    ASSERT_EQ(cuMemRelease(it->first), CUDA_SUCCESS);
    handles_.erase(it);
  }

  std::mt19937 random_;
  Range range_;
  CUstream stream_ = nullptr;
  std::map<CUmemGenericAllocationHandle, ModelHandle> handles_;
  std::map<int, CUmemGenericAllocationHandle> used_;
};

TEST_F(DriverModelTest, RandomOperationsFollowTheModel) {
  const uint64_t before = Stats().physical_bytes[0];
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(seed);
    Model model(seed);
    for (int step = 0; step < 2000 && !HasFailure(); ++step) model.Step();
  }
  EXPECT_EQ(Stats().physical_bytes[0], before);
}

// A job that runs for days uses millions of addresses; what it unmapped must not count against vm.max_map_count.
TEST_F(DriverModelTest, UsedAddressesLeaveNoMappingsBehind) {
  constexpr int kAddresses = 3000;
  Range range(uint64_t{2} * kAddresses * kSmall);
  Chunk chunk(kSmall);
  const int before = MappingsOfProcess();
  for (int i = 0; i < kAddresses; ++i) {
    const CUdeviceptr at = range.start + static_cast<uint64_t>(2 * i) * kSmall;
    chunk.MapAt(at);
    *At<int>(at) = i;
    ASSERT_EQ(cuMemUnmap(at, kSmall), CUDA_SUCCESS);
    CUdeviceptr pointer = 0;
    ASSERT_EQ(cuMemAlloc(&pointer, 4096 * (1 + static_cast<size_t>(i % 5))), CUDA_SUCCESS);
    ASSERT_EQ(cuMemFree(pointer), CUDA_SUCCESS);
  }
  EXPECT_LT(MappingsOfProcess(), before + 50);
}

}  // namespace
}  // namespace simcuda_test
