#include "io/store/stripe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <map>
#include <optional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "io/engine/model_engine.h"
#include "io/store/speed_meter.h"
#include "io/store/spill_store_options.h"

namespace spillway::io {
namespace {

constexpr uint32_t kBytesOfRequest = 512 << 10;

// Slots by directory, each queued where it was placed.
std::map<size_t, int> Place(int slots, std::vector<DirectoryLoad>* loads) {
  std::map<size_t, int> share;
  for (int i = 0; i < slots; ++i) {
    const size_t chosen = PickDirectory(*loads, kSlotBytes).value();
    (*loads)[chosen].queued_write_bytes += kSlotBytes;
    ++share[chosen];
  }
  return share;
}

TEST(StripeTest, TakesTheDirectoryThatWouldBeDoneFirst) {
  std::vector<DirectoryLoad> loads(2);
  loads[0] = {.queued_write_bytes = 30, .write_bytes_per_second = 3, .free_slots = 5};
  loads[1] = {.queued_write_bytes = 20, .write_bytes_per_second = 1, .free_slots = 5};
  EXPECT_EQ(PickDirectory(loads, 3), 0u);
  loads[0].free_slots = 0;
  EXPECT_EQ(PickDirectory(loads, 3), 1u);
  loads[1].usable = false;
  EXPECT_FALSE(PickDirectory(loads, 3).has_value());
  EXPECT_FALSE(PickDirectory({}, 3).has_value());
}

TEST(StripeTest, SharesBySpeedAndTreatsTheUnmeasuredAsFast) {
  std::vector<DirectoryLoad> loads(3);
  loads[0] = {.write_bytes_per_second = 4e9, .free_slots = 1000};
  loads[1] = {.write_bytes_per_second = 1e9, .free_slots = 1000};
  loads[2] = {.free_slots = 1000};
  std::map<size_t, int> share = Place(900, &loads);
  EXPECT_NEAR(share[0], 400, 2);
  EXPECT_NEAR(share[1], 100, 2);
  EXPECT_NEAR(share[2], 400, 2);
}

TEST(StripeTest, WhatWasPassedOverForLongGetsASlot) {
  std::vector<DirectoryLoad> loads(2);
  loads[0] = {.write_bytes_per_second = 1e9, .free_slots = 5};
  loads[1] = {.write_bytes_per_second = 1e6, .passed_over_bytes = 63 << 20, .free_slots = 5};
  EXPECT_EQ(PickDirectory(loads, kSlotBytes), 0u);
  loads[1].passed_over_bytes = 64 << 20;
  EXPECT_EQ(PickDirectory(loads, kSlotBytes), 1u);
  loads[1].queued_write_bytes = kSlotBytes;
  EXPECT_EQ(PickDirectory(loads, kSlotBytes), 0u) << "its last one has not been answered";
}

TEST(StripeTest, BytesComeBackAsWell) {
  std::vector<DirectoryLoad> loads(2);
  loads[0] = {.write_bytes_per_second = 1e8, .read_bytes_per_second = 4e8, .free_slots = 1000};
  loads[1] = {.write_bytes_per_second = 4e8, .read_bytes_per_second = 1e8, .free_slots = 1000};
  std::map<size_t, int> share = Place(100, &loads);
  EXPECT_NEAR(share[0], 50, 1);
  loads[0].queued_write_bytes = loads[1].queued_write_bytes = 0;
  loads[1].queued_read_bytes = 8 * kSlotBytes;
  EXPECT_EQ(PickDirectory(loads, kSlotBytes), 0u);
}

// Modelled drives on virtual time, with the meters and the requests of a TransferQueue. A writer keeps
// `window` slots under way and takes places for `batch` slots at once, as the evictions of large blocks do; a
// reader brings back the oldest.
class Drives {
 public:
  Drives(const std::vector<DiskModelOptions>& drives, size_t window, size_t batch)
      : window_(window), batch_(batch) {
    for (const DiskModelOptions& options : drives) drives_.emplace_back(options);
  }

  void Guess(size_t drive, double read, double write) {
    drives_[drive].meters[0].Guess(read);
    drives_[drive].meters[1].Guess(write);
  }
  void Idle(int64_t nanos) { now_ += nanos; }
  void Replace(size_t drive, const DiskModelOptions& options) { drives_[drive].model.emplace(options); }

  // Bytes a second of a phase that writes, or reads, so many slots and nothing else.
  double Write(size_t slots) { return Phase(IoOp::kWrite, slots); }
  double Read(size_t slots) { return Phase(IoOp::kRead, slots); }

  // Writes and reads at the same time, with `kept` slots on the drives; bytes a second of the reads, once so
  // many slots have come back twice.
  double Exchange(size_t slots, size_t kept) {
    size_t read = 0;
    size_t written = 0;
    std::optional<int64_t> since;
    while (read < slots) {
      while (under_way(IoOp::kWrite) < window_ && written < read + kept + 2 * window_) {
        StartWrite();
        ++written;
      }
      while (under_way(IoOp::kRead) < window_ && !stored_.empty() && written - read > kept) {
        StartRead();
        ++read;
      }
      Step();
      if (!since && read >= 2 * kept) since = now_;
    }
    return Speed(slots - 2 * kept, now_ - *since);
  }

