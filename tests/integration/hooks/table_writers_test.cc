// Kernels of the deny list that write addresses into a table: what they name stays as long as the table.

#include "integration/hooks/hook_context.h"
#include "integration/hooks/launch_gate.h"
#include "tests/integration/hooks/escape_fixture.h"

namespace spillway::integration {
namespace {

// Writers of tables. A launch names two blocks, and a table at kExternal or in another place.
// What the driver answers of memory that is not ours.
CUmemorytype memory_type = CU_MEMORYTYPE_DEVICE;
int attributes_asked = 0;
uint64_t untold = 0;  // an address of which the driver answers an error
CUresult CUDAAPI FakeAttribute(void* data, CUpointer_attribute, CUdeviceptr address) {
  ++attributes_asked;
  if (address == untold) return CUDA_ERROR_UNKNOWN;
  *static_cast<CUmemorytype*>(data) = memory_type;
  return CUDA_SUCCESS;
}

class WriterTest : public HookTest {
 protected:
  WriterTest() {
    delete GetHookState();
    driver().overrides["cuPointerGetAttribute"] = reinterpret_cast<void*>(&FakeAttribute);
    Install();
    driver().param_sizes = {8, 8, 4, 8};
    memory_type = CU_MEMORYTYPE_DEVICE;
    untold = 0;
  }
  ~WriterTest() override { GetHookState()->functions.SetDenyList(nullptr); }

  void Deny(const std::string& lines) {
    ASSERT_TRUE(list_.Add(lines, "list").ok());
    GetHookState()->functions.SetDenyList(&list_);
    Publish();
  }
  CUresult Write(uint32_t one, uint32_t other, uint64_t table, uintptr_t stream = 1) {
    uint64_t first = Address(one), second = Address(other);
    int number = 3;
    void* params[] = {&first, &second, &number, &table};
    return driver().Hooked<Row::cuLaunchKernel>()(Function(), 1, 1, 1, 1, 1, 1, 0, Stream(stream), params,
                                                  nullptr);
  }
  int PinsOf(uint32_t index) const { return residency_[0].PinsOf(Id(index), PinReason::kDenied); }
  static void Free(uint64_t table, uint64_t bytes) { RecordExternalFreed(table, bytes, {{{Stream(3)}}, {}}); }

