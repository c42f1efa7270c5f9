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
  for (const PinnedBuffer& buffer : buffers) homes.push_back({buffer, {}, false});
  std::vector<size_t> runs;
  ForEachHostRun(homes, kChunk, [&](size_t first, size_t count) {
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

// Counts how often it is asked. A wait with a limit asks when it is entered, and each time when it looks at the limit.
class CountingClock : public os::Clock {
 public:
  int64_t NowNanos() const override {
    ++asked_;
    return os::Clock::System()->NowNanos();
  }
  uint64_t asked() const { return asked_; }

 private:
  mutable std::atomic<uint64_t> asked_{0};
};

class SharedPoolsTest : public testing::Test {
 protected:
  static constexpr uint64_t kShared = 64 * kChunk;

  std::unique_ptr<io::NodeShare> Entry(int expected) {
    return std::make_unique<io::NodeShare>(
        io::NodeShare::Options{{"/proc"}, "host_pool_test " + std::to_string(getpid()), expected, kChunk});
  }
  std::unique_ptr<HostPool> Pool(io::NodeShare* share, const CudaDriver* driver = SlowPins()) {
    HostPool::Options options;
    options.buffer_bytes = kChunk;
    options.slab_bytes = 4 * kChunk;
    options.evict_staging_buffers = options.fault_staging_buffers = 0;
    options.storage_bytes = options.shared_bytes = kShared;
    options.share = share;
    options.waits = &waits_;
    auto pool = HostPool::Create(driver, CoreDevice::Context(), options);
    return pool.ok() ? *std::move(pool) : nullptr;
  }
  // The first pool of these tests: alone it has all, and `buffers` has all its buffers.
  std::unique_ptr<HostPool> TakenPool(io::NodeShare* share, std::vector<PinnedBuffer>* buffers) {
    std::unique_ptr<HostPool> pool = Pool(share);
    EXPECT_TRUE(pool->GrowStorageTo(kShared).ok());
    EXPECT_EQ(pool->Take(HostUse::kStorage, 64, buffers), 64u);
    return pool;
  }

  CountingClock clock_;
  os::WaitList waits_{&clock_, nullptr, std::chrono::hours(1)};
};

TEST_F(SharedPoolsTest, ANewcomerGetsItsPart) {
  const auto first_share = Entry(0);
  const auto first = Pool(first_share.get());
  ASSERT_TRUE(first->GrowStorageTo(kShared).ok()) << "alone it has all";
  const auto second_share = Entry(0);
  const auto second = Pool(second_share.get());
  ASSERT_TRUE(second->GrowStorageTo(kShared / 2).ok());
  EXPECT_EQ(first->storage_capacity_bytes(), kShared / 2);
  const absl::Status more = second->GrowStorageTo(kShared);
  EXPECT_TRUE(absl::IsResourceExhausted(more));
  EXPECT_NE(std::string(more.message()).find("1 other processes of this node"), std::string::npos) << more;
}

TEST_F(SharedPoolsTest, WithAKnownNumberWhatIsUnusedIsLentUntilItIsAskedFor) {
  const auto first_share = Entry(2);
  const auto first = Pool(first_share.get());
  EXPECT_EQ(first->storage_cap_bytes(), kShared / 2) << "the other may be where it cannot be seen";
  EXPECT_FALSE(first->GrowStorageTo(kShared).ok());
  const auto second_share = Entry(2);
  const auto second = Pool(second_share.get());
  ASSERT_TRUE(tests::WaitUntil([&] { return first->GrowStorageTo(kShared).ok(); }))
      << "it is there and needs nothing";
  ASSERT_TRUE(second->GrowStorageTo(kShared / 4).ok());
  EXPECT_EQ(first->storage_capacity_bytes(), kShared * 3 / 4) << "no more than was asked for";
}

TEST_F(SharedPoolsTest, BuffersThatAreTakenKeepTheirSlabUntilTheyAreGiven) {
  const auto first_share = Entry(0);
  std::vector<PinnedBuffer> buffers;
  const auto first = TakenPool(first_share.get(), &buffers);
  const auto second_share = Entry(0);
  ASSERT_TRUE(tests::WaitUntil([&] { return first->gives_back(); }));
  EXPECT_EQ(first->storage_capacity_bytes(), kShared / 2);
  EXPECT_EQ(first->storage_in_use(), kShared);
  EXPECT_FALSE(second_share->Register(4 * kChunk, kShared)) << "it is pinned still";
  std::vector<PinnedBuffer> leaving;
  for (const PinnedBuffer& buffer : buffers) {
    if (first->Leaves(buffer.data)) leaving.push_back(buffer);
  }
  ASSERT_EQ(leaving.size(), 32u);
  first->BeginRead(leaving[0].data);
  for (const PinnedBuffer& buffer : leaving) first->Give(HostUse::kStorage, buffer);
  EXPECT_TRUE(tests::WaitUntil([&] { return second_share->Register(28 * kChunk, kShared); }));
  EXPECT_FALSE(second_share->Register(32 * kChunk, kShared)) << "one slab is being read";
  std::memset(leaving[0].data, 1, kChunk);
  first->EndRead(leaving[0].data);
  EXPECT_TRUE(tests::WaitUntil([&] { return second_share->Register(32 * kChunk, kShared); }));
  std::vector<PinnedBuffer> more;
  EXPECT_EQ(first->Take(HostUse::kStorage, 64, &more), 0u);
  EXPECT_FALSE(first->storage_growing()) << "evictions do not wait for what others have";
}

// A slab is the least that can leave: afterwards this process has less than its share, and may not pin what is
// missing before the slab is gone.
TEST_F(SharedPoolsTest, EvictionsDoNotWaitForSlabsThatLeave) {
  const auto first_share = Entry(0);
  std::vector<PinnedBuffer> buffers;
  const auto first = TakenPool(first_share.get(), &buffers);
  const auto second_share = Entry(0), third_share = Entry(0);
  ASSERT_TRUE(tests::WaitUntil([&] { return first->storage_capacity_bytes() == 20 * kChunk; }));
  EXPECT_EQ(first->storage_due_bytes(), 21 * kChunk);
  ASSERT_EQ(first->Take(HostUse::kStorage, 1, &buffers), 0u);
  EXPECT_TRUE(tests::WaitUntil([&] { return !first->storage_growing(); }));
  EXPECT_TRUE(first->gives_back());
}

// Else an allocation would wait for what cannot be pinned, without end where nothing empties the slab.
TEST_F(SharedPoolsTest, AllocationsDoNotCountOnSlabsThatLeave) {
  const auto first_share = Entry(0);
  std::vector<PinnedBuffer> buffers;
  const auto first = TakenPool(first_share.get(), &buffers);
  const auto second_share = Entry(0), third_share = Entry(0);
  ASSERT_TRUE(tests::WaitUntil([&] { return first->storage_capacity_bytes() == 20 * kChunk; }));
  EXPECT_TRUE(tests::WaitUntil([&] { return first->storage_cap_bytes() == 20 * kChunk; }));
  absl::Status due;
  const uint64_t before = clock_.asked();
  std::thread allocation([&] { due = first->GrowStorageTo(21 * kChunk); });
  // Then it is to wait, and has the lock until it does.
  EXPECT_TRUE(tests::WaitUntil([&] { return clock_.asked() >= before + 2; }));
  for (const PinnedBuffer& buffer : buffers) {
    if (first->Leaves(buffer.data)) first->Give(HostUse::kStorage, buffer);
  }
  allocation.join();
  EXPECT_TRUE(due.ok()) << due;
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

CUresult KeepPinned(void*) { return CUDA_ERROR_UNKNOWN; }

// One slab is lost by trying, and no more. What is lost is not counted on, else evictions would wait for it.
TEST_F(SharedPoolsTest, WhatTheDriverDoesNotLetGoIsLost) {
  CudaDriver driver = *SlowPins();
  driver.cuMemHostUnregister = &KeepPinned;
  const auto first_share = Entry(0);
  const auto first = Pool(first_share.get(), &driver);
  ASSERT_TRUE(first->GrowStorageTo(kShared).ok());
  auto second_share = Entry(0);
  ASSERT_TRUE(tests::WaitUntil([&] { return first->storage_capacity_bytes() == kShared - 4 * kChunk; }));
  EXPECT_FALSE(second_share->Register(kChunk, kShared)) << "it is pinned still";
  second_share.reset();
  std::vector<PinnedBuffer> buffers;
  EXPECT_TRUE(tests::WaitUntil([&] { return first->storage_due_bytes() == kShared - 4 * kChunk; }));
  EXPECT_EQ(first->Take(HostUse::kStorage, 64, &buffers), 60u);
  EXPECT_FALSE(first->gives_back());
  EXPECT_TRUE(tests::WaitUntil([&] { return !first->storage_growing(); })) << "nothing more can be pinned";
  EXPECT_TRUE(absl::IsResourceExhausted(first->GrowStorageTo(kShared)));
}

TEST_F(SharedPoolsTest, SlabsStayWhenTheOtherIsGone) {
  const auto first_share = Entry(0);
  std::vector<PinnedBuffer> buffers;
  const auto first = TakenPool(first_share.get(), &buffers);
  auto second_share = Entry(0);
  ASSERT_TRUE(tests::WaitUntil([&] { return first->gives_back(); }));
  first->Give(HostUse::kStorage, buffers[63]);
  second_share.reset();
  EXPECT_TRUE(tests::WaitUntil([&] { return first->storage_capacity_bytes() == kShared; }));
  EXPECT_FALSE(first->gives_back());
  EXPECT_EQ(first->Take(HostUse::kStorage, 64, &buffers), 1u);
}

// What it is due counts as what it may get, even if the other has it still: else nobody would ask for it.
TEST_F(SharedPoolsTest, WithoutADiskANewcomersAllocationsGetItsPart) {
  const auto first_share = Entry(0);
  const auto first = Pool(first_share.get());
  ASSERT_TRUE(first->GrowStorageTo(kShared).ok());
  const auto second_share = Entry(0);
  const auto second = Pool(second_share.get());
  SharedCapacity capacity(second.get(), nullptr);
  EXPECT_FALSE(capacity.Change(0, kShared / 2));
  EXPECT_TRUE(capacity.CanGrow());
  EXPECT_TRUE(capacity.Grow(kShared / 2).ok());
  EXPECT_TRUE(capacity.Change(0, kShared / 2));
  EXPECT_FALSE(capacity.CanGrow());
}

TEST_F(SharedPoolsTest, WhatIsPromisedIsNotGivenBack) {
  const auto first_share = Entry(0);
  const auto first = Pool(first_share.get());
  ASSERT_TRUE(first->GrowStorageTo(kShared).ok());
  SharedCapacity capacity(first.get(), nullptr);
  ASSERT_TRUE(capacity.Change(0, kShared * 3 / 4));
  const auto second_share = Entry(0);
  EXPECT_TRUE(tests::WaitUntil([&] { return second_share->Register(kShared / 4, kShared); }));
  EXPECT_FALSE(second_share->Register(kShared / 2, kShared));
  EXPECT_GE(capacity.host_bytes(), kShared * 3 / 4);
  capacity.Change(kShared * 3 / 4, 0);
  EXPECT_TRUE(tests::WaitUntil([&] { return second_share->Register(kShared / 2, kShared); }));
}

// Who promised at that moment would be refused, and without a disk the job's allocation.
TEST_F(SharedPoolsTest, TheCapacityDoesNotFallInVain) {
  const auto first_share = Entry(0);
  const auto first = Pool(first_share.get());
  ASSERT_TRUE(first->GrowStorageTo(kShared).ok());
  std::atomic<int> looks{0};
  std::atomic<uint64_t> least{kShared};
  first->SetFits([&](uint64_t less, uint64_t) {
    ++looks;
    least = std::min(least.load(), first->storage_capacity_bytes());
    return first->storage_capacity_bytes() - less >= kShared * 3 / 4;
  });
  const auto second_share = Entry(0);
  EXPECT_TRUE(tests::WaitUntil([&] { return looks > 8; }));
  EXPECT_EQ(least, kShared * 3 / 4);
  first->SetFits(nullptr);
}

}  // namespace
}  // namespace spillway::allocator