 private:
  struct ModelledDrive {
    explicit ModelledDrive(const DiskModelOptions& options) : model(options) {}
    std::optional<DiskModel> model;
    uint64_t passed_over_bytes = 0;
    SpeedMeter meters[2];  // by IoOp
    uint64_t queued_bytes[2] = {0, 0};
  };
  struct Answer {
    int64_t at;
    size_t drive;
    IoOp op;
    bool last;  // of its slot
    bool operator>(const Answer& other) const { return at > other.at; }
  };

  static double Speed(size_t slots, int64_t nanos) {
    return static_cast<double>(slots * kSlotBytes) * 1e9 / static_cast<double>(nanos);
  }

  size_t under_way(IoOp op) const { return under_way_[static_cast<size_t>(op)]; }

  double Phase(IoOp op, size_t slots) {
    const int64_t begin = now_;
    for (size_t started = 0, left = slots; left > 0;) {
      for (; started < slots && under_way(op) < window_; ++started) {
        op == IoOp::kWrite ? StartWrite() : StartRead();
      }
      if (Step()) --left;
    }
    return Speed(slots, now_ - begin);
  }

  void StartWrite() {
    if (taken_.empty()) Take();
    const size_t drive = taken_.front();
    taken_.pop_front();
    drives_[drive].queued_bytes[1] -= kSlotBytes;
    Start(drive, IoOp::kWrite);
  }

  void StartRead() {
    const size_t drive = stored_.front();
    stored_.pop_front();
    Start(drive, IoOp::kRead);
  }

  void Take() {
    std::vector<DirectoryLoad> loads;
    for (const ModelledDrive& drive : drives_)
      loads.push_back({.queued_write_bytes = drive.queued_bytes[1],
                       .queued_read_bytes = drive.queued_bytes[0],
                       .write_bytes_per_second = drive.meters[1].BytesPerSecond(now_),
                       .read_bytes_per_second = drive.meters[0].BytesPerSecond(now_),
                       .passed_over_bytes = drive.passed_over_bytes,
                       .free_slots = 1});
    for (size_t i = 0; i < batch_; ++i) {
      const size_t drive = PickDirectory(loads, kSlotBytes).value();
      loads[drive].queued_write_bytes += kSlotBytes;
      drives_[drive].queued_bytes[1] += kSlotBytes;
      for (size_t other = 0; other < loads.size(); ++other) {
        uint64_t& passed_over = drives_[other].passed_over_bytes;
        passed_over = other == drive ? 0 : passed_over + kSlotBytes;
        loads[other].passed_over_bytes = passed_over;
      }
      taken_.push_back(drive);
    }
  }

  void Start(size_t drive, IoOp op) {
    const auto direction = static_cast<size_t>(op);
    ++under_way_[direction];
    drives_[drive].queued_bytes[direction] += kSlotBytes;
    for (uint64_t sent = 0; sent < kSlotBytes; sent += kBytesOfRequest) {
      drives_[drive].meters[direction].Begin(now_);
      answers_.push({drives_[drive].model->DueAt(op, kBytesOfRequest, now_), drive, op,
                     sent + kBytesOfRequest == kSlotBytes});
    }
  }

  // The next answer; true at the end of a slot.
  bool Step() {
    const Answer answer = answers_.top();
    answers_.pop();
    now_ = answer.at;
    const auto direction = static_cast<size_t>(answer.op);
    ModelledDrive& drive = drives_[answer.drive];
    drive.meters[direction].End(kBytesOfRequest, now_);
    if (!answer.last) return false;
    --under_way_[direction];
    drive.queued_bytes[direction] -= kSlotBytes;
    if (answer.op == IoOp::kWrite) stored_.push_back(answer.drive);
    return true;
  }

