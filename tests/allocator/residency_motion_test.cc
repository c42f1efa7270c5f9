// Evictions and fetches taken back at each phase, frees in the middle of transfers, ends of life: directed, with the
// delay points as sequence points.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "allocator/residency/state/test_points.h"
#include "tests/allocator/core_fixture.h"
#include "tests/allocator/motion_helpers.h"
#include "tests/fakes/faulty_engine.h"

namespace spillway::allocator {
namespace {

// ---- Evictions taken back.

struct Phase {
  const char* point;
  int counted_as;  // EvictJob::Phase, or -1: too late to take back
};

class CancelTest : public testing::TestWithParam<Phase> {};

TEST_P(CancelTest, LaunchTakesTheEvictionBack) {
  CoreSetup setup;
  setup.host_bytes = 256 << 10;  // half of the block goes to the host, half to the disk
  CoreDevice device(setup);
  const CUdeviceptr block = Filled(device, 5);
  StopAt stop(GetParam().point);
  StartEviction(device, block);
  stop.WaitUntilReached();
  std::thread launch([&] {
    CoreDevice::Driver()->cuCtxSetCurrent(CoreDevice::Context());
    EXPECT_EQ(Wrong(device, block, 5), 0u);
  });
  if (GetParam().counted_as >= 0) launch.join();  // needs nothing of the thread that stands still
  stop.Release();
  if (launch.joinable()) launch.join();
  EXPECT_EQ(Wrong(device, block, 5), 0u);
  const auto ended = [&] { return device->Stats().evictions + device->Stats().evictions_cancelled; };
  for (int i = 0; i < 5000 && ended() == 0; ++i) usleep(1000);
  const ResidencyStats stats = device->Stats();
  EXPECT_EQ(stats.evictions_cancelled, GetParam().counted_as >= 0 ? 1u : 0u);
  EXPECT_EQ(stats.evictions, GetParam().counted_as >= 0 ? 0u : 1u);
  for (int i = 0; i < 5; ++i) {
    const TableLock lock(device->core()->table);
    EXPECT_EQ(device->evictor()->cancelled_in_phase[i], i == GetParam().counted_as ? 1u : 0u) << i;
  }
  ASSERT_TRUE(device->Free(block).ok());
  for (int i = 0; i < 5000 && device.disk()->stats().slots_in_use > 0; ++i) usleep(1000);
  EXPECT_EQ(device.disk()->stats().slots_in_use, 0u);
  device->CheckInvariants();
}

INSTANTIATE_TEST_SUITE_P(Phases, CancelTest,
                         testing::Values(Phase{"evictor.before_slot_wait", 1},
                                         Phase{"evictor.before_reserve", 2},
                                         Phase{"evictor.before_commit", 3}, Phase{"evictor.committed", -1}),
                         [](const testing::TestParamInfo<Phase>& phase) {
                           std::string name = phase.param.point;
                           name[name.find('.')] = '_';
                           return name;
                         });

TEST(MotionTest, FreeInTheMiddleOfAnEvictionGivesEverythingBack) {
  for (const char* point :
       {"evictor.before_slot_wait", "evictor.before_reserve", "evictor.before_commit", "evictor.committed"}) {
    CoreDevice device({});
    const CUdeviceptr block = Filled(device, 5);
    StopAt stop(point);
    StartEviction(device, block);
    stop.WaitUntilReached();
    ASSERT_TRUE(device->Free(block).ok());
    stop.Release();
    // Handed out again only when the transfer has ended: the address is promised, not the block.
    EXPECT_EQ(device.MustAllocate(kBlock), block) << point;
    EXPECT_EQ(device.Launch(nullptr, {block}, [](const auto& a) { CoreDevice::Fill(a[0], kBlock, 6); }),
              CUDA_SUCCESS);
    EXPECT_EQ(Wrong(device, block, 6), 0u) << point;
    ASSERT_TRUE(device->Free(block).ok());
    for (int i = 0; i < 5000 && device->Stats().host_tier_bytes > 0; ++i) usleep(1000);
    EXPECT_EQ(device->Stats().host_tier_bytes, 0u);
    device->CheckInvariants();
  }
}

TEST(MotionTest, BlockFreedDuringAnEvictionWaitsForItsRecordedStream) {
  CoreDevice device({});
  const CUstream side = device.NewStream();
  const CUdeviceptr block = Filled(device, 5);
  HoldStreams(true);
  uint64_t wrong = 0;
  ASSERT_EQ(
      device.Launch(side, {block}, [&](const auto& a) { wrong = CoreDevice::Differences(a[0], kBlock, 5); }),
      CUDA_SUCCESS);
  ASSERT_TRUE(device->RecordStream(block, side).ok());
  StartEviction(device, block);  // waits for the side stream
  usleep(2000);
  ASSERT_TRUE(device->Free(block).ok());
  WaitForState(device, block, BlockState::kCached);
  EXPECT_NE(device.MustAllocate(kBlock), block) << "the side stream still reads it";
  HoldStreams(false);
  device.Synchronize();
  EXPECT_EQ(wrong, 0u);
  CUdeviceptr again = 0;
  for (int i = 0; i < 2000 && again != block; ++i) {
    again = device.MustAllocate(kBlock);
    ASSERT_TRUE(again == block || device->Free(again).ok());
    usleep(1000);
  }
  EXPECT_EQ(again, block);
}

TEST(MotionTest, BlockRecordedOnTheStreamOfAThreadThatEndedComesBack) {
  CoreDevice device({});
  const CUdeviceptr block = Filled(device, 5);
  std::thread([&] {
    CoreDevice::Driver()->cuCtxSetCurrent(CoreDevice::Context());
    ASSERT_TRUE(device->RecordStream(block, CU_STREAM_PER_THREAD).ok());
  }).join();
  ASSERT_TRUE(device->Free(block).ok());
  CUdeviceptr again = 0;
  for (int i = 0; i < 2000 && again != block; ++i) {
    again = device.MustAllocate(kBlock);
    usleep(1000);
    ASSERT_TRUE(again == block || device->Free(again).ok());
  }
  EXPECT_EQ(again, block);
}

// ---- Fetches taken back, and wanted after all.

TEST(MotionTest, AFetchTakenBackIsSpilledAgainAndWholeWhenWantedAfterAll) {
  CoreSetup setup;
  setup.host_bytes = 0;
  setup.wrap_engine = [](std::unique_ptr<io::IoEngine> engine, size_t) {
    io::FaultPlan slow;  // so that reads of one block end at different times
    for (uint64_t read = 1; read < 10'000; read += 2) {
      slow.faults.push_back(
          {io::FaultKind::kDelay, io::IoOp::kRead, read, 1, 0, 0, std::chrono::microseconds(300)});
    }
    return io::MakeFaultyEngine(std::move(engine), slow);
  };
  CoreDevice device(setup);
  const CUdeviceptr block = Filled(device, 9);
  int taken_back = 0;
  for (int round = 0; round < 150; ++round) {
    StartEviction(device, block);
    WaitForState(device, block, BlockState::kSpilled);
    StartPrefetch(device, block);
    usleep(round % 50 * 20);
    {
      const TableLock lock(device->core()->table);
      Block* const b = BlockAt(device, block);
      if (b->fetch != nullptr && b->arrival == nullptr) Faulter::CancelLocked(lock, b);
    }
    device->thread()->Wake();
    // Every other time it is wanted again while it is being taken back, else when it has been (or had arrived before).
    for (int i = 0; round % 2 == 0 && i < 10'000 && StateOf(device, block) == BlockState::kFaulting; ++i)
      usleep(100);
    taken_back += StateOf(device, block) == BlockState::kSpilled;
    ASSERT_EQ(Wrong(device, block, 9), 0u) << round;
    WaitForState(device, block, BlockState::kResident);
  }
  EXPECT_GT(taken_back, 0);
  device->CheckInvariants();
}

TEST(MotionTest, FreeInTheMiddleOfAFetchGivesSlotsAndStagingBack) {
  CoreSetup setup;
  setup.host_bytes = 0;
  CoreDevice device(setup);
  for (int round = 0; round < 20; ++round) {
    const CUdeviceptr block = Filled(device, 3);
    StartEviction(device, block);
    WaitForState(device, block, BlockState::kSpilled);
    StopAt stop(round % 2 == 0 ? "faulter.before_arrival" : "none");
    StartPrefetch(device, block);
    if (round % 2 == 0) stop.WaitUntilReached();
    ASSERT_TRUE(device->Free(block).ok());
    stop.Release();
    EXPECT_EQ(device.MustAllocate(kBlock), block);
    ASSERT_TRUE(device->Free(block).ok());
    EXPECT_EQ(device.disk()->stats().slots_in_use, 0u);
  }
  EXPECT_EQ(device.host().Free(HostUse::kFaultStaging), 8u);
  EXPECT_EQ(device.host().Free(HostUse::kEvictStaging), 4u);
  device->CheckInvariants();
}

// ---- The only copy.

TEST(MotionDeathTest, AReadThatFailsForGoodStopsTheJobWithWords) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto lose = [] {
    CoreSetup setup;
    setup.host_bytes = 0;
    setup.wrap_engine = [](std::unique_ptr<io::IoEngine> engine, size_t) {
      io::FaultPlan plan;
      plan.faults.push_back({io::FaultKind::kErrno, io::IoOp::kRead, 1, 1'000'000});
      return io::MakeFaultyEngine(std::move(engine), plan);
    };
    CoreDevice device(setup);
    const CUdeviceptr block = Filled(device, 9);
    StartEviction(device, block);
    WaitForState(device, block, BlockState::kSpilled);
    Wrong(device, block, 9);
  };
  EXPECT_DEATH(lose(), "the job must stop: a block of 524288 bytes .* cannot be read back");
}

// ---- Ends of life.

TEST(MotionTest, ShutdownLetsThreadsGoThatWaitForRoom) {
  CoreSetup setup;
  setup.budget_bytes = 2 * kBlock + (64 << 10);
  setup.run_ahead_bytes = 64 << 20;  // that wait ends with the GPU's work, not with us
  setup.host_bytes = 8 << 20;
  CoreDevice device(setup);
  const std::vector<CUdeviceptr> first = {Filled(device, 1), Filled(device, 2)};
  std::vector<CUdeviceptr> others;
  for (int i = 0; i < 3; ++i) others.push_back(device.MustAllocate(kBlock));
  HoldStreams(true);
  ASSERT_EQ(device.Launch(nullptr, first, [](const auto&) {}), CUDA_SUCCESS);  // the only room is in use
  std::atomic<int> passed{0};
  std::vector<std::thread> threads;
  for (CUdeviceptr other : others) {
    threads.emplace_back([&, other] {
      AccessSet set;
      device.addresses().Collect(other, &set);
      EXPECT_EQ(device->Run(set, {}, 1, [] { return CUDA_SUCCESS; }), CUDA_SUCCESS);
      ++passed;
    });
  }
  threads.emplace_back([&] {  // waits for a strip that cannot end
    EXPECT_TRUE(device->EmptyCache().ok());
    ++passed;
  });
  usleep(50'000);
  EXPECT_LE(passed.load(), 1);
  const auto start = std::chrono::steady_clock::now();
  device->Shutdown();
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  EXPECT_EQ(passed.load(), 4);
  HoldStreams(false);
}

TEST(MotionTest, AForkedChildPassesEverythingThroughAndEnds) {
  CoreDevice device({});
  const CUdeviceptr block = Filled(device, 1);
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    device->AbandonAfterFork();
    AccessSet set;
    device.addresses().Collect(block, &set);
    bool passed =
        device->Run(set, {}, 1, [] { return CUDA_ERROR_NOT_INITIALIZED; }) == CUDA_ERROR_NOT_INITIALIZED;
    passed &= device->Free(block).ok() && !device->Allocate(kBlock, {}).ok();
    device->Shutdown();  // joins nothing
    _exit(passed ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(Wrong(device, block, 1), 0u);
}

}  // namespace
}  // namespace spillway::allocator
