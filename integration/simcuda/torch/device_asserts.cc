// The assertions: one function for each kind, and the table of operators.
#include "integration/simcuda/torch/device_asserts.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <torch/version.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace simcuda::ops {
namespace {

using Broken = std::optional<BrokenAssert>;

// The arguments of a call by their names in the schema.
class Arguments {
 public:
  Arguments(const c10::OperatorHandle& op, c10::Stack* stack) : schema_(op.schema()), stack_(*stack) {}

  c10::IValue& At(std::string_view name) const {
    const std::optional<int> index = IndexOf(name);
    TORCH_INTERNAL_ASSERT(index.has_value(), schema_.name(), " has no argument ", std::string(name));
    return stack_[static_cast<size_t>(*index)];
  }
  bool Has(std::string_view name) const { return IndexOf(name).has_value(); }
  at::Tensor Tensor(std::string_view name) const { return At(name).toTensor(); }
  int64_t Int(std::string_view name) const { return At(name).toInt(); }
  // Puts `value` everywhere in a tensor of the same shape and dtype; the caller's own tensor stays as it is.
  void Fill(std::string_view name, const at::Scalar& value) const {
    At(name) = at::full_like(At(name).toTensor(), value, {}, at::MemoryFormat::Contiguous);
  }

 private:
  // A string becomes PyTorch's own view of one (up to 2.5) as well as the standard's.
  std::optional<int> IndexOf(std::string_view name) const {
    return schema_.argumentIndexWithName(std::string(name));
  }

  const c10::FunctionSchema& schema_;
  c10::Stack& stack_;
};

// Rows that an expand() repeats are checked once.
at::Tensor WithoutRepeats(at::Tensor tensor) {
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (tensor.stride(dim) == 0 && tensor.size(dim) > 1) tensor = tensor.narrow(dim, 0, 1);
  }
  return tensor;
}

// Position and value of the first element that is not accepted.
template <typename T, typename Accepts>
std::optional<std::pair<int64_t, T>> FindFirst(const at::Tensor& tensor, const Accepts& accepts) {
  if (!tensor.defined() || tensor.numel() == 0) return std::nullopt;
  const at::Tensor values = WithoutRepeats(tensor).to(c10::CppTypeToScalarType<T>::value).contiguous();
  const T* data = values.const_data_ptr<T>();
  for (int64_t i = 0; i < values.numel(); ++i) {
    if (!accepts(data[i])) return std::make_pair(i, data[i]);
  }
  return std::nullopt;
}

std::string Text(int64_t value) { return std::to_string(value); }
std::string Text(double value) { return c10::str(value); }

// low <= element < high.
Broken CheckRange(const at::Tensor& tensor, const char* what, int64_t low, int64_t high,
                  int64_t also = std::numeric_limits<int64_t>::min()) {
  const auto found = FindFirst<int64_t>(
      tensor, [=](int64_t value) { return (low <= value && value < high) || value == also; });
  if (!found) return std::nullopt;
  const std::string name = what;
  return BrokenAssert{Text(low) + " <= " + name + " && " + name + " < " + Text(high),
                      name + " " + Text(found->second) + " is out of bounds", found->first};
}

// An element for which `accepts` does not hold.
template <typename Accepts>
Broken CheckNumbers(const at::Tensor& tensor, const char* what, const char* condition,
                    const Accepts& accepts) {
  const auto found = FindFirst<double>(tensor, accepts);
  if (!found) return std::nullopt;
  return BrokenAssert{condition, std::string(what) + " is " + Text(found->second), found->first};
}

bool IsProbability(double value) { return value >= 0 && value <= 1; }

int64_t SizeAlong(const at::Tensor& tensor, int64_t dim) { return tensor.dim() == 0 ? 1 : tensor.size(dim); }

// index_select, index_add, index_copy, index_reduce, gather, scatter: an index along `dim`.
Broken IndexAlongDim(const c10::OperatorHandle& op, c10::Stack* stack) {
  const Arguments arguments(op, stack);
  Broken broken = CheckRange(arguments.Tensor("index"), "index", 0,
                             SizeAlong(arguments.Tensor("self"), arguments.Int("dim")));
  if (broken) arguments.Fill("index", 0);
  return broken;
}

