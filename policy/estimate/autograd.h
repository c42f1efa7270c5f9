// Autograd: the part of PyTorch's autograd that decides when memory is allocated and freed. It models which
// tensors an operation keeps for the backward pass, the order of the backward pass (the latest operation
// first), the places where gradients are added up, and the end of the kept tensors when their operation's
// backward is done. Operations (operators.h) give each node a function that allocates and launches. Pure; one
// thread; no call fails.

#ifndef SPILLWAY_POLICY_ESTIMATE_AUTOGRAD_H_
#define SPILLWAY_POLICY_ESTIMATE_AUTOGRAD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "policy/estimate/device_tape.h"

namespace spillway::policy {

// Computes the gradients of an operation's inputs from those of its outputs. An entry without a block means
// none.
using BackwardFunction = std::function<std::vector<Tensor>(std::vector<Tensor>&)>;

struct Node {
  uint64_t sequence = 0;
  Term term = Term::kActivations;             // of the blocks that its backward allocates
  std::vector<std::shared_ptr<Node>> inputs;  // null: needs no gradient
  std::vector<uint32_t> outputs;              // for each input: which output of its node it is
  std::vector<NumberType> types;              // of the inputs; gradients of another type are converted
  BackwardFunction backward;                  // owns what is kept; null once it has run
  std::vector<Tensor> gradients;              // of the outputs, as far as they have come
  Tensor* leaf = nullptr;                     // of a parameter's node: the place of its gradient
  uint32_t key = 0;                           // of a parameter's node
};

// A tensor with the operation that made it; without a node it needs no gradient.
struct Variable {
  Tensor tensor;
  std::shared_ptr<Node> node = nullptr;
  uint32_t output = 0;

  bool NeedsGradient() const { return node != nullptr; }
};

// A weight, its gradient and the optimizer's state for it.
struct Parameter {
  Variable value;
  Tensor gradient;
  std::vector<Tensor> state;
  uint64_t rows = 0, columns = 0;  // in, out of a matrix; a vector has 1 row
};

class Autograd {
 public:
  explicit Autograd(DeviceTape* tape) : tape_(tape) {}

  // Operations keep nothing while this is off.
  bool enabled() const { return enabled_; }
  void Enable(bool on) { enabled_ = on; }

  static constexpr uint32_t kNoKey = ~uint32_t{0};
  enum class Made { kWhereNeeded, kAlways };

  // Returns the node of an operation on `inputs` with `outputs` outputs; null while off. Also null if no
  // input needs a gradient, unless it is always made.
  std::shared_ptr<Node> NewNode(const std::vector<Variable>& inputs, uint32_t outputs,
                                BackwardFunction backward, Made made = Made::kWhereNeeded);
  // Returns the node at which a gradient is gathered into `gradient`, which must stay at its address. A node
  // with a key is a parameter's.
  std::shared_ptr<Node> NewLeaf(Tensor* gradient, uint32_t key);

  // Runs the backward pass of `result`, whose gradient is `gradient`.
  void Backward(const Variable& result, Tensor gradient);

 private:
  void Gather(Node* node, uint32_t output, Tensor gradient);

  DeviceTape* tape_;
  bool enabled_ = true;
  uint64_t sequence_ = 0;
};

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_ESTIMATE_AUTOGRAD_H_
