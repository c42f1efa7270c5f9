#include "allocator/tier/host_pool.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "allocator/tier/extent_home.h"
#include "allocator/tier/shared_capacity.h"
#include "io/os/clock.h"
#include "io/os/wait.h"
#include "tests/allocator/slow_pins.h"
#include "tests/fakes/wait_until.h"

namespace spillway::allocator {
namespace {

TEST(HostPoolTest, KindsDoNotTakeFromEachOther) {
  HostPool::Options options;
  options.buffer_bytes = kChunk;
  options.storage_bytes = 5 * kChunk;
  options.slab_bytes = 2 * kChunk;
  options.evict_staging_buffers = 2;
  options.fault_staging_buffers = 3;
  auto pool = HostPool::Create(CoreDevice::Driver(), CoreDevice::Context(), options);
  ASSERT_TRUE(pool.ok());
  EXPECT_EQ((*pool)->Free(HostUse::kStorage), 5u);
  std::vector<PinnedBuffer> storage;
  EXPECT_EQ((*pool)->Take(HostUse::kStorage, 1, &storage), 0u) << "Take never pins";
  ASSERT_TRUE((*pool)->GrowStorageTo(5 * kChunk).ok());
  EXPECT_EQ((*pool)->storage_capacity_bytes(), 5 * kChunk);
  EXPECT_EQ((*pool)->Take(HostUse::kStorage, 9, &storage), 5u);
  EXPECT_EQ((*pool)->storage_in_use(), 5 * kChunk);
  std::vector<PinnedBuffer> staging;
  EXPECT_EQ((*pool)->Take(HostUse::kEvictStaging, 9, &staging), 2u);
  EXPECT_EQ((*pool)->Take(HostUse::kFaultStaging, 9, &staging), 3u);
  for (size_t i = 0; i < storage.size(); ++i) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(storage[i].data) % 4096, 0u);
    for (size_t j = 0; j < i; ++j) EXPECT_GE(std::abs(storage[i].data - storage[j].data), ptrdiff_t{kChunk});
  }
  (*pool)->Give(HostUse::kStorage, storage[2]);
  std::vector<PinnedBuffer> again;
  EXPECT_EQ((*pool)->Take(HostUse::kStorage, 1, &again), 1u);
  EXPECT_EQ(again[0].data, storage[2].data);
}

TEST(HostPoolTest, AnAbandonedBufferIsNotHandedOutAgain) {
  HostPool::Options options;
  options.buffer_bytes = kChunk;
  options.fault_staging_buffers = 3;
  auto pool = HostPool::Create(CoreDevice::Driver(), CoreDevice::Context(), options);
  ASSERT_TRUE(pool.ok());
  std::vector<PinnedBuffer> staging;
  ASSERT_EQ((*pool)->Take(HostUse::kFaultStaging, 9, &staging), 3u);
  (*pool)->Abandon(HostUse::kFaultStaging);  // staging[1]
  (*pool)->Give(HostUse::kFaultStaging, staging[0]);
  (*pool)->Give(HostUse::kFaultStaging, staging[2]);
  EXPECT_EQ((*pool)->Limit(HostUse::kFaultStaging), 2u);
  EXPECT_EQ((*pool)->Free(HostUse::kFaultStaging), 2u);
  std::vector<PinnedBuffer> again;
  EXPECT_EQ((*pool)->Take(HostUse::kFaultStaging, 9, &again), 2u);
  for (const PinnedBuffer& buffer : again) EXPECT_NE(buffer.data, staging[1].data);
}

