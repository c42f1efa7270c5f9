#include "allocator/tier/pinned_slab.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "allocator/tier/host_pool.h"
#include "tests/allocator/slow_pins.h"

namespace spillway::allocator {
namespace {

// mincore answers ENOMEM where nothing is mapped.
bool Mapped(std::byte* address) {
  unsigned char in_memory = 0;
  return mincore(address, 1, &in_memory) == 0 || errno != ENOMEM;
}

TEST(PinnedSlabTest, IsThereUntilItIsGivenBack) {
  const auto slab = PinSlab(CoreDevice::Driver(), CoreDevice::Context(), 100'000);
  ASSERT_TRUE(slab.ok()) << slab.status();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(*slab) % 4096, 0u);
  std::memset(*slab, 1, 102'400);
  ASSERT_TRUE(Mapped(*slab));
  EXPECT_TRUE(UnpinSlab(CoreDevice::Driver(), CoreDevice::Context(), *slab, 100'000));
  EXPECT_FALSE(Mapped(*slab));
  EXPECT_FALSE(Mapped(*slab + 102'400)) << "the page behind it";
}

// The kernel's flags of the mapping at `address`, such as "rd wr mr".
std::string FlagsOf(const std::byte* address) {
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool within = false;
  while (std::getline(maps, line)) {
    unsigned long long start = 0, end = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx ", &start, &end) == 2)
      within = start <= reinterpret_cast<uint64_t>(address) && reinterpret_cast<uint64_t>(address) < end;
    if (within && line.starts_with("VmFlags:")) return line;
  }
  return "";
}

// They would hold the job's tensors, in a place that the user does not watch.
TEST(PinnedSlabTest, IsLeftOutOfCoreFilesAndForkedChildren) {
  const auto slab = PinSlab(CoreDevice::Driver(), CoreDevice::Context(), 4 << 20);
  ASSERT_TRUE(slab.ok()) << slab.status();
  for (const std::byte* address : {*slab, *slab + (4 << 20) - 1}) {
    EXPECT_NE(FlagsOf(address).find(" dd"), std::string::npos) << FlagsOf(address);
    EXPECT_NE(FlagsOf(address).find(" dc"), std::string::npos) << FlagsOf(address);
  }
  EXPECT_TRUE(UnpinSlab(CoreDevice::Driver(), CoreDevice::Context(), *slab, 4 << 20));
}

// The driver would take the pages one after the other, under locks that launches wait for.
TEST(PinnedSlabTest, HasItsPagesBeforeTheDriverIsCalled) {
  static size_t there = 0;
  CudaDriver driver = *CoreDevice::Driver();
  driver.cuMemHostRegister_v2 = [](void* start, size_t bytes, unsigned flags) {
    std::vector<unsigned char> in_memory(bytes / 4096);
    EXPECT_EQ(mincore(start, bytes, in_memory.data()), 0);
    there = static_cast<size_t>(
        std::count_if(in_memory.begin(), in_memory.end(), [](auto page) { return page & 1; }));
    return CoreDevice::Driver()->cuMemHostRegister_v2(start, bytes, flags);
  };
  constexpr uint64_t kBytes = 32 << 20;
  const auto slab = PinSlab(&driver, CoreDevice::Context(), kBytes);
  ASSERT_TRUE(slab.ok()) << slab.status();
  EXPECT_EQ(there, kBytes / 4096);
  EXPECT_TRUE(UnpinSlab(&driver, CoreDevice::Context(), *slab, kBytes));
}

TEST(PinnedSlabTest, WhatTheDriverRefusesIsSaid) {
  CudaDriver driver = *CoreDevice::Driver();
  driver.cuMemHostRegister_v2 = [](void*, size_t, unsigned) { return CUDA_ERROR_OUT_OF_MEMORY; };
  const auto refused = PinSlab(&driver, CoreDevice::Context(), 4096);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(std::string(refused.status().message()).find("pinning 4096 bytes"), std::string::npos);
  driver = *CoreDevice::Driver();
  driver.cuMemHostUnregister = [](void*) { return CUDA_ERROR_UNKNOWN; };
  const auto slab = PinSlab(&driver, CoreDevice::Context(), 4096);
  ASSERT_TRUE(slab.ok());
  EXPECT_FALSE(UnpinSlab(&driver, CoreDevice::Context(), *slab, 4096));
  EXPECT_TRUE(Mapped(*slab)) << "the device may still use it";
}

// The bytes of each registration of a pool of 16 slabs.
std::vector<size_t> Registrations(const CudaDriver& of) {
  static std::vector<size_t> sizes;
  static decltype(of.cuMemHostRegister_v2) real;
  sizes.clear();
  real = of.cuMemHostRegister_v2;
  CudaDriver driver = of;
  driver.cuMemHostRegister_v2 = [](void* data, size_t bytes, unsigned flags) {
    sizes.push_back(bytes);
    return real(data, bytes, flags);
  };
  HostPool::Options options;
  options.buffer_bytes = kChunk;
  options.slab_bytes = 4 * kChunk;
  options.storage_bytes = 64 * kChunk;
  options.evict_staging_buffers = options.fault_staging_buffers = 0;
  auto pool = HostPool::Create(&driver, CoreDevice::Context(), options);
  EXPECT_TRUE((*pool)->GrowStorageTo(options.storage_bytes).ok());
  (*pool)->Shutdown();
  return sizes;
}

// A busy machine may make some of them slow.
TEST(PinnedSlabTest, ARegistrationTakesTwoSlabsWhereOneIsShort) {
  const std::vector<size_t> sizes = Registrations(*CoreDevice::Driver());
  EXPECT_EQ(sizes.front(), 4 * kChunk);
  EXPECT_EQ(*std::max_element(sizes.begin(), sizes.end()), 8 * kChunk);
}

TEST(PinnedSlabTest, ARegistrationTakesOneSlabWhereItIsLong) {
  EXPECT_EQ(Registrations(*SlowPins()), std::vector<size_t>(16, 4 * kChunk));
}

}  // namespace
}  // namespace spillway::allocator
