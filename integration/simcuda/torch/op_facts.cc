// The schema read into OpFacts, and the lists of exceptions.
#include "integration/simcuda/torch/op_facts.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <iterator>
#include <string_view>

namespace simcuda::ops {
namespace {

// They work with copies and allocations alone, so the real CUDA kernels run on the stand-in.
constexpr std::string_view kLeftAsTheyAre[] = {
    "aten::set_",
    "aten::resize_",
    "aten::_local_scalar_dense",
    "aten::record_stream",
    "aten::is_pinned",
    "aten::_pin_memory",
    "aten::is_set_to",
    "aten::_reshape_alias",
    "aten::_fused_sdp_choice",
    "aten::_use_cudnn_ctc_loss",
    "aten::_use_miopen_ctc_loss",
    "aten::_efficientzerotensor",  // has no memory
};

// convolution: the composite would choose cuDNN. copy_: the composite would launch a kernel for strides.
constexpr std::string_view kAdded[] = {"aten::convolution", "aten::convolution_backward", "aten::copy_"};

// CUDA itself moves or reads CPU tensors of these ops' arguments (indices, lengths, sources).
constexpr std::string_view kTakeHostTensors[] = {
    "aten::index",
    "aten::index_put",
    "aten::index_put_",
    "aten::_index_put_impl_",
    "aten::copy_",
    "aten::_foreach_copy_",
    "aten::_ctc_loss",
    "aten::_ctc_loss_backward",
    "aten::_pack_padded_sequence",
};

template <typename List>
bool Contains(const List& list, std::string_view name) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

bool StartsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

bool IsTensorType(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::TensorType) return true;
  if (type.kind() == c10::TypeKind::OptionalType || type.kind() == c10::TypeKind::ListType) {
    return IsTensorType(*type.containedType(0));
  }
  return false;
}

bool IsKind(const c10::Type& type, c10::TypeKind kind) {
  if (type.kind() == c10::TypeKind::OptionalType) return type.containedType(0)->kind() == kind;
  return type.kind() == kind;
}

bool IsWritten(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

int FindReturned(const c10::FunctionSchema& schema, const c10::Argument& result) {
  if (!IsWritten(result)) return kNone;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (IsWritten(argument) && argument.alias_info()->beforeSets() == result.alias_info()->beforeSets()) {
      return static_cast<int>(i);
    }
  }
  return kNone;
}

}  // namespace

OpFacts::OpFacts(const c10::OperatorHandle& op) : handle(op), name(toString(op.operator_name())) {
  const c10::FunctionSchema& schema = op.schema();
  const std::string& base = op.operator_name().name;
  bool reads_tensor = false;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    const c10::Type& type = *argument.type();
    arguments.push_back({IsWritten(argument), IsKind(type, c10::TypeKind::NumberType)});
    if (IsKind(type, c10::TypeKind::GeneratorType)) generator_argument = static_cast<int>(i);
    // An in-place op's own tensor has its shape already; out= takes the shape that the op gives it.
    const bool is_out = IsWritten(argument) && argument.kwarg_only();
    if (IsTensorType(type) && !is_out) reads_tensor = true;
  }
  for (const c10::Argument& result : schema.returns()) {
    returned_argument.push_back(FindReturned(schema, result));
    if (!IsTensorType(*result.type())) always_waits = true;
  }
  values_shape_it = !reads_tensor;
  random = generator_argument != kNone || op.hasTag(at::Tag::nondeterministic_seeded);
  waits_for_masks = name == "aten::index.Tensor";
  const bool data_dependent =
      op.hasTag(at::Tag::dynamic_output_shape) || op.hasTag(at::Tag::data_dependent_output);
  always_waits = always_waits || (data_dependent && !waits_for_masks);
  takes_host_tensors = Contains(kTakeHostTensors, base);
  splits_lists = StartsWith(base, "aten::_foreach_") || StartsWith(base, "aten::_fused_ada") ||
                 StartsWith(base, "aten::_fused_sgd") || StartsWith(base, "aten::_amp_foreach_");
  host_form = FindHostForm(op);
  device_assert = FindDeviceAssert(op);
}

bool IsLeftAsItIs(const c10::OperatorHandle& op) {
  const std::string& base = op.operator_name().name;
  if (Contains(kLeftAsTheyAre, base) || StartsWith(base, "aten::empty") || StartsWith(base, "aten::_empty")) {
    return true;
  }
  for (const c10::Argument& result : op.schema().returns()) {  // a view: aliases without a write
    if (result.alias_info() != nullptr && !result.alias_info()->isWrite()) return true;
  }
  return false;
}

bool IsAdded(const c10::OperatorName& name) {
  return name.overload_name.empty() && Contains(kAdded, name.name);
}

}  // namespace simcuda::ops
