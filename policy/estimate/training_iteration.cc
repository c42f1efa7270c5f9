#include "policy/estimate/training_iteration.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace spillway::policy {
namespace {

constexpr uint64_t kMaxBatch = 1 << 20, kMaxTokens = 1 << 24, kMaxMicroBatches = 1024, kMaxRank = 1 << 16;
constexpr double kMaxLayersTimesBatches = 20'000;
constexpr double kMaxElements = 1e13;  // of one tensor

absl::Status Within(const char* name, uint64_t value, uint64_t least, uint64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, "=", value, " is invalid; expected: ", least, " to ", most));
}

// Returns the elements of the largest tensor that the options ask for.
double MostElements(const TrainingOptions& options) {
  const ModelShape& shape = options.shape;
  const Batch& batch = options.batch;
  const bool targets = shape.family == Family::kT5;
  const auto tokens = static_cast<double>(targets ? std::max(batch.tokens, batch.targets) : batch.tokens);
  const double sequences = static_cast<double>(batch.sequences), pairs = sequences * tokens * tokens;
  const double widest =
      static_cast<double>(std::max({shape.wide, shape.vocabulary, shape.width,
                                    3 * shape.heads * shape.head_width, options.adapters.rank}));
  double most = sequences * tokens * widest;
  // T5's biases have gradients as large as scores.
  const bool shared_wide = shape.key_heads < shape.heads && options.precision == Precision::kFp32;
  const bool scores =
      targets || batch.form == AttentionForm::kMath || (batch.form == AttentionForm::kSdpa && shared_wide);
  if (scores) most = std::max(most, pairs * static_cast<double>(shape.heads));
  if (shape.window > 0 && batch.tokens >= shape.window && batch.form != AttentionForm::kFlash)
    most = std::max(most, pairs);
  return most;
}

absl::Status CheckOptions(const TrainingOptions& options) {
  const ModelShape& shape = options.shape;
  const Batch& batch = options.batch;
  for (const absl::Status& status :
       {CheckShape(shape), Within("--batch", batch.sequences, 1, kMaxBatch),
        Within("--sequence", batch.tokens, 1, kMaxTokens), Within("--target", batch.targets, 0, kMaxTokens),
        Within("--accumulate", options.micro_batches, 1, kMaxMicroBatches),
        Within("--lora", options.adapters.rank, 0, kMaxRank)}) {
    if (!status.ok()) return status;
  }
  if (shape.positions > 0 && shape.positions < batch.tokens)
    return absl::InvalidArgumentError(absl::StrCat("--sequence=", batch.tokens,
                                                   " is invalid; expected: up to ", shape.positions,
                                                   ", the model's learned positions"));
  if (shape.family == Family::kT5 && (shape.decoder_layers == 0 || batch.targets == 0 || shape.buckets == 0))
    return absl::InvalidArgumentError("an encoder and decoder needs decoder layers, buckets and --target");
  if (MostElements(options) > kMaxElements)
    return absl::InvalidArgumentError(
        absl::StrCat("--batch=", batch.sequences, " with --sequence=", batch.tokens,
                     shape.family == Family::kT5 ? absl::StrCat(" and --target=", batch.targets) : "",
                     options.adapters.rank > 0 ? absl::StrCat(" and --lora=", options.adapters.rank) : "",
                     " is invalid: a tensor of more than 1e13 elements; expected: smaller ones"));
  if (static_cast<double>(shape.layers + shape.decoder_layers) * static_cast<double>(options.micro_batches) >
      kMaxLayersTimesBatches)
    return absl::InvalidArgumentError(
        absl::StrCat("--accumulate=", options.micro_batches,
                     " is invalid with so many layers; expected: ", "layers x accumulate up to 20000"));
  return absl::OkStatus();
}

class Training {
 public:
  explicit Training(const TrainingOptions& options)
      : options_(options),
        graph_(&tape_),
        operators_(&tape_, &graph_, options.precision == Precision::kAutocast),
        weights_(&tape_, &graph_,
                 options.precision == Precision::kBf16 ? NumberType::kBf16 : NumberType::kFp32,
                 options.adapters),
        model_(options.shape, &operators_, &weights_) {
    if (options.workspace > 0)
      workspace_ = tape_.NewAs(options.workspace, NumberType::kBool, Term::kWorkspace);
  }

  TapeResult Run() {
    Iterate();
    tape_.StartIteration();
    Iterate();
    return tape_.Finish();
  }

 private:
  void DropGradients() {
    for (Parameter& parameter : weights_.all()) parameter.gradient = {};
  }

  void Iterate() {
    for (uint64_t m = 0; m < options_.micro_batches; ++m) {
      const Variable loss = model_.Loss(options_.batch);
      operators_.EndAutocast();
      if (m == 0 && options_.zero == ZeroGradients::kBeforeBackward) DropGradients();
      Tensor ones = tape_.New(1, NumberType::kFp32);
      graph_.Backward(loss, std::move(ones));
    }
    if (options_.clip) ClipGradients(&tape_, &weights_.all());
    Update(&tape_, options_.optimizer, &weights_.all());
    if (options_.zero == ZeroGradients::kAfterUpdate) DropGradients();
  }

  const TrainingOptions& options_;
  DeviceTape tape_;  // outlives everything that has tensors
  Autograd graph_;
  Operators operators_;
  Weights weights_;
  TransformerModel model_;
  Tensor workspace_;
};

}  // namespace

absl::StatusOr<TapeResult> EstimateIteration(const TrainingOptions& options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  TapeResult result = Training(options).Run();
  if (absl::Status status = CheckWorkload(result.workload); !status.ok()) return status;
  return result;
}

}  // namespace spillway::policy
