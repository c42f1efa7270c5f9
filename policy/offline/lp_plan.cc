#include "policy/offline/lp_plan.h"

#include <algorithm>
#include <cmath>

#include "policy/planner/copy_queue_time.h"
#include "policy/planner/tier_choice.h"
#include "policy/simulator/simulator.h"

namespace spillway::policy {
namespace {

constexpr Bytes kMargin = 64 << 20;        // as the planner's; a sixty-fourth of a small GPU
constexpr double kQueueEfficiency = 0.99;  // pieces end at other times than a fluid
constexpr Nanos kLeads[] = {-1, 50'000'000, 500'000'000};
constexpr uint32_t kReplayIterations = 4;

class Rounding {
 public:
  Rounding(const Workload& workload, const Lifetimes& lifetimes, const Machine& machine,
           const LpBound& solution)
      : workload_(workload),
        lifetimes_(lifetimes),
        machine_(machine),
        evictions_(solution.evictions),
        kernels_(static_cast<int64_t>(workload.kernels.size())) {
    for (size_t k = 0; k < workload.kernels.size(); ++k)
      plan_.kernel_times.push_back(workload.kernels[k].duration + solution.gaps[k]);
  }

  TransferPlan Run() {
    // The order is that in which the copy queues write, from the emptiest kernel on.
    const int64_t start = std::min_element(lifetimes_.live_bytes.begin(), lifetimes_.live_bytes.end()) -
                          lifetimes_.live_bytes.begin();
    std::sort(evictions_.begin(), evictions_.end(), [&](const LpEviction& a, const LpEviction& b) {
      const auto place = [&](const LpEviction& one) {
        return (lifetimes_.intervals[one.interval].after - start + kernels_) % kernels_;
      };
      return std::pair(place(a), a.interval) < std::pair(place(b), b.interval);
    });
    for (const LpEviction& eviction : evictions_) Round(eviction);
    PlaceWrites();
    return std::move(plan_);
  }

 private:
  // The next eviction of a tier makes up for what rounding took too much or too little. Host pieces are the
  // tensor's first, SSD pieces its last, so later evictions of the content find theirs written.
  void Round(const LpEviction& eviction) {
    const Bytes size = workload_.tensors[lifetimes_.intervals[eviction.interval].tensor].bytes;
    const uint32_t pieces = PiecesOf(size, machine_.piece_bytes);
    const double piece =
        static_cast<double>(machine_.piece_bytes == 0 ? size : std::min(size, machine_.piece_bytes));
    const auto whole = [&](double bytes, double* carry, uint32_t most) {
      if (bytes <= 0 || most == 0) return 0u;
      const double wanted = std::clamp((bytes + *carry) / piece, 0.0, static_cast<double>(most));
      const uint32_t taken = static_cast<uint32_t>(std::llround(wanted));
      *carry += bytes - static_cast<double>(taken) * piece;
      *carry = std::clamp(*carry, -piece, piece);
      return taken;
    };
    const uint32_t host = whole(eviction.host_bytes, &host_carry_, pieces);
    const uint32_t ssd = whole(eviction.ssd_bytes, &ssd_carry_, pieces - host);
    if (host > 0) plan_.evictions.push_back({eviction.interval, 0, host, 0, PlanTier::kHost});
    if (ssd > 0) plan_.evictions.push_back({eviction.interval, pieces - ssd, pieces, 0, PlanTier::kDisk});
  }

  // Each write takes the earliest free time of its copy queue. The plan counts its bytes as away from its end
  // on.
  void PlaceWrites() {
    CopyQueueTime pcie(plan_.kernel_times), ssd(plan_.kernel_times);
    std::vector<uint32_t> host_written(lifetimes_.versions, 0), ssd_written(lifetimes_.versions, 0);
    for (PlannedEviction& eviction : plan_.evictions) {
      const IdleInterval& interval = lifetimes_.intervals[eviction.interval];
      const bool host = eviction.tier == PlanTier::kHost;
      const uint32_t pieces = eviction.last_piece - eviction.first_piece;
      uint32_t& written = (host ? host_written : ssd_written)[interval.version];
      int64_t from = interval.after + 1;
      if (!interval.never_dirty && pieces > written) {
        const Bytes bytes = BytesOfPieces(workload_.tensors[interval.tensor].bytes, machine_.piece_bytes,
                                          eviction.first_piece, eviction.last_piece);
        const double rate =
            kQueueEfficiency * (host ? machine_.pcie_out : std::min(machine_.ssd_write, machine_.pcie_out));
        CopyQueueTime& queue = host ? pcie : ssd;
        const Nanos time = static_cast<Nanos>(static_cast<double>(bytes) / rate * kNanosPerSecond);
        const int64_t begin = interval.written + 1;
        const int64_t end = std::max<int64_t>(begin, interval.before);
        const Nanos free = std::min(time, queue.Free(begin, end));
        const int64_t last = queue.TakeEarliest(begin, end, free);
        from = free < time ? interval.before - 1 : std::max(from, last + 1);
        if (!host) TakeShare(&pcie, begin, last + 1, bytes);
        written = pieces;
      }
      eviction.from = static_cast<uint32_t>(std::min<int64_t>(from, interval.before - 1));
    }
  }

  // Takes the link's time for bytes that go to the SSD, too.
  void TakeShare(CopyQueueTime* pcie, int64_t begin, int64_t end, Bytes bytes) const {
    if (machine_.host_bytes == 0 || begin >= end) return;
    const Nanos time = static_cast<Nanos>(static_cast<double>(bytes) / machine_.pcie_out * kNanosPerSecond);
    pcie->TakeLatest(begin, end, std::min(time, pcie->Free(begin, end)));
  }

  const Workload& workload_;
  const Lifetimes& lifetimes_;
  const Machine& machine_;
  std::vector<LpEviction> evictions_;
  const int64_t kernels_;
  double host_carry_ = 0, ssd_carry_ = 0;
  TransferPlan plan_;
};

}  // namespace

TransferPlan RoundLp(const Workload& workload, const Lifetimes& lifetimes, const Machine& machine,
                     const LpBound& solution) {
  return Rounding(workload, lifetimes, machine, solution).Run();
}

absl::StatusOr<TransferPlan> PlanByLp(const Workload& workload, const Lifetimes& lifetimes,
                                      const Machine& machine) {
  Machine tighter = machine;
  tighter.gpu_bytes -= std::min(kMargin, machine.gpu_bytes / 64);
  auto solution = FindLpBound(workload, lifetimes, tighter, LpForm::kKeepTier, LpAim::kFewBytes);
  if (absl::IsResourceExhausted(solution.status()))
    solution = FindLpBound(workload, lifetimes, machine, LpForm::kKeepTier, LpAim::kFewBytes);
  if (!solution.ok()) return solution.status();
  TransferPlan plan = RoundLp(workload, lifetimes, machine, *solution);
  ExecutionOptions execution;
  execution.iterations = kReplayIterations;
  FindReadLeads(workload, lifetimes, machine, &plan);
  Nanos best = 0, best_lead = -1;
  for (Nanos lead : kLeads) {
    plan.host_lead = lead;
    auto run = Execute(workload, lifetimes, machine, plan, execution);
    if (!run.ok()) return run.status();
    if (best != 0 && run->iteration >= best) continue;
    best = run->iteration;
    best_lead = lead;
  }
  plan.host_lead = best_lead;
  return plan;
}

}  // namespace spillway::policy
