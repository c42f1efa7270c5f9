// Operators: the operations of PyTorch that the models here consist of. Each has the blocks that it
// allocates, the tensors that it keeps for its backward pass and the launches of both passes, as in ATen's
// CUDA kernels and derivatives.yaml of PyTorch 2.11. Shapes are element counts; the caller knows the rows and
// columns. Matrix products are in bf16 under autocast, and the casts of weights are made once until
// EndAutocast(). Pure; one thread; no call fails.

#ifndef SPILLWAY_POLICY_ESTIMATE_OPERATORS_H_
#define SPILLWAY_POLICY_ESTIMATE_OPERATORS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "policy/estimate/autograd.h"
#include "policy/estimate/device_tape.h"

namespace spillway::policy {

// The tensor that an operation on one tensor keeps.
enum class Kept : uint8_t { kNothing, kInput, kOutput };

// Sizes of a product of matrices: `batches` times (rows x inner) by (inner x columns).
struct ProductShape {
  uint64_t batches = 1, rows = 0, inner = 0, columns = 0;
  double Operations() const {
    return 2.0 * static_cast<double>(batches) * static_cast<double>(rows) * static_cast<double>(inner) *
           static_cast<double>(columns);
  }
};

class Operators {
 public:
  Operators(DeviceTape* tape, Autograd* graph, bool autocast)
      : tape_(tape), graph_(graph), autocast_(autocast) {}

  DeviceTape& tape() { return *tape_; }
  Autograd& graph() { return *graph_; }
  bool autocast() const { return autocast_; }
  void EndAutocast() { casts_.clear(); }

  // Returns x times the weight (in: its rows, out: its columns), plus the bias if there is one.
  Variable Linear(const Variable& x, Parameter* weight, Parameter* bias);
  // Returns a product of two activations.
  Variable Product(const Variable& a, const Variable& b, const ProductShape& shape);
  // Converts x; returns the same tensor if it has the type already.
  Variable To(const Variable& x, NumberType type);
  // The second tensor may be smaller and is repeated; its gradient is summed up.
  Variable Add(const Variable& a, const Variable& b);
  Variable Multiply(const Variable& a, const Variable& b);
  // `scratch`: blocks of x's size that the backward pass needs besides its result.
  Variable Pointwise(const char* name, const Variable& x, Kept kept, int scratch = 0);
  Variable Scale(const Variable& x) { return Pointwise("mul", x, Kept::kNothing); }
  // Returns a copy in another order; its gradient passes.
  Variable Clone(const Variable& x);
  // Returns the same block with other strides; its gradient is copied into the order of x.
  Variable View(const Variable& x);
  // Runs `layer` and keeps only its inputs: the backward pass runs it again. `layer` must be callable later,
  // and reach what needs gradients only through its inputs and parameters.
  using CheckpointedLayer = std::function<Variable(const std::vector<Variable>&)>;
  Variable Checkpoint(const std::vector<Variable>& inputs, const CheckpointedLayer& layer);
  // Adds in x's own block; its gradient passes.
  void AddInto(const Variable& x, const Tensor& other) {
    tape_->Launch("add_", {x.tensor, other}, {x.tensor});
  }
  Variable Dropout(const Variable& x, bool on);
  Variable LayerNorm(const Variable& x, Parameter* weight, Parameter* bias);
  // Returns the mean over rows of `columns` elements.
  Variable RowMeans(const Variable& x, uint64_t columns);
  // Returns `repeated` times as many elements: heads that share keys and values.
  Variable Repeat(const Variable& x, uint64_t repeated);
  // Returns views of x with these numbers of elements.
  std::vector<Variable> Split(const Variable& x, const std::vector<uint64_t>& elements);
  Variable Embedding(uint64_t tokens, Parameter* table);
  // Returns the loss of `rows` rows of logits, which it converts to fp32 first.
  Variable CrossEntropy(const Variable& logits, uint64_t rows);

  // Returns a tensor that needs no gradient, made by one launch.
  Variable Constant(const char* name, uint64_t elements, NumberType type);
  // Wraps the result of another unit's operation.
  Variable Result(Tensor tensor, const std::vector<Variable>& inputs, BackwardFunction backward);

 private:
  Variable Cast(Parameter* parameter);  // in the type that a product takes

  DeviceTape* tape_;
  Autograd* graph_;
  bool autocast_;
  std::map<const Parameter*, Variable> casts_;
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_ESTIMATE_OPERATORS_H_
