// ModelShape: the sizes of a transformer that the estimate of its training needs, and those of some published
// models. The program reads it from a Hugging Face config file (integration/cli/model_config). Pure data;
// thread-safe.

#ifndef SPILLWAY_POLICY_ESTIMATE_MODEL_SHAPE_H_
#define SPILLWAY_POLICY_ESTIMATE_MODEL_SHAPE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace spillway::policy {

enum class Family : uint8_t {
  kLlama,  // RMS norms, rotary positions, gated feed-forward layer: Llama, Mistral, Granite and their like
  kGpt2,   // layer norms, learned positions, one product for queries, keys and values: GPT-2, GPTBigCode
  kBert,   // encoder, layer norms behind each part, a head that predicts words
  kT5,     // encoder and decoder, RMS norms, learned biases of relative positions
};

enum class Activation : uint8_t {
  kFused,       // one kernel, which keeps its input: GELU, SiLU
  kFromResult,  // one kernel, which keeps its result: ReLU, tanh
  kGeluNew,     // GPT-2's formula written out: eight kernels, of which three results are kept
};

struct ModelShape {
  Family family = Family::kLlama;
  uint64_t layers = 0;           // of the decoder or encoder
  uint64_t decoder_layers = 0;   // of T5's decoder
  uint64_t width = 0, wide = 0;  // of the stream, of the feed-forward layer
  uint64_t heads = 0, key_heads = 0, head_width = 0;
  uint64_t vocabulary = 0;
  uint64_t positions = 0;    // learned ones
  uint64_t token_types = 0;  // BERT's
  uint64_t buckets = 0;      // T5's, of relative positions
  uint64_t window = 0;       // Mistral's: how many tokens back attention reaches; 0: to the first
  Activation activation = Activation::kFused;
  bool gated = false;
  bool tied = false;  // the embedding is the head's weight
  bool attention_bias = false, feed_forward_bias = false;
  bool dropout = false, attention_dropout = false, embedding_dropout = false;
  bool scaled_residual = false;  // Granite multiplies what it adds to the stream
  bool scaled_head = false;      // T5 multiplies its head's input

  uint64_t Parameters() const;
};

// Returns InvalidArgument, with the size and what is accepted, unless all sizes are there and in range, and
// fit each other.
absl::Status CheckShape(const ModelShape& shape);

// Returns the names of a family's models, or of all: "granite-20b, ..., llama-8b (llama3-8b)"; a model's
// other name is in parentheses.
std::string ShapeNames(std::optional<Family> family = std::nullopt);
// Returns NotFound if no model has this name.
absl::StatusOr<ModelShape> NamedShape(absl::string_view name);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_ESTIMATE_MODEL_SHAPE_H_
