// Model workloads: one training iteration of a Llama, generated from its shapes alone (norms and biases are
// left out), for planning and simulating jobs without a recording. A kernel's time is the larger of
// operations over a stated FLOP/s and bytes over a stated bandwidth: estimates, no measurements. Pure;
// thread-safe.

#ifndef SPILLWAY_POLICY_OFFLINE_MODEL_WORKLOAD_H_
#define SPILLWAY_POLICY_OFFLINE_MODEL_WORKLOAD_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "policy/model/workload.h"

namespace spillway::policy {

enum class ModelPrecision {
  kBf16,  // weights, gradients and activations of 2 bytes; AdamW's master weights and two moments of 4
  kFp32,  // everything of 4 bytes, no master weights
};

struct ModelOptions {
  std::string model;           // one of ModelNames
  uint32_t layers = 0;         // 0: all of the model's; fewer: the part of one GPU in a pipeline
  uint32_t batch = 1;          // sequences of a micro-batch
  uint32_t sequence = 4096;    // tokens of a sequence
  uint32_t micro_batches = 1;  // forward and backward passes before the update
  // GPUs that share each weight; the iteration is one GPU's, without its communication.
  uint32_t tensor_parallel = 1;
  ModelPrecision precision = ModelPrecision::kBf16;
  double flops = 400e12;      // operations a second
  double bandwidth = 3.3e12;  // of the GPU's memory, bytes a second
};

// Returns the models of policy/estimate that are Llamas: "granite-3b, ..., llama-8b (llama3-8b)".
std::string ModelNames();

// Reads "llama3-70b" or "llama3-70b:micro_batches=4,batch=2,sequence=2048,layers=20,precision=fp32,
// tensor_parallel=2,tflops=50,bandwidth=3.9e12". NotFound if the part before the colon names no model;
// InvalidArgument, with what is accepted, for the rest.
absl::StatusOr<ModelOptions> ParseModel(absl::string_view text);

// All activations are kept for the backward pass; attention keeps no matrix of scores. The options must be
// ParseModel's, or as valid.
Workload MakeModelWorkload(const ModelOptions& options);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_OFFLINE_MODEL_WORKLOAD_H_
