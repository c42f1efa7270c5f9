// The default form, the table of special forms, and those of dropout, softmax and mixed-precision products.
#include "integration/simcuda/torch/host_forms.h"

#include <ATen/ATen.h>
#include <ATen/core/stack.h>

#include <string>
#include <unordered_map>

#include "integration/simcuda/torch/fused_forms.h"

namespace simcuda::ops {
namespace {

void Redispatch(const HostCall& call) {
  if (call.generator && call.generator_argument >= 0)
    (*call.stack)[call.generator_argument] = *call.generator;
  call.op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), call.stack);
}

// native_dropout(input, p, train?) -> (output, mask): the CPU kernel draws from the process's default generator.
void NativeDropout(const HostCall& call) {
  c10::Stack& stack = *call.stack;
  const at::Tensor input = stack[0].toTensor();
  const double p = stack[1].toDouble();
  const bool train = stack[2].isNone() || stack[2].toBool();
  at::Tensor mask = at::empty_like(input, input.options().dtype(at::kBool));
  at::Tensor output;
  if (!train || p == 0) {
    mask.fill_(true);
    output = input.clone();
  } else {
    mask.bernoulli_(1 - p, call.generator);
    output = input.mul(mask);
    output.mul_(p == 1 ? 0.0 : 1.0 / (1.0 - p));
  }
  stack = {output, mask};
}

// _fused_dropout(self, keep, generator) -> (output, byte mask).
void FusedDropout(const HostCall& call) {
  c10::Stack& stack = *call.stack;
  const at::Tensor input = stack[0].toTensor();
  const double keep = stack[1].toDouble();
  at::Tensor mask = at::empty_like(input, input.options().dtype(at::kByte)).bernoulli_(keep, call.generator);
  stack = {input.mul(mask).mul_(1.0 / keep), mask};
}

// _masked_scale(self, mask, scale).
void MaskedScale(const HostCall& call) {
  c10::Stack& stack = *call.stack;
  stack = {stack[0].toTensor().mul(stack[1].toTensor()).mul_(stack[2].toDouble())};
}

// _softmax and _log_softmax (self, dim, half_to_float): only CUDA converts on the way.
void Softmax(const HostCall& call) {
  c10::Stack& stack = *call.stack;
  if (stack[2].toBool()) {
    stack[0] = stack[0].toTensor().to(at::kFloat);
    stack[2] = false;
  }
  Redispatch(call);
}

// _softmax_backward_data and _log_softmax_backward_data (grad, output, dim, input_dtype).
void SoftmaxBackward(const HostCall& call) {
  c10::Stack& stack = *call.stack;
  const at::ScalarType wanted = stack[3].toScalarType();
  const at::ScalarType computed = stack[0].toTensor().scalar_type();
  stack[3] = computed;
  Redispatch(call);
  if (wanted != computed) stack[0] = stack[0].toTensor().to(wanted);
}

// mm.dtype, bmm.dtype (a, b, dtype): multiplies in the wider type.
void ProductInto(const HostCall& call) {
  c10::Stack& stack = *call.stack;
  const at::ScalarType dtype = stack[2].toScalarType();
  const at::Tensor a = stack[0].toTensor().to(dtype);
  const at::Tensor b = stack[1].toTensor().to(dtype);
  stack = {a.dim() == 3 ? at::bmm(a, b) : at::mm(a, b)};
}

// addmm.dtype, baddbmm.dtype (self, a, b, dtype, beta, alpha).
void AddProductInto(const HostCall& call) {
  c10::Stack& stack = *call.stack;
  const at::ScalarType dtype = stack[3].toScalarType();
  const at::Tensor self = stack[0].toTensor().to(dtype);
  const at::Tensor a = stack[1].toTensor().to(dtype);
  const at::Tensor b = stack[2].toTensor().to(dtype);
  const at::Scalar beta = stack[4].toScalar();
  const at::Scalar alpha = stack[5].toScalar();
  stack = {a.dim() == 3 ? at::baddbmm(self, a, b, beta, alpha) : at::addmm(self, a, b, beta, alpha)};
}

const std::unordered_map<std::string, HostForm>& SpecialForms() {
  static const auto* forms = new std::unordered_map<std::string, HostForm>{
      {"aten::native_dropout", &NativeDropout},
      {"aten::_fused_dropout", &FusedDropout},
      {"aten::_masked_scale", &MaskedScale},
      {"aten::_softmax", &Softmax},
      {"aten::_log_softmax", &Softmax},
      {"aten::_softmax_backward_data", &SoftmaxBackward},
      {"aten::_log_softmax_backward_data", &SoftmaxBackward},
      {"aten::mm.dtype", &ProductInto},
      {"aten::bmm.dtype", &ProductInto},
      {"aten::addmm.dtype", &AddProductInto},
      {"aten::baddbmm.dtype", &AddProductInto},
      {"aten::_thnn_fused_lstm_cell", &LstmCell},
      {"aten::_thnn_fused_lstm_cell_backward_impl", &LstmCellBackward},
      {"aten::_thnn_fused_gru_cell", &GruCell},
      {"aten::_thnn_fused_gru_cell_backward", &GruCellBackward},
      {"aten::_fused_rms_norm", &RmsNorm},
      {"aten::_fused_rms_norm_backward", &RmsNormBackward},
  };
  return *forms;
}

}  // namespace

HostForm FindHostForm(const c10::OperatorHandle& op) {
  const auto special = SpecialForms().find(toString(op.operator_name()));
  if (special != SpecialForms().end()) return special->second;
  return op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU) ? &Redispatch : nullptr;
}

}  // namespace simcuda::ops
