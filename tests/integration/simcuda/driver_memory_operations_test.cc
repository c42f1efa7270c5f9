// Words that a stream waits for or writes, alone and in batches.
#include <initializer_list>

#include "tests/integration/simcuda/driver_test_base.h"
#include "tests/integration/simcuda/driver_waiting.h"

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
  // A wait for `value` passes the word `passed`, and the words that are `stopping` do not let it pass.
  void ExpectWait32(uint32_t value, unsigned int flags, std::initializer_list<uint32_t> stopping,
                    uint32_t passed) {
    Set(stopping.size() > 0 ? *stopping.begin() : passed);
    EXPECT_EQ(cuStreamWaitValue32(waiting_, words_, value, flags), CUDA_SUCCESS);
    ExpectPassed(stopping, passed);
  }
  void ExpectWait64(uint64_t value, unsigned int flags, std::initializer_list<uint64_t> stopping,
                    uint64_t passed) {
    Set(stopping.size() > 0 ? *stopping.begin() : passed);
    EXPECT_EQ(cuStreamWaitValue64(waiting_, words_, value, flags), CUDA_SUCCESS);
    ExpectPassed(stopping, passed);
  }
  // A stream may look at the word.
  template <typename Word>
  void Set(Word word) {
    __atomic_store_n(At<Word>(words_), word, __ATOMIC_SEQ_CST);
  }

  CUdeviceptr words_ = 0;
  TestStream waiting_{CU_STREAM_NON_BLOCKING}, writing_{CU_STREAM_NON_BLOCKING};

 private:
  template <typename Word>
  void ExpectPassed(std::initializer_list<Word> stopping, Word passed) {
    for (const Word word : stopping) {
      Set(word);
      LetStreamsRun();
      EXPECT_EQ(cuStreamQuery(waiting_), CUDA_ERROR_NOT_READY) << word;
    }
    Set(passed);
    EXPECT_EQ(cuStreamSynchronize(waiting_), CUDA_SUCCESS);
  }
};

TEST_F(DriverMemoryOperationsTest, WaitsCompareAsTheyAreTold) {
  ExpectWait32(5, CU_STREAM_WAIT_VALUE_GEQ, {4}, 5);
  ExpectWait32(5, CU_STREAM_WAIT_VALUE_GEQ, {}, 6);
  ExpectWait32(0xfffffffe, CU_STREAM_WAIT_VALUE_GEQ, {0xfffffffd}, 2);  // cyclic
  ExpectWait32(5, CU_STREAM_WAIT_VALUE_EQ | CU_STREAM_WAIT_VALUE_FLUSH, {6, 4}, 5);
  ExpectWait32(2, CU_STREAM_WAIT_VALUE_AND, {4}, 6);
  ExpectWait32(0xf, CU_STREAM_WAIT_VALUE_NOR, {0xfffffff0}, 4);
  ExpectWait64(9, CU_STREAM_WAIT_VALUE_GEQ, {8}, uint64_t{1} << 40);
  ExpectWait64(1, CU_STREAM_WAIT_VALUE_EQ, {(uint64_t{1} << 40) | 1}, 1);
}

TEST_F(DriverMemoryOperationsTest, AStreamWaitsUntilAnotherWrites) {
  Kernel mark("mark_after_word", 2, [](uint64_t* a) { *At<uint64_t>(a[1]) = *At<uint64_t>(a[0]); });
  ASSERT_EQ(cuStreamWaitValue64(waiting_, words_, 7, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
  ASSERT_EQ(mark.Launch(waiting_, {words_, words_ + 64}), CUDA_SUCCESS);
  LetStreamsRun();
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
  const auto first_word = [&] { return __atomic_load_n(At<uint32_t>(words_), __ATOMIC_SEQ_CST); };
  EXPECT_TRUE(WaitUntil([&] { return first_word() == 1; }));
  LetStreamsRun();
  EXPECT_EQ(first_word(), 1u);
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
        LetStreamsRun();
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