  DenyList list_;
};

TEST_F(WriterTest, WhatAWriterNamesStaysUntilTheTableIsFreed) {
  Deny("test_* action=writer tables=3\n");
  EXPECT_EQ(Write(2, 3, kExternal), CUDA_SUCCESS);
  EXPECT_EQ(residency_[0].launches_reaching_all, 0);
  EXPECT_EQ(PinsOf(2), 1);
  EXPECT_EQ(PinsOf(3), 1);
  // Another launch adds to the table: which part of it is not known.
  EXPECT_EQ(Write(3, 4, kExternal), CUDA_SUCCESS);
  EXPECT_EQ(PinsOf(2), 1);
  EXPECT_EQ(PinsOf(4), 1);
  // Nor is its length known, so that copies into it end nothing.
  uint64_t zeros[2] = {};
  driver().Hooked<Row::cuMemcpyHtoD_v2>()(kExternal, zeros, sizeof(zeros));
  EXPECT_EQ(PinsOf(2), 1);
  Free(kExternal, 512);
  for (const uint32_t block : {2u, 3u, 4u}) EXPECT_EQ(PinsOf(block), 0) << block;
  EXPECT_EQ(residency_[0].ends.back().users.streams[0].handle, Stream(3));
}

TEST_F(WriterTest, AWriterThatFillsItsTableReplacesWhatWasThere) {
  Deny("test_kernel action=writer fills=3\n");
  EXPECT_EQ(Write(2, 3, kExternal), CUDA_SUCCESS);
  EXPECT_EQ(Write(3, 4, kExternal, 2), CUDA_SUCCESS);
  EXPECT_EQ(PinsOf(2), 0);
  EXPECT_EQ(PinsOf(3), 1);
  EXPECT_EQ(PinsOf(4), 1);
  EXPECT_EQ(residency_[0].ends.back().users.streams[0].handle, Stream(2)) << "behind the old table's readers";
  EXPECT_EQ(Write(5, 6, kExternal + 64), CUDA_SUCCESS);
  EXPECT_EQ(PinsOf(3), 1) << "another table";
}

// As torch.arange does in most programs: numbers, into a tensor of any size.
TEST_F(WriterTest, AWriterThatNamesNothingButItsTablePinsNothing) {
  Deny("test_kernel action=writer fills=3\n");
  attributes_asked = 0;
  uint64_t first = 0, second = 1, table = Address(3);
  int number = 3;
  void* params[] = {&first, &second, &number, &table};
  const auto launch = [&] {
    return driver().Hooked<Row::cuLaunchKernel>()(Function(), 1, 1, 1, 1, 1, 1, 0, Stream(1), params,
                                                  nullptr);
  };
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_EQ(PinsOf(3), 0) << "a block of ours";
  table = kExternal;
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_EQ(attributes_asked, 0);
  EXPECT_EQ(Write(2, 3, Address(3) + 64), CUDA_SUCCESS);
  EXPECT_EQ(PinsOf(2), 1);
  EXPECT_EQ(PinsOf(3), 0) << "who uses the table names it";
  EXPECT_EQ(Write(4, 4, kExternal), CUDA_SUCCESS);
  EXPECT_EQ(PinsOf(4), 1);
  EXPECT_EQ(launch(), CUDA_SUCCESS);  // numbers where the table was
  EXPECT_EQ(PinsOf(4), 0);
}

TEST_F(WriterTest, WithoutNamedTablesEachAddressMayBeOne) {
  Deny("test_kernel action=writer\n");
  EXPECT_EQ(Write(2, 3, kExternal), CUDA_SUCCESS);
  Free(kExternal, 512);
  EXPECT_EQ(PinsOf(2), 1) << "block 3 may be the table";
  memory_type = CU_MEMORYTYPE_HOST;  // not device memory: no table
  EXPECT_EQ(Write(4, 5, 77), CUDA_SUCCESS);
  EXPECT_EQ(PinsOf(4), 1);
  std::vector<PinTicket> ended;
  GetHookState()->tables.Remove(77, 8, PointerTables::Change::kGone, &ended);
  EXPECT_TRUE(ended.empty());
}

TEST_F(WriterTest, ARowThatDoesNotFitTheKernelNamesNoTables) {
  Deny("test_kernel action=writer fills=2-3\n");  // parameter 2 is a number of 4 bytes
  EXPECT_EQ(Write(2, 3, kExternal), CUDA_SUCCESS);
  EXPECT_EQ(Write(4, 5, kExternal), CUDA_SUCCESS);
  EXPECT_EQ(PinsOf(2), 1) << "nothing is known to be filled";
  Free(kExternal, 512);
  EXPECT_EQ(PinsOf(4), 1) << "block 5 may be the table";
}

TEST_F(WriterTest, AWriterThatShowsNoTablePinsUntilItsBlocksAreFreed) {
  memory_type = CU_MEMORYTYPE_HOST;
  Deny("test_kernel action=writer tables=3\n");
  EXPECT_EQ(Write(2, 3, 0), CUDA_SUCCESS);
  EXPECT_EQ(PinsOf(2), 1);
  EXPECT_EQ(GetHookState()->tables.entries(), 0u);
  residency_[0].pin_status = absl::ResourceExhaustedError("full");
  EXPECT_EQ(Write(2, 3, 0), CUDA_ERROR_OUT_OF_MEMORY);
  residency_[0].pin_status = absl::DeadlineExceededError("hangs");
  EXPECT_EQ(Write(2, 3, 0), CUDA_ERROR_TIMEOUT) << "not a lack of memory";
  EXPECT_EQ(driver().CountOf("cuLaunchKernel"), 1u);
}

// A call that launches several kernels: one of them is listed, of another nothing is known.
// One table is known; of the other address the driver does not say where it is.
TEST_F(WriterTest, AnAddressThatTheDriverDoesNotTellOfMayBeATableToo) {
  Deny("test_* action=writer\n");
  driver().param_sizes = {8, 8, 8};
  untold = 0x77000;
  uint64_t first = Address(2), other = untold, table = kExternal;
  void* params[] = {&first, &other, &table};
  driver().Hooked<Row::cuLaunchKernel>()(Function(), 1, 1, 1, 1, 1, 1, 0, Stream(1), params, nullptr);
  EXPECT_GE(PinsOf(2), 1);
  Free(kExternal, 512);
  EXPECT_GE(PinsOf(2), 1) << "the other table may have its address";
}

TEST_F(WriterTest, AListedKernelBesideOneOfUnknownOrigin) {
  Deny("test_kernel action=everything\n");
  CUDA_LAUNCH_PARAMS launches[2] = {};
  uint64_t pointers[4] = {Address(2), Address(3), 0, Address(4)};
  void* params[] = {&pointers[0], &pointers[1], &pointers[2], &pointers[3]};
  for (CUDA_LAUNCH_PARAMS& launch : launches) launch.kernelParams = params;
  launches[0].function = Function();
  launches[1].function = reinterpret_cast<CUfunction>(0xfff000);
  EXPECT_EQ(driver().Hooked<Row::cuLaunchCooperativeKernelMultiDevice>()(launches, 2, 0), CUDA_SUCCESS);
  EXPECT_NE(switched_off(), "") << "of such a call nothing can be followed";
}

TEST_F(WriterTest, AWriterWhoseBlocksCannotStayIsRefused) {
  Deny("test_kernel action=writer fills=3\n");
  EXPECT_EQ(Write(2, 3, kExternal), CUDA_SUCCESS);
  residency_[0].pin_status = absl::ResourceExhaustedError("full");
  EXPECT_EQ(Write(4, 5, kExternal), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(driver().CountOf("cuLaunchKernel"), 1u);
  EXPECT_EQ(PinsOf(2), 1) << "the table is as it was";
}

TEST_F(WriterTest, WhatAWriterNamesInACaptureStays) {
  Deny("test_kernel action=writer fills=3\n");
  GetHookState()->captures.store(1);
  driver().capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  EXPECT_EQ(Write(2, 3, kExternal), CUDA_SUCCESS);
  ExpectPinned(PinReason::kGraph, {Id(2), Id(3)});
  EXPECT_EQ(switched_off(), "");
  memory_type = CU_MEMORYTYPE_HOST;  // the table is not shown
  EXPECT_EQ(Write(4, 5, 77), CUDA_SUCCESS);
  EXPECT_EQ(residency_[0].PinsOf(Id(4), PinReason::kGraph), 1);
  EXPECT_EQ(residency_[0].PinsOf(Id(5), PinReason::kGraph), 1);
}

}  // namespace
}  // namespace spillway::integration
