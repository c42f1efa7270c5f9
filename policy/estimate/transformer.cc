#include "policy/estimate/transformer.h"

#include <utility>

namespace spillway::policy {

TransformerModel::Norm TransformerModel::NewNorm() {
  Norm norm;
  norm.weight = weights_->New(1, shape_.width);
  if (shape_.family == Family::kGpt2 || shape_.family == Family::kBert)
    norm.bias = weights_->New(1, shape_.width);
  return norm;
}

TransformerModel::Layer TransformerModel::NewLayer(bool cross) {
  Layer layer;
  layer.attention = NewAttention(weights_, shape_);
  if (cross) layer.cross = NewAttention(weights_, shape_);
  layer.feed_forward = NewFeedForward(weights_, shape_);
  layer.before = NewNorm();
  if (cross) layer.across = NewNorm();
  layer.after = NewNorm();
  return layer;
}

TransformerModel::TransformerModel(const ModelShape& shape, Operators* operators, Weights* weights)
    : shape_(shape), op_(operators), weights_(weights) {
  embedding_ = weights->New(shape.width, shape.vocabulary);
  if (shape.positions > 0) positions_ = weights->New(shape.width, shape.positions);
  if (shape.token_types > 0) token_types_ = weights->New(shape.width, shape.token_types);
  if (shape.family == Family::kBert) first_norm_ = NewNorm();
  for (uint64_t l = 0; l < shape.layers; ++l) layers_.push_back(NewLayer(false));
  if (shape.family != Family::kBert) last_norm_ = NewNorm();
  if (shape.family == Family::kT5) {
    bias_table_ = weights->New(shape.heads, shape.buckets);
    decoder_bias_table_ = weights->New(shape.heads, shape.buckets);
    for (uint64_t l = 0; l < shape.decoder_layers; ++l) decoder_.push_back(NewLayer(true));
    decoder_norm_ = NewNorm();
  }
  if (shape.family == Family::kBert) {
    transform_ = NewLinear(weights, shape.width, shape.width, true);
    head_norm_ = NewNorm();
    head_bias_ = weights->New(1, shape.vocabulary);
  }
  head_ = shape.tied ? embedding_ : weights->New(shape.width, shape.vocabulary);
}

Variable TransformerModel::Apply(const Norm& norm, const Variable& x) {
  if (norm.bias != nullptr) return op_->LayerNorm(x, norm.weight, norm.bias);
  return RmsNorm(op_, x, norm.weight, shape_.family == Family::kT5 ? RmsForm::kT5 : RmsForm::kLlama);
}

AttentionShape TransformerModel::ShapeOf(const Batch& batch, uint64_t queries, uint64_t keys,
                                         bool causal) const {
  return {batch.sequences,  queries,           keys,   shape_.heads,
          shape_.key_heads, shape_.head_width, causal, shape_.attention_dropout,
          batch.form};
}

// Runs all layers, each under a checkpoint if the batch asks for it.
Variable TransformerModel::Run(const std::vector<Layer>& layers, Variable x,
                               const std::vector<Variable>& more, const Batch& batch, const OneLayer& one) {
  for (const Layer& layer : layers) {
    std::vector<Variable> inputs = {x};
    inputs.insert(inputs.end(), more.begin(), more.end());
    if (batch.checkpointing) {
      x = op_->Checkpoint(inputs,
                          [&layer, one](const std::vector<Variable>& given) { return one(layer, given); });
    } else {
      x = one(layer, inputs);
    }
  }
  return x;
}

Variable TransformerModel::Embed(const Batch& batch) {
  Variable x = op_->Embedding(batch.sequences * batch.tokens, embedding_);
  if (token_types_ != nullptr) x = op_->Add(x, op_->Embedding(batch.sequences * batch.tokens, token_types_));
  if (positions_ != nullptr) x = op_->Add(x, op_->Embedding(batch.tokens, positions_));
  if (shape_.family == Family::kBert) x = Apply(first_norm_, x);
  if (shape_.scaled_residual) x = op_->Scale(x);
  return op_->Dropout(x, shape_.embedding_dropout);
}

Variable TransformerModel::Residual(const Variable& x, const Variable& added) {
  return op_->Add(x, shape_.scaled_residual ? op_->Scale(added) : added);
}

Variable TransformerModel::DecoderLayer(const Layer& layer, const Variable& given, const Variable& angles,
                                        const Variable& mask, const Batch& batch) {
  const AttentionShape shape = ShapeOf(batch, batch.tokens, batch.tokens, true);
  Variable residual = given;
  Variable x = Apply(layer.before, given);
  x = SelfAttention(op_, layer.attention, x, x, angles, mask, shape);
  x = op_->Dropout(x, shape_.dropout);
  x = Residual(residual, x);
  residual = x;
  x = Apply(layer.after, x);
  x = FeedForward(op_, layer.feed_forward, x, false);
  x = op_->Dropout(x, shape_.dropout);
  return Residual(residual, x);
}

Variable TransformerModel::BertLayer(const Layer& layer, const Variable& given, const Batch& batch) {
  const AttentionShape shape = ShapeOf(batch, batch.tokens, batch.tokens, false);
  Variable x = SelfAttention(op_, layer.attention, given, given, {}, {}, shape);
  x = op_->Dropout(x, shape_.dropout);
  const Variable attended = Apply(layer.before, op_->Add(x, given));
  x = FeedForward(op_, layer.feed_forward, attended, false);
  x = op_->Dropout(x, shape_.dropout);
  return Apply(layer.after, op_->Add(x, attended));
}

// Returns the heads' biases of each pair of positions.
Variable TransformerModel::T5Bias(uint64_t tokens, Parameter* table) {
  return op_->Embedding(tokens * tokens, table);
}

Variable TransformerModel::T5Layer(const Layer& layer, Variable x, const Variable& bias,
                                   const Variable& memory, const Variable& zeros, const Batch& batch) {
  const bool decoder = memory.tensor.storage != nullptr;
  const uint64_t tokens = decoder ? batch.targets : batch.tokens;
  Variable y = Apply(layer.before, x);
  y = SelfAttention(op_, layer.attention, y, y, {}, op_->Clone(bias),
                    ShapeOf(batch, tokens, tokens, decoder));
  x = op_->Add(x, op_->Dropout(y, shape_.dropout));
  if (decoder) {
    y = Apply(layer.across, x);
    y = SelfAttention(op_, layer.cross, y, memory, {}, zeros, ShapeOf(batch, tokens, batch.tokens, false));
    x = op_->Add(x, op_->Dropout(y, shape_.dropout));
  }
  y = Apply(layer.after, x);
  y = FeedForward(op_, layer.feed_forward, y, shape_.dropout);
  return op_->Add(x, op_->Dropout(y, shape_.dropout));
}

Variable TransformerModel::T5Stack(const Batch& batch) {
  Variable x = op_->Dropout(op_->Embedding(batch.sequences * batch.tokens, embedding_), shape_.dropout);
  const Variable bias = T5Bias(batch.tokens, bias_table_);
  x = Run(layers_, x, {bias}, batch, [this, batch](const Layer& layer, const std::vector<Variable>& given) {
    return T5Layer(layer, given[0], given[1], {}, {}, batch);
  });
  const Variable memory = op_->Dropout(Apply(last_norm_, x), shape_.dropout);
  x = op_->Dropout(op_->Embedding(batch.sequences * batch.targets, embedding_), shape_.dropout);
  const Variable of_decoder = T5Bias(batch.targets, decoder_bias_table_);
  // The first layer makes them for all, in the type of queries.
  const Variable zeros = op_->Constant("zeros", shape_.heads * batch.targets * batch.tokens,
                                       op_->autocast() ? NumberType::kBf16 : x.tensor.type);
  x = Run(decoder_, x, {of_decoder, memory, zeros}, batch,
          [this, batch](const Layer& layer, const std::vector<Variable>& given) {
            return T5Layer(layer, given[0], given[1], given[2], given[3], batch);
          });
  x = op_->Dropout(Apply(decoder_norm_, x), shape_.dropout);
  return shape_.scaled_head ? op_->Scale(x) : x;
}

Variable TransformerModel::Head(const Variable& x, uint64_t rows) {
  op_->tape().SetTerm(Term::kLogits);
  Variable logits = op_->Linear(x, head_, head_bias_);
  if (shape_.scaled_residual) logits = op_->Scale(logits);
  Variable loss = op_->CrossEntropy(logits, rows);
  op_->tape().SetTerm(Term::kActivations);
  return loss;
}

Variable TransformerModel::BertStack(const Batch& batch) {
  Variable x = Run(layers_, Embed(batch), {}, batch,
                   [this, batch](const Layer& layer, const std::vector<Variable>& given) {
                     return BertLayer(layer, given[0], batch);
                   });
  x = spillway::policy::Apply(op_, transform_, x);
  return Apply(head_norm_, Activate(op_, shape_.activation, x));
}

Variable TransformerModel::DecoderStack(const Batch& batch) {
  const Variable x = Embed(batch);
  Variable angles, mask;
  // A sequence that reaches the window has a mask, unless the kernel handles windows.
  if (shape_.window > 0 && batch.tokens >= shape_.window && batch.form != AttentionForm::kFlash)
    mask = op_->Constant("mask", batch.tokens * batch.tokens, NumberType::kBool);
  if (shape_.family == Family::kLlama)
    angles = op_->Constant("cos", batch.tokens * shape_.head_width, x.tensor.type);
  return Apply(last_norm_, Run(layers_, x, {angles, mask}, batch,
                               [this, batch](const Layer& layer, const std::vector<Variable>& given) {
                                 return DecoderLayer(layer, given[0], given[1], given[2], batch);
                               }));
}

Variable TransformerModel::Loss(const Batch& batch) {
  if (shape_.family == Family::kT5) return Head(T5Stack(batch), batch.sequences * batch.targets);
  return Head(shape_.family == Family::kBert ? BertStack(batch) : DecoderStack(batch),
              batch.sequences * batch.tokens);
}

}  // namespace spillway::policy
