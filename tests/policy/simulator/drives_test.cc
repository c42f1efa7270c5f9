// Several drives: which one gets a copy, what they can do together, and that each moves no more than it can.

#include "policy/simulator/drives.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "policy/bound/quick_bound.h"
#include "policy/planner/plan_search.h"
#include "policy/simulator/execution.h"
#include "tests/policy/workload_helpers.h"

namespace spillway::policy {
namespace {

Machine WithDrives(Machine machine, const std::vector<Drive>& drives) {
  machine.drives = drives;
  machine.ssd_read = machine.ssd_write = 0;
  for (const Drive& drive : drives) {
    machine.ssd_read += drive.read;
    machine.ssd_write += drive.write;
  }
  return machine;
}

TEST(DriveLoadsTest, TheSoonestToHaveWrittenAndReadBack) {
  DriveLoads loads({{3e9, 3e9}, {1e9, 1e9}});
  // 60 MB: 40 ms there and back on drive 0, 120 on drive 1. Each more in the queue of drive 0 adds as much.
  EXPECT_EQ(loads.Pick(60 * kMega), 0u);
  loads.AddWrite(0, 60 * kMega);
  EXPECT_EQ(loads.Pick(60 * kMega), 0u);
  loads.AddWrite(0, 60 * kMega);
  EXPECT_EQ(loads.Pick(60 * kMega), 0u);  // 120 on both: the first
  loads.AddWrite(0, 60 * kMega);
  EXPECT_EQ(loads.Pick(60 * kMega), 1u);
  // Written, it has only to be read: 20 ms each on drive 0, and 40 for the new one.
  loads.RemoveWrite(0, 180 * kMega);
  loads.AddRead(0, 180 * kMega);
  EXPECT_EQ(loads.Pick(60 * kMega), 0u);
  loads.AddRead(0, 90 * kMega);
  EXPECT_EQ(loads.Pick(60 * kMega), 1u);
  loads.RemoveRead(0, 270 * kMega);
  EXPECT_EQ(loads.Pick(60 * kMega), 0u);
}

TEST(DriveLoadsTest, SpreadsByRate) {
  DriveLoads loads({{2.4e9, 2.4e9}, {0.8e9, 0.8e9}});
  int on_first = 0;
  for (int i = 0; i < 400; ++i) {
    const size_t drive = loads.Pick(kMega);
    loads.AddWrite(drive, kMega);
    on_first += drive == 0;
  }
  EXPECT_EQ(on_first, 300);
}

TEST(DrivesTest, OneDriveIsTheMachinesRates) {
  Machine machine = PlainMachine(1, 1);
  machine.ssd_read = 2e9;
  ASSERT_EQ(DrivesOf(machine).size(), 1u);
  EXPECT_EQ(DrivesOf(machine)[0].read, 2e9);
  EXPECT_EQ(DrivesOf(machine)[0].write, 1e9);
  EXPECT_EQ(RatesTogether(machine).read, 2e9);
  ASSERT_EQ(SharedLimits(machine).size(), 1u);
  EXPECT_DOUBLE_EQ(SharedLimits(machine)[0].per_byte_read, 1 / 2e9);
  EXPECT_DOUBLE_EQ(SharedLimits(machine)[0].per_byte_written, 1 / 1e9);
}

// In one proportion: the sums. One that reads at 3 and writes at 1 and one the other way round: half the bytes on each,
// so that the slow one of each direction limits it to 2 (of 4).
TEST(DrivesTest, RatesTogetherAreTheSumsForDrivesInOneProportion) {
  const Drive same = RatesTogether(WithDrives(PlainMachine(1, 1), {{2.4e9, 1.2e9}, {0.8e9, 0.4e9}}));
  EXPECT_NEAR(same.read, 3.2e9, 1);
  EXPECT_NEAR(same.write, 1.6e9, 1);
  const Drive opposite = RatesTogether(WithDrives(PlainMachine(1, 1), {{3e9, 1e9}, {1e9, 3e9}}));
  EXPECT_NEAR(opposite.read, 2e9, 1);
  EXPECT_NEAR(opposite.write, 2e9, 1);
}

// Drives (read 3, write 1) and (1, 3): together they read 4 and write 0, read 3 and write 3, or read 0 and write 4. The
// limits are the lines through these corners: r/4 + w/12 <= 1 and r/12 + w/4 <= 1.
TEST(DrivesTest, SharedLimitsAreTheBorderOfWhatDrivesCanDo) {
  const auto limits = SharedLimits(WithDrives(PlainMachine(1, 1), {{3e9, 1e9}, {1e9, 3e9}}));
  ASSERT_EQ(limits.size(), 2u);
  EXPECT_DOUBLE_EQ(limits[0].per_byte_read, 1 / 12e9);
  EXPECT_DOUBLE_EQ(limits[0].per_byte_written, 1 / 4e9);
  EXPECT_DOUBLE_EQ(limits[1].per_byte_read, 1 / 4e9);
  EXPECT_DOUBLE_EQ(limits[1].per_byte_written, 1 / 12e9);
  const auto same = SharedLimits(WithDrives(PlainMachine(1, 1), {{3e9, 3e9}, {1e9, 1e9}}));
  ASSERT_EQ(same.size(), 1u);
  EXPECT_DOUBLE_EQ(same[0].per_byte_read, 1 / 4e9);
}

// Half of tensor 0 is away, in pieces of 10 MB that move one by one. The drives of 0.75 and 0.25 GB/s get 4 and 1 of
// them (there and back 107 and 80 ms; of 3 and 2 the latter would be 160): written within 53.3 ms, read within as much.
TEST(ExecuteTest, TwoDrivesWorkAtOnce) {
  Machine machine = WithDrives(PlainMachine(150 * kMega, 0), {{0.75e9, 0.75e9}, {0.25e9, 0.25e9}});
  machine.piece_bytes = 10 * kMega;
  TransferPlan plan;
  plan.absences = {{0, 0, 5, 4, PlanTier::kDisk}};
  ExecutionOptions options;
  options.record = true;
  options.move_bytes = machine.piece_bytes;
  const Workload workload = MountainWorkload(20 * kMilli);
  const auto run = Execute(workload, FindLifetimes(workload), machine, plan, options);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->iteration, 240 * kMilli);
  std::map<uint32_t, std::pair<int, Nanos>> out, in;  // by drive: moves, end of the last
  for (const ScheduleEvent& event : run->events) {
    if (event.kind != ScheduleEvent::Kind::kMove || event.start >= run->iteration_ends[0]) continue;
    auto& [count, end] = (event.from == Place::kGpu ? out : in)[event.drive];
    ++count;
    end = std::max(end, event.end);
  }
  EXPECT_EQ(out[0].first, 4);
  EXPECT_EQ(out[1].first, 1);
  EXPECT_EQ(in[0].first, 4);
  EXPECT_EQ(in[1].first, 1);
  EXPECT_NEAR(static_cast<double>(out[0].second), 20e6 + 53.333e6, 1e3);
  EXPECT_NEAR(static_cast<double>(out[1].second), 20e6 + 40e6, 1e3);
  EXPECT_NEAR(static_cast<double>(in[0].second), 140e6 + 53.333e6, 1e3);
  EXPECT_NEAR(static_cast<double>(in[1].second), 140e6 + 40e6, 1e3);
}

// No drive moves two things in one direction (shared: at all) at a time or beats its rate, and each piece comes back
// from the drive that it went to.
void CheckDrives(const Execution& run, const Workload& workload, const Machine& machine) {
  std::map<std::pair<uint32_t, bool>, Nanos> free_at;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> lies_on;  // tensor and piece: drive
  std::vector<ScheduleEvent> moves;
  for (const ScheduleEvent& event : run.events) {
    if (event.kind == ScheduleEvent::Kind::kMove && (event.from == Place::kSsd || event.to == Place::kSsd))
      moves.push_back(event);
  }
  std::stable_sort(moves.begin(), moves.end(),
                   [](const auto& a, const auto& b) { return a.start < b.start; });
  for (const ScheduleEvent& move : moves) {
    const bool out = move.to == Place::kSsd;
    ASSERT_LT(move.drive, machine.drives.size());
    Nanos& free = free_at[{move.drive, machine.ssd_shared ? false : out}];
    EXPECT_GE(move.start, free);
    free = move.end;
    const Drive& drive = machine.drives[move.drive];
    const double bytes = static_cast<double>(BytesOfPieces(
        workload.tensors[move.id].bytes, machine.piece_bytes, move.first_piece, move.last_piece));
    EXPECT_GE(static_cast<double>(move.end - move.start) * 1.000001 + 2,
              bytes / (out ? drive.write : drive.read) * 1e9);
    for (uint32_t piece = move.first_piece; piece < move.last_piece; ++piece) {
      const auto [at, fresh] = lies_on.try_emplace({move.id, piece}, move.drive);
      if (out) {
        at->second = move.drive;
      } else if (!fresh) {  // else it lay there when the run began
        EXPECT_EQ(at->second, move.drive) << "tensor " << move.id << " piece " << piece;
      }
    }
  }
}

TEST(ExecuteTest, NoDriveDoesMoreThanItCan) {
  int with_moves = 0;
  for (uint32_t seed = 0; seed < 80; ++seed) {
    const Workload workload = RandomWorkload(seed);
    Machine machine = WithDrives(PlainMachine(0, seed % 3 == 0 ? 0 : 20 * kMega),
                                 {{0.4e9, 0.5e9}, {0.2e9, 0.1e9}, {0.1e9, 0.3e9}});
    machine.piece_bytes = seed % 2 == 0 ? 0 : 2 * kMega;
    machine.ssd_shared = seed % 5 == 0;
    const Bytes least = PlanSearch::LeastBytes(machine);
    const Lifetimes lifetimes = FindLifetimes(workload, least);
    machine.gpu_bytes = static_cast<Bytes>(lifetimes.PeakLive()) * 2 / 3;
    SearchOptions search;
    search.rounds = 1;
    PlanSearch planner(workload, lifetimes, machine, search);
    if (const auto more = planner.Improve(); !more.ok()) continue;  // a kernel that does not fit at all
    ExecutionOptions options;
    options.record = true;
    const auto run = Execute(workload, lifetimes, machine, planner.best(), options);
    ASSERT_TRUE(run.ok()) << seed;
    CheckDrives(*run, workload, machine);
    EXPECT_GE(run->iteration, FindQuickBound(workload, lifetimes, machine).Best() * 0.9999) << seed;
    with_moves += run->traffic.gpu_to_ssd > 0;
  }
  EXPECT_GT(with_moves, 20);
}

// What goes to and comes from a single SSD of 3.2e9 goes as well over two drives of 2.4e9 and 0.8e9.
TEST(PlanSearchTest, UnequalDrivesComeNearTheSumOfTheirRates) {
  const Machine one = G10Machine(0);
  const Machine two = WithDrives(one, {{2.4e9, 2.4e9}, {0.8e9, 0.8e9}});
  for (const char* name : {"bert-256", "vit-1280", "resnet152-1280"}) {
    const Workload workload = G10Workload(name);
    const Lifetimes lifetimes = FindLifetimes(workload, PlanSearch::LeastBytes(one));
    double percent[2];
    for (int i = 0; i < 2; ++i) {
      PlanSearch planner(workload, lifetimes, i == 0 ? one : two, {});
      for (auto more = planner.Improve(); more.ok() && *more;) more = planner.Improve();
      percent[i] =
          100.0 * static_cast<double>(workload.IdealTime()) / static_cast<double>(planner.best_iteration());
    }
    EXPECT_GE(percent[1], percent[0] - 0.3) << name;
  }
}

}  // namespace
}  // namespace spillway::policy