TEST(HostPoolTest, ABufferThatIsReadIsNotHandedOutAgain) {
  HostPool::Options options;
  options.buffer_bytes = kChunk;
  options.storage_bytes = 4 * kChunk;
  options.evict_staging_buffers = options.fault_staging_buffers = 0;
  auto pool = HostPool::Create(CoreDevice::Driver(), CoreDevice::Context(), options);
  ASSERT_TRUE(pool.ok() && (*pool)->GrowStorageTo(4 * kChunk).ok());
  std::vector<PinnedBuffer> buffers;
  ASSERT_EQ((*pool)->Take(HostUse::kStorage, 4, &buffers), 4u);
  const PinnedBuffer read = buffers[1], kept = buffers[3];
  (*pool)->BeginRead(read);
  (*pool)->BeginRead(kept);
  (*pool)->Give(HostUse::kStorage, buffers[0], 3);
  buffers.clear();
  EXPECT_EQ((*pool)->Take(HostUse::kStorage, 4, &buffers), 2u);
  (*pool)->EndRead(kept);
  EXPECT_EQ((*pool)->Take(HostUse::kStorage, 4, &buffers), 0u) << "nobody has given it back";
  (*pool)->EndRead(read);
  EXPECT_EQ((*pool)->Take(HostUse::kStorage, 4, &buffers), 1u);
  EXPECT_EQ(buffers.back().data, read.data);
}

