#include "integration/cli/simulate/simulate_report.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "integration/cli/common/units.h"

namespace spillway::integration {
namespace {

double Micros(policy::Nanos time) { return static_cast<double>(time) / 1000; }
double GiB(policy::Bytes bytes) { return static_cast<double>(bytes) / kGiB; }

}  // namespace

std::string ReportText(const SimulateResult& result) {
  const policy::Execution& run = result.execution;
  const policy::Traffic& traffic = run.traffic;
  std::string text =
      absl::StrFormat("trace: %d kernels, %d tensors, %.2f GiB live at the peak\n", result.kernels,
                      result.tensors, static_cast<double>(result.peak_live_bytes) / kGiB);
  absl::StrAppendFormat(
      &text,
      "policy %s: %.2f %% of ideal, %s%.2f %% of bound (%s); iteration %.3f s, ideal %.3f s, bound %.3f s\n",
      result.policy, run.PercentOfIdeal(), result.ShareIsKnown() ? "" : "at least ", result.PercentOfBound(),
      result.bound_kind, Seconds(run.iteration), Seconds(run.ideal), Seconds(result.bound));
  absl::StrAppendFormat(
      &text,
      "moved per iteration, GiB: host to GPU %.2f, GPU to host %.2f, SSD to GPU %.2f, GPU to SSD %.2f, "
      "SSD to host %.2f\n",
      traffic.host_to_gpu / kGiB, traffic.gpu_to_host / kGiB, traffic.ssd_to_gpu / kGiB,
      traffic.gpu_to_ssd / kGiB, traffic.ssd_to_host / kGiB);
  absl::StrAppendFormat(
      &text,
      "stalls per iteration, s: for bytes %.3f (from the SSD %.3f), for memory %.3f (while the SSD "
      "is written %.3f)\n",
      Seconds(run.read_wait), Seconds(run.ssd_read_wait), Seconds(run.memory_wait),
      Seconds(run.ssd_memory_wait));
  absl::StrAppendFormat(&text, "peak memory, GiB: GPU %.2f, host %.2f\n", GiB(run.peak_gpu_bytes),
                        GiB(run.peak_host_bytes));
  absl::StrAppendFormat(&text,
                        "plan: first %.3f s, best %.3f s of CPU time, trials %d; parts evicted in need %d\n",
                        result.plan_first_s, result.plan_best_s, result.trials, run.evictions_in_need);
  return text;
}

nlohmann::json ResultJson(const SimulateResult& result) {
  const policy::Execution& run = result.execution;
  return {
      {"policy", result.policy},
      {"kernels", result.kernels},
      {"tensors", result.tensors},
      {"percent_of_ideal", run.PercentOfIdeal()},
      {"percent_of_bound", result.PercentOfBound()},
      {"iteration_us", Micros(run.iteration)},
      {"ideal_us", Micros(run.ideal)},
      {"bound_kind", result.bound_kind},
      {"share_is_known", result.ShareIsKnown()},
      {"bound_us", Micros(result.bound)},
      {"bound_s", result.bound_s},
      {"quick_bound_us",
       {{"compute", Micros(result.quick_bound.compute)},
        {"load", Micros(result.quick_bound.load)},
        {"phase", Micros(result.quick_bound.phase)},
        {"ssd_phase", Micros(result.quick_bound.ssd_phase)},
        {"ssd_shared", Micros(result.quick_bound.ssd_shared)},
        {"pcie_shared", Micros(result.quick_bound.pcie_shared)},
        {"window", Micros(result.quick_bound.window)}}},
      {"host_to_gpu_bytes", run.traffic.host_to_gpu},
      {"gpu_to_host_bytes", run.traffic.gpu_to_host},
      {"ssd_to_gpu_bytes", run.traffic.ssd_to_gpu},
      {"gpu_to_ssd_bytes", run.traffic.gpu_to_ssd},
      {"ssd_to_host_bytes", run.traffic.ssd_to_host},
      {"stall_us", Micros(run.iteration - run.ideal)},
      {"read_wait_us", Micros(run.read_wait)},
      {"memory_wait_us", Micros(run.memory_wait)},
      {"ssd_read_wait_us", Micros(run.ssd_read_wait)},
      {"ssd_memory_wait_us", Micros(run.ssd_memory_wait)},
      {"peak_gpu_bytes", run.peak_gpu_bytes},
      {"peak_host_bytes", run.peak_host_bytes},
      {"peak_live_bytes", result.peak_live_bytes},
      {"evictions_in_need", run.evictions_in_need},
      {"plan_first_s", result.plan_first_s},
      {"plan_best_s", result.plan_best_s},
      {"plan_trials", result.trials},
  };
}

nlohmann::json OptionsJson(const SimulateOptions& options) {
  return {
      {"trace", options.trace},
      {"gpu-memory", options.gpu_memory},
      {"host-memory", options.host_memory},
      {"pcie-in", options.PcieIn()},
      {"pcie-out", options.PcieOut()},
      {"pcie-both", options.pcie_both},
      {"plan-independent", options.plan_independent},
      {"ssd-read", options.ssd_read},
      {"ssd-write", options.ssd_write},
      {"ssd-shared", options.ssd_shared},
      {"latency", options.latency_us},
      {"piece", options.piece},
      {"policy", options.policy},
      {"bound", options.bound},
      {"iterations", options.iterations},
      {"noise", options.noise},
      {"seed", options.seed},
  };
}

std::string ReportJson(const SimulateOptions& options, const SimulateResult& result) {
  nlohmann::json json = ResultJson(result);
  json["options"] = OptionsJson(options);
  return DumpJson(json);
}

std::string DumpJson(const nlohmann::json& json) {
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace spillway::integration
