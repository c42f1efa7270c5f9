// Addresses that go where no launch names them: copied tables, globals, textures, private tables, trust. What is held,
// and what ends it.

#include <string>
#include <thread>

#include "tests/integration/hooks/escape_fixture.h"

namespace spillway::integration {
namespace {

// ---- Tables.

TEST_F(HiddenHookTest, ANewTableEndsTheHoldsOfTheOldOne) {
  EXPECT_EQ(Upload(kForeign, {2, 3}), CUDA_SUCCESS);
  EXPECT_EQ(Held(2), 1);
  EXPECT_EQ(Held(3), 1);
  for (int step = 0; step < 10; ++step) EXPECT_EQ(Upload(kForeign, {3, 4}, Stream(2)), CUDA_SUCCESS);
  EXPECT_EQ(Held(2), 0);
  EXPECT_EQ(Held(3), 1);
  EXPECT_EQ(Held(4), 1);
  EXPECT_EQ(state()->tables.slots(), 2u);
  // What still reads the old table was queued before the copy.
  ASSERT_FALSE(residency_[0].ends.empty());
  ASSERT_EQ(residency_[0].ends.back().users.streams.size(), 1u);
  EXPECT_EQ(residency_[0].ends.back().users.streams[0].handle, Stream(2));
}

TEST_F(HiddenHookTest, NewTargetsAreHeldBeforeOldOnesAreLetGo) {
  Upload(kForeign, {2});
  residency_[0].ends.clear();
  Upload(kForeign, {2});
  EXPECT_EQ(Held(2), 1);
  EXPECT_EQ(residency_[0].holds.size(), 2u);
}

TEST_F(HiddenHookTest, OverwritingPartOfATableEndsThatPart) {
  Upload(kForeign, {1, 2, 3, 4});
  driver().Hooked<Row::cuMemsetD8Async>()(kForeign + 12, 0, 8, Stream(1));  // words 1 and 2, each in part
  EXPECT_EQ(Held(1), 1);
  EXPECT_EQ(Held(2), 0);
  EXPECT_EQ(Held(3), 0);
  EXPECT_EQ(Held(4), 1);
  uint64_t data[2] = {};
  driver().Hooked<Row::cuMemcpyHtoD_v2>()(kForeign + 24, data, sizeof(data));
  EXPECT_EQ(Held(4), 0);
}

TEST_F(HiddenHookTest, ACopyOfATableKeepsItsTargets) {
  Upload(kForeign, {1, 2});
  driver().Hooked<Row::cuMemcpyDtoDAsync_v2>()(kForeign + 0x1000, kForeign, 16, Stream(1));
  EXPECT_EQ(Held(1), 1) << "one hold for all words that lead there";
  driver().Hooked<Row::cuMemsetD32Async>()(kForeign, 0, 4, Stream(1));
  EXPECT_EQ(Held(1), 1) << "the copy still leads there";
  EXPECT_EQ(Held(2), 1);
  driver().Hooked<Row::cuMemcpyDtoDAsync_v2>()(kForeign + 0x2000, kForeign + 0x1008, 8, Stream(1));
  driver().Hooked<Row::cuMemsetD32Async>()(kForeign + 0x1000, 0, 4, Stream(1));
  EXPECT_EQ(Held(1), 0);
  EXPECT_EQ(Held(2), 1) << "half of the copy was copied on";
}

TEST_F(HiddenHookTest, ATableInABlockOfOursEndsWithIt) {
  Upload(Address(1), {2, 3});
  EXPECT_EQ(Held(2), 1);
  EXPECT_EQ(driver().Hooked<Row::cuMemFree_v2>()(Address(1)), CUDA_SUCCESS);
  EXPECT_EQ(Held(2), 0);
  EXPECT_EQ(Held(3), 0);
  EXPECT_EQ(residency_[0].ends.back().users.carrier, Id(1)) << "its users may still read the table";
}

TEST_F(HiddenHookTest, ATableInOthersMemoryEndsWithIt) {
  CUdeviceptr memory = kForeign;  // the fake leaves it as it is
  ASSERT_EQ(driver().Hooked<Row::cuMemAlloc_v2>()(&memory, 4096), CUDA_SUCCESS);
  Upload(kForeign + 128, {2});
  driver().Hooked<Row::cuMemFreeAsync>()(kForeign, Stream(3));
  EXPECT_EQ(Held(2), 0);
  ASSERT_EQ(residency_[0].ends.back().users.streams.size(), 1u);
  EXPECT_EQ(residency_[0].ends.back().users.streams[0].handle, Stream(3));
}

TEST_F(HiddenHookTest, BatchesAndPitchedCopiesAreLookedThrough) {
  driver().results["cuPointerGetAttribute"] = std::vector<CUresult>(8, CUDA_ERROR_INVALID_VALUE);
  uint64_t one[2] = {7, Address(2)};
  uint64_t two[1] = {Address(3)};
  CUdeviceptr to[2] = {kForeign, kForeign + 0x100};
  CUdeviceptr from[2] = {reinterpret_cast<CUdeviceptr>(one), reinterpret_cast<CUdeviceptr>(two)};
  size_t sizes[2] = {sizeof(one), sizeof(two)};
  driver().Hooked<Row::cuMemcpyBatchAsync_v2>()(to, from, sizes, 2, nullptr, nullptr, 0, Stream(1));
  EXPECT_EQ(Held(2), 1);
  EXPECT_EQ(Held(3), 1);

  uint64_t rows[2][4] = {{Address(4)}, {Address(5)}};
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = rows;
  copy.srcPitch = sizeof(rows[0]);
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = kForeign + 0x200;
  copy.dstPitch = 64;
  copy.WidthInBytes = 8;
  copy.Height = 2;
  driver().Hooked<Row::cuMemcpy2DAsync_v2>()(&copy, Stream(1));
  EXPECT_EQ(Held(4), 1);
  EXPECT_EQ(Held(5), 1);
  driver().Hooked<Row::cuMemsetD2D8Async>()(kForeign + 0x240, 64, 0, 8, 1, Stream(1));
  EXPECT_EQ(Held(4), 1);
  EXPECT_EQ(Held(5), 0);
}

TEST_F(HiddenHookTest, ARefusedOrFailedCopyHoldsNothing) {
  driver().results["cuMemcpyHtoDAsync_v2"] = {CUDA_ERROR_INVALID_VALUE};
  EXPECT_EQ(Upload(kForeign, {2}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Held(2), 0);
  residency_[0].hold_status = absl::ResourceExhaustedError("full");
  EXPECT_EQ(Upload(kForeign, {2}), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(driver().CountOf("cuMemcpyHtoDAsync_v2"), 1u);
  EXPECT_EQ(state()->tables.slots(), 0u);
}

TEST_F(HiddenHookTest, LargeCopiesAreData) {
  std::vector<uint64_t> data(64 * 1024 / 8 + 1, Address(2));
  driver().Hooked<Row::cuMemcpyHtoDAsync_v2>()(kForeign, data.data(), data.size() * 8, Stream(1));
  EXPECT_EQ(Held(2), 0);
}

TEST_F(HiddenHookTest, StrictKeepsTargetsWhateverHappensToTheTable) {
  context_.strict = true;
  Upload(Address(1), {2});
  Upload(Address(1), {3});
  driver().Hooked<Row::cuMemFree_v2>()(Address(1));
  EXPECT_EQ(Held(2), 1);
  EXPECT_EQ(Held(3), 1);
}

TEST_F(HiddenHookTest, MoreAddressesThanAreFollowedStayHeld) {
  const std::vector<uint32_t> most(8192, 2);
  for (uint64_t at = 0; at < PointerTables::kMostSlots / 8192; ++at) Upload(kForeign + at * 65536, most);
  EXPECT_EQ(state()->tables.slots(), PointerTables::kMostSlots);
  Upload(0x100000000, {3});
  EXPECT_EQ(state()->tables.slots(), PointerTables::kMostSlots);
  driver().Hooked<Row::cuMemsetD8Async>()(0x100000000, 0, 8, Stream(1));
  EXPECT_EQ(Held(3), 1);
}

// ---- Globals.

TEST_F(HiddenHookTest, AddressesInAGlobalAreHeldUntilItIsOverwrittenOrUnloaded) {
  const auto module = reinterpret_cast<CUmodule>(0x3000);
  CUdeviceptr global = kForeign + 0x800;
  size_t bytes = 64;
  driver().Hooked<Row::cuModuleGetGlobal_v2>()(&global, &bytes, module, "table");
  Upload(global + 8, {2, 3});
  EXPECT_EQ(Held(2, HoldReason::kModuleGlobal), 1);
  EXPECT_EQ(Held(2), 0);
  Upload(global + 8, {4});
  EXPECT_EQ(Held(2, HoldReason::kModuleGlobal), 0);
  EXPECT_EQ(Held(3, HoldReason::kModuleGlobal), 1);
  driver().Hooked<Row::cuModuleUnload>()(reinterpret_cast<CUmodule>(0x4000));
  EXPECT_EQ(Held(3, HoldReason::kModuleGlobal), 1);
  driver().Hooked<Row::cuModuleUnload>()(module);
  EXPECT_EQ(Held(3, HoldReason::kModuleGlobal), 0);
  EXPECT_EQ(Held(4, HoldReason::kModuleGlobal), 0);
}

// ---- Textures, private tables.

TEST_F(HiddenHookTest, ATextureHoldsItsBlockWhileItExists) {
  CUDA_RESOURCE_DESC resource = {};
  resource.resType = CU_RESOURCE_TYPE_LINEAR;
  resource.res.linear.devPtr = Address(2);
  CUtexObject texture = 5;
  CUsurfObject surface = 5;
  driver().Hooked<Row::cuTexObjectCreate>()(&texture, &resource, nullptr, nullptr);
  driver().Hooked<Row::cuSurfObjectCreate>()(&surface, &resource);
  EXPECT_EQ(Held(2, HoldReason::kTexture), 2);
  driver().Hooked<Row::cuTexObjectDestroy>()(texture);
  EXPECT_EQ(Held(2, HoldReason::kTexture), 1);
  EXPECT_EQ(driver().CountOf("cuCtxSynchronize"), 1u) << "kernels that use it may be under way";
  driver().Hooked<Row::cuSurfObjectDestroy>()(surface);
  EXPECT_EQ(Held(2, HoldReason::kTexture), 0);
}

TEST_F(HiddenHookTest, UnknownPrivateTablesSwitchEvictionOffWhenStrict) {
  const void* table = nullptr;
  const CUuuid known = {{0x6b, static_cast<char>(0xd5), static_cast<char>(0xfb), 0x6c}};
  const CUuuid unknown = {{1, 2, 3, 4}};
  driver().Hooked<Row::cuGetExportTable>()(&table, &unknown);
  EXPECT_EQ(switched_off(), "");
  context_.strict = true;
  driver().Hooked<Row::cuGetExportTable>()(&table, &known);
  EXPECT_EQ(switched_off(), "");
  driver().Hooked<Row::cuGetExportTable>()(&table, &unknown);
  EXPECT_EQ(switched_off(), "private driver table 01020304;");
}

TEST_F(HiddenHookTest, StrictLetsABlockGoOnceItsKernelsHaveRunBefore) {
  BlockTrust trust;
  context_.trust = &trust;
  context_.strict = true;
  driver().param_sizes = {8, 72};
  struct Large {
    uint64_t words[9] = {};
  } large;
  large.words[8] = Address(3);
  uint64_t pointer = Address(2);
  void* params[] = {&pointer, &large};
  const auto launch = [&](uintptr_t function) {
    driver().Hooked<Row::cuLaunchKernel>()(Function(function), 1, 1, 1, 1, 1, 1, 0, Stream(1), params,
                                           nullptr);
  };
  EXPECT_TRUE(trust.MayLeave(Id(2)));
  launch(0);
  EXPECT_FALSE(trust.MayLeave(Id(2)));
  EXPECT_TRUE(trust.MayLeave(Id(5)));
  launch(0);
  EXPECT_TRUE(trust.MayLeave(Id(2)));
  EXPECT_FALSE(trust.MayLeave(Id(3))) << "named inside a struct";
  residency_[0].range = {Address(3), kTestBlockBytes};
  driver().Hooked<Row::cuMemFree_v2>()(Address(3));
  EXPECT_TRUE(trust.MayLeave(Id(3)));
}

TEST(BlockTrustTest, ManyFunctionsAndBlocksFromManyThreads) {
  BlockTrust trust;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&trust, t] {
      allocator::AccessSet set;
      for (uint32_t i = 1; i < 400; ++i) {
        set.Clear();
        set.Add(allocator::BlockId(t % 2, i));
        for (int twice = 0; twice < 2; ++twice) trust.NoteLaunch(HashName(std::to_string(i)), set);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (uint32_t i = 1; i < 400; ++i) EXPECT_TRUE(trust.MayLeave(allocator::BlockId(0, i))) << i;
  allocator::AccessSet set;
  set.Add(allocator::BlockId(1, 7));
  trust.NoteLaunch(HashName("once"), set);
  EXPECT_FALSE(trust.MayLeave(allocator::BlockId(1, 7)));
}

TEST_F(HiddenHookTest, BlocksOfADeniedKernelAreHeld) {
  HookScope scope;
  ASSERT_NE(scope.touch(), nullptr);
  scope.touch()->Address(Address(3));
  EXPECT_TRUE(HoldDenied(scope.touch(), "bad_kernel"));
  EXPECT_EQ(Held(3, HoldReason::kDenied), 1);
}

}  // namespace
}  // namespace spillway::integration