// index_fill: negative ones count from the end.
Broken IndexAlongDimFromEitherEnd(const c10::OperatorHandle& op, c10::Stack* stack) {
  const Arguments arguments(op, stack);
  const int64_t size = SizeAlong(arguments.Tensor("self"), arguments.Int("dim"));
  Broken broken = CheckRange(arguments.Tensor("index"), "index", -size, size);
  if (broken) arguments.Fill("index", 0);
  return broken;
}

// take, put: into the tensor as one row.
Broken IndexOfElement(const c10::OperatorHandle& op, c10::Stack* stack) {
  const Arguments arguments(op, stack);
  const int64_t size = arguments.Tensor("self").numel();
  Broken broken = CheckRange(arguments.Tensor("index"), "index", -size, size);
  if (broken) arguments.Fill("index", 0);
  return broken;
}

// index, index_put: a list of index tensors, one per dimension; a mask takes as many dimensions as it has.
Broken IndexList(const c10::OperatorHandle& op, c10::Stack* stack) {
  const bool on_the_host = RaisesOnTheHost(op, *stack);
  const Arguments arguments(op, stack);
  if (arguments.Has("unsafe") && arguments.At("unsafe").toBool())
    return std::nullopt;  // not checked on a GPU either
  const at::Tensor self = arguments.Tensor("self");
  c10::List<std::optional<at::Tensor>> indices = arguments.At("indices").toOptionalTensorList().copy();
  Broken broken;
  int64_t dim = 0;
  for (size_t i = 0; i < indices.size() && dim < self.dim(); ++i) {
    const std::optional<at::Tensor> index = indices.get(i);
    if (!index || !index->defined()) {
      ++dim;
      continue;
    }
    if (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte) {
      dim += index->dim();
      continue;
    }
    const int64_t size = self.size(dim++);
    Broken here = CheckRange(*index, "index", -size, size);
    if (!here) continue;
    TORCH_CHECK_INDEX(!on_the_host, here->value, " for dimension ", dim - 1, " with size ", size);
    if (!broken) broken = std::move(here);
    indices.set(i, at::zeros_like(*index, {}, at::MemoryFormat::Contiguous));
  }
  if (broken) arguments.At("indices") = std::move(indices);
  return broken;
}

// embedding_renorm.
Broken IndexOfRow(const c10::OperatorHandle& op, c10::Stack* stack) {
  const Arguments arguments(op, stack);
  Broken broken = CheckRange(arguments.Tensor("indices"), "index", 0, arguments.Tensor("self").size(0));
  if (broken) arguments.Fill("indices", 0);
  return broken;
}

// embedding_bag: the bags lie one behind the other. Newer kernels also check the indices.
Broken Bags(const c10::OperatorHandle& op, c10::Stack* stack) {
  const Arguments arguments(op, stack);
  const at::Tensor indices = arguments.Tensor("indices");
  const at::Tensor offsets = arguments.Tensor("offsets").to(at::kLong).contiguous();
  Broken broken;
  if (TORCH_VERSION_MINOR > 11) {
    broken = CheckRange(indices, "index", 0, arguments.Tensor("weight").size(0));
    if (broken) arguments.Fill("indices", 0);
  }
  const int64_t* data = offsets.const_data_ptr<int64_t>();
  const int64_t bags = offsets.numel() - (arguments.At("include_last_offset").toBool() ? 1 : 0);
  for (int64_t bag = 0; bag < bags; ++bag) {
    const int64_t begin = bag == 0 ? 0 : data[bag];
    const int64_t end = bag + 1 < bags ? data[bag + 1] : indices.numel();
    if (end >= begin) continue;
    if (!broken)
      broken =
          BrokenAssert{"end >= begin", "a bag begins at " + Text(begin) + " and ends at " + Text(end), bag};
    arguments.Fill("offsets", 0);
    break;
  }
  return broken;
}

// nll_loss in its four forms: classes lie along dimension 1, or 0 of a single sample.
Broken TargetClass(const c10::OperatorHandle& op, c10::Stack* stack) {
  const Arguments arguments(op, stack);
  const at::Tensor self = arguments.Tensor("self");
  if (self.dim() == 0) return std::nullopt;
  const int64_t classes = self.size(self.dim() == 1 ? 0 : 1);
  Broken broken = CheckRange(arguments.Tensor("target"), "target", 0, classes, arguments.Int("ignore_index"));
  if (broken) arguments.Fill("target", 0);
  return broken;
}