  const size_t window_;
  const size_t batch_;
  int64_t now_ = 0;
  std::deque<ModelledDrive> drives_;
  std::priority_queue<Answer, std::vector<Answer>, std::greater<>> answers_;
  size_t under_way_[2] = {0, 0};  // slots, by IoOp
  std::deque<size_t> taken_;      // drives of the slots that are to be written
  std::deque<size_t> stored_;     // and of those that were, the oldest first
};

DiskModelOptions ModelOf(double read, double write) {
  return {.read_bytes_per_second = read, .write_bytes_per_second = write, .latency_nanos = 80'000};
}

class StripeModelTest : public testing::TestWithParam<std::pair<size_t, size_t>> {
 protected:
  // docs/decisions/0033 has these lines.
  static double Shown(const char* what, double bytes_per_second) {
    std::printf("%s: %.0f MB/s\n", what, bytes_per_second / 1e6);
    return bytes_per_second;
  }
  Drives Make(const std::vector<DiskModelOptions>& drives) const {
    return {drives, GetParam().first, GetParam().second};
  }
};

// 1 to 3, one after the other at the sum of their speeds once each has been used.
TEST_P(StripeModelTest, ASlowAndAFastDriveTogetherAreAsFastAsTheirSum) {
  const std::vector<DiskModelOptions> drives = {ModelOf(1e8, 1e8), ModelOf(3e8, 3e8)};
  Drives steady = Make(drives);
  steady.Write(128);
  EXPECT_GE(Shown("steady writes", steady.Write(1024)), 0.95 * 4e8);
  steady.Read(128);
  EXPECT_GE(Shown("steady reads", steady.Read(1024)), 0.95 * 4e8);
  Drives bursts = Make(drives);
  bursts.Write(128);
  double seconds = 0;  // a byte
  for (int burst = 0; burst < 20; ++burst) {
    bursts.Idle(os::kSecond / 2);
    seconds += 1 / bursts.Write(24);
  }
  // At the end of a burst one drive waits for the other, the longer the more slots were placed at once.
  const size_t batch = GetParam().second;
  EXPECT_GE(Shown("bursts of writes", 20 / seconds), (batch == 1 ? 0.95 : batch <= 24 ? 0.9 : 0.85) * 4e8);
}

// The first 48 MiB of a job, whose drives an earlier run has measured.
TEST_P(StripeModelTest, TheFirstBurstIsAsFastWhereTheSpeedsAreKnown) {
  const auto first_burst = [&](double part_of_truth) {
    Drives drives = Make({ModelOf(1e8, 1e8), ModelOf(3e8, 3e8)});
    if (part_of_truth > 0) {
      drives.Guess(0, part_of_truth * 1e8, part_of_truth * 1e8);
      drives.Guess(1, part_of_truth * 3e8, part_of_truth * 3e8);
    }
    return Shown("first burst", drives.Write(24));
  };
  // What counts is their proportion.
  for (const double part : {1.0, 0.8, 1.25}) EXPECT_GE(first_burst(part), 0.9 * 4e8) << part;
  const double unknown = first_burst(0);
  if (GetParam().second >= 24) {
    EXPECT_LT(unknown, 0.6 * 4e8) << "the guess would not be seen";
  }
}

TEST_P(StripeModelTest, AWrongGuessIsForgottenOnceEachDirectionWasUsed) {
  Drives drives = Make({ModelOf(1e8, 1e8), ModelOf(3e8, 3e8)});
  drives.Guess(0, 3e8, 3e8);
  drives.Guess(1, 1e8, 1e8);
  drives.Write(128);
  drives.Read(128);
  EXPECT_GE(Shown("after a wrong guess", drives.Write(1024)), 0.95 * 4e8);
}

// Writes 1 to 4, reads 4 to 1. No share has both directions above 200 MB/s at the same time, nor turns of
// both in less than the time of 100 MB/s.
TEST_P(StripeModelTest, WhereTheFastWriterReadsSlowlyNothingIsBetterByMuch) {
  const std::vector<DiskModelOptions> drives = {ModelOf(4e8, 1e8), ModelOf(1e8, 4e8)};
  for (const size_t kept : {size_t{16}, size_t{400}})
    EXPECT_GE(Shown("exchange", Make(drives).Exchange(4096, kept)), 0.9 * 2e8) << kept;
  Drives turns = Make(drives);
  turns.Write(128);
  turns.Read(128);
  double seconds = 0;
  for (int turn = 0; turn < 8; ++turn) seconds += 1 / turns.Write(256) + 1 / turns.Read(256);
  EXPECT_GE(Shown("turns", 8 / seconds), 0.9 * 1e8);
}

TEST_P(StripeModelTest, ADriveThatBecomesSlowDoesNotHoldTheOthersUp) {
  Drives drives = Make({4, ModelOf(1e9, 1e9)});
  drives.Write(512);
  drives.Replace(3, ModelOf(1e8, 1e8));
  drives.Write(128 + (GetParam().second - 1));  // 256 MiB, and those whose drive was chosen before
  EXPECT_GE(Shown("beside a slow drive", drives.Write(512)), 0.9 * 3e9);
}

TEST_P(StripeModelTest, ADriveThatWasSlowForAWhileIsSoonUsedAgain) {
  for (const double slow : {1e8, 1e7}) {
    Drives drives = Make({2, ModelOf(1e9, 1e9)});
    drives.Write(256);
    drives.Replace(1, ModelOf(slow, slow));
    drives.Write(256);
    drives.Replace(1, ModelOf(1e9, 1e9));
    drives.Write(1024);
    EXPECT_GE(Shown("after a slow time", drives.Write(512)), 0.9 * 2e9) << slow;
  }
}

INSTANTIATE_TEST_SUITE_P(WindowsAndBatches, StripeModelTest,
                         testing::Values(std::pair<size_t, size_t>{4, 1}, std::pair<size_t, size_t>{8, 1},
                                         std::pair<size_t, size_t>{12, 1}, std::pair<size_t, size_t>{32, 1},
                                         std::pair<size_t, size_t>{12, 8}, std::pair<size_t, size_t>{12, 64},
                                         std::pair<size_t, size_t>{32, 64}),
                         [](const auto& row) {
                           return "Window" + std::to_string(row.param.first) + "Batch" +
                                  std::to_string(row.param.second);
                         });

}  // namespace
}  // namespace spillway::io
