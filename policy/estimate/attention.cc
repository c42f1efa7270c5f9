#include "policy/estimate/attention.h"

#include <utility>

namespace spillway::policy {
namespace {

Variable Flash(Operators* operators, const Variable& q, const Variable& k, const Variable& v,
               const Variable& bias, const AttentionShape& shape) {
  DeviceTape* const tape = &operators->tape();
  const ProductShape product{shape.batch * shape.heads, shape.queries, shape.head_width, shape.keys};
  const double operations = 2 * product.Operations() * (shape.causal ? 0.5 : 1);
  const uint64_t rows = shape.batch * shape.heads * shape.queries;
  const bool half = q.tensor.type == NumberType::kBf16;
  Tensor y = tape->New(q.tensor.elements, q.tensor.type), sums = tape->New(rows, NumberType::kFp32);
  tape->Launch("flash_forward", {q.tensor, k.tensor, v.tensor, bias.tensor}, {y, sums}, operations, half);
  const bool of_bias = bias.NeedsGradient();
  return operators->Result(
      y, {q, k, v, bias},
      [tape, q = q.tensor, k = k.tensor, v = v.tensor, bias = bias.tensor, y, sums, operations, half, of_bias,
       shape, rows](std::vector<Tensor>& dy) {
        const uint64_t repeated = shape.heads / shape.key_heads;
        Tensor dq = tape->New(q.elements, q.type);
        Tensor dk = tape->New(k.elements * repeated, k.type), dv = tape->New(v.elements * repeated, v.type);
        Tensor sums_of_gradients = tape->New(rows, NumberType::kFp32);
        Tensor gathered = tape->New(q.elements, NumberType::kFp32);
        Tensor of = of_bias ? tape->New(rows * shape.keys, bias.type) : Tensor{};
        tape->Launch("flash_backward", {dy[0], q, k, v, bias, y, sums},
                     {dq, dk, dv, sums_of_gradients, gathered, of}, 2.5 * operations, half);
        if (repeated > 1) {
          for (Tensor* one : {&dk, &dv}) {
            Tensor sum = tape->New(one->elements / repeated, one->type);
            tape->Launch("sum", {*one}, {sum});
            *one = std::move(sum);
          }
        }
        if (of_bias) {
          Tensor sum = tape->New(bias.elements, bias.type);
          tape->Launch("sum", {of}, {sum});
          of = std::move(sum);
        }
        return std::vector<Tensor>{dq, dk, dv, of};
      });
}

// Whether keys and values are views, or copies already, as repeated ones are.
enum class Keys : uint8_t { kViews, kCopies };

Variable Math(Operators* operators, const Variable& q, const Variable& k, const Variable& v,
              const Variable& bias, const AttentionShape& shape, Keys keys) {
  Operators& op = *operators;
  const NumberType type = q.tensor.type;
  const uint64_t pairs = shape.batch * shape.heads, repeated = shape.heads / shape.key_heads;
  // bf16 is computed in fp32. Views with exchanged dimensions are copied for a product of many matrices.
  const bool strided = shape.batch > 1, strided_keys = strided && keys == Keys::kViews && repeated == 1;
  const auto wide = [&op, keys](const Variable& x) {
    return op.To(keys == Keys::kViews ? op.View(x) : x, NumberType::kFp32);
  };
  const Variable wide_q = op.To(op.View(q), NumberType::kFp32);
  const Variable wide_k = op.Repeat(wide(k), repeated), wide_v = op.Repeat(wide(v), repeated);
  const Variable mask =
      shape.causal ? op.Constant("tril", shape.queries * shape.keys, NumberType::kFp32) : bias;
  const Variable scaled_q = op.Scale(wide_q), scaled_k = op.Scale(wide_k);
  const Variable copied_q = strided ? op.Clone(scaled_q) : scaled_q;
  const Variable copied_k = strided_keys ? op.Clone(scaled_k) : scaled_k;
  Variable scores = op.Product(copied_q, copied_k, {pairs, shape.queries, shape.head_width, shape.keys});
  if (mask.NeedsGradient()) {
    scores = op.Add(scores, mask);
  } else if (mask.tensor) {
    op.AddInto(scores, mask.tensor);
  }
  const Variable parts = op.Dropout(op.Pointwise("softmax", scores, Kept::kOutput), shape.dropout);
  const Variable copied_v = strided_keys ? op.Clone(wide_v) : wide_v;
  const Variable y = op.Product(parts, copied_v, {pairs, shape.queries, shape.keys, shape.head_width});
  return op.Clone(op.To(y, type));
}

// Turns a mask of bools into the numbers that are added, for each sequence.
Variable Numbers(Operators* operators, const Variable& mask, const AttentionShape& shape, NumberType type) {
  DeviceTape* const tape = &operators->tape();
  Tensor numbers = tape->New(shape.batch * shape.queries * shape.keys, type);
  tape->Launch("where", {mask.tensor}, {numbers});
  return {std::move(numbers)};
}

}  // namespace

Variable Attention(Operators* operators, Variable q, Variable k, Variable v, const Variable& bias,
                   const AttentionShape& given) {
  constexpr uint64_t kWidestShared = 256;  // no kernel shares keys between heads wider than this
  AttentionShape shape = given;
  Keys keys = Keys::kViews;
  const bool biased = bias.tensor.storage != nullptr;
  const uint64_t repeated = shape.heads / shape.key_heads;
  // transformers' sdpa_attention_forward repeats keys and values first if there is a mask, or heads are very
  // wide.
  if (shape.form != AttentionForm::kFlash && repeated > 1 && (biased || shape.head_width > kWidestShared)) {
    k = operators->Repeat(operators->View(k), repeated);
    v = operators->Repeat(operators->View(v), repeated);
    shape.key_heads = shape.heads;
    keys = Keys::kCopies;
  }
  Variable numbers = bias;
  if (operators->autocast()) {
    q = operators->To(q, NumberType::kBf16);
    k = operators->To(k, NumberType::kBf16);
    v = operators->To(v, NumberType::kBf16);
    if (biased && bias.tensor.type != NumberType::kBool) numbers = operators->To(bias, NumberType::kBf16);
  }
  if (biased && bias.tensor.type == NumberType::kBool)
    numbers = Numbers(operators, bias, shape, q.tensor.type);
  if (biased) shape.causal = false;
  // PyTorch's kernels for fp32 have no heads that share keys.
  const bool shared_wide = shape.key_heads < shape.heads && q.tensor.type == NumberType::kFp32;
  if (shape.form == AttentionForm::kMath || (shape.form == AttentionForm::kSdpa && shared_wide))
    return Math(operators, q, k, v, numbers, shape, keys);
  return Flash(operators, q, k, v, numbers, shape);
}

}  // namespace spillway::policy
