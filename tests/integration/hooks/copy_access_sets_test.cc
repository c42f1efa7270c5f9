// Copies, memsets and stream words: the ranges that their arguments name.

#include "integration/hooks/copy_access_sets.h"

#include <sys/mman.h>

#include "tests/integration/hooks/hook_fixture.h"

namespace spillway::integration {
namespace {

using allocator::PinReason;

class CopyAccessSetsTest : public HookTest {};

TEST_F(CopyAccessSetsTest, CopiesNameSourceAndDestination) {
  Publish();
  driver().Hooked<Row::cuMemcpyDtoDAsync_v2>()(Address(1), Address(2) + 5, 4096, Stream(4));
  EXPECT_EQ(OnlyLaunch().set, (Ids{Id(1), Id(2)}));
  EXPECT_EQ(OnlyLaunch().stream.handle, Stream(4));
  EXPECT_FALSE(OnlyLaunch().pinned);
  EXPECT_EQ(OnlyLaunch().tag, HashName("cuMemcpyDtoDAsync"));
  driver().Hooked<Row::cuMemcpyDtoD_v2_ptds>()(Address(1), Address(2), 4096);
  EXPECT_TRUE(residency_[0].launches[1].stream.per_thread_default);
  EXPECT_TRUE(residency_[0].launches[1].pinned);  // may wait for the GPU
  char host[64];
  driver().Hooked<Row::cuMemcpyDtoHAsync_v2>()(host, Address(3), sizeof(host), Stream(4));
  EXPECT_EQ(residency_[0].launches[2].set, Ids{Id(3)});
  EXPECT_TRUE(residency_[0].launches[2].pinned);
  driver().Hooked<Row::cuMemcpyPeerAsync>()(Address(4), nullptr, Address(5), nullptr, 100, Stream(1));
  EXPECT_EQ(residency_[0].launches[3].set, (Ids{Id(4), Id(5)}));
  driver().Hooked<Row::cuMemcpyDtoD_v2>()(Address(1), Address(2), 0);  // nothing is copied
  driver().Hooked<Row::cuMemcpyAtoD_v2>()(Address(6), nullptr, 0, 64);
  EXPECT_EQ(residency_[0].launches.size(), 5u);
  EXPECT_EQ(residency_[0].launches[4].set, Ids{Id(6)});
}

TEST_F(CopyAccessSetsTest, PitchedCopiesReachTheirLastRow) {
  Publish();
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcDevice = Address(1);
  copy.srcY = 2;
  copy.srcPitch = 512;
  copy.dstDevice = Address(2);
  copy.dstPitch = 512;
  copy.WidthInBytes = 512;
  copy.Height = 10;
  driver().Hooked<Row::cuMemcpy2DAsync_v2>()(&copy, Stream(1));
  EXPECT_EQ(OnlyLaunch().set, (Ids{Id(1), Id(2)}));
  // An offset that leads from the guard in front of a block into it.
  CUDA_MEMCPY3D deep = {};
  deep.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  deep.srcDevice = Address(3) - kTestChunk;
  deep.srcPitch = 1024;
  deep.srcHeight = 1024;
  deep.srcZ = 2;  // 2 MiB
  deep.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  deep.dstDevice = Address(6);  // ignored
  deep.WidthInBytes = 1024;
  deep.Height = 1024;
  deep.Depth = 3;
  driver().Hooked<Row::cuMemcpy3DAsync_v2>()(&deep, Stream(1));
  EXPECT_EQ(residency_[0].launches[1].set, Ids{Id(3)});
  deep.Height = 0;
  driver().Hooked<Row::cuMemcpy3DAsync_v2>()(&deep, Stream(1));
  EXPECT_EQ(residency_[0].launches.size(), 2u);
}

TEST_F(CopyAccessSetsTest, BatchesNameAllTheirRanges) {
  Publish();
  CUdeviceptr destinations[] = {Address(1), 64};
  CUdeviceptr sources[] = {Address(2), Address(3)};
  size_t sizes[] = {128, 100000};
  driver().Hooked<Row::cuMemcpyBatchAsync_v2>()(destinations, sources, sizes, 2, nullptr, nullptr, 0,
                                                Stream(2));
  EXPECT_EQ(OnlyLaunch().set, (Ids{Id(1), Id(2), Id(3)}));
  size_t fail = 0;
  driver().Hooked<Row::cuMemcpyBatchAsync>()(destinations, sources, sizes, 1, nullptr, nullptr, 0, &fail,
                                             Stream(2));
  EXPECT_EQ(residency_[0].launches[1].set, (Ids{Id(1), Id(2)}));
  CUDA_MEMCPY3D_BATCH_OP op = {};
  op.src.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  op.src.op.ptr.ptr = Address(4);
  op.dst.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
  op.extent = {1, 1, 1};
  driver().Hooked<Row::cuMemcpy3DBatchAsync_v2>()(1, &op, 0, Stream(2));
  EXPECT_EQ(residency_[0].launches[2].set, Ids{Id(4)});
}

TEST_F(CopyAccessSetsTest, AWordThatAStreamWritesMayBeAnAddress) {
  Publish();
  driver().Hooked<Row::cuStreamWriteValue64_v2>()(Stream(1), Address(1) + 8, Address(2), 0);
  ExpectPinned(PinReason::kPointerTable, {Id(2)});
  EXPECT_EQ(OnlyLaunch().set, Ids{Id(1)});
  residency_[0].pins.clear();
  CUstreamBatchMemOpParams ops[3] = {};
  ops[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
  ops[0].writeValue.address = Address(3);
  ops[0].writeValue.value64 = Address(4);
  ops[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
  ops[1].waitValue.address = Address(5);
  ops[1].waitValue.value64 = Address(6);  // a word to wait for, and no place
  ops[2].memoryBarrier.operation = CU_STREAM_MEM_OP_BARRIER;
  driver().Hooked<Row::cuStreamBatchMemOp_v2>()(Stream(1), 3, ops, 0);
  ExpectPinned(PinReason::kPointerTable, {Id(4)});
  EXPECT_EQ(residency_[0].launches[1].set, (Ids{Id(3), Id(5)}));
  // Overwritten: the first pin ends.
  driver().Hooked<Row::cuStreamWriteValue32_v2>()(Stream(1), Address(1) + 8, 0, 0);
  EXPECT_EQ(residency_[0].PinsOf(Id(2), PinReason::kPointerTable), 0);
}

// The operations have a type of their own only in newer headers.
template <typename Op>
CUresult CopyOverFabric(CUresult(CUDAAPI* copy)(size_t, Op*, unsigned long long, CUstream), size_t count,
                        void* ops, CUstream stream) {
  return copy(count, static_cast<Op*>(ops), 0, stream);
}

TEST_F(CopyAccessSetsTest, CopiesOverAFabricNameTheirPointers) {
  Publish();
  FabricCopy copies[2] = {};
  copies[0] = {{FabricCopy::Operand::kPointer, Address(1), 0}, {2, Address(2), 0}, 64, 0};  // to an endpoint
  copies[1] = {{FabricCopy::Operand::kPointer, Address(3), 0}, {1, Address(4), 0}, 100000, 0};
  CopyOverFabric(driver().Hooked<Row::cuFabricCpyBatchAsync>(), 2, copies, Stream(2));
  EXPECT_EQ(OnlyLaunch().set, (Ids{Id(1), Id(3), Id(4)}));
}

TEST_F(CopyAccessSetsTest, MemsetsPrefetchesAndStreamWords) {
  Publish();
  driver().Hooked<Row::cuMemsetD32Async>()(Address(1), 0, 16, Stream(1));
  driver().Hooked<Row::cuMemsetD2D16Async>()(Address(2), 4096, 0, 8, 4, Stream(1));
  driver().Hooked<Row::cuStreamWriteValue32_v2>()(Stream(1), Address(3) + 4, 1, 0);
  CUstreamBatchMemOpParams ops[2] = {};
  ops[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
  ops[1].waitValue.address = Address(4);
  driver().Hooked<Row::cuStreamBatchMemOp_v2>()(Stream(1), 2, ops, 0);
  CUdeviceptr ranges[] = {Address(5)};
  size_t sizes[] = {4096};
  driver().Hooked<Row::cuMemDiscardBatchAsync>()(ranges, sizes, 1, 0, Stream(1));
  ASSERT_EQ(residency_[0].launches.size(), 5u);
  for (uint32_t i = 0; i < 5; ++i) {
    EXPECT_EQ(residency_[0].launches[i].set, Ids{Id(i + 1)});
    EXPECT_EQ(residency_[0].launches[i].stream.handle, Stream(1));
  }
}

TEST_F(CopyAccessSetsTest, AddressesInSmallHostSourcesArePinned) {
  Publish();
  const uint64_t external = 0x1000;
  uint64_t table[4] = {1, Address(2), Address(3) + 64, 0};
  driver().Hooked<Row::cuMemcpyHtoDAsync_v2>()(external, table, sizeof(table), Stream(1));
  ExpectPinned(PinReason::kPointerTable, {Id(2), Id(3)});
  EXPECT_TRUE(residency_[0].launches.empty());
  residency_[0].pins.clear();
  // Of unknown kind: read only when the driver says that it is host memory, or does not know it.
  const auto source = reinterpret_cast<CUdeviceptr>(table);
  driver().pointer_answer = CUDA_SUCCESS;
  driver().Hooked<Row::cuMemcpyAsync>()(external, source, sizeof(table), Stream(1));
  EXPECT_EQ(residency_[0].pins.size(), 0u);  // the fake says: neither
  driver().pointer_answer = CUDA_ERROR_INVALID_VALUE;
  driver().Hooked<Row::cuMemcpyAsync>()(external, source, sizeof(table), Stream(1));
  ExpectPinned(PinReason::kPointerTable, {Id(2), Id(3)});
  residency_[0].pin_status = absl::ResourceExhaustedError("full");
  EXPECT_EQ(driver().Hooked<Row::cuMemcpyHtoD_v2>()(external, table, sizeof(table)),
            CUDA_ERROR_OUT_OF_MEMORY);
}

// An answer of the driver's that says nothing about the address.
TEST_F(CopyAccessSetsTest, ASourceThatTheDriverDoesNotTellOfIsLookedThrough) {
  Publish();
  const uint64_t external = 0x1000;
  uint64_t table[4] = {1, Address(2), Address(3) + 64, 0};
  const auto source = reinterpret_cast<CUdeviceptr>(table);
  driver().results["cuPointerGetAttribute"] = {CUDA_ERROR_UNKNOWN};
  driver().Hooked<Row::cuMemcpyAsync>()(external, source, sizeof(table), Stream(1));
  ExpectPinned(PinReason::kPointerTable, {Id(2), Id(3)});
  residency_[0].pins.clear();
  CUDA_MEMCPY2D rows = {};
  rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  rows.srcDevice = source;
  rows.dstDevice = external + 0x1000;
  rows.WidthInBytes = 16;
  rows.Height = 2;
  driver().results["cuPointerGetAttribute"] = {CUDA_ERROR_INVALID_CONTEXT};
  driver().Hooked<Row::cuMemcpy2DAsync_v2>()(&rows, Stream(1));
  ExpectPinned(PinReason::kPointerTable, {Id(2), Id(3)});
  EXPECT_EQ(switched_off(), "");
}

// The same, of memory in which addresses are known to lie, and which cannot be read here.
TEST_F(CopyAccessSetsTest, ASourceThatTheDriverDoesNotTellOfMayBeATableOnTheDevice) {
  Publish();
  const uint64_t external = 0x1000, copy = 0x2000;
  const uint64_t table[2] = {Address(2), 0};
  driver().Hooked<Row::cuMemcpyHtoDAsync_v2>()(external, table, sizeof(table), Stream(1));
  driver().results["cuPointerGetAttribute"] = {CUDA_ERROR_UNKNOWN};
  driver().Hooked<Row::cuMemcpyAsync>()(copy, external, sizeof(table), Stream(1));
  driver().Hooked<Row::cuMemsetD8Async>()(external, 0, sizeof(table), Stream(1));
  EXPECT_EQ(residency_[0].PinsOf(Id(2), PinReason::kPointerTable), 1) << "the copy of the table";
}

// By unified addressing the driver takes it, whatever the call is called; here it cannot be read.
TEST_F(CopyAccessSetsTest, TheSourceOfACopyFromTheHostMayBeDeviceMemory) {
  Publish();
  void* const device = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(device, MAP_FAILED);
  driver().pointer_answer = CUDA_SUCCESS;
  EXPECT_EQ(driver().Hooked<Row::cuMemcpyHtoD_v2>()(0x1000, device, 64), CUDA_SUCCESS);
  EXPECT_EQ(driver().Hooked<Row::cuMemcpyHtoDAsync_v2>()(0x1000, device, 64, Stream(1)), CUDA_SUCCESS);
  EXPECT_EQ(driver().CountOf("cuMemcpyHtoD_v2"), 1u);
  EXPECT_TRUE(residency_[0].pins.empty());
  munmap(device, 4096);
}

TEST_F(CopyAccessSetsTest, AnAddressThatNobodyKnowsIsLeftToTheDriver) {
  Publish();
  void* const gone = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(gone, MAP_FAILED);
  for (const CUresult answer : {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_UNKNOWN}) {
    driver().results["cuPointerGetAttribute"] = {answer};
    driver().results["cuMemcpy"] = {CUDA_ERROR_INVALID_VALUE};
    EXPECT_EQ(driver().Hooked<Row::cuMemcpy>()(0x1000, reinterpret_cast<CUdeviceptr>(gone), 64),
              CUDA_ERROR_INVALID_VALUE);
  }
  EXPECT_EQ(driver().CountOf("cuMemcpy"), 2u);
  munmap(gone, 4096);
}

}  // namespace
}  // namespace spillway::integration