TEST(HostPoolTest, NoRunOfBuffersReachesOverTwoSlabs) {
  HostPool::Options options;
  options.buffer_bytes = kChunk;
  options.slab_bytes = 32 * kChunk;
  options.storage_bytes = 4 * options.slab_bytes;
  options.evict_staging_buffers = options.fault_staging_buffers = 0;
  auto pool = HostPool::Create(CoreDevice::Driver(), CoreDevice::Context(), options);
  ASSERT_TRUE(pool.ok());
  ASSERT_TRUE((*pool)->GrowStorageTo(options.storage_bytes).ok());
  std::vector<PinnedBuffer> buffers;
  ASSERT_EQ((*pool)->Take(HostUse::kStorage, 128, &buffers), 128u);
  std::vector<ExtentHome> homes;
  for (const PinnedBuffer& buffer : buffers) homes.push_back(ExtentHome::InHost(buffer));
  std::vector<size_t> runs;
  ForEachHostRun(homes, homes.size(), kChunk, [&](size_t first, size_t count) {
    runs.push_back(count);
    // Nor may memory that is mapped later adjoin.
    std::byte* const end = homes[first].buffer.data + count * kChunk;
    EXPECT_EQ(mmap(end, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
              MAP_FAILED);
  });
  EXPECT_LE(*std::max_element(runs.begin(), runs.end()), 64u) << "two slabs that were pinned as one";
  EXPECT_EQ(std::accumulate(runs.begin(), runs.end(), size_t{0}), 128u);
}

TEST(HostPoolTest, ARefusedRegistrationLowersTheCap) {
  HostPool::Options options;
  options.buffer_bytes = kChunk;
  options.storage_bytes = 64 * kChunk;
  options.slab_bytes = 4 * kChunk;
  options.evict_staging_buffers = options.fault_staging_buffers = 0;
  CudaDriver driver = *CoreDevice::Driver();
  // Refuses from its fourth call on; the entry is not changed while the pinning thread may use it.
  static std::atomic<int> pins;
  static const auto real = CoreDevice::Driver()->cuMemHostRegister_v2;
  pins = 0;
  driver.cuMemHostRegister_v2 = [](void* data, size_t bytes, unsigned flags) {
    return ++pins > 3 ? CUDA_ERROR_OUT_OF_MEMORY : real(data, bytes, flags);
  };
  auto pool = HostPool::Create(&driver, CoreDevice::Context(), options);
  ASSERT_TRUE(pool.ok());
  std::vector<PinnedBuffer> buffers;
  ASSERT_TRUE((*pool)->GrowStorageTo(4 * kChunk).ok());
  EXPECT_EQ((*pool)->Take(HostUse::kStorage, 4, &buffers), 4u);
  const absl::Status grown = (*pool)->GrowStorageTo(64 * kChunk);
  EXPECT_TRUE(absl::IsResourceExhausted(grown)) << grown;
  EXPECT_NE(std::string(grown.message()).find("pinning"), std::string::npos) << grown;
  const uint64_t capacity = (*pool)->storage_capacity_bytes();
  EXPECT_EQ((*pool)->storage_cap_bytes(), capacity);
  EXPECT_LT(capacity, 64 * kChunk);
  EXPECT_TRUE((*pool)->GrowStorageTo(capacity).ok());
  EXPECT_EQ((*pool)->Take(HostUse::kStorage, 64, &buffers), capacity / kChunk - 4);
  EXPECT_EQ((*pool)->Free(HostUse::kStorage), 0u);
  (*pool)->Give(HostUse::kStorage, buffers.back());
  EXPECT_EQ((*pool)->Free(HostUse::kStorage), 1u);
  options.fault_staging_buffers = 2;
  EXPECT_FALSE(HostPool::Create(&driver, CoreDevice::Context(), options).ok()) << "no staging, no pool";
}

TEST(HostPoolTest, WithoutAllOfItsStagingAPoolKeepsNone) {
  CudaDriver driver = *CoreDevice::Driver();
  static std::vector<void*> pinned;
  pinned.clear();
  driver.cuMemHostRegister_v2 = [](void* data, size_t bytes, unsigned flags) {
    if (!pinned.empty()) return CUDA_ERROR_OUT_OF_MEMORY;
    pinned.push_back(data);
    return CoreDevice::Driver()->cuMemHostRegister_v2(data, bytes, flags);
  };
  driver.cuMemHostUnregister = [](void* data) {
    EXPECT_EQ(std::vector<void*>{data}, pinned);
    pinned.clear();
    return CoreDevice::Driver()->cuMemHostUnregister(data);
  };
  HostPool::Options options;
  options.buffer_bytes = kChunk;
  options.evict_staging_buffers = options.fault_staging_buffers = 2;
  EXPECT_FALSE(HostPool::Create(&driver, CoreDevice::Context(), options).ok());
  EXPECT_TRUE(pinned.empty());
}

// ---- Two pools that share: as two processes, for each entry of a share has its own locks.

class SharedPoolsTest : public testing::Test {
 protected:
  static constexpr uint64_t kShared = 64 * kChunk;

  std::unique_ptr<io::NodeShare> Entry(int ranks) {
    return std::make_unique<io::NodeShare>(
        io::NodeShare::Options{{"/proc"}, "host_pool_test " + std::to_string(getpid()), ranks, kChunk});
  }
  std::unique_ptr<HostPool> Pool(io::NodeShare* share, const CudaDriver* driver = SlowPins()) {
    HostPool::Options options;
    options.buffer_bytes = kChunk;
    options.slab_bytes = 4 * kChunk;
    options.evict_staging_buffers = options.fault_staging_buffers = 0;
    options.storage_bytes = options.shared_bytes = kShared;
    options.share = share;
    auto pool = HostPool::Create(driver, CoreDevice::Context(), options);
    return pool.ok() ? *std::move(pool) : nullptr;
  }
};

TEST_F(SharedPoolsTest, WhoComesFirstKeepsWhatItHas) {
  const auto first_share = Entry(0);
  const auto first = Pool(first_share.get());
  ASSERT_TRUE(first->GrowStorageTo(kShared / 2).ok());
  constexpr uint64_t kTaken = kShared / 2 + 4 * kChunk;  // with one slab ahead of need
  ASSERT_TRUE(tests::WaitUntil([&] { return first->storage_capacity_bytes() == kTaken; }));
  const auto second_share = Entry(0);
  const auto second = Pool(second_share.get());
  EXPECT_EQ(second->storage_cap_bytes(), kShared - kTaken);
  const absl::Status more = second->GrowStorageTo(kShared / 2);
  EXPECT_TRUE(absl::IsResourceExhausted(more));
  EXPECT_NE(std::string(more.message()).find("1 other processes of this node"), std::string::npos) << more;
  EXPECT_TRUE(second->GrowStorageTo(kShared - kTaken).ok());
  EXPECT_EQ(first->storage_capacity_bytes() + second->storage_capacity_bytes(), kShared);
  std::vector<PinnedBuffer> buffers;
  EXPECT_EQ(second->Take(HostUse::kStorage, 64, &buffers), 28u);
  EXPECT_TRUE(tests::WaitUntil([&] { return !second->storage_growing(); })) << "evictions do not wait for it";
}

TEST_F(SharedPoolsTest, RanksHaveEqualPartsWhateverTheOthersNeed) {
  const auto first_share = Entry(2);
  const auto first = Pool(first_share.get());
  EXPECT_EQ(first->storage_cap_bytes(), kShared / 2) << "the other may be where it cannot be seen";
  ASSERT_TRUE(first->GrowStorageTo(kShared / 2).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(first->GrowStorageTo(kShared / 2 + kChunk)));
  const auto second_share = Entry(2);
  const auto second = Pool(second_share.get());
  EXPECT_TRUE(second->GrowStorageTo(kShared / 2).ok());
}

std::atomic<bool> g_pins{true};
std::atomic<int> g_pinning{0};

CUresult PinLater(void* data, size_t bytes, unsigned flags) {
  ++g_pinning;
  g_pins.wait(false);
  return CoreDevice::Driver()->cuMemHostRegister_v2(data, bytes, flags);
}

TEST_F(SharedPoolsTest, EvictionsWaitForWhatTheOtherHasLeft) {
  CudaDriver driver = *SlowPins();
  driver.cuMemHostRegister_v2 = &PinLater;
  const auto first_share = Entry(0);
  const auto first = Pool(first_share.get(), &driver);
  auto second_share = Entry(0);
  ASSERT_TRUE(second_share->Register(kShared / 2, kShared));
  ASSERT_TRUE(first->GrowStorageTo(kShared / 2).ok());
  std::vector<PinnedBuffer> buffers;
  ASSERT_EQ(first->Take(HostUse::kStorage, 64, &buffers), 32u);
  ASSERT_TRUE(tests::WaitUntil([&] { return !first->storage_growing(); }));
  const int before = g_pinning;
  g_pins = false;
  second_share.reset();
  EXPECT_TRUE(tests::WaitUntil([&] { return g_pinning > before; }));
  EXPECT_TRUE(first->storage_growing()) << "it is being pinned";
  g_pins = true;
  g_pins.notify_all();
  EXPECT_TRUE(tests::WaitUntil([&] { return first->storage_capacity_bytes() == kShared; }));
}

// Others hold everything when the process begins. What one of them leaves later may be had.
TEST_F(SharedPoolsTest, AllocationsGetWhatAnotherLeaves) {
  auto first_share = Entry(0);
  ASSERT_TRUE(first_share->Register(kShared, kShared));
  const auto second_share = Entry(0);
  const auto second = Pool(second_share.get());
  SharedCapacity capacity(second.get(), nullptr);
  EXPECT_FALSE(capacity.Change(0, kShared / 2));
  EXPECT_TRUE(capacity.CanGrow());
  EXPECT_TRUE(absl::IsResourceExhausted(capacity.Grow(kShared / 2)));
  first_share.reset();
  EXPECT_TRUE(capacity.Grow(kShared).ok());
  EXPECT_TRUE(capacity.Change(0, kShared));
  EXPECT_FALSE(capacity.CanGrow());
}

// Both begin at the same time and want all of it.
TEST_F(SharedPoolsTest, TwoThatGrowAtOnceNeverHoldMoreThanThereIs) {
  for (int round = 0; round < 20; ++round) {
    const auto first_share = Entry(0), second_share = Entry(0);
    const auto first = Pool(first_share.get()), second = Pool(second_share.get());
    std::thread other([&] { static_cast<void>(second->GrowStorageTo(kShared)); });
    static_cast<void>(first->GrowStorageTo(kShared));
    other.join();
    EXPECT_LE(first->storage_capacity_bytes() + second->storage_capacity_bytes(), kShared);
    EXPECT_TRUE(tests::WaitUntil([&] {
      const uint64_t before = first->storage_capacity_bytes() + second->storage_capacity_bytes();
      if (before < kShared) first->AskFor(kShared);
      return before == kShared;
    })) << "nobody has the rest";
  }
}

}  // namespace
}  // namespace spillway::allocator
