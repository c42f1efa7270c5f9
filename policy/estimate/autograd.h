// Autograd: the part of PyTorch's autograd that decides when memory is allocated and freed: which tensors an
// operation keeps for the backward pass, in which order the backward pass runs (the latest operation first),
// where gradients are added up, and that what was kept goes when its operation's backward is done. Operations
// (operators.h) give each node a function that allocates and launches. Pure; one thread; nothing fails.

#ifndef SPILLWAY_POLICY_ESTIMATE_AUTOGRAD_H_
#define SPILLWAY_POLICY_ESTIMATE_AUTOGRAD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "policy/estimate/device_tape.h"

namespace spillway::policy {

// From the gradients of an operation's outputs to those of its inputs. An entry without a block: none.
using BackwardFunction = std::function<std::vector<Tensor>(std::vector<Tensor>&)>;

struct Node {
  uint64_t sequence = 0;
  Term term = Term::kActivations;             // of what its backward allocates
  std::vector<std::shared_ptr<Node>> inputs;  // null: needs no gradient
  std::vector<uint32_t> outputs;              // which output of its node each input is
  std::vector<NumberType> types;              // of the inputs; gradients of another type are converted
  BackwardFunction backward;                  // holds what is kept; null once it has run
  std::vector<Tensor> gradients;              // of the outputs, as far as they have come
  Tensor* leaf = nullptr;                     // of a parameter's node: where its gradient lies
  uint32_t key = 0;                           // of a parameter's node
};

// A tensor with the operation that made it; without a node no gradient is asked for.
struct Variable {
  Tensor tensor;
  std::shared_ptr<Node> node = nullptr;
  uint32_t output = 0;

  bool NeedsGradient() const { return node != nullptr; }
};

// A weight, its gradient and the optimizer's state of it.
struct Parameter {
  Variable value;
  Tensor gradient;
  std::vector<Tensor> state;
  uint64_t rows = 0, columns = 0;  // in, out of a matrix; a vector has 1 row
};

class Autograd {
 public:
  explicit Autograd(DeviceTape* tape) : tape_(tape) {}

  // While off, operations keep nothing.
  bool enabled() const { return enabled_; }
  void Enable(bool on) { enabled_ = on; }

  static constexpr uint32_t kNoKey = ~uint32_t{0};
  enum class Made { kWhereNeeded, kAlways };

  // The node of an operation on `inputs` with `outputs` outputs; null while off, and where no input needs a
  // gradient unless it is always made.
  std::shared_ptr<Node> NewNode(const std::vector<Variable>& inputs, uint32_t outputs,
                                BackwardFunction backward, Made made = Made::kWhereNeeded);
  // The node at which a gradient is gathered into `gradient`, which must stay where it is. With a key it is a
  // parameter's.
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
