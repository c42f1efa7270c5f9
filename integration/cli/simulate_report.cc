#include "integration/cli/simulate_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace spillway::integration {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

double Micros(policy::Nanos time) { return static_cast<double>(time) / 1000; }

}  // namespace

double SimulateResult::PercentOfBound() const {
  // With noise, kernels may take less than the bound's.
  const policy::Nanos best = std::max(bound - quick_bound.compute + execution.ideal, execution.ideal);
  return 100 * static_cast<double>(best) / static_cast<double>(execution.iteration);
}

std::string ReportText(const SimulateResult& result) {
  const policy::Execution& run = result.execution;
  std::string text = absl::StrFormat(
      "policy %s: %.2f %% of ideal, %.2f %% of bound; iteration %.3f s, ideal %.3f s, bound %.3f s\n",
      result.policy, run.PercentOfIdeal(), result.PercentOfBound(), Micros(run.iteration) / 1e6,
      Micros(run.ideal) / 1e6, Micros(result.bound) / 1e6);
  absl::StrAppendFormat(
      &text, "per iteration, GiB: host to GPU %.2f, GPU to host %.2f, SSD to GPU %.2f, GPU to SSD %.2f\n",
      run.traffic.host_to_gpu / kGiB, run.traffic.gpu_to_host / kGiB, run.traffic.ssd_to_gpu / kGiB,
      run.traffic.gpu_to_ssd / kGiB);
  absl::StrAppendFormat(&text, "stalls, s: for bytes to arrive %.3f, for room %.3f\n",
                        Micros(run.read_wait) / 1e6, Micros(run.room_wait) / 1e6);
  absl::StrAppendFormat(&text, "peak memory, GiB: GPU %.2f, host %.2f; the job alone %.2f\n",
                        static_cast<double>(run.peak_gpu_bytes) / kGiB,
                        static_cast<double>(run.peak_host_bytes) / kGiB,
                        static_cast<double>(result.peak_live_bytes) / kGiB);
  absl::StrAppendFormat(&text, "plan: first %.3f s, best %.3f s of CPU, %d trials; evictions in need %d\n",
                        result.plan_first_s, result.plan_best_s, result.trials, run.evictions_in_need);
  return text;
}

std::string ReportJson(const SimulateResult& result) {
  const policy::Execution& run = result.execution;
  const nlohmann::json json = {
      {"policy", result.policy},
      {"percent_of_ideal", run.PercentOfIdeal()},
      {"percent_of_bound", result.PercentOfBound()},
      {"iteration_us", Micros(run.iteration)},
      {"ideal_us", Micros(run.ideal)},
      {"bound_kind", result.bound_kind},
      {"bound_us", Micros(result.bound)},
      {"bound_s", result.bound_s},
      {"quick_bound_us",
       {{"compute", Micros(result.quick_bound.compute)},
        {"load", Micros(result.quick_bound.load)},
        {"phase", Micros(result.quick_bound.phase)},
        {"ssd_phase", Micros(result.quick_bound.ssd_phase)},
        {"ssd_shared", Micros(result.quick_bound.ssd_shared)}}},
      {"host_to_gpu_bytes", run.traffic.host_to_gpu},
      {"gpu_to_host_bytes", run.traffic.gpu_to_host},
      {"ssd_to_gpu_bytes", run.traffic.ssd_to_gpu},
      {"gpu_to_ssd_bytes", run.traffic.gpu_to_ssd},
      {"read_wait_us", Micros(run.read_wait)},
      {"room_wait_us", Micros(run.room_wait)},
      {"peak_gpu_bytes", run.peak_gpu_bytes},
      {"peak_host_bytes", run.peak_host_bytes},
      {"peak_live_bytes", result.peak_live_bytes},
      {"evictions_in_need", run.evictions_in_need},
      {"plan_first_s", result.plan_first_s},
      {"plan_best_s", result.plan_best_s},
      {"plan_trials", result.trials},
  };
  return json.dump(2) + "\n";
}

std::string SweepText(const std::vector<SweepPoint>& points) {
  std::string text = absl::StrFormat("%-24s %10s %10s %12s %12s\n", "setting", "% of ideal", "% of bound",
                                     "GiB in", "GiB out");
  for (const SweepPoint& point : points) {
    if (!point.fits) {
      absl::StrAppendFormat(&text, "%-24s %10s\n", point.setting, "cannot run");
      continue;
    }
    absl::StrAppendFormat(&text, "%-24s %10.2f %10.2f %12.2f %12.2f\n", point.setting, point.percent_of_ideal,
                          point.percent_of_bound, point.gigabytes_in, point.gigabytes_out);
  }
  return text;
}

std::string SweepHtml(const std::vector<SweepPoint>& points) {
  constexpr int kRow = 26, kLabel = 200, kWidth = 500;
  std::string html = absl::StrFormat(
      "<!doctype html><meta charset=\"utf-8\"><title>Spillway: what if</title>\n"
      "<h1>Percent of ideal</h1>\n<svg width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
      "font-size=\"13\">\n",
      kLabel + kWidth + 80, static_cast<int>(points.size()) * kRow + 10);
  int y = 5;
  for (const SweepPoint& point : points) {
    const double width = point.fits ? point.percent_of_ideal / 100 * kWidth : 0;
    const std::string value =
        point.fits ? absl::StrFormat("%.2f", point.percent_of_ideal) : std::string("cannot run");
    absl::StrAppendFormat(
        &html,
        "<text x=\"0\" y=\"%d\">%s</text><rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"18\" "
        "fill=\"#3b7dd8\"/><text x=\"%.1f\" y=\"%d\">%s</text>\n",
        y + 14, point.setting, kLabel, y, width, kLabel + width + 6, y + 14, value);
    y += kRow;
  }
  return absl::StrCat(html, "</svg>\n");
}

}  // namespace spillway::integration
