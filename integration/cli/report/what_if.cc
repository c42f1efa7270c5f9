#include "integration/cli/report/what_if.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "integration/cli/page/report_units.h"
#include "integration/cli/simulate/simulation_run.h"
#include "policy/model/lifetimes.h"
#include "policy/model/machine.h"
#include "policy/model/workload_file.h"

namespace spillway::integration {
namespace {

constexpr double kAssumedLink = 15.754e9;  // as `spillway simulate` assumes
constexpr double kAssumedDisk = 3.2e9;
constexpr double kFewDiskBytes = 4096;  // less is no use of the disk

std::string Whole(double value) { return absl::StrFormat("%.0f", std::floor(value)); }

// Sets the rates while both directions run, if the link was measured: the run's own rates, reduced in the
// same proportion.
void ShareLink(const ReportMetrics& metrics, WhatIf* result, SimulateOptions* options) {
  if (!metrics.link) {
    result->assumed.emplace_back("both directions of the link at once: each as fast as alone");
    return;
  }
  policy::Machine machine;
  machine.pcie_in = std::floor(result->link_in);
  machine.pcie_out = std::floor(result->link_out);
  const policy::LinkRates both =
      policy::PossibleTogether(machine, {machine.pcie_in * metrics.link->in_both / metrics.link->in,
                                         machine.pcie_out * metrics.link->out_both / metrics.link->out});
  // The rates are rounded up, since together they must not be slower than taking turns.
  result->link_in_both = std::min(std::ceil(both.in), machine.pcie_in);
  result->link_out_both = std::min(std::ceil(both.out), machine.pcie_out);
  options->pcie_both = absl::StrCat(Whole(*result->link_in_both), ",", Whole(*result->link_out_both));
}

// Returns the machine of the run, from what was measured. A figure that was not measured is assumed, and
// named.
SimulateOptions MachineOf(const ReportData& data, WhatIf* result) {
  const ReportMetrics& metrics = data.metrics;
  const auto rate = [result](Known known, double assumed, const char* what) {
    if (known && *known >= 1e6) return *known;
    result->assumed.push_back(absl::StrCat(what, ": ", Shown(assumed, Unit::kBytesPerSecond)));
    return assumed;
  };
  result->gpu_bytes = data.capacity.gpu_bytes.value_or(0);
  result->host_bytes = data.capacity.host_bytes.value_or(0);
  result->link_in = rate(metrics.host_in, kAssumedLink, "the link to the GPU");
  result->link_out = rate(metrics.host_out, kAssumedLink, "the link from the GPU");
  result->disk_in = rate(metrics.disk_in, kAssumedDisk, "reading the disk");
  result->disk_out = rate(metrics.disk_out, kAssumedDisk, "writing the disk");
  SimulateOptions options;
  options.gpu_memory = Whole(result->gpu_bytes);
  options.host_memory = Whole(result->host_bytes);
  options.pcie_in = Whole(result->link_in);
  options.pcie_out = Whole(result->link_out);
  options.ssd_read = Whole(result->disk_in);
  options.ssd_write = Whole(result->disk_out);
  options.piece = "0";  // whole blocks, as at run time
  ShareLink(metrics, result, &options);
  return options;
}

double DiskBytes(const SimulateResult& result) {
  return result.execution.traffic.ssd_to_gpu + result.execution.traffic.gpu_to_ssd;
}

// A point of a sweep that is to be simulated, and its machine.
struct Trial {
  size_t sweep = 0, point = 0;
  SimulateOptions options;
};

// The parts that all sweeps share.
struct Simulation {
  const policy::Workload& workload;
  SimulateOptions options;  // the machine of the run
  double peak_bytes = 0;    // the amount of memory with which nothing moves
  bool has_disk = false;
  double until = 0;  // of CpuSeconds()
};

void FillPoint(const Simulation& simulation, const absl::StatusOr<SimulateResult>& result,
               WhatIfPoint* point) {
  if (!result.ok()) {
    point->problem = std::string(result.status().message());
    return;
  }
  point->disk_bytes = DiskBytes(*result);
  if (!simulation.has_disk && point->disk_bytes > kFewDiskBytes) {
    point->problem = "would need a disk";
    return;
  }
  point->runs = true;
  point->iteration_s = static_cast<double>(result->execution.iteration) / 1e9;
  const auto quick = static_cast<double>(std::max(result->quick_bound.Best(), result->execution.ideal));
  const auto iteration = static_cast<double>(result->execution.iteration);
  point->percent_of_bound = iteration > 0 ? 100 * quick / iteration : 100;
}

struct Axis {
  WhatIfAxis axis;
  double now, second;  // second: of the disk's other direction
  std::vector<double> factors;
  std::string SimulateOptions::*field;
  std::string SimulateOptions::*second_field;
  std::optional<double> own_value;  // the run's, if no factor stands for it
};

// The sweeps before the simulation, and the trials in it.
struct SweepList {
  std::vector<WhatIfSweep> sweeps;
  std::vector<Trial> trials;  // of all points but the run's own
};

// Adds a sweep. `enough`: more of a tier of this size changes nothing; 0: no size is enough. The run's own
// point is always there.
void AddSweep(const Simulation& simulation, const Axis& axis, double enough, SweepList* list) {
  WhatIfSweep& sweep = list->sweeps.emplace_back();
  sweep.axis = axis.axis;
  for (double factor : axis.factors) {
    Trial trial{list->sweeps.size() - 1, sweep.points.size(), simulation.options};
    WhatIfPoint& point = sweep.points.emplace_back();
    point.value = axis.now * factor;
    point.factor = axis.own_value ? (point.value == *axis.own_value ? 1 : 0) : factor;
    trial.options.*(axis.field) = Whole(point.value);
    if (axis.second_field != nullptr) trial.options.*(axis.second_field) = Whole(axis.second * factor);
    if (point.factor != 1) list->trials.push_back(std::move(trial));
    if (factor >= 1 && enough > 0 && point.value >= enough) break;
  }
}

// Returns the sweep of an iteration that fits: the cost of less GPU memory, down to half of what it needs.
SweepList SweepsOfFitting(const Simulation& simulation, double gpu_bytes) {
  std::vector<double> factors;
  for (double part : {0.5, 0.6, 0.7, 0.8, 0.9}) factors.push_back(part * simulation.peak_bytes / gpu_bytes);
  factors.push_back(1);
  const char* const fits = "the recorded iteration fits the GPU, so that nothing else matters";
  SweepList list;
  AddSweep(simulation,
           {WhatIfAxis::kGpuMemory, gpu_bytes, 0, factors, &SimulateOptions::gpu_memory, nullptr, {}}, 0,
           &list);
  list.sweeps.push_back({WhatIfAxis::kHostMemory, {}, fits});
  list.sweeps.push_back({WhatIfAxis::kDisk, {}, fits});
  return list;
}

void AddHostMemory(const Simulation& simulation, const WhatIf& result, SweepList* list) {
  Axis axis{WhatIfAxis::kHostMemory,       result.host_bytes, 0, {0.5, 1, 2, 4, 8},
            &SimulateOptions::host_memory, nullptr,           {}};
  if (result.host_bytes > 0) {
    AddSweep(simulation, axis, simulation.peak_bytes, list);
    return;
  }
  // Parts of 0 are 0, so the values are parts of what the job needs beyond the GPU.
  axis.now = std::max(0.0, simulation.peak_bytes - result.gpu_bytes);
  axis.factors = {0, 0.25, 0.5, 1};
  axis.own_value = 0;
  AddSweep(simulation, axis, 0, list);
}

SweepList SweepsOf(const Simulation& simulation, const WhatIf& result) {
  if (result.gpu_bytes >= simulation.peak_bytes) return SweepsOfFitting(simulation, result.gpu_bytes);
  SweepList list;
  AddSweep(simulation,
           {WhatIfAxis::kGpuMemory,
            result.gpu_bytes,
            0,
            {0.5, 0.75, 1, 1.25, 1.5, 2, 3},
            &SimulateOptions::gpu_memory,
            nullptr,
            {}},
           simulation.peak_bytes, &list);
  AddHostMemory(simulation, result, &list);
  if (!simulation.has_disk) {
    list.sweeps.push_back({WhatIfAxis::kDisk, {}, "the run had no disk"});
    return list;
  }
  AddSweep(simulation,
           {WhatIfAxis::kDisk,
            result.disk_in,
            result.disk_out,
            {0.5, 1, 2, 4, 8},
            &SimulateOptions::ssd_read,
            &SimulateOptions::ssd_write,
            {}},
           0, &list);
  return list;
}

// Simulates the machine of the run first, then those of the sweeps, on several threads.
absl::StatusOr<SimulateResult> SimulateAll(const Simulation& simulation, SweepList* list, Workers* workers) {
  absl::StatusOr<SimulateResult> own;
  workers->ForEach("simulating other machines", 1 + list->trials.size(), [&](size_t i) {
    if (i == 0) {
      SimulateOptions options = simulation.options;
      options.bound = "coarse-one-tier";  // takes some seconds, during which the others go on
      own = RunOne(options, simulation.workload);
      return;
    }
    const Trial& trial = list->trials[i - 1];
    WhatIfPoint* const point = &list->sweeps[trial.sweep].points[trial.point];
    if (CpuSeconds() > simulation.until)
      point->problem = "left out: the simulation took too long";
    else
      FillPoint(simulation, RunOne(trial.options, simulation.workload), point);
  });
  for (WhatIfSweep& sweep : list->sweeps) {
    for (WhatIfPoint& point : sweep.points) {
      if (point.factor == 1) FillPoint(simulation, own, &point);
    }
  }
  return own;
}

std::string WhyNot(const ReportData& data) {
  if (data.iteration.empty())
    return "the file has no recorded iteration: none repeated itself, or the process had not ended";
  if (!data.capacity.gpu_bytes || *data.capacity.gpu_bytes <= 0) return "the budget is not known";
  return "";
}

}  // namespace

WhatIf SimulateWhatIf(const ReportData& data, Workers* workers, double most_cpu_seconds) {
  const double until = CpuSeconds() + most_cpu_seconds;
  WhatIf result;
  result.missing = WhyNot(data);
  if (!result.missing.empty()) return result;
  const auto workload = policy::DecodeWorkload(data.iteration);
  if (!workload.ok()) {
    result.missing = absl::StrCat("the recorded iteration cannot be read: ", workload.status().message());
    return result;
  }
  Simulation simulation{*workload, MachineOf(data, &result), 0, false, until};
  result.peak_live_bytes = static_cast<double>(policy::FindLifetimes(*workload).PeakLive());
  simulation.peak_bytes = result.peak_live_bytes;
  simulation.has_disk = !data.capacity.disks || !data.capacity.disks->empty();
  SweepList list = SweepsOf(simulation, result);
  const auto own = SimulateAll(simulation, &list, workers);
  if (!own.ok()) {
    result.missing = absl::StrCat("the simulator cannot run the iteration: ", own.status().message());
    return result;
  }
  result.kernels = static_cast<double>(own->kernels);
  result.tensors = static_cast<double>(own->tensors);
  result.iteration_s = static_cast<double>(own->execution.iteration) / 1e9;
  result.ideal_s = static_cast<double>(own->execution.ideal) / 1e9;
  result.bound_s = static_cast<double>(std::max(own->bound, own->execution.ideal)) / 1e9;
  result.bound_is_near = own->bound_is_near;
  result.sweeps = std::move(list.sweeps);
  return result;
}

}  // namespace spillway::integration