Broken TargetOfMargin(const c10::OperatorHandle& op, c10::Stack* stack) {
  const Arguments arguments(op, stack);
  const at::Tensor self = arguments.Tensor("self");
  Broken broken = CheckRange(arguments.Tensor("target"), "target", 0, SizeAlong(self, -1));
  if (broken) arguments.Fill("target", 0);
  return broken;
}

Broken BinaryCrossEntropy(const c10::OperatorHandle& op, c10::Stack* stack) {
  const Arguments arguments(op, stack);
  Broken broken;
  for (const char* name : {"self", "target"}) {
    Broken here = CheckNumbers(arguments.Tensor(name), name[0] == 's' ? "input" : name,
                               "0 <= value && value <= 1", &IsProbability);
    if (!here) continue;
    arguments.Fill(name, 0);
    if (!broken) broken = std::move(here);
  }
  return broken;
}

// max_unpool: into one plane of the result.
Broken IndexOfPlane(const c10::OperatorHandle& op, c10::Stack* stack) {
  const Arguments arguments(op, stack);
  int64_t size = 1;
  for (const int64_t extent : arguments.At("output_size").toIntVector()) size *= extent;
  Broken broken = CheckRange(arguments.Tensor("indices"), "index", 0, size);
  if (broken) arguments.Fill("indices", 0);
  return broken;
}

// multinomial: rows of weights.
Broken Weights(const c10::OperatorHandle& op, c10::Stack* stack) {
  const Arguments arguments(op, stack);
  const at::Tensor self = arguments.Tensor("self");
  if (self.dim() == 0 || self.numel() == 0) return std::nullopt;
  Broken broken = CheckNumbers(self, "probability", "probability >= 0 && isfinite(probability)",
                               [](double value) { return value >= 0 && std::isfinite(value); });
  if (!broken) {
    broken = CheckNumbers(self.to(at::kDouble).sum(-1), "the sum of probabilities", "sum > 0",
                          [](double value) { return value > 0; });
  }
  if (broken) arguments.Fill("self", 1);
  return broken;
}

// bernoulli: p is a tensor of its own, or the input.
Broken Chances(const c10::OperatorHandle& op, c10::Stack* stack) {
  const Arguments arguments(op, stack);
  const char* name = arguments.Has("p") ? "p" : "self";
  if (!arguments.At(name).isTensor()) return std::nullopt;  // a number is checked on the host
  Broken broken = CheckNumbers(arguments.Tensor(name), "p", "0 <= p && p <= 1", &IsProbability);
  if (broken) arguments.Fill(name, 0);
  return broken;
}

Broken Rates(const c10::OperatorHandle& op, c10::Stack* stack) {
  const Arguments arguments(op, stack);
  Broken broken =
      CheckNumbers(arguments.Tensor("self"), "rate", "rate >= 0", [](double value) { return value >= 0; });
  if (broken) arguments.Fill("self", 0);
  return broken;
}

// repeat_interleave: without a given size the host computes it, and complains itself.
Broken Repeats(const c10::OperatorHandle& op, c10::Stack* stack) {
  const Arguments arguments(op, stack);
  if (!arguments.Has("output_size") || arguments.At("output_size").isNone()) return std::nullopt;
  const at::Tensor repeats = arguments.Tensor("repeats");
  const int64_t size = arguments.Int("output_size");
  if (repeats.numel() == 0) return std::nullopt;
  Broken broken = CheckRange(repeats, "repeat", 0, std::numeric_limits<int64_t>::max());
  const int64_t sum = repeats.sum().item<int64_t>();
  if (!broken && sum != size)
    broken = BrokenAssert{"sum == output_size", "sum is " + Text(sum) + ", output_size " + Text(size), 0};
  if (broken) {
    arguments.Fill("repeats", 0);
    arguments.Tensor("repeats")[0].fill_(size);
  }
  return broken;
}

// masked_scatter: as many values as the mask has ones.
Broken EnoughValues(const c10::OperatorHandle& op, c10::Stack* stack) {
  const Arguments arguments(op, stack);
  const at::Tensor self = arguments.Tensor("self");
  const at::Tensor mask = arguments.Tensor("mask");
  const int64_t values = arguments.Tensor("source").numel();
  if (mask.dim() > self.dim() || mask.scalar_type() != at::kBool) return std::nullopt;  // the host complains
  const int64_t repeats = mask.numel() == 0 ? 0 : self.numel() / mask.numel();
  const int64_t ones = mask.sum().item<int64_t>() * repeats;
  if (ones <= values) return std::nullopt;
  arguments.Fill("mask", false);
  return BrokenAssert{"ones <= values",
                      "the mask has " + Text(ones) + " ones for " + Text(values) + " values", 0};
}

