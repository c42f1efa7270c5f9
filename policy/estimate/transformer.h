// TransformerModel: the weights of a model of one of the families, and its forward pass up to the loss, as
// the classes of transformers 5.23 with labels run it (LlamaForCausalLM, GPT2LMHeadModel, BertForMaskedLM,
// T5ForConditionalGeneration). Pure; one thread; no call fails.

#ifndef SPILLWAY_POLICY_ESTIMATE_TRANSFORMER_H_
#define SPILLWAY_POLICY_ESTIMATE_TRANSFORMER_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "policy/estimate/layers.h"
#include "policy/estimate/model_shape.h"

namespace spillway::policy {

// The input of one forward pass; counts of tokens are those of one sequence.
struct Batch {
  uint64_t sequences = 1, tokens = 0;
  uint64_t targets = 0;  // tokens of T5's decoder
  AttentionForm form = AttentionForm::kSdpa;
  bool checkpointing = false;  // of each layer
};

class TransformerModel {
 public:
  // `shape` must pass CheckShape; the others must outlive the model.
  TransformerModel(const ModelShape& shape, Operators* operators, Weights* weights);

  // Runs the forward pass of one micro-batch. Its launches and blocks are on the tape of the operators, and
  // Autograd goes back from the result.
  Variable Loss(const Batch& batch);

 private:
  struct Norm {
    Parameter* weight = nullptr;
    Parameter* bias = nullptr;  // none: an RMS norm
  };
  struct Layer {
    Norm before, across, after;         // of attention, attention to the encoder, the feed-forward layer
    AttentionWeights attention, cross;  // cross: to the encoder, of T5's decoder alone
    FeedForwardWeights feed_forward;
  };

  Norm NewNorm();
  Layer NewLayer(bool cross);
  Variable Apply(const Norm& norm, const Variable& x);
  AttentionShape ShapeOf(const Batch& batch, uint64_t queries, uint64_t keys, bool causal) const;
  // Takes the stream and whatever else a layer needs a gradient of; returns the stream.
  using OneLayer = std::function<Variable(const Layer&, const std::vector<Variable>&)>;
  Variable Run(const std::vector<Layer>& layers, Variable x, const std::vector<Variable>& more,
               const Batch& batch, const OneLayer& one);
  Variable Embed(const Batch& batch);
  Variable Residual(const Variable& x, const Variable& added);
  Variable DecoderLayer(const Layer& layer, const Variable& x, const Variable& angles, const Variable& mask,
                        const Batch& batch);
  Variable BertLayer(const Layer& layer, const Variable& x, const Batch& batch);
  // Runs a layer of the decoder if the encoder's result is in `memory`, with zeros for its biases.
  Variable T5Layer(const Layer& layer, Variable x, const Variable& bias, const Variable& memory,
                   const Variable& zeros, const Batch& batch);
  Variable T5Bias(uint64_t tokens, Parameter* table);
  Variable T5Stack(const Batch& batch);
  Variable BertStack(const Batch& batch);
  Variable DecoderStack(const Batch& batch);
  Variable Head(const Variable& x, uint64_t rows);

  const ModelShape shape_;
  Operators* op_;
  Weights* weights_;
  Parameter *embedding_, *positions_ = nullptr, *token_types_ = nullptr;
  Parameter *bias_table_ = nullptr, *decoder_bias_table_ = nullptr;
  Norm first_norm_, last_norm_, decoder_norm_, head_norm_;
  std::vector<Layer> layers_, decoder_;               // decoder_: of T5
  LinearWeights transform_;                           // of BERT's head
  Parameter *head_ = nullptr, *head_bias_ = nullptr;  // head_: the embedding if the two are tied
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_ESTIMATE_TRANSFORMER_H_
