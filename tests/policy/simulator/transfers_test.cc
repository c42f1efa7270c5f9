// The transfers, seen in the simulator's results: each drive moves no more than it can.

#include "policy/simulator/transfers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "policy/bound/quick_bound.h"
#include "policy/planner/plan_search.h"
#include "policy/simulator/simulator.h"
#include "tests/policy/workload_helpers.h"

namespace spillway::policy {
namespace {

// Half of tensor 0 is away, in pieces of 10 MB that move one by one. The drives of 0.75 and 0.25 GB/s get 4
// and 1 of them (there and back 107 and 80 ms; of 3 and 2 the latter would be 160): written within 53.3 ms,
// read within as much.
TEST(TransfersTest, TwoDrivesWorkAtOnce) {
  Machine machine = WithDrives(PlainMachine(150 * kMega, 0), {{0.75e9, 0.75e9}, {0.25e9, 0.25e9}});
  machine.piece_bytes = 10 * kMega;
  TransferPlan plan;
  plan.evictions = {{0, 0, 5, 4, PlanTier::kDisk}};
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

// No drive moves two things in one direction (shared: at all) at a time or beats its rate, and each piece
// comes back from the drive that it went to.
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

TEST(TransfersTest, NoDriveDoesMoreThanItCan) {
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

}  // namespace
}  // namespace spillway::policy
