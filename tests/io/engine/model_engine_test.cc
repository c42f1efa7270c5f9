// The modeled disk: its arithmetic by hand-computed cases, and that no result comes before it is due,
// whatever the engine inside and whoever wakes the one who waits.

#include "io/engine/model_engine.h"

#include <gtest/gtest.h>
#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "io/engine/aligned_buffer.h"
#include "io/os/clock.h"
#include "tests/fakes/faulty_engine.h"
#include "tests/fakes/memory_engine.h"
#include "tests/fakes/wait_until.h"
#include "tests/io/store_helpers.h"

namespace spillway::io {
namespace {

constexpr uint32_t kPiece = 64u << 10;
constexpr int64_t kMilli = 1'000'000;

TEST(DiskModelTest, RequestsOfADirectionQueueInOrder) {
  DiskModel disk({.read_bytes_per_second = 1e9, .write_bytes_per_second = 5e8, .latency_nanos = 80'000});
  // 1,000,000 bytes: 1 ms to read, 2 ms to write; the latency of several passes at the same time.
  EXPECT_EQ(disk.DueAt(IoOp::kRead, 1'000'000, 0), 1 * kMilli + 80'000);
  EXPECT_EQ(disk.DueAt(IoOp::kRead, 1'000'000, 0), 2 * kMilli + 80'000);
  EXPECT_EQ(disk.DueAt(IoOp::kRead, 500'000, kMilli / 2), 2 * kMilli + kMilli / 2 + 80'000);
  // Writes do not wait for reads.
  EXPECT_EQ(disk.DueAt(IoOp::kWrite, 1'000'000, kMilli / 2), 2 * kMilli + kMilli / 2 + 80'000);
}

TEST(DiskModelTest, IdleTimeIsNotSavedUp) {
  DiskModel disk({.read_bytes_per_second = 1e9});
  EXPECT_EQ(disk.DueAt(IoOp::kRead, 1'000'000, 0), kMilli);
  EXPECT_EQ(disk.DueAt(IoOp::kRead, 1'000'000, 50 * kMilli), 51 * kMilli);
  EXPECT_EQ(disk.DueAt(IoOp::kRead, 1'000'000, 50 * kMilli), 52 * kMilli);
}

TEST(DiskModelTest, WhatIsNotLimitedTakesNoTime) {
  DiskModel disk({.write_bytes_per_second = 1e9});
  EXPECT_EQ(disk.DueAt(IoOp::kRead, 1u << 30, 7), 7);
  DiskModel late({.latency_nanos = 10});
  EXPECT_EQ(late.DueAt(IoOp::kWrite, 1u << 30, 7), 17);
  EXPECT_FALSE(DiskModelOptions{}.Limits());
}

TEST(DiskModelTest, IsDescribedForPeople) {
  EXPECT_EQ(DescribeModel({.read_bytes_per_second = 1.2e9, .latency_nanos = 80'000}),
            "read 1.20 GB/s, latency 80 us");
}

class ModelEngineTest : public ::testing::Test {
 protected:
  // Polls until `count` results are there; their tags in the order in which they came.
  std::vector<uint64_t> Collect(IoEngine* engine, size_t count) {
    std::vector<uint64_t> tags;
    while (tags.size() < count) {
      IoResult results[2];
      const std::span<IoResult> wanted(results, std::min<size_t>(2, count - tags.size()));
      const size_t got = engine->Poll(wanted, std::chrono::seconds(20));
      for (size_t i = 0; i < got; ++i) tags.push_back(results[i].tag);
    }
    return tags;
  }

  std::vector<IoRequest> Writes(size_t count) {
    std::vector<IoRequest> requests;
    for (size_t i = 0; i < count; ++i) {
      requests.push_back({.op = IoOp::kWrite,
                          .offset = i * kPiece,
                          .length = kPiece,
                          .buffer = data_.data() + i * kPiece,
                          .tag = i + 1});
    }
    return requests;
  }

  AlignedBuffer data_{8 * kPiece};
};

TEST_F(ModelEngineTest, NothingComesBeforeItIsDue) {
  // 64 KiB at 8 MiB/s: 7.8 ms each.
  auto engine = MakeModelEngine(MakeMemoryEngine({}), {.write_bytes_per_second = 8 << 20});
  const int64_t start = os::Clock::System()->NowNanos();
  const std::vector<IoRequest> requests = Writes(8);
  engine->Submit(requests);
  for (uint64_t i = 1; i <= 8; ++i) {
    EXPECT_EQ(Collect(engine.get(), 1), std::vector<uint64_t>{i}) << "one after the other, in order";
    EXPECT_GE(os::Clock::System()->NowNanos() - start, static_cast<int64_t>(i) * 7'812'500);
  }
  EXPECT_TRUE(engine->Stop(std::chrono::seconds(1)));
}

TEST_F(ModelEngineTest, IsNeverFasterThanTheEngineInside) {
  const auto slow = std::chrono::milliseconds(30);
  auto engine = MakeModelEngine(MakeMemoryEngine({.latency = slow}), {.write_bytes_per_second = 1e12});
  const auto start = std::chrono::steady_clock::now();
  const std::vector<IoRequest> requests = Writes(1);
  engine->Submit(requests);
  Collect(engine.get(), 1);
  EXPECT_GE(std::chrono::steady_clock::now() - start, slow);
}

TEST_F(ModelEngineTest, PollWithoutTimeEndsAtOnceWithWhatIsNotDueKept) {
  auto engine = MakeModelEngine(MakeMemoryEngine({}), {.latency_nanos = 20 * kMilli});
  const std::vector<IoRequest> requests = Writes(1);
  engine->Submit(requests);
  IoResult result;
  EXPECT_EQ(engine->Poll({&result, 1}, std::chrono::nanoseconds(0)), 0u);
  EXPECT_EQ(Collect(engine.get(), 1), std::vector<uint64_t>{1});
}

TEST_F(ModelEngineTest, AWakeIsNotLostToAResultThatIsNotDue) {
  auto engine = MakeModelEngine(MakeMemoryEngine({}), {.latency_nanos = 3'600'000 * kMilli});
  const std::vector<IoRequest> requests = Writes(1);
  engine->Submit(requests);  // the inner engine has its result at once, and ends its Poll for it
  IoResult result;
  for (int round = 0; round < 3; ++round) {
    std::thread waker([&engine] { engine->Wake(); });
    EXPECT_EQ(engine->Poll({&result, 1}, std::chrono::seconds(3600)), 0u);
    waker.join();
  }
  EXPECT_TRUE(engine->Stop(std::chrono::seconds(1))) << "with a result that is kept back";
}

TEST_F(ModelEngineTest, ErrorsAndDoubleResultsArePassedOn) {
  FaultPlan plan;
  plan.faults = {{.kind = FaultKind::kErrno, .op = IoOp::kWrite, .first = 1},
                 {.kind = FaultKind::kDuplicate, .op = IoOp::kWrite, .first = 2}};
  auto engine =
      MakeModelEngine(MakeFaultyEngine(MakeMemoryEngine({}), plan), {.write_bytes_per_second = 1e9});
  const std::vector<IoRequest> requests = Writes(2);
  engine->Submit(requests);
  std::vector<IoResult> all;
  while (all.size() < 3) {
    IoResult results[3];
    const size_t got = engine->Poll(results, std::chrono::seconds(20));
    all.insert(all.end(), results, results + got);
  }
  int errors = 0;
  int seconds = 0;
  for (const IoResult& one : all) {
    errors += one.tag == 1 && one.result == -5;
    seconds += one.tag == 2 && one.result == static_cast<int32_t>(kPiece);
  }
  EXPECT_EQ(errors, 1);
  EXPECT_EQ(seconds, 2);
}

TEST(ModelledStoreTest, MovesBytesAndEndsWithTransfersUnderWay) {
  TestDirectory directory;
  SpillStoreOptions options = SmallOptions(directory.path());
  options.models.all = {.read_bytes_per_second = 4e8, .write_bytes_per_second = 2e8, .latency_nanos = 80'000};
  options.shutdown_timeout = tests::kPatience;
  auto store = MakeStore(options);
  AlignedBuffer data(kSlotBytes);
  AlignedBuffer back(kSlotBytes);
  FillPattern(data.data(), kSlotBytes, 1);
  const std::vector<SlotId> slots = Reserve(store.get(), 4);
  const int64_t start = os::Clock::System()->NowNanos();
  ASSERT_TRUE(WriteSync(store.get(), slots[0], data.data(), kSlotBytes).ok());
  ASSERT_TRUE(ReadSync(store.get(), slots[0], back.data(), kSlotBytes).ok());
  EXPECT_GE(os::Clock::System()->NowNanos() - start,
            int64_t{kSlotBytes} * 1000 / 200 + int64_t{kSlotBytes} * 1000 / 400);
  EXPECT_EQ(std::memcmp(data.data(), back.data(), kSlotBytes), 0);
  Waiter waiter;
  for (size_t i = 1; i < slots.size(); ++i) {
    store->Write(slots[i], data.data(), kSlotBytes, waiter.Expect());
  }
  store->Shutdown();
  for (const absl::Status& status : waiter.WaitAll())
    EXPECT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
}

}  // namespace
}  // namespace spillway::io
