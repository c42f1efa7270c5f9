// Fetches taken back, and wanted after all; frees in the middle of them; the only copy that cannot be read.

#include "allocator/residency/transfer/faulter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <thread>

#include "tests/allocator/core_fixture.h"
#include "tests/allocator/motion_helpers.h"
#include "tests/fakes/drive_engine.h"
#include "tests/fakes/faulty_engine.h"
#include "tests/fakes/memory_engine.h"
#include "tests/fakes/wait_until.h"

namespace spillway::allocator {
namespace {

TEST(FaulterTest, AFetchTakenBackIsSpilledAgainAndWholeWhenWantedAfterAll) {
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
      if (b->fetch.job != nullptr && b->fetch.arrival == nullptr) Faulter::CancelLocked(lock, b);
    }
    device->thread()->Wake();
    // Every other time it is wanted again while it is being taken back, else when it has been (or had arrived
    // before).
    const auto has_ended = [&] { return StateOf(device, block) != BlockState::kFaulting; };
    ASSERT_TRUE(round % 2 != 0 || tests::WaitUntil(has_ended)) << round;
    taken_back += StateOf(device, block) == BlockState::kSpilled;
    ASSERT_EQ(Wrong(device, block, 9), 0u) << round;
    WaitForState(device, block, BlockState::kResident);
  }
  EXPECT_GT(taken_back, 0);
  device->CheckInvariants();
}

TEST(FaulterTest, FreeInTheMiddleOfAFetchGivesSlotsAndStagingBack) {
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

TEST(FaulterTest, WithoutAStagingBufferLeftALaunchIsRefusedInWords) {
  CoreSetup setup;
  setup.host_bytes = 0;
  CoreDevice device(setup);
  const CUdeviceptr block = Filled(device, 3);
  StartEviction(device, block);
  WaitForState(device, block, BlockState::kSpilled);
  std::vector<PinnedBuffer> buffers;
  device.host().Take(HostUse::kFaultStaging, 100, &buffers);
  ASSERT_FALSE(buffers.empty());
  for (size_t i = 0; i < buffers.size(); ++i) device.host().Abandon(HostUse::kFaultStaging);
  EXPECT_NE(device.Launch(nullptr, {block}, [](const auto&) {}), CUDA_SUCCESS);
  EXPECT_NE(device->LastError().find("no staging buffer is left"), std::string::npos) << device->LastError();
  device->CheckInvariants();
}

TEST(FaulterTest, ABlockThatCannotBeReadRefusesItsLaunchesAndNoOthers) {
  CoreSetup setup;
  setup.host_bytes = 0;
  const auto drive = std::make_shared<io::Drive>();
  setup.wrap_engine = [&](std::unique_ptr<io::IoEngine> engine, size_t) {
    return std::make_unique<io::DriveEngine>(drive, std::move(engine));
  };
  CoreDevice device(setup);
  const CUdeviceptr block = Filled(device, 9);
  const CUdeviceptr other = Filled(device, 7);
  StartEviction(device, block);
  WaitForState(device, block, BlockState::kSpilled);
  drive->Set(io::IoOp::kRead, ENODATA);  // a medium error
  EXPECT_EQ(device.Launch(nullptr, {block}, [](const auto&) {}), CUDA_ERROR_OPERATING_SYSTEM);
  EXPECT_THAT(
      device->LastError(),
      testing::ContainsRegex("a block of 524288 bytes .* cannot be read back, and there is no other copy"));
  EXPECT_EQ(StateOf(device, block), BlockState::kSpilled);
  EXPECT_EQ(Wrong(device, other, 7), 0u);
  EXPECT_NE(device.Launch(nullptr, {block, other}, [](const auto&) {}), CUDA_SUCCESS) << "again";
  drive->Heal();
  EXPECT_EQ(Wrong(device, block, 9), 0u) << "the next launch reads again";
  WaitForState(device, block, BlockState::kResident);
  StartEviction(device, block);
  WaitForState(device, block, BlockState::kSpilled);
  drive->Set(io::IoOp::kRead, ENODATA);
  EXPECT_NE(device.Launch(nullptr, {block}, [](const auto&) {}), CUDA_SUCCESS);
  EXPECT_TRUE(device->Free(block).ok());
  EXPECT_EQ(device.host().Free(HostUse::kFaultStaging), 8u);
  device->CheckInvariants();
}

// ---- Drives that come back.

TEST(FaulterTest, ALaunchWaitsForADriveThatFailsOrIsSilentAndComesBack) {
  for (const int health : {EIO, static_cast<int>(io::Drive::kHolds)}) {
    CoreSetup setup;
    setup.host_bytes = 0;
    setup.request_timeout = std::chrono::milliseconds(20);
    const auto drive = std::make_shared<io::Drive>();
    // In memory: a file on a busy machine is silent for longer than that.
    setup.wrap_engine = [&](std::unique_ptr<io::IoEngine> engine, size_t) {
      return std::make_unique<io::DriveEngine>(drive, io::MakeMemoryEngine({.capacity = engine->capacity()}));
    };
    CoreDevice device(setup);
    const CUdeviceptr block = Filled(device, 9);
    StartEviction(device, block);
    WaitForState(device, block, BlockState::kSpilled);
    drive->Set(io::IoOp::kRead, health);
    std::thread healer([&] {
      const auto sick = [&] {
        return health == EIO ? drive->touched(io::IoOp::kRead) > 20
                             : device.disk()->stats().directories[0].closed;
      };
      EXPECT_TRUE(tests::WaitUntil(sick));
      drive->Heal();
    });
    EXPECT_EQ(Wrong(device, block, 9), 0u);
    healer.join();
    EXPECT_TRUE(tests::WaitUntil([&] { return !device.disk()->stats().directories[0].closed; }));
    device->CheckInvariants();
  }
}

}  // namespace
}  // namespace spillway::allocator
