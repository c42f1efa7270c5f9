#include "policy/estimate/layers.h"

#include <utility>

namespace spillway::policy {

Parameter* Weights::Make(uint64_t rows, uint64_t columns, NumberType type, bool trained) {
  Parameter& made = all_.emplace_back();
  made.rows = rows;
  made.columns = columns;
  made.value.tensor = tape_->NewAs(rows * columns, type, Term::kWeights);
  if (trained) made.value.node = graph_->NewLeaf(&made.gradient, static_cast<uint32_t>(all_.size() - 1));
  return &made;
}

Parameter* Weights::New(uint64_t rows, uint64_t columns) {
  return Make(rows, columns, type_, adapters_.rank == 0);
}

Parameter* Weights::NewAdapter(uint64_t rows, uint64_t columns) {
  return Make(rows, columns, NumberType::kFp32, true);
}

LinearWeights NewLinear(Weights* weights, uint64_t rows, uint64_t columns, bool bias) {
  LinearWeights layer;
  layer.weight = weights->New(rows, columns);
  if (bias) layer.bias = weights->New(1, columns);
  const Adapters& adapters = weights->adapters();
  if (adapters.rank > 0) {
    layer.down = weights->NewAdapter(rows, adapters.rank);
    layer.up = weights->NewAdapter(adapters.rank, columns);
    layer.adapter_dropout = adapters.dropout;
  }
  return layer;
}

Variable Apply(Operators* operators, const LinearWeights& layer, const Variable& x) {
  Variable y = operators->Linear(x, layer.weight, layer.bias);
  if (layer.down == nullptr) return y;
  const NumberType type = y.tensor.type;
  Variable added = operators->Dropout(operators->To(x, layer.down->value.tensor.type), layer.adapter_dropout);
  added = operators->Linear(added, layer.down, nullptr);
  added = operators->Scale(operators->Linear(added, layer.up, nullptr));
  y = operators->Add(y, added);
  return operators->To(y, type);
}

Variable RmsNorm(Operators* operators, const Variable& x, Parameter* weight, RmsForm form) {
  Operators& op = *operators;
  const Variable wide = op.To(x, NumberType::kFp32);
  Variable scale = op.RowMeans(op.Pointwise("pow", wide, Kept::kInput, 2), weight->columns);
  scale = op.Pointwise("rsqrt", op.Scale(scale), Kept::kOutput, 2);
  const Variable y = form == RmsForm::kT5 ? op.To(op.Multiply(x, scale), weight->value.tensor.type)
                                          : op.To(op.Multiply(wide, scale), x.tensor.type);
  return op.Multiply(y, weight->value);
}

Variable Rotate(Operators* operators, const Variable& x, const Variable& angles) {
  const Variable straight = operators->Multiply(x, angles);
  const Variable turned =
      operators->Multiply(operators->Pointwise("rotate_half", x, Kept::kNothing, 1), angles);
  return operators->Add(straight, turned);
}

FeedForwardWeights NewFeedForward(Weights* weights, const ModelShape& shape) {
  FeedForwardWeights layer;
  layer.activation = shape.activation;
  layer.to_type_of_weight = shape.family == Family::kT5;
  if (shape.gated) layer.gate = NewLinear(weights, shape.width, shape.wide, shape.feed_forward_bias);
  layer.up = NewLinear(weights, shape.width, shape.wide, shape.feed_forward_bias);
  layer.down = NewLinear(weights, shape.wide, shape.width, shape.feed_forward_bias);
  return layer;
}

namespace {

// Computes 0.5 x (1 + tanh(a (x + b x^3))), with a kernel for each sign. The power is in autocast's list of
// fp32 operations, and the tensors that it is added to and multiplied by become fp32, too.
Variable GeluNew(Operators* operators, const Variable& x) {
  Operators& op = *operators;
  const Variable half = op.Scale(x);
  const Variable cubed = op.autocast() ? op.To(x, NumberType::kFp32) : x;
  Variable inner = op.Scale(op.Pointwise("pow", cubed, Kept::kInput, 2));
  inner = op.Scale(op.Add(x, inner));
  const Variable bent = op.Scale(op.Pointwise("tanh", inner, Kept::kOutput));
  return op.Multiply(half, bent);
}

}  // namespace

Variable Activate(Operators* operators, Activation activation, const Variable& x) {
  if (activation == Activation::kGeluNew) return GeluNew(operators, x);
  return operators->Pointwise("activation", x,
                              activation == Activation::kFused ? Kept::kInput : Kept::kOutput);
}

Variable FeedForward(Operators* operators, const FeedForwardWeights& layer, const Variable& x, bool dropout) {
  Variable y;
  if (layer.gate.weight != nullptr) {
    const Variable gate = Activate(operators, layer.activation, Apply(operators, layer.gate, x));
    y = operators->Multiply(gate, Apply(operators, layer.up, x));
  } else {
    y = Apply(operators, layer.up, x);
    y = Activate(operators, layer.activation, y);
  }
  y = operators->Dropout(y, dropout);
  if (layer.to_type_of_weight) y = operators->To(y, layer.down.weight->value.tensor.type);
  return Apply(operators, layer.down, y);
}

AttentionWeights NewAttention(Weights* weights, const ModelShape& shape) {
  AttentionWeights layer;
  const uint64_t inner = shape.heads * shape.head_width, narrow = shape.key_heads * shape.head_width;
  if (shape.family == Family::kGpt2) {
    layer.all = NewLinear(weights, shape.width, inner + 2 * narrow, shape.attention_bias);
  } else {
    layer.q = NewLinear(weights, shape.width, inner, shape.attention_bias);
    layer.k = NewLinear(weights, shape.width, narrow, shape.attention_bias);
    layer.v = NewLinear(weights, shape.width, narrow, shape.attention_bias);
  }
  layer.out = NewLinear(weights, inner, shape.width, shape.attention_bias);
  return layer;
}

Variable SelfAttention(Operators* operators, const AttentionWeights& layer, const Variable& x,
                       const Variable& source, const Variable& angles, const Variable& bias,
                       const AttentionShape& shape) {
  Variable q, k, v;
  if (layer.all.weight != nullptr) {
    const uint64_t tokens = shape.batch * shape.queries;
    const uint64_t inner = tokens * shape.heads * shape.head_width;
    const uint64_t narrow = tokens * shape.key_heads * shape.head_width;
    const auto parts = operators->Split(Apply(operators, layer.all, x), {inner, narrow, narrow});
    q = parts[0];
    k = parts[1];
    v = parts[2];
  } else {
    q = Apply(operators, layer.q, x);
    k = Apply(operators, layer.k, source);
    v = Apply(operators, layer.v, source);
  }
  if (angles.tensor) {
    q = Rotate(operators, q, angles);
    k = Rotate(operators, k, angles);
  }
  return Apply(operators, layer.out, Attention(operators, q, k, v, bias, shape));
}

}  // namespace spillway::policy
