#include "integration/cli/estimate/estimate_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "integration/cli/common/units.h"
#include "integration/cli/simulate/simulate_report.h"

namespace spillway::integration {
namespace {

// Keys of JSON; the text has spaces instead of underscores.
constexpr const char* kTermNames[policy::kTerms] = {"weights",         "gradients", "optimizer_state",
                                                    "activations",     "logits",    "optimizer_temporaries",
                                                    "matrix_workspace"};

// Returns "338.0 MiB" or "12.34 GiB".
std::string SizeText(double bytes) {
  return bytes < 10 * kGiB ? absl::StrFormat("%.1f MiB", bytes / kMiB)
                           : absl::StrFormat("%.2f GiB", bytes / kGiB);
}
std::string SizeText(policy::Bytes bytes) { return SizeText(static_cast<double>(bytes)); }

// Returns "1.20 to 2.31 s", from the fastest to the slowest.
std::string Between(policy::Nanos a, policy::Nanos b) {
  const double least = Seconds(std::min(a, b)), most = Seconds(std::max(a, b));
  return least == most ? absl::StrFormat("%.3g s", least) : absl::StrFormat("%.3g to %.3g s", least, most);
}

std::string JobLine(const EstimateOptions& options, const Estimate& estimate) {
  const policy::Batch& batch = estimate.training.batch;
  std::string text = absl::StrFormat(
      "job        %s: %.1f million parameters; batch %d x %d tokens, %s, %s, attention %s%s", options.model,
      static_cast<double>(estimate.shape.Parameters()) / 1e6, batch.sequences, batch.tokens, options.dtype,
      options.optimizer, options.attention, options.checkpointing ? ", checkpointing" : "");
  if (estimate.training.micro_batches > 1)
    absl::StrAppendFormat(&text, ", %d micro-batches", estimate.training.micro_batches);
  const policy::Adapters& adapters = estimate.training.adapters;
  if (adapters.rank > 0)
    absl::StrAppendFormat(&text, ", LoRA of rank %d%s", adapters.rank,
                          adapters.dropout ? " with dropout" : "");
  return text + "\n";
}

std::string PeakLines(const Estimate& estimate) {
  const policy::TapeResult& tape = estimate.tape;
  std::string text = absl::StrFormat(
      "peak       %s allocated; PyTorch alone reserves %s; whole chunks of 2 MiB and small blocks take %s\n  "
      "        ",
      SizeText(tape.peak_allocated), SizeText(tape.peak_reserved),
      SizeText(tape.peak_chunks + tape.small_bytes));
  for (size_t t = 0; t < policy::kTerms; ++t)
    absl::StrAppend(&text, t == 0 ? " " : ", ", absl::StrReplaceAll(kTermNames[t], {{"_", " "}}), " ",
                    SizeText(tape.terms[t]));
  return text + "\n";
}

std::string TimeLines(const Estimate& estimate) {
  const EstimateTime &first = estimate.times.front(), &last = estimate.times.back();
  std::string text =
      absl::StrCat("iteration  ", Between(first.uncapped, last.uncapped), " with memory for all of it");
  if (!estimate.fit.problem.empty()) return text + "\n";
  absl::StrAppend(&text, "; ", Between(first.run.execution.iteration, last.run.execution.iteration),
                  " with this memory");
  const double a = first.run.execution.PercentOfIdeal(), b = last.run.execution.PercentOfIdeal();
  absl::StrAppendFormat(&text, " (%.0f to %.0f %% of the speed)\n", std::min(a, b), std::max(a, b));
  const policy::Traffic &low = first.run.execution.traffic, &high = last.run.execution.traffic;
  absl::StrAppend(&text, "moves      an iteration, at most: GPU to host ",
                  SizeText(std::max(low.gpu_to_host, high.gpu_to_host)), ", host to GPU ",
                  SizeText(std::max(low.host_to_gpu, high.host_to_gpu)), ", GPU to disk ",
                  SizeText(std::max(low.gpu_to_ssd, high.gpu_to_ssd)), ", disk to GPU ",
                  SizeText(std::max(low.ssd_to_gpu, high.ssd_to_gpu)), "\n");
  return text;
}

}  // namespace

std::string EstimateText(const EstimateOptions& options, const Estimate& estimate) {
  const EstimateFit& fit = estimate.fit;
  std::string text = JobLine(options, estimate) + PeakLines(estimate);
  absl::StrAppend(&text, "machine    ", estimate.machine.name, " with a budget of ", SizeText(fit.budget),
                  ", of which ", SizeText(fit.blocks), " are for blocks; host memory ",
                  SizeText(estimate.host_bytes), estimate.ssd_read > 0 ? "" : ", no disk", "; rates ",
                  estimate.machine.source, "\n");
  if (!fit.problem.empty()) {
    absl::StrAppend(&text, "fits       no. ", fit.problem, "\n");
  } else if (fit.everything) {
    absl::StrAppend(&text, "fits       yes, and nothing has to move\n");
  } else {
    absl::StrAppend(&text, "fits       yes, with ", SizeText(fit.beyond), " off the GPU at most\n");
  }
  absl::StrAppend(&text, TimeLines(estimate));
  if (estimate.smallest)
    absl::StrAppend(
        &text, "smallest   GPU memory with 95 % of the uncapped speed: ", SizeText(*estimate.smallest), "\n");
  return text;
}

std::string EstimateJson(const EstimateOptions& options, const Estimate& estimate) {
  const policy::TapeResult& tape = estimate.tape;
  const EstimateFit& fit = estimate.fit;
  nlohmann::json terms;
  for (size_t t = 0; t < policy::kTerms; ++t) terms[kTermNames[t]] = tape.terms[t];
  nlohmann::json times = nlohmann::json::array();
  for (const EstimateTime& time : estimate.times) {
    nlohmann::json one = {{"efficiency", time.efficiency}, {"uncapped_s", Seconds(time.uncapped)}};
    if (fit.problem.empty()) {
      one["iteration_s"] = Seconds(time.run.execution.iteration);
      one["simulation"] = ResultJson(time.run);
    }
    times.push_back(std::move(one));
  }
  nlohmann::json json = {
      {"model", options.model},
      {"parameters", estimate.shape.Parameters()},
      {"peak",
       {{"allocated_bytes", tape.peak_allocated},
        {"reserved_bytes", tape.peak_reserved},
        {"chunk_bytes", tape.peak_chunks + tape.small_bytes},
        {"small_bytes", tape.small_bytes},
        {"terms", std::move(terms)}}},
      {"kernels", tape.workload.kernels.size()},
      {"machine", {{"name", estimate.machine.name}, {"source", estimate.machine.source}}},
      {"fit",
       {{"runs", fit.problem.empty()},
        {"everything", fit.everything},
        {"budget_bytes", fit.budget},
        {"block_budget_bytes", fit.blocks},
        {"largest_launch_bytes", fit.launch},
        {"off_gpu_bytes", fit.beyond},
        {"problem", fit.problem}}},
      {"times", std::move(times)},
  };
  if (estimate.smallest) json["smallest_gpu_bytes"] = *estimate.smallest;
  return DumpJson(json);
}

}  // namespace spillway::integration
