// EstimateIteration: the use of the device's memory in one iteration of training a model: its peak, and a
// Workload for the planner and the simulator, both from shapes alone. It runs through the job's first
// iteration as well, in which PyTorch makes gradients and the optimizer's state. `spillway estimate` calls
// it. Pure; takes some microseconds for each launch of two iterations.

#ifndef SPILLWAY_POLICY_ESTIMATE_TRAINING_ITERATION_H_
#define SPILLWAY_POLICY_ESTIMATE_TRAINING_ITERATION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "policy/estimate/device_tape.h"
#include "policy/estimate/model_shape.h"
#include "policy/estimate/optimizer_update.h"
#include "policy/estimate/transformer.h"

namespace spillway::policy {

enum class Precision : uint8_t {
  kFp32,
  kBf16,      // weights, gradients and the optimizer's state, too
  kAutocast,  // weights in fp32, matrix products in bf16
};

// The place where the job drops its gradients (optimizer.zero_grad(), which sets them to None).
enum class ZeroGradients : uint8_t { kAfterUpdate, kBeforeBackward };

struct TrainingOptions {
  ModelShape shape;
  Batch batch;
  Precision precision = Precision::kAutocast;
  Optimizer optimizer = Optimizer::kAdamW;
  uint64_t micro_batches = 1;  // forward and backward passes before the update
  Adapters adapters;           // LoRA: everything else is frozen
  bool clip = false;
  ZeroGradients zero = ZeroGradients::kAfterUpdate;
  Bytes workspace = 0;  // of the matrix library, held from the first product on
};

// Returns InvalidArgument, with what is accepted, for sizes that are 0, out of range, or whose products would
// exceed the limits of a Workload.
absl::StatusOr<TapeResult> EstimateIteration(const TrainingOptions& options);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_ESTIMATE_TRAINING_ITERATION_H_
