// Words that a stream waits for or writes, alone and in batches.
#include "tests/integration/simcuda/driver_test_base.h"

namespace simcuda_test {
namespace {

class DriverMemoryOperationsTest : public DriverTest {
 protected:
  void SetUp() override {
    ASSERT_EQ(cuMemAlloc(&words_, kMiB), CUDA_SUCCESS);
    ASSERT_EQ(cuMemsetD8(words_, 0, kMiB), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  }
  void TearDown() override {
    DriverTest::TearDown();
    EXPECT_EQ(cuMemFree(words_), CUDA_SUCCESS);
  }
  // Whether a wait for `value` passes a word that is `word`.
  bool Passes32(uint32_t word, uint32_t value, unsigned int flags) {
    Set(word);
    EXPECT_EQ(cuStreamWaitValue32(waiting_, words_, value, flags), CUDA_SUCCESS);
    return Passed([&](uint32_t any) { Set(any); });
  }
  bool Passes64(uint64_t word, uint64_t value, unsigned int flags) {
    Set(word);
    EXPECT_EQ(cuStreamWaitValue64(waiting_, words_, value, flags), CUDA_SUCCESS);
    return Passed([&](uint64_t any) { Set(any); });
  }
  // A stream may look at the word.
  template <typename Word>
  void Set(Word word) {
    __atomic_store_n(At<Word>(words_), word, __ATOMIC_SEQ_CST);
  }

  CUdeviceptr words_ = 0;
  TestStream waiting_{CU_STREAM_NON_BLOCKING}, writing_{CU_STREAM_NON_BLOCKING};

 private:
  // Lets a wait that does not pass by itself go: among these words there is one for every comparison.
  template <typename Set>
  bool Passed(const Set& set) {
    for (int i = 0; i < 20 && cuStreamQuery(waiting_) != CUDA_SUCCESS; ++i) SleepMs(1);
    const bool passed = cuStreamQuery(waiting_) == CUDA_SUCCESS;
    for (uint64_t word = 0; cuStreamQuery(waiting_) != CUDA_SUCCESS; word = (word + 1) % 16) {
      set(word - 8);
      SleepMs(1);
    }
    return passed;
  }
};

TEST_F(DriverMemoryOperationsTest, WaitsCompareAsTheyAreTold) {
  EXPECT_TRUE(Passes32(5, 5, CU_STREAM_WAIT_VALUE_GEQ));
  EXPECT_TRUE(Passes32(2, 0xfffffffe, CU_STREAM_WAIT_VALUE_GEQ));  // cyclic
  EXPECT_FALSE(Passes32(4, 5, CU_STREAM_WAIT_VALUE_GEQ));
  EXPECT_TRUE(Passes32(5, 5, CU_STREAM_WAIT_VALUE_EQ | CU_STREAM_WAIT_VALUE_FLUSH));
  EXPECT_FALSE(Passes32(6, 5, CU_STREAM_WAIT_VALUE_EQ));
  EXPECT_TRUE(Passes32(6, 2, CU_STREAM_WAIT_VALUE_AND));
  EXPECT_FALSE(Passes32(4, 2, CU_STREAM_WAIT_VALUE_AND));
  EXPECT_TRUE(Passes32(4, 2, CU_STREAM_WAIT_VALUE_NOR));
  EXPECT_FALSE(Passes32(0xfffffff0, 0xf, CU_STREAM_WAIT_VALUE_NOR));
  EXPECT_TRUE(Passes64(uint64_t{1} << 40, 9, CU_STREAM_WAIT_VALUE_GEQ));
  EXPECT_FALSE(Passes64((uint64_t{1} << 40) | 1, 1, CU_STREAM_WAIT_VALUE_EQ));
}

TEST_F(DriverMemoryOperationsTest, AStreamWaitsUntilAnotherWrites) {
  Kernel mark("mark_after_word", 2, [](uint64_t* a) { *At<uint64_t>(a[1]) = *At<uint64_t>(a[0]); });
  ASSERT_EQ(cuStreamWaitValue64(waiting_, words_, 7, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
  ASSERT_EQ(mark.Launch(waiting_, {words_, words_ + 64}), CUDA_SUCCESS);
  SleepMs(10);
  EXPECT_EQ(cuStreamQuery(waiting_), CUDA_ERROR_NOT_READY);
  ASSERT_EQ(cuStreamWriteValue64(writing_, words_, 7, CU_STREAM_WRITE_VALUE_DEFAULT), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(waiting_), CUDA_SUCCESS);
  EXPECT_EQ(*At<uint64_t>(words_ + 64), 7u);
  ASSERT_EQ(cuStreamWriteValue32(writing_, words_ + 4, 9, CU_STREAM_WRITE_VALUE_DEFAULT), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(writing_), CUDA_SUCCESS);
  EXPECT_EQ(*At<uint64_t>(words_), (uint64_t{9} << 32) + 7);
}

TEST_F(DriverMemoryOperationsTest, ABatchIsDoneInItsOrder) {
  CUstreamBatchMemOpParams batch[4] = {};
  batch[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  batch[0].writeValue.address = words_;
  batch[0].writeValue.value = 1;
  batch[1].memoryBarrier.operation = CU_STREAM_MEM_OP_BARRIER;
  batch[2].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
  batch[2].waitValue.address = words_ + 8;
  batch[2].waitValue.value64 = 3;
  batch[3] = batch[0];
  batch[3].writeValue.value = 2;
  ASSERT_EQ(cuStreamBatchMemOp(waiting_, 4, batch, 0), CUDA_SUCCESS);
  SleepMs(10);
  EXPECT_EQ(__atomic_load_n(At<uint32_t>(words_), __ATOMIC_SEQ_CST), 1u);
  ASSERT_EQ(cuStreamWriteValue64(writing_, words_ + 8, 3, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(waiting_), CUDA_SUCCESS);
  EXPECT_EQ(*At<uint32_t>(words_), 2u);
}

TEST_F(DriverMemoryOperationsTest, WhatADriverRefusesIsRefusedWhole) {
  uint32_t pageable = 0;
  EXPECT_EQ(cuStreamWriteValue32(writing_, words_ + 2, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamWriteValue64(writing_, words_ + 4, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamWriteValue32(writing_, reinterpret_cast<CUdeviceptr>(&pageable), 1, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamWriteValue32(writing_, words_, 1, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamWaitValue32(writing_, words_, 0, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamWaitValue32(writing_, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  CUstreamBatchMemOpParams batch[256] = {};
  for (CUstreamBatchMemOpParams& one : batch) {
    one.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    one.writeValue.address = words_;
    one.writeValue.value = 1;
  }
  EXPECT_EQ(cuStreamBatchMemOp(writing_, 256, batch, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamBatchMemOp(writing_, 0, batch, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamBatchMemOp(writing_, 1, batch, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamBatchMemOp(writing_, 1, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  batch[1].memoryBarrier.operation = CU_STREAM_MEM_OP_BARRIER;
  batch[1].memoryBarrier.flags = 2;
  EXPECT_EQ(cuStreamBatchMemOp(writing_, 2, batch, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuStreamSynchronize(writing_), CUDA_SUCCESS);
  EXPECT_EQ(*At<uint32_t>(words_), 0u);  // nothing of a refused batch is done
  Range range(kChunk);
  EXPECT_EQ(cuStreamWaitValue32(writing_, range.start, 0, 0), CUDA_ERROR_INVALID_VALUE);  // not mapped
}

TEST_F(DriverMemoryOperationsTest, APinnedWordIsWrittenByTheHost) {
  void* pinned = nullptr;
  ASSERT_EQ(cuMemAllocHost(&pinned, 4096), CUDA_SUCCESS);
  auto* const word = static_cast<uint32_t*>(pinned);
  *word = 0;
  ASSERT_EQ(cuStreamWaitValue32(waiting_, reinterpret_cast<CUdeviceptr>(pinned), 1, 0), CUDA_SUCCESS);
  __atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
  EXPECT_EQ(cuStreamSynchronize(waiting_), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFreeHost(pinned), CUDA_SUCCESS);
}

TEST_F(DriverMemoryOperationsTest, ACapturedWriteIsDoneByEachLaunch) {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  ASSERT_EQ(cuStreamBeginCapture(writing_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamWriteValue32(writing_, words_, 5, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamEndCapture(writing_, &graph), CUDA_SUCCESS);
  CUgraphNode node = nullptr;
  size_t count = 1;
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  ASSERT_EQ(cuGraphGetNodes(graph, &node, &count), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphNodeGetType(node, &type), CUDA_SUCCESS);
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
  EXPECT_EQ(*At<uint32_t>(words_), 0u);
  ASSERT_EQ(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphLaunch(exec, writing_), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(writing_), CUDA_SUCCESS);
  EXPECT_EQ(*At<uint32_t>(words_), 5u);
  EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(DriverMemoryOperationsTest, MemoryUnderAWaitIsNotTakenAway) {
  EXPECT_DEATH(
      {
        CUdeviceptr start = 0;
        if (cuMemAddressReserve(&start, kChunk, 0, 0, 0) != CUDA_SUCCESS) return;
        const CUmemAllocationProp properties = DeviceMemory();
        CUmemGenericAllocationHandle handle = 0;
        if (cuMemCreate(&handle, kChunk, &properties, 0) != CUDA_SUCCESS) return;
        cuMemMap(start, kChunk, 0, handle, 0);
        AllowAccess(start, kChunk);
        cuMemsetD8(start, 0, kChunk);
        cuCtxSynchronize();
        cuStreamWaitValue32(waiting_, start, 1, 0);
        SleepMs(10);
        cuMemUnmap(start, kChunk);
      },
      "wait for a word");
}

TEST_F(DriverMemoryOperationsTest, AProcessEndsWhileAStreamWaitsForEver) {
  const double start = Seconds();
  EXPECT_EXIT(
      {
        cuStreamWaitValue32(waiting_, words_, 1, 0);
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "waits for a word");
  EXPECT_LT(Seconds() - start, 8);
}

}  // namespace
}  // namespace simcuda_test