Broken Truth(const c10::OperatorHandle& op, c10::Stack* stack) {
  const Arguments arguments(op, stack);
  const at::Tensor& self = arguments.Tensor("self");
  Broken broken = CheckNumbers(self.is_complex() ? self.abs() : self, "value", "value != 0",
                               [](double value) { return value != 0; });
  if (!broken) return broken;
  if (arguments.Has("assert_msg")) broken->value += ": " + arguments.At("assert_msg").toStringRef();
  arguments.Fill("self", 1);
  return broken;
}

struct Row {
  DeviceAssert check;
  int first_minor = 0;  // of PyTorch 2 whose kernel asserts it
};

// The rows by the op's name, without overload and without the underscore of an in-place form.
const std::unordered_map<std::string_view, Row>& Rows() {
  static const auto* rows = new std::unordered_map<std::string_view, Row>{
      {"aten::index", {&IndexList}},
      {"aten::_index_put_impl", {&IndexList}},
      {"aten::take", {&IndexOfElement}},
      {"aten::put", {&IndexOfElement}},
      {"aten::index_select", {&IndexAlongDim}},
      {"aten::index_add", {&IndexAlongDim}},
      {"aten::index_copy", {&IndexAlongDim}},
      {"aten::index_reduce", {&IndexAlongDim}},
      {"aten::index_fill", {&IndexAlongDimFromEitherEnd}},
      {"aten::gather", {&IndexAlongDim}},
      {"aten::scatter", {&IndexAlongDim}},
      {"aten::scatter_add", {&IndexAlongDim}},
      {"aten::scatter_reduce", {&IndexAlongDim}},
      {"aten::masked_scatter", {&EnoughValues}},
      {"aten::nll_loss_forward", {&TargetClass}},
      {"aten::nll_loss_backward", {&TargetClass}},
      {"aten::nll_loss2d_forward", {&TargetClass}},
      {"aten::nll_loss2d_backward", {&TargetClass}},
      {"aten::multi_margin_loss", {&TargetOfMargin}},
      {"aten::multi_margin_loss_backward", {&TargetOfMargin}},
      {"aten::binary_cross_entropy", {&BinaryCrossEntropy}},
      {"aten::max_unpool2d", {&IndexOfPlane}},
      {"aten::max_unpool3d", {&IndexOfPlane}},
      {"aten::_embedding_bag", {&Bags}},
      {"aten::_embedding_bag_forward_only", {&Bags}},
      {"aten::embedding_renorm", {&IndexOfRow, 12}},
      {"aten::multinomial", {&Weights}},
      {"aten::bernoulli", {&Chances}},
      {"aten::poisson", {&Rates}},
      {"aten::repeat_interleave", {&Repeats}},
      {"aten::_assert_async", {&Truth}},
  };
  return *rows;
}

std::string_view WithoutUnderscore(std::string_view name) {
  if (!name.empty() && name.back() == '_') name.remove_suffix(1);
  return name;
}

}  // namespace

std::string BrokenAssert::Line(const std::string& op) const {
  constexpr int64_t kThreads = 128;
  return op + ": block: [" + Text(position / kThreads) + ",0,0], thread: [" + Text(position % kThreads) +
         ",0,0] Assertion `" + condition + "` failed. (" + value + ")";
}

DeviceAssert FindDeviceAssert(const c10::OperatorHandle& op) {
  const auto row = Rows().find(WithoutUnderscore(op.operator_name().name));
  return row == Rows().end() || TORCH_VERSION_MINOR < row->second.first_minor ? nullptr : row->second.check;
}

bool RaisesOnTheHost(const c10::OperatorHandle& op, const c10::Stack& stack) {
  if (op.operator_name().name != "aten::_index_put_impl_" &&
      op.operator_name().name != "aten::_index_put_impl")
    return false;
  const size_t first = stack.size() - op.schema().arguments().size();
  const auto flag = [&](const char* name) {
    return stack[first + static_cast<size_t>(*op.schema().argumentIndexWithName(name))].toBool();
  };
  return !flag("unsafe") && (flag("accumulate") || at::globalContext().deterministicAlgorithms());
}

}  // namespace simcuda::ops
