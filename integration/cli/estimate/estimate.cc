#include "integration/cli/estimate/estimate.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "integration/cli/common/exit_status.h"
#include "integration/cli/common/trace_files.h"
#include "integration/cli/estimate/estimate_report.h"
#include "integration/cli/page/page_file.h"
#include "integration/cli/simulate/sweep.h"
#include "integration/cli/simulate/sweep_page.h"

namespace spillway::integration {
namespace {

constexpr int kDoesNotFit = 1;

void AddJob(CLI::App* estimate, EstimateOptions* options) {
  estimate
      ->add_option(
          "model", options->model,
          absl::StrCat("A Hugging Face config.json, a folder with one, or one of ", policy::ShapeNames()))
      ->required();
  estimate->add_option("--batch", options->batch, "Sequences of a micro-batch (default 1)");
  estimate->add_option("--sequence", options->sequence, "Tokens of a sequence (default 1024)");
  estimate->add_option("--target", options->target,
                       "Tokens of a T5 decoder's sequence (default: --sequence)");
  estimate->add_option("--accumulate", options->accumulate, "Micro-batches before the update (default 1)");
  estimate
      ->add_option("--dtype", options->dtype,
                   "fp32, bf16 (weights, too), or autocast to bf16 with fp32 weights (default)")
      ->check(CLI::IsMember({"fp32", "bf16", "autocast"}));
  estimate->add_option("--optimizer", options->optimizer,
                       absl::StrCat(policy::kOptimizerNames, " (default adamw, over lists of tensors)"));
  estimate
      ->add_option("--attention", options->attention,
                   "sdpa (what PyTorch chooses, default), flash (one kernel) or math (written out)")
      ->check(CLI::IsMember({"sdpa", "flash", "math"}));
  estimate->add_flag("--checkpointing", options->checkpointing,
                     "Activation checkpointing: activations of each layer are computed twice");
  estimate->add_option("--lora", options->lora, "Rank of an adapter on every linear layer (default 0: none)");
  estimate->add_flag("--lora-dropout", options->lora_dropout, "Adapters have dropout");
  estimate->add_flag("--clip", options->clip, "Gradients are clipped");
  estimate
      ->add_option("--zero-grad", options->zero_grad,
                   "When gradients are dropped: after-update (default), "
                   "before-backward")
      ->check(CLI::IsMember({"after-update", "before-backward"}));
}

}  // namespace

CLI::App* AddEstimate(CLI::App* app, EstimateOptions* options) {
  CLI::App* estimate = app->add_subcommand(
      "estimate", "Estimate the memory that training a model needs, and whether it fits a machine");
  AddJob(estimate, options);
  estimate->add_option("--gpu", options->gpu, absl::StrCat(MachineNames(), " (default h100)"));
  estimate->add_option("--machine", options->machine,
                       "File with a machine's measured rates, in place of --gpu");
  estimate->add_option("--gpu-memory", options->gpu_memory, "Bytes the job may hold (default: the GPU's)");
  estimate->add_option("--host-memory", options->host_memory, "Bytes of pinned host memory (default 128GiB)");
  estimate->add_option("--disk", options->disk,
                       "none, or READ[,WRITE][:SIZE], for example 6GB/s,4GB/s:2TB (default 3.2e9)");
  estimate
      ->add_option("--kernel-efficiency", options->kernel_efficiency,
                   "low, high or both (default): which end of the machine's range kernels reach")
      ->check(CLI::IsMember({"low", "high", "both"}));
  estimate->add_flag("--smallest", options->smallest,
                     "Find the smallest GPU memory with 95 % of the uncapped speed");
  estimate->add_option("--sweep", options->sweep, "Write a page with GPU memory x host memory to this file");
  estimate->add_option("--trace", options->save_trace,
                       "Write the iteration's trace to this file, for `spillway simulate`");
  AddThreads(estimate, &options->threads);
  estimate->add_flag("--json", options->json, "Print JSON");
  return estimate;
}

int RunEstimate(const EstimateOptions& options) {
  if (!options.sweep.empty()) {  // before anything is simulated
    const absl::Status found = FindDrawingLibrary(options.library_directory);
    if (!found.ok()) return Refuse(found);
  }
  Workers workers(options.threads, stderr);
  auto estimate = MakeEstimate(options, &workers);
  if (!estimate.ok()) return Refuse(estimate.status());
  if (!options.save_trace.empty()) {
    const absl::Status written = WriteTrace(
        options.save_trace, WithTimes(estimate->tape, estimate->machine, EndOf(options, End::kSlow)));
    if (!written.ok()) return Refuse(written);
  }
  if (!options.sweep.empty()) {
    SimulateOptions shown;
    const std::vector<SweepRow> rows = SweepEstimate(*estimate, EndOf(options, End::kFast), &workers, &shown);
    shown.trace = options.model;
    ReportModel page = SweepModel(shown, rows);
    page.command = "spillway estimate";
    const absl::Status written =
        WritePage(page, SweepJson(shown, rows), options.library_directory, options.sweep);
    if (!written.ok()) return Refuse(written);
  }
  std::fputs((options.json ? EstimateJson(options, *estimate) : EstimateText(options, *estimate)).c_str(),
             stdout);
  return estimate->fit.problem.empty() ? 0 : kDoesNotFit;
}

}  // namespace spillway::integration
