// Layers: the parts that several models are made of: their weights, and norms, rotary positions, linear
// layers with or without an adapter, feed-forward layers, attention with its four products. They follow
// transformers 5.23 and peft 0.21. Pure; one thread; no call fails.

#ifndef SPILLWAY_POLICY_ESTIMATE_LAYERS_H_
#define SPILLWAY_POLICY_ESTIMATE_LAYERS_H_

#include <cstdint>
#include <deque>

#include "policy/estimate/attention.h"
#include "policy/estimate/model_shape.h"
#include "policy/estimate/operators.h"

namespace spillway::policy {

// LoRA on every linear layer.
struct Adapters {
  uint64_t rank = 0;     // 0: none
  bool dropout = false;  // before each of them
};

// All weights of a model, in the order in which the optimizer sees them.
class Weights {
 public:
  // The weights are of `type`. If there are adapters, these alone are trained, in fp32.
  Weights(DeviceTape* tape, Autograd* graph, NumberType type, Adapters adapters)
      : tape_(tape), graph_(graph), type_(type), adapters_(adapters) {}

  Parameter* New(uint64_t rows, uint64_t columns);
  Parameter* NewAdapter(uint64_t rows, uint64_t columns);
  const Adapters& adapters() const { return adapters_; }
  std::deque<Parameter>& all() { return all_; }

 private:
  Parameter* Make(uint64_t rows, uint64_t columns, NumberType type, bool trained);

  DeviceTape* tape_;
  Autograd* graph_;
  NumberType type_;
  Adapters adapters_;
  std::deque<Parameter> all_;  // a deque, so they stay at their addresses
};

// A linear layer; `down` and `up` are those of its adapter.
struct LinearWeights {
  Parameter* weight = nullptr;
  Parameter* bias = nullptr;
  Parameter* down = nullptr;
  Parameter* up = nullptr;
  bool adapter_dropout = false;
};
LinearWeights NewLinear(Weights* weights, uint64_t rows, uint64_t columns, bool bias);
Variable Apply(Operators* operators, const LinearWeights& layer, const Variable& x);

// The root mean square. T5's form scales x as it is, and then converts it to the weight's type.
enum class RmsForm : uint8_t { kLlama, kT5 };
Variable RmsNorm(Operators* operators, const Variable& x, Parameter* weight, RmsForm form);

Variable Activate(Operators* operators, Activation activation, const Variable& x);

// Applies rotary positions to queries or keys; `angles` is cosine or sine, of (tokens, head width).
Variable Rotate(Operators* operators, const Variable& x, const Variable& angles);

struct FeedForwardWeights {
  LinearWeights gate, up, down;  // if there is no gate, its weight is null
  Activation activation = Activation::kFused;
  bool to_type_of_weight = false;  // the last product's input is converted, as in T5
};
FeedForwardWeights NewFeedForward(Weights* weights, const ModelShape& shape);
// `dropout`: before the last product, as in T5.
Variable FeedForward(Operators* operators, const FeedForwardWeights& layer, const Variable& x, bool dropout);

struct AttentionWeights {
  LinearWeights q, k, v, out;
  LinearWeights all;  // one product for queries, keys and values; otherwise its weight is null
};
AttentionWeights NewAttention(Weights* weights, const ModelShape& shape);
// `angles` has no tensor if positions are not rotary. Keys and values come from `source`.
Variable SelfAttention(Operators* operators, const AttentionWeights& layer, const Variable& x,
                       const Variable& source, const Variable& angles, const Variable& bias,
                       const AttentionShape& shape);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_ESTIMATE_LAYERS_H_
