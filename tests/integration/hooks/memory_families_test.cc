// External memory, frees, and questions about our blocks.

#include "integration/hooks/memory_families.h"

#include "tests/integration/hooks/hook_fixture.h"

namespace spillway::integration {
namespace {

using allocator::PinReason;

CUdeviceptr next_address;
CUresult CUDAAPI FakeAlloc(CUdeviceptr* address, size_t) {
  *address = next_address;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI FakeCreate(CUmemGenericAllocationHandle* handle, size_t, const CUmemAllocationProp*,
                            unsigned long long) {
  *handle = next_address;
  return CUDA_SUCCESS;
}

class MemoryHookTest : public HookTest {
 protected:
  // Installs again with functions of our own for some symbols.
  void Override(const std::string& symbol, void* function) {
    delete GetHookState();
    driver().overrides[symbol] = function;
    Install();
  }
};

TEST_F(MemoryHookTest, ExternalBytesAreCountedFromTheStartAndReported) {
  Override("cuMemAlloc_v2", reinterpret_cast<void*>(&FakeAlloc));
  CUdeviceptr address = 0;
  next_address = 0x1000;
  driver().Hooked<Row::cuMemAlloc_v2>()(&address, 5000);
  next_address = 0x9000;
  driver().Hooked<Row::cuMemAlloc_v2>()(&address, 300);
  EXPECT_EQ(GetHookState()->external.bytes(0), 5300);
  Publish();
  EXPECT_EQ(residency_[0].external_bytes, 5300);
  driver().Hooked<Row::cuMemFree_v2>()(0x1000);
  EXPECT_EQ(residency_[0].external_bytes, 300);
  driver().Hooked<Row::cuMemFree_v2>()(0x1000);  // not known any more
  EXPECT_EQ(residency_[0].external_bytes, 300);
  driver().device = 1;
  next_address = 0xf000;
  driver().Hooked<Row::cuMemAlloc_v2>()(&address, 70);
  EXPECT_EQ(residency_[1].external_bytes, 70);
  driver().device = 0;  // a free counts on the device of its allocation
  driver().Hooked<Row::cuMemFreeAsync>()(0xf000, Stream(1));
  EXPECT_EQ(residency_[1].external_bytes, 0);
}

TEST_F(MemoryHookTest, FailedAllocationsDoNotCount) {
  Publish();
  CUdeviceptr address = 0;
  driver().result = CUDA_ERROR_INVALID_VALUE;
  driver().Hooked<Row::cuMemAlloc_v2>()(&address, 5000);
  EXPECT_EQ(residency_[0].external_bytes, 0);
}

TEST_F(MemoryHookTest, AnAllocationThatRunsOutIsRepeatedWithItsSizeWheneverMemoryWasGivenBack) {
  Publish();
  CUdeviceptr address = 0;
  driver().results["cuMemAlloc_v2"] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY};
  residency_[0].helpful_attempt = 2;
  EXPECT_EQ(driver().Hooked<Row::cuMemAlloc_v2>()(&address, 1 << 20), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(driver().CountOf("cuMemAlloc_v2"), 2u);
  const std::vector<std::pair<int, uint64_t>> attempts = {
      {0, 1 << 20}, {1, 1 << 20}, {2, 1 << 20}, {3, 1 << 20}};
  EXPECT_EQ(residency_[0].releases, attempts);
  driver().results["cuModuleLoadData"] = {CUDA_ERROR_OUT_OF_MEMORY};
  CUmodule module = nullptr;
  EXPECT_EQ(driver().Hooked<Row::cuModuleLoadData>()(&module, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(driver().CountOf("cuModuleLoadData"), 2u);
}

TEST_F(MemoryHookTest, PhysicalMemoryLivesUntilReleasedAndUnmapped) {
  Override("cuMemCreate", reinterpret_cast<void*>(&FakeCreate));
  Publish();
  CUmemAllocationProp prop = {};
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = 1;
  CUmemGenericAllocationHandle handle = 0;
  next_address = 77;
  driver().Hooked<Row::cuMemCreate>()(&handle, 4096, &prop, 0);
  EXPECT_EQ(residency_[1].external_bytes, 4096);
  driver().Hooked<Row::cuMemMap>()(0x40000, 4096, 0, handle, 0);
  driver().Hooked<Row::cuMemRelease>()(handle);
  EXPECT_EQ(residency_[1].external_bytes, 4096);
  driver().Hooked<Row::cuMemUnmap>()(0x40000, 4096);
  EXPECT_EQ(residency_[1].external_bytes, 0);
  prop.location.type = CU_MEM_LOCATION_TYPE_HOST;
  driver().Hooked<Row::cuMemCreate>()(&handle, 4096, &prop, 0);
  EXPECT_EQ(residency_[0].external_bytes + residency_[1].external_bytes, 0);
}

TEST_F(MemoryHookTest, MappingsInOurReservationAreRefused) {
  Publish();
  EXPECT_EQ(driver().Hooked<Row::cuMemMap>()(Address(6), 4096, 0, 5, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver().Hooked<Row::cuMemUnmap>()(Address(6), 4096), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver().Hooked<Row::cuMemAddressFree>()(Address(6), 4096), CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(driver().calls.empty());
}

TEST_F(MemoryHookTest, FreesOfOurBlocksAreOurs) {
  Publish();
  EXPECT_EQ(driver().Hooked<Row::cuMemFree_v2>()(Address(1)), CUDA_SUCCESS);
  EXPECT_EQ(residency_[0].frees, std::vector<CUdeviceptr>{Address(1)});
  EXPECT_EQ(driver().Hooked<Row::cuMemFree_v2>()(Address(1) + 64), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver().Hooked<Row::cuMemFreeAsync>()(Address(1), Stream(3)), CUDA_SUCCESS);
  EXPECT_EQ(residency_[0].recorded, std::vector<CUstream>{Stream(3)});
  EXPECT_EQ(residency_[0].frees.size(), 2u);
  EXPECT_TRUE(driver().calls.empty());
}

TEST_F(MemoryHookTest, MemoryInfoIsThatOfTheBudget) {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  driver().Hooked<Row::cuMemGetInfo_v2>()(&free_bytes, &total_bytes);
  EXPECT_EQ(driver().CountOf("cuMemGetInfo_v2"), 1u);  // no budget yet
  Publish();
  residency_[0].free_bytes = 123;
  residency_[0].total_bytes = 456;
  EXPECT_EQ(driver().Hooked<Row::cuMemGetInfo_v2>()(&free_bytes, &total_bytes), CUDA_SUCCESS);
  EXPECT_EQ(free_bytes, 123u);
  EXPECT_EQ(total_bytes, 456u);
  EXPECT_EQ(driver().Hooked<Row::cuMemGetInfo_v2>()(nullptr, &total_bytes), CUDA_SUCCESS);
  EXPECT_EQ(driver().Hooked<Row::cuMemGetInfo_v2>()(nullptr, nullptr), CUDA_SUCCESS);
}

TEST_F(MemoryHookTest, AddressRangesOfEvictedBlocks) {
  Publish();
  CUdeviceptr base = 0;
  size_t bytes = 0;
  EXPECT_EQ(driver().Hooked<Row::cuMemGetAddressRange_v2>()(&base, &bytes, Address(1) + 4096), CUDA_SUCCESS);
  EXPECT_EQ(base, Address(1));
  EXPECT_EQ(bytes, kTestBlockBytes);
  EXPECT_EQ(driver().Hooked<Row::cuMemGetAddressRange_v2>()(nullptr, nullptr, Address(1)), CUDA_SUCCESS);
  EXPECT_EQ(driver().Hooked<Row::cuMemGetAddressRange_v2>()(&base, &bytes, Address(1) - kTestChunk),
            CUDA_ERROR_NOT_FOUND);
  EXPECT_TRUE(driver().calls.empty());
  driver().Hooked<Row::cuMemGetAddressRange_v2>()(&base, &bytes, 0x1234);
  EXPECT_EQ(driver().calls.size(), 1u);
}

TEST_F(MemoryHookTest, PointerAttributesOfEvictedBlocks) {
  Publish();
  const auto get = driver().Hooked<Row::cuPointerGetAttribute>();
  unsigned int number = 99;
  EXPECT_EQ(get(&number, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, Address(1)), CUDA_SUCCESS);
  EXPECT_EQ(number, unsigned{CU_MEMORYTYPE_DEVICE});
  CUcontext context = nullptr;
  EXPECT_EQ(get(&context, CU_POINTER_ATTRIBUTE_CONTEXT, Address(1, 1)), CUDA_SUCCESS);
  EXPECT_EQ(context, reinterpret_cast<CUcontext>(0x5001));
  int device = -1;
  EXPECT_EQ(get(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, Address(1, 1)), CUDA_SUCCESS);
  EXPECT_EQ(device, 1);
  CUdeviceptr address = 0;
  EXPECT_EQ(get(&address, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, Address(1) + 8), CUDA_SUCCESS);
  EXPECT_EQ(address, Address(1) + 8);
  EXPECT_EQ(get(&address, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, Address(1) + 8), CUDA_SUCCESS);
  EXPECT_EQ(address, Address(1));
  EXPECT_EQ(get(&address, CU_POINTER_ATTRIBUTE_HOST_POINTER, Address(1)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(get(nullptr, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, Address(1)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(get(&number, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, Address(5)),
            CUDA_ERROR_INVALID_VALUE);  // free space
  EXPECT_TRUE(driver().calls.empty());
  EXPECT_TRUE(residency_[0].pins.empty());
}

TEST_F(MemoryHookTest, WhatOnlyTheDriverKnowsOfAPointerIsAskedWhileTheBlockIsThere) {
  Publish();
  const auto get = driver().Hooked<Row::cuPointerGetAttribute>();
  uint64_t id = 0;
  for (int round = 0; round < 3; ++round)
    EXPECT_EQ(get(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, Address(1)), CUDA_SUCCESS);
  EXPECT_EQ(residency_[0].launches.size(), 3u);
  EXPECT_TRUE(residency_[0].pins.empty());
  // Of an attribute that no header of ours has, the answer is an older driver's.
  EXPECT_EQ(get(&id, static_cast<CUpointer_attribute>(999), Address(1)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(residency_[0].pins.empty());
  // Another device reaches the block by these.
  EXPECT_EQ(get(&id, CU_POINTER_ATTRIBUTE_P2P_TOKENS, Address(1)), CUDA_SUCCESS);
  ExpectPinned(PinReason::kUnknownCall, {Id(1)});
}

TEST_F(MemoryHookTest, AnswersOfPointersAreNoWiderThanTheNarrowestCaller) {
  Publish();
  const auto get = driver().Hooked<Row::cuPointerGetAttribute>();
  const uint32_t beside = 0x12345678;
  uint32_t words[2] = {1, beside};
  EXPECT_EQ(get(words, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, Address(1)), CUDA_SUCCESS);
  EXPECT_EQ(words[0], 0u);
  EXPECT_EQ(words[1], beside);
}

TEST_F(MemoryHookTest, SeveralPointerAttributesAtOnce) {
  Publish();
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_HOST_POINTER,
                                      CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_BUFFER_ID};
  unsigned int type = 0;
  void* host = &type;
  unsigned int managed = 9;
  uint64_t id = 0;
  void* data[] = {&type, &host, &managed, &id};
  EXPECT_EQ(driver().Hooked<Row::cuPointerGetAttributes>()(4, attributes, data, Address(1)), CUDA_SUCCESS);
  EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_DEVICE});
  EXPECT_EQ(host, nullptr);
  EXPECT_EQ(managed, 0u);
  EXPECT_EQ(driver().CountOf("cuPointerGetAttributes"), 0u);
  EXPECT_TRUE(residency_[0].pins.empty());
}

TEST_F(MemoryHookTest, AccessIsThatOfTheBlocksDevice) {
  Publish();
  unsigned long long flags = 9;
  CUmemLocation location = {};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  const auto get = driver().Hooked<Row::cuMemGetAccess>();
  EXPECT_EQ(get(&flags, &location, Address(1)), CUDA_SUCCESS);
  EXPECT_EQ(flags, uint64_t{CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  location.id = 1;
  EXPECT_EQ(get(&flags, &location, Address(1)), CUDA_SUCCESS);
  EXPECT_EQ(flags, uint64_t{CU_MEM_ACCESS_FLAGS_PROT_NONE});
}

TEST_F(MemoryHookTest, AResetDeviceHasNoExternalMemory) {
  Override("cuMemAlloc_v2", reinterpret_cast<void*>(&FakeAlloc));
  Publish();
  CUdeviceptr address = 0;
  next_address = 0x1000;
  driver().Hooked<Row::cuMemAlloc_v2>()(&address, 5000);
  driver().Hooked<Row::cuDevicePrimaryCtxReset_v2>()(0);
  EXPECT_EQ(residency_[0].external_bytes, 0);
  driver().Hooked<Row::cuMemFree_v2>()(0x1000);
  EXPECT_EQ(residency_[0].external_bytes, 0);
}

}  // namespace
}  // namespace spillway::integration
