#include "policy/estimate/operators.h"

#include <algorithm>
#include <utility>

namespace spillway::policy {
namespace {

NumberType Wider(const Variable& a, const Variable& b) {
  return a.tensor.type == NumberType::kFp32 || b.tensor.type == NumberType::kFp32 ? NumberType::kFp32
                                                                                  : NumberType::kBf16;
}

bool Half(const Tensor& tensor) { return tensor.type == NumberType::kBf16; }

// Sums the gradient of a repeated tensor up to its size.
Tensor SumTo(DeviceTape* tape, Tensor gradient, uint64_t elements) {
  if (gradient.elements == elements) return gradient;
  Tensor sum = tape->New(elements, gradient.type);
  tape->Launch("sum", {gradient}, {sum});
  return sum;
}

}  // namespace

Variable Operators::Result(Tensor tensor, const std::vector<Variable>& inputs, BackwardFunction backward) {
  return {std::move(tensor), graph_->NewNode(inputs, 1, std::move(backward)), 0};
}

Variable Operators::Constant(const char* name, uint64_t elements, NumberType type) {
  Tensor made = tape_->New(elements, type);
  tape_->Launch(name, {}, {made});
  return {std::move(made), nullptr, 0};
}

Variable Operators::To(const Variable& x, NumberType type) {
  if (x.tensor.type == type) return x;
  Tensor y = tape_->New(x.tensor.elements, type);
  tape_->Launch("to_copy", {x.tensor}, {y});
  // The engine converts the gradient back.
  return Result(std::move(y), {x}, [](std::vector<Tensor>& dy) { return std::vector<Tensor>{dy[0]}; });
}

Variable Operators::Cast(Parameter* parameter) {
  if (!autocast_ || Half(parameter->value.tensor)) return parameter->value;
  if (!parameter->value.NeedsGradient()) return To(parameter->value, NumberType::kBf16);  // not remembered
  const auto found = casts_.find(parameter);
  if (found != casts_.end()) return found->second;
  return casts_[parameter] = To(parameter->value, NumberType::kBf16);
}

Variable Operators::Linear(const Variable& given, Parameter* matrix, Parameter* bias) {
  const Variable x = autocast_ ? To(given, NumberType::kBf16) : given;
  const Variable weight = Cast(matrix);
  const Variable added = bias != nullptr ? Cast(bias) : Variable{};
  const uint64_t in = matrix->rows, out = matrix->columns, rows = x.tensor.elements / in;
  const double operations = ProductShape{1, rows, in, out}.Operations();
  Tensor y = tape_->New(rows * out, x.tensor.type);
  tape_->Launch(bias != nullptr ? "addmm" : "mm", {x.tensor, weight.tensor, added.tensor}, {y}, operations,
                Half(y));
  const Tensor kept_x = weight.NeedsGradient() ? x.tensor : Tensor{};
  const Tensor kept_weight = x.NeedsGradient() ? weight.tensor : Tensor{};
  const bool of_bias = added.NeedsGradient();
  return Result(
      std::move(y), {x, weight, added},
      [tape = tape_, kept_x, kept_weight, of_bias, rows, in, out, operations](std::vector<Tensor>& dy) {
        std::vector<Tensor> dx(3);
        if (kept_weight) {
          dx[0] = tape->New(rows * in, dy[0].type);
          tape->Launch("mm", {dy[0], kept_weight}, {dx[0]}, operations, Half(dy[0]));
        }
        if (kept_x) {
          dx[1] = tape->New(in * out, dy[0].type);
          tape->Launch("mm", {dy[0], kept_x}, {dx[1]}, operations, Half(dy[0]));
        }
        if (of_bias) dx[2] = SumTo(tape, dy[0], out);
        return dx;
      });
}

Variable Operators::Product(const Variable& a, const Variable& b, const ProductShape& shape) {
  Tensor y = tape_->New(shape.batches * shape.rows * shape.columns, a.tensor.type);
  tape_->Launch("bmm", {a.tensor, b.tensor}, {y}, shape.Operations(), Half(y));
  const Tensor kept_a = b.NeedsGradient() ? a.tensor : Tensor{};
  const Tensor kept_b = a.NeedsGradient() ? b.tensor : Tensor{};
  const uint64_t of_a = a.tensor.elements, of_b = b.tensor.elements;
  return Result(std::move(y), {a, b},
                [tape = tape_, kept_a, kept_b, of_a, of_b, shape](std::vector<Tensor>& dy) {
                  std::vector<Tensor> dx(2);
                  if (kept_b) {
                    dx[0] = tape->New(of_a, dy[0].type);
                    tape->Launch("bmm", {dy[0], kept_b}, {dx[0]}, shape.Operations(), Half(dy[0]));
                  }
                  if (kept_a) {
                    dx[1] = tape->New(of_b, dy[0].type);
                    tape->Launch("bmm", {kept_a, dy[0]}, {dx[1]}, shape.Operations(), Half(dy[0]));
                  }
                  return dx;
                });
}

Variable Operators::Add(const Variable& a, const Variable& b) {
  Tensor y = tape_->New(a.tensor.elements, Wider(a, b));
  tape_->Launch("add", {a.tensor, b.tensor}, {y});
  const uint64_t of_b = b.NeedsGradient() ? b.tensor.elements : 0;
  return Result(std::move(y), {a, b}, [tape = tape_, of_b](std::vector<Tensor>& dy) {
    return std::vector<Tensor>{dy[0], of_b != 0 ? SumTo(tape, dy[0], of_b) : Tensor{}};
  });
}

Variable Operators::Multiply(const Variable& a, const Variable& b) {
  Tensor y = tape_->New(a.tensor.elements, Wider(a, b));
  tape_->Launch("mul", {a.tensor, b.tensor}, {y});
  const Tensor kept_a = b.NeedsGradient() ? a.tensor : Tensor{};
  const Tensor kept_b = a.NeedsGradient() ? b.tensor : Tensor{};
  const uint64_t of_b = b.tensor.elements;
  return Result(std::move(y), {a, b}, [tape = tape_, kept_a, kept_b, of_b](std::vector<Tensor>& dy) {
    std::vector<Tensor> dx(2);
    if (kept_b) {
      dx[0] = tape->New(dy[0].elements, dy[0].type);
      tape->Launch("mul", {dy[0], kept_b}, {dx[0]});
    }
    if (kept_a) {
      dx[1] = tape->New(dy[0].elements, dy[0].type);
      tape->Launch("mul", {dy[0], kept_a}, {dx[1]});
      dx[1] = SumTo(tape, std::move(dx[1]), of_b);
    }
    return dx;
  });
}

Variable Operators::Pointwise(const char* name, const Variable& x, Kept kept, int scratch) {
  Tensor y = tape_->New(x.tensor.elements, x.tensor.type);
  tape_->Launch(name, {x.tensor}, {y});
  const Tensor kept_one = kept == Kept::kInput ? x.tensor : kept == Kept::kOutput ? y : Tensor{};
  return Result(std::move(y), {x}, [tape = tape_, name, kept_one, scratch](std::vector<Tensor>& dy) {
    std::vector<Tensor> between;
    for (int i = 0; i < scratch; ++i) {
      between.push_back(tape->New(dy[0].elements, dy[0].type));
      tape->Launch(name, {kept_one}, {between.back()});
    }
    Tensor dx = tape->New(dy[0].elements, dy[0].type);
    tape->Launch(name, {dy[0], between.empty() ? kept_one : between.back()}, {dx});
    return std::vector<Tensor>{dx};
  });
}

Variable Operators::Dropout(const Variable& x, bool on) {
  if (!on) return x;
  Tensor y = tape_->New(x.tensor.elements, x.tensor.type);
  Tensor mask = tape_->New(x.tensor.elements, NumberType::kBool);
  tape_->Launch("native_dropout", {x.tensor}, {y, mask});
  return Result(std::move(y), {x}, [tape = tape_, mask](std::vector<Tensor>& dy) {
    Tensor dx = tape->New(dy[0].elements, dy[0].type);
    tape->Launch("native_dropout_backward", {dy[0], mask}, {dx});
    return std::vector<Tensor>{dx};
  });
}

Variable Operators::LayerNorm(const Variable& given, Parameter* weight, Parameter* bias) {
  // Autocast's list of fp32 operations has this one.
  const Variable x = autocast_ ? To(given, NumberType::kFp32) : given;
  const uint64_t width = weight->columns, rows = x.tensor.elements / width;
  Tensor y = tape_->New(x.tensor.elements, x.tensor.type);
  Tensor means = tape_->New(rows, NumberType::kFp32), deviations = tape_->New(rows, NumberType::kFp32);
  tape_->Launch("layer_norm", {x.tensor, weight->value.tensor, bias->value.tensor}, {y, means, deviations});
  return Result(std::move(y), {x, weight->value, bias->value},
                [tape = tape_, kept = x.tensor, means, deviations, width,
                 scale = weight->value.tensor](std::vector<Tensor>& dy) {
                  Tensor dx = tape->New(kept.elements, kept.type);
                  Tensor of_weight = tape->New(width, scale.type), of_bias = tape->New(width, scale.type);
                  tape->Launch("layer_norm_backward", {dy[0], kept, means, deviations, scale},
                               {dx, of_weight, of_bias});
                  return std::vector<Tensor>{dx, of_weight, of_bias};
                });
}

Variable Operators::RowMeans(const Variable& x, uint64_t columns) {
  Tensor y = tape_->New(x.tensor.elements / columns, x.tensor.type);
  tape_->Launch("mean", {x.tensor}, {y});
  return Result(std::move(y), {x}, [tape = tape_, elements = x.tensor.elements](std::vector<Tensor>& dy) {
    Tensor dx = tape->New(elements, dy[0].type);
    tape->Launch("div", {dy[0]}, {dx});
    return std::vector<Tensor>{dx};
  });
}

Variable Operators::Clone(const Variable& x) {
  Tensor y = tape_->New(x.tensor.elements, x.tensor.type);
  tape_->Launch("clone", {x.tensor}, {y});
  return Result(std::move(y), {x}, [](std::vector<Tensor>& dy) { return std::vector<Tensor>{dy[0]}; });
}

Variable Operators::View(const Variable& x) {
  return Result(x.tensor, {x}, [tape = tape_](std::vector<Tensor>& dy) {
    Tensor dx = tape->New(dy[0].elements, dy[0].type);
    tape->Launch("clone", {dy[0]}, {dx});
    return std::vector<Tensor>{dx};
  });
}

Variable Operators::Checkpoint(const std::vector<Variable>& inputs, const CheckpointedLayer& layer) {
  if (!graph_->enabled()) return layer(inputs);
  graph_->Enable(false);
  Tensor y = layer(inputs).tensor;
  graph_->Enable(true);
  std::vector<Variable> kept;  // without the graph before them
  std::vector<bool> needed;
  for (const Variable& input : inputs) {
    kept.push_back({input.tensor});
    needed.push_back(input.NeedsGradient());
  }
  auto backward = [this, kept, needed, layer](std::vector<Tensor>& dy) {
    const auto casts = std::exchange(casts_, {});
    std::vector<Tensor> gradients(kept.size());
    std::vector<Variable> given = kept;
    for (size_t i = 0; i < given.size(); ++i) {
      if (needed[i]) given[i].node = graph_->NewLeaf(&gradients[i], Autograd::kNoKey);
    }
    graph_->Enable(true);
    const Variable again = layer(given);
    casts_ = casts;
    graph_->Backward(again, std::move(dy[0]));
    graph_->Enable(false);
    return gradients;
  };
  return {std::move(y), graph_->NewNode(inputs, 1, std::move(backward), Autograd::Made::kAlways), 0};
}

Variable Operators::Repeat(const Variable& x, uint64_t repeated) {
  if (repeated == 1) return x;
  Tensor y = tape_->New(x.tensor.elements * repeated, x.tensor.type);
  tape_->Launch("repeat", {x.tensor}, {y});
  return Result(std::move(y), {x}, [tape = tape_, elements = x.tensor.elements](std::vector<Tensor>& dy) {
    return std::vector<Tensor>{SumTo(tape, dy[0], elements)};
  });
}

std::vector<Variable> Operators::Split(const Variable& x, const std::vector<uint64_t>& elements) {
  const auto outputs = static_cast<uint32_t>(elements.size());
  const auto node = graph_->NewNode(
      {x}, outputs, [tape = tape_, all = x.tensor.elements, type = x.tensor.type](std::vector<Tensor>& dy) {
        Tensor dx = tape->New(all, type);
        tape->Launch("cat", dy, {dx});
        return std::vector<Tensor>{dx};
      });
  std::vector<Variable> parts;
  for (uint32_t i = 0; i < outputs; ++i) {
    Tensor view = x.tensor;
    view.elements = elements[i];
    parts.push_back({std::move(view), node, i});
  }
  return parts;
}

Variable Operators::Embedding(uint64_t tokens, Parameter* table) {
  const uint64_t width = table->rows, all = table->rows * table->columns;
  Tensor y = tape_->New(tokens * width, table->value.tensor.type);
  Tensor read = table->value.tensor;
  read.elements = std::min(read.elements, y.elements);  // the rows that are looked up
  tape_->Launch("embedding", {read}, {y});
  return Result(std::move(y), {table->value}, [tape = tape_, all](std::vector<Tensor>& dy) {
    Tensor gradient = tape->New(all, dy[0].type);
    tape->Launch("embedding_backward", {dy[0]}, {gradient});
    return std::vector<Tensor>{gradient};
  });
}

Variable Operators::CrossEntropy(const Variable& given, uint64_t rows) {
  const Variable logits = To(given, NumberType::kFp32);
  const Variable parts = Pointwise("log_softmax", logits, Kept::kOutput);
  const uint64_t elements = parts.tensor.elements;
  Tensor loss = tape_->New(1, NumberType::kFp32);
  tape_->Launch("nll_loss", {{parts.tensor.storage, rows, NumberType::kFp32}}, {loss});
  return Result(std::move(loss), {parts},
                [tape = tape_, kept = parts.tensor, elements](std::vector<Tensor>&) {
                  Tensor gradient = tape->New(elements, kept.type);
                  tape->Launch("nll_loss_backward", {}, {gradient});
                  return std::vector<Tensor>{gradient};
                });
}

}  // namespace spillway::policy
