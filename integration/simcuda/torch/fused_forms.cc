// The arithmetic of the fused layers, written out over at:: functions. A workspace has the layout that the matching
// backward here reads; nobody else looks into it.
#include "integration/simcuda/torch/fused_forms.h"

#include <ATen/ATen.h>
#include <ATen/core/stack.h>

namespace simcuda::ops {
namespace {

at::Tensor OptionalTensor(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor() : at::Tensor();
}

at::Tensor Plus(const at::Tensor& tensor, const c10::IValue& bias) {
  const at::Tensor added = OptionalTensor(bias);
  return added.defined() ? tensor.add(added) : tensor;
}

at::Tensor SigmoidSlope(const at::Tensor& activated) { return activated.mul(activated.neg().add(1)); }
at::Tensor TanhSlope(const at::Tensor& activated) { return activated.mul(activated).neg().add(1); }

// The short floating types are computed in float, as on CUDA.
at::ScalarType WideType(const at::Tensor& tensor) {
  const at::ScalarType type = tensor.scalar_type();
  return type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type;
}

// Dimensions that the norm covers, and those that it leaves.
void SplitDims(const at::Tensor& input, size_t normalized, std::vector<int64_t>* inner,
               std::vector<int64_t>* outer) {
  for (int64_t i = 0; i < input.dim(); ++i) {
    (i < input.dim() - static_cast<int64_t>(normalized) ? outer : inner)->push_back(i);
  }
}

}  // namespace

// (input_gates, hidden_gates, cx, input_bias?, hidden_bias?) -> (hy, cy, workspace = activated gates).
void LstmCell(const HostCall& call) {
  c10::Stack& stack = *call.stack;
  const at::Tensor gates = Plus(Plus(stack[0].toTensor().add(stack[1].toTensor()), stack[3]), stack[4]);
  const at::Tensor cx = stack[2].toTensor();
  const auto parts = gates.chunk(4, 1);
  const at::Tensor in = parts[0].sigmoid(), forget = parts[1].sigmoid(), cell = parts[2].tanh();
  const at::Tensor out = parts[3].sigmoid();
  const at::Tensor cy = forget.mul(cx).add(in.mul(cell));
  const at::Tensor hy = out.mul(cy.tanh());
  stack = {hy, cy, at::cat({in, forget, cell, out}, 1)};
}

// (grad_hy?, grad_cy?, cx, cy, workspace, has_bias) -> (grad_gates, grad_cx, grad_bias).
void LstmCellBackward(const HostCall& call) {
  c10::Stack& stack = *call.stack;
  const at::Tensor grad_hy = OptionalTensor(stack[0]), grad_cy = OptionalTensor(stack[1]);
  const at::Tensor cx = stack[2].toTensor(), cy = stack[3].toTensor();
  const bool has_bias = stack[5].toBool();
  const auto parts = stack[4].toTensor().chunk(4, 1);
  const at::Tensor &in = parts[0], &forget = parts[1], &cell = parts[2], &out = parts[3];
  if (!grad_hy.defined() && !grad_cy.defined()) {
    stack = {at::Tensor(), at::Tensor(), at::Tensor()};
    return;
  }
  const at::Tensor tanh_cy = cy.tanh();
  at::Tensor grad_c = grad_cy.defined() ? grad_cy : at::zeros_like(cy);
  at::Tensor grad_out = at::zeros_like(out);
  if (grad_hy.defined()) {
    grad_c = grad_c.add(grad_hy.mul(out).mul(TanhSlope(tanh_cy)));
    grad_out = grad_hy.mul(tanh_cy).mul(SigmoidSlope(out));
  }
  const at::Tensor grad_gates =
      at::cat({grad_c.mul(cell).mul(SigmoidSlope(in)), grad_c.mul(cx).mul(SigmoidSlope(forget)),
               grad_c.mul(in).mul(TanhSlope(cell)), grad_out},
              1);
  stack = {grad_gates, grad_c.mul(forget), has_bias ? grad_gates.sum(0) : at::Tensor()};
}

// (input_gates, hidden_gates, hx, input_bias?, hidden_bias?) -> (hy, workspace = reset, update, new, hx, hidden_new).
void GruCell(const HostCall& call) {
  c10::Stack& stack = *call.stack;
  const auto input = Plus(stack[0].toTensor(), stack[3]).chunk(3, 1);
  const auto hidden = Plus(stack[1].toTensor(), stack[4]).chunk(3, 1);
  const at::Tensor hx = stack[2].toTensor();
  const at::Tensor reset = input[0].add(hidden[0]).sigmoid();
  const at::Tensor update = input[1].add(hidden[1]).sigmoid();
  const at::Tensor fresh = input[2].add(reset.mul(hidden[2])).tanh();
  const at::Tensor hy = fresh.add(update.mul(hx.sub(fresh)));
  stack = {hy, at::cat({reset, update, fresh, hx, hidden[2]}, 1)};
}

// (grad_hy, workspace, has_bias) -> (grad_input_gates, grad_hidden_gates, grad_hx, grad_input_bias, grad_hidden_bias).
void GruCellBackward(const HostCall& call) {
  c10::Stack& stack = *call.stack;
  const at::Tensor grad = stack[0].toTensor();
  const auto parts = stack[1].toTensor().chunk(5, 1);
  const bool has_bias = stack[2].toBool();
  const at::Tensor &reset = parts[0], &update = parts[1], &fresh = parts[2], &hx = parts[3],
                   &hidden_new = parts[4];
  const at::Tensor grad_update = grad.mul(hx.sub(fresh)).mul(SigmoidSlope(update));
  const at::Tensor grad_new = grad.mul(update.neg().add(1)).mul(TanhSlope(fresh));
  const at::Tensor grad_reset = grad_new.mul(hidden_new).mul(SigmoidSlope(reset));
  const at::Tensor to_input = at::cat({grad_reset, grad_update, grad_new}, 1);
  const at::Tensor to_hidden = at::cat({grad_reset, grad_update, grad_new.mul(reset)}, 1);
  stack = {to_input, to_hidden, grad.mul(update), has_bias ? to_input.sum(0) : at::Tensor(),
           has_bias ? to_hidden.sum(0) : at::Tensor()};
}

// (input, normalized_shape, weight?, eps?) -> (output, rstd). Computed in float for the short types, as on CUDA.
void RmsNorm(const HostCall& call) {
  c10::Stack& stack = *call.stack;
  const at::Tensor input = stack[0].toTensor();
  const at::Tensor weight = OptionalTensor(stack[2]);
  std::vector<int64_t> inner, outer;
  SplitDims(input, stack[1].toIntVector().size(), &inner, &outer);
  const at::ScalarType wide = WideType(input);
  const double eps = stack[3].isNone() ? (wide == at::kDouble ? std::numeric_limits<double>::epsilon()
                                                              : std::numeric_limits<float>::epsilon())
                                       : stack[3].toDouble();
  const at::Tensor x = input.to(wide);
  const at::Tensor rstd = x.mul(x).mean(inner, /*keepdim=*/true).add(eps).rsqrt();
  at::Tensor output = x.mul(rstd);
  if (weight.defined()) output = output.mul(weight.to(wide));
  stack = {output.to(input.scalar_type()), rstd};
}

// (grad_out, input, normalized_shape, rstd, weight?, output_mask) -> (grad_input, grad_weight).
void RmsNormBackward(const HostCall& call) {
  c10::Stack& stack = *call.stack;
  const at::Tensor input = stack[1].toTensor();
  const at::ScalarType wide = WideType(input);
  const at::Tensor grad = stack[0].toTensor().to(wide), x = input.to(wide),
                   rstd = stack[3].toTensor().to(wide);
  const at::Tensor weight = OptionalTensor(stack[4]);
  const auto mask = stack[5].toBoolList();
  std::vector<int64_t> inner, outer;
  SplitDims(input, stack[2].toIntVector().size(), &inner, &outer);
  const at::Tensor normal = x.mul(rstd);
  at::Tensor grad_input, grad_weight;
  if (mask[0]) {
    const at::Tensor scaled = weight.defined() ? grad.mul(weight.to(wide)) : grad;
    const at::Tensor mean = scaled.mul(normal).mean(inner, /*keepdim=*/true);
    grad_input = scaled.sub(normal.mul(mean)).mul(rstd).to(input.scalar_type());
  }
  if (mask[1] && weight.defined()) {
    grad_weight = grad.mul(normal);
    if (!outer.empty()) grad_weight = grad_weight.sum(outer);
    grad_weight = grad_weight.to(weight.scalar_type());
  }
  stack = {grad_input, grad_weight};
}

}  // namespace simcuda::ops
